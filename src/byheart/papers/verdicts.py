"""Verdicts that the studies of several papers put together."""

from __future__ import annotations

from collections.abc import Sequence

from byheart.studies.study import Verdict


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Not confirmed if any is not, undecided if any is or there is none, else confirmed.

    >>> worst(["confirmed", "undecided"]), worst(["confirmed"]), worst([])
    ('undecided', 'confirmed', 'undecided')
    """
    for verdict in ("not confirmed", "undecided"):
        if verdict in verdicts:
            return verdict
    return "confirmed" if verdicts else "undecided"
