"""The theory as JavaScript: `bounds` and `size`, translated from their own source."""

from __future__ import annotations

from functools import lru_cache

from byheart.reports.translate import Translation


@lru_cache
def theory_script() -> str:
    """JavaScript that declares `theory.bounds(spec, T)` and `theory.size(T, N, S)`, and the
    spec's constructor; needs templates/python.js in front.

    >>> "theory = " in theory_script()
    True
    """
    from byheart.specs import AttentionOnlySpec, MultiHeadSpec
    from byheart.specs.base import check_fields
    from byheart.theory.families import size
    from byheart.theory.registry import BOUNDS, bounds

    translation = Translation(skipped=[check_fields])  # the page's inputs are checked already
    names = {
        "bounds": translation.value(bounds),
        "size": translation.value(size),
        "AttentionOnlySpec": translation.value(AttentionOnlySpec),
        "MultiHeadSpec": translation.value(MultiHeadSpec),
        "BOUNDS": translation.value(BOUNDS),
    }
    listed = ", ".join(f"{key}: {value}" for key, value in names.items())
    return f"{translation.text()}\nconst theory = {{{listed}}};"
