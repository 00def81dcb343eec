"""Files that others made, read without believing them: regular ones only, of bounded size, and JSON
of bounded depth, whose numbers are finite.

Every function raises `error`, a `ByheartError`, with the path, what was expected and what was found.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NoReturn

from byheart._json import Json
from byheart._words import quote
from byheart.errors import ByheartError

JSON_BYTES = 1 << 28  # of a JSON file: a vocabulary of 10^7 tokens
JSON_DEPTH = 32  # of brackets in brackets: byheart writes fewer than ten

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@contextmanager
def open_regular(path: str | Path, error: type[ByheartError] = ByheartError) -> Iterator[BinaryIO]:
    """A regular file, or a link to one, opened to be read. Pipes and devices, which can block or
    have no end, are refused without opening them."""
    if "\0" in os.fspath(path):
        raise error(f"{quote(os.fspath(path))}: no such file.")
    try:
        _check_regular(os.stat(path), path, error)
        # Not blocking, and looked at again: it may have become a pipe meanwhile.
        with open(path, "rb", opener=_without_waiting) as file:
            _check_regular(os.fstat(file.fileno()), path, error)
            yield file
    except FileNotFoundError:
        raise error(f"{path}: no such file.") from None
    except OSError as problem:
        raise error(f"{path}: cannot be read: {problem.strerror or problem}.") from None


def read_regular(
    path: str | Path, limit: int | None = None, error: type[ByheartError] = ByheartError
) -> bytes:
    """The bytes of a regular file; one of more than `limit` bytes is refused before it is read."""
    with open_regular(path, error) as file:
        size = os.fstat(file.fileno()).st_size
        if limit is not None and size > limit:
            raise error(f"{path}: expected at most {limit:,} bytes, found {size:,}.")
        data = file.read(size + 1)
    if len(data) != size:
        raise error(f"{path}: has another size than a moment before. Try again.")
    return data


def read_json(
    path: str | Path, limit: int = JSON_BYTES, error: type[ByheartError] = ByheartError
) -> Json:
    """What a JSON file holds."""
    return parse_json(read_regular(path, limit, error), path, error)


def parse_json(
    text: str | bytes,
    where: object = "JSON",
    error: type[ByheartError] = ByheartError,
    depth: int = JSON_DEPTH,
) -> Json:
    """What a JSON text says: brackets at most `depth` deep, whole numbers of 64 bits, finite others,
    no name twice in an object.

    >>> parse_json('{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    >>> parse_json("[" * 10**6)
    Traceback (most recent call last):
    ...
    byheart.errors.ByheartError: JSON: not JSON that can be read (brackets more than 32 deep).
    """
    try:
        text = text if isinstance(text, str) else text.decode()
        if text.count("[") + text.count("{") > depth:
            _check_depth(text, depth)
        return _DECODER.decode(text)
    except ValueError as problem:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise error(f"{where}: not JSON that can be read ({problem}).") from None


# A string, which ends at a quote or with the text, or a bracket.
_TOKENS = re.compile(r'"[^"\\]*(?:\\.?[^"\\]*)*(?:"|\Z)|[\[{\]}]', re.DOTALL)


def _check_depth(text: str, most: int) -> None:
    deep = 0
    for found in _TOKENS.finditer(text):
        if (token := found[0]) in "[{":
            deep += 1
            if deep > most:
                raise ValueError(f"brackets more than {most} deep")
        elif token in "]}":
            deep -= 1


def _whole(digits: str) -> int:
    if len(digits) <= 20 and -(2**63) <= (number := int(digits)) < 2**64:
        return number
    raise ValueError(f"a whole number beyond 64 bits: {quote(digits, 24)}")


def _finite(digits: str) -> float:
    if math.isfinite(number := float(digits)):
        return number
    raise ValueError(f"a number that is not finite: {quote(digits, 24)}")


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError("a name twice in one object")
    return names


def _constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


_DECODER = json.JSONDecoder(
    parse_int=_whole, parse_float=_finite, parse_constant=_constant, object_pairs_hook=_object
)


def _check_regular(status: os.stat_result, path: str | Path, error: type[ByheartError]) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise error(f"{path}: expected a file, found {kind}.")


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
