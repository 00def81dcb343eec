"""A bound in words: for `byheart bound --explain` and docs/theorems.md."""

from __future__ import annotations

from typing import Any

from byheart.theory.bound import Bound


def explanation(bound: Bound) -> dict[str, Any]:
    """Statement, formula, hypotheses (checked or assumed), source, corrections.

    >>> from byheart.theory.registry import find
    >>> explanation(find("related.sontag1997"))["formula"]
    'W >= (T-1)/2, so T <= 2W + 1'
    """
    said: dict[str, Any] = {
        "id": bound.id,
        "about": bound.title,
        "statement": bound.statement,
        "formula": bound.formula,
        "source": bound.source,
        "kind": bound.kind,
        "exactness": bound.exactness,
        "unit": bound.unit,
        "scope": bound.scope,
        "needs": [h.text + ("" if h.check else " (assumed)") for h in bound.hypotheses],
        "constants": bound.constants,
        "call": bound.matrices,
        "inverse": "sizes a model for given facts" if bound.size else "",
        "corrections": list(bound.corrections),
    }
    return {name: value for name, value in said.items() if value}
