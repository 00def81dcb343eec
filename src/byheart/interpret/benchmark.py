"""The localisation benchmark: every method on every disguise, three seeds; a study like any other.

    localise()                               the rows that come with byheart, what is missing anew
    localise(["direct", "mine.py:find"])     a method of one's own beside one of byheart's
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from byheart._progress import Report as Tell
from byheart._progress import quiet
from byheart.errors import ByheartError, OptionError, check_choice
from byheart.interpret import tables
from byheart.interpret.attribution import METHODS
from byheart.interpret.evaluation import evaluate
from byheart.interpret.hiding import HIDINGS, hidden
from byheart.interpret.loading import Attribution, method_named, methods_named
from byheart.studies import Axes, Cell, Claim, Execution, Finding, Measurements, Params, Procedure
from byheart.studies import Row, Selection, Study, StudyResult, results
from byheart.studies.result import FOLDER

NAME = "localise/heads"
FACTS = {"quick": 24, "paper": 64}
OPTIONS = ("rotate", "permute", "layers", "layer", "noise", "distractors")
GOOD = 0.9  # average precision above which the sentence says that a method finds the owners


def measure(params: dict, seed: int) -> Measurements:
    """One method sent into one memory: means over its facts of what `Evaluation` has."""
    method = method_named(params["method"])
    if method.source != params.get("source", ""):
        raise ByheartError(f"the text of {method.name} was changed while it ran: run it again.")
    options = tuple((name, params[name]) for name in OPTIONS if name in params)
    memory, where = hidden(params["facts"], params["copies"], options, seed)
    return {
        **evaluate(memory, method, where, seed).measurements,
        "candidates": where.owners[0].size,
    }


def completed(params: Params) -> Params:
    """With the options of the disguise, so that a row says all of them."""
    return {**params, **HIDINGS[params["disguise"]].params}


LOCALISE = Procedure(
    measure, seconds=lambda p: 0.02 * p["facts"], complete=completed, paired=("method", "source")
)


def grid_of(
    methods: Sequence[Attribution], disguises: Sequence[str]
) -> Callable[[str, str], list[Cell]]:
    """The cells of these methods on these disguises, of any profile."""

    def grid(variant: str, profile: str) -> list[Cell]:
        return [
            LOCALISE.cell(disguise, disguise=disguise, method=method.name, facts=FACTS[profile],
                          **({"source": method.source} if method.source else {}))
            for disguise in disguises
            for method in methods
        ]  # fmt: skip

    return grid


@dataclass(frozen=True)
class Expectation:
    """What a method is expected to reach on a disguise: a band of its average precision."""

    disguise: str
    method: str
    least: float = 0.0
    most: float = 1.0
