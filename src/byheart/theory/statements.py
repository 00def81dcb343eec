"""What the papers say, from theorems.toml, joined with what Python computes for it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from importlib.resources import files

from byheart.theory.bound import Bound, Capacity, Claim, Hypothesis, Size, Statement
from byheart.theory.case import Case


@cache
def statements() -> dict[str, tuple[Statement, Claim]]:
    """Statement and claim of every theorem that byheart knows, by id."""
    text = files("byheart.theory").joinpath("theorems.toml").read_text(encoding="utf-8")
    claimed = {field.name for field in fields(Claim)}
    entries = {}
    for name, entry in tomllib.loads(text).items():
        entry["corrections"] = tuple(entry.get("corrections", ()))
        claim = Claim(**{key: value for key, value in entry.items() if key in claimed})
        words = {key: value for key, value in entry.items() if key not in claimed}
        entries[name] = (Statement(**words), claim)
    return entries


def theorem(
    bound_id: str,
    reads: tuple[str, ...] = (),
    hypotheses: tuple[Hypothesis, ...] = (),
    capacity: Capacity | None = None,
    size: Callable[[Case], Size] | None = None,
) -> Bound:
    """The bound whose statement stands in theorems.toml under this id.

    >>> theorem("related.vc_dimension").statement.formula
    'T = O(W²) (Goldberg and Jerrum 1995); O(W L log W) with depth L'
    """
    return Bound(bound_id, *statements()[bound_id], reads, hypotheses, capacity, size)
