"""A bound in words: for `byheart bound --explain` and docs/theorems.md."""

from __future__ import annotations

from byheart.theory.bound import Bound


def explanation(bound: Bound) -> dict[str, str | list[str]]:
    """Statement, formula, hypotheses (checked or assumed), source, corrections.

    >>> from byheart.theory.registry import find
    >>> explanation(find("related.sontag1997"))["formula"]
    'W >= (T-1)/2, so T <= 2W + 1'
    """
    words, claim = bound.statement, bound.claim
    lines: dict[str, str | list[str]] = {
        "id": bound.id,
        "about": words.title,
        "statement": words.text,
        "formula": words.formula,
        "source": words.source,
        "kind": claim.kind,
        "exactness": claim.exactness,
        "unit": claim.unit,
        "scope": claim.scope,
        "needs": [h.text + ("" if h.check else " (assumed)") for h in bound.hypotheses],
        "constants": words.constants,
        "call": words.matrices,
        "inverse": "sizes a model for given facts" if bound.size else "",
        "corrections": list(words.corrections),
    }
    return {name: value for name, value in lines.items() if value}
