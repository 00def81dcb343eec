"""Numbers of a layout as JSON has them: what a file says is checked, never believed."""

from __future__ import annotations

from collections.abc import Mapping

Record = Mapping[str, object]

MOST_DIGITS = 10_000  # of a number in the layout


def as_count(value: object, most: int) -> int:
    """A whole number 0..most."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"expected a whole number 0..{most}, found {value!r}")
    return value


def as_long(text: object) -> int:
    """A hexadecimal number of a length that a network can have."""
    if not isinstance(text, str) or len(text) > MOST_DIGITS:
        raise ValueError(f"expected at most {MOST_DIGITS:,} digits, found {str(text)[:20]!r}")
    return int(text, 16)


def as_list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError(f"expected a list, found {value!r}")
    return value


def as_record(value: object) -> Record:
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, found {value!r}")
    return value
