"""The localisation benchmark: every method on every disguise, three seeds; a study like any other.

localise()                               the rows that come with byheart, what is missing anew
localise(["direct", "mine.py:find"])     a method of one's own beside one of byheart's
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from byheart._progress import Progress, quiet
from byheart._progress import Report as Tell
from byheart.errors import ByheartError, OptionError, check_choice
from byheart.interpret import tables
from byheart.interpret.hiding import HIDINGS, N, S, hidden
from byheart.studies import (
    Axes,
    Cell,
    Claim,
    Execution,
    Finding,
    Measurements,
    Params,
    Procedure,
    Row,
    Selection,
    Study,
    StudyResult,
    results,
)
from byheart.studies.fits import combined
from byheart.studies.result import FOLDER

if TYPE_CHECKING:
    from byheart.models import Memory

NAME = "localise/heads"
FACTS = {"quick": 12, "paper": 32}
MOST_FACTS = N**S
OPTIONS = ("rotate", "permute", "layers", "layer", "distractors", "noise", "cancelling")
GOOD = 0.9  # average precision above which the sentence says that a method finds the owners


def measure(params: dict, seed: int) -> Measurements:
    """One method sent into one memory: means over its facts of what `Evaluation` has."""
    from byheart.interpret.evaluation import evaluate
    from byheart.interpret.loading import method_named

    method = method_named(params["method"])
    if method.source != params.get("source", ""):
        raise ByheartError(f"the text of {method.name} was changed while it ran: run it again.")
    options = tuple((name, params[name]) for name in OPTIONS if name in params)
    memory, where = hidden(params["facts"], params["copies"], options, seed)
    found = evaluate(memory, method, where, seed)
    return {**found.measurements, "candidates": where.owners[0].size}


def completed(params: Params) -> Params:
    """With the options of the disguise, so that a row says all of them."""
    return {**params, **HIDINGS[params["disguise"]].params}


LOCALISE = Procedure(
    measure, seconds=lambda p: 0.014 * p["facts"], complete=completed, paired=("method", "source")
)


def grid_of(
    methods: Sequence[str | Callable[..., object]] | None, disguises: Sequence[str]
) -> Callable[[str, str], list[Cell]]:
    """The cells of these methods (None: all of byheart's) on these disguises, of any profile."""

    def grid(variant: str, profile: str) -> list[Cell]:
        from byheart.interpret.loading import methods_named

        chosen = methods_named(methods)
        return [
            LOCALISE.cell(disguise, disguise=disguise, method=method.name, facts=FACTS[profile],
                          **({"source": method.source} if method.source else {}))
            for disguise in disguises
            for method in chosen
        ]  # fmt: skip

    return grid


@dataclass(frozen=True)
class Expectation:
    """What a method is expected to reach on a disguise: a band of its average precision."""

    method: str
    disguise: str
    least: float = -math.inf
    most: float = math.inf

    def claim(self, found: Mapping[tuple[str, str], Sequence[Row]]) -> Claim | None:
        """The claim, where there are rows of it."""
        rows = found.get((self.method, self.disguise))
        if rows is None:
            return None
        statement = f"{self.method}, {self.disguise}: average precision"
        reached = combined([[row["average_precision"] for row in rows]], [1.0])
        return Claim(statement, reached, self.least, self.most)


# Written down before any row of the seeds from 1,000 on was computed.
FOUND, MISSED = 0.95, 0.3
EXPECTED = (
    *(Expectation(m, "rotated", FOUND) for m in ("direct", "lost", "attention")),
    *(Expectation(m, "rotated", 0.85) for m in ("zero", "mean", "gradient", "integrated")),
    Expectation("patch", "rotated", 0.5, 0.9),  # it also finds the head of the other key
    Expectation("direct", "deep", FOUND),
    Expectation("attention", "deep", most=MISSED),  # distractors read the key too
    Expectation("direct", "noisy", FOUND),
    *(Expectation(m, "noisy", 0.7) for m in ("zero", "gradient", "integrated")),
    *(
        Expectation(m, "cancelling", most=MISSED)
        for m in ("direct", "zero", "mean", "resample", "patch", "gradient", "integrated")
    ),
    *(Expectation(m, "copies-2", FOUND) for m in ("direct", "zero", "gradient")),
    *(Expectation("lost", name, most=0.1) for name in ("copies-2", "copies-4")),
    *(Expectation(m, "all", most=MISSED) for m in ("direct", "zero", "lost", "integrated")),
    Expectation("random", "plain", most=MISSED),
)


def analyse(rows: list[Row]) -> Finding:
    """Every expectation as a claim, and the tables: methods down, disguises across."""
    found = tables.by_method(rows)
    if not found:
        return Finding("There are no rows yet.")
    claims = [claim for expected in EXPECTED if (claim := expected.claim(found)) is not None]
    shown = {words: tables.across(found, name) for name, words in tables.MEASURES.items()}
    return Finding(tables.sentence(found, GOOD), tuple(claims), tables=shown)


AXES = Axes(
    "passes", "average_precision", "method", "passes through the model, a fact",
    "average precision", log="x", bottom=0, label="{value}",
)  # fmt: skip
STUDY = Study(
    NAME, grid_of(None, tuple(HIDINGS)), analyse,
    title="Which tool finds the heads that hold a fact?",
    source="byheart: memories whose owners are known",
    claim="Where a fact is held by known heads, an attribution method finds them, or is fooled by "
    "a stated disguise.",
    measurement="average precision of the scores against the owners, precision at k, misplaced "
    "score, passes through the model; means over the facts of a memory",
    rule="A band of the average precision for each method and disguise that is named below. "
    "Confirmed if the whole 95 % interval over seeds lies in the band, refuted if all of it lies "
    "outside, undecided otherwise.",
    settings=f"{FACTS['paper']} random facts of {N} tokens, keys of {S}; one head holds one fact, "
    "or as many as there are copies; all facts are asked. The same memories for every method.",
    axes=AXES, figure=tables.draw, variants=("as-built",),
)  # fmt: skip


def localise(
    methods: Sequence[str | Callable[..., object]] | None = None, *,
    disguises: Sequence[str] | None = None,
    facts: int | None = None, seeds: int | Sequence[int] | None = None, profile: str = "paper",
    workers: int | str = 1, fresh: bool = False, progress: Tell = quiet,
    store: str | os.PathLike[str] | None = None,
) -> StudyResult:  # fmt: skip
    """Send attribution methods into memories whose owners are known, and see who finds them.

    `methods`: names (all, unless given), "module:function" or "file.py:function", or functions
    `(model, key, answer) -> scores` themselves; `disguises`: names (all, unless given); `facts`: in
    each memory (32); `seeds`: how many memories of each kind (3), or which. `profile`: "paper", or
    "quick" for small memories. Rows that come with byheart are taken as they are unless `fresh`;
    the others are computed and kept in `store`, else byheart-studies/localise.db.

    >>> import tempfile, pathlib
    >>> store = pathlib.Path(tempfile.mkdtemp()) / "localise.db"
    >>> result = localise(["direct"], disguises=["plain"], facts=12, seeds=1, store=store)
    >>> result.rows[0]["average_precision"]
    1.0
    """
    study = chosen_study(methods, disguises)
    _check_workers(methods or (), workers)
    if facts is not None and not 2 <= facts <= MOST_FACTS:
        raise OptionError("facts", f"between 2 and {MOST_FACTS}", facts)
    values = None if facts is None else {"facts": [facts]}
    selection = Selection(profile, seeds=seeds, values=values)
    execution = Execution(workers, progress=progress, rows="fresh" if fresh else "missing")
    return next(results([study], selection, execution, store=store, folder=FOLDER))


def marked(
    memory: Memory, methods: Sequence[str | Callable[..., object]] | None = None,
    asked: int | None = None,
    seed: int = 0, *, name: str = "memory", progress: Tell = quiet,
) -> list[Row]:  # fmt: skip
    """A row for each method and fact of a memory whose owners are known; `asked` facts at random
    (32, unless given), under the `name` of the memory.

    >>> import byheart as bh
    >>> memory = bh.build(bh.random_associations(N=8, S=2, T=12), "sharded", shard_size=1)
    >>> rows = marked(memory, ["direct", "random"], asked=5)
    >>> len(rows), rows[0]["average_precision"]
    (10, 1.0)
    """
    from byheart.interpret.evaluation import evaluate, truth
    from byheart.interpret.loading import methods_named

    chosen = methods_named(methods)
    where = truth(memory, FACTS["paper"] if asked is None else asked, seed)
    rows = []
    for i, method in enumerate(chosen):
        progress(Progress(f"{i} of {len(chosen)} methods", done=i, total=len(chosen)))
        found = evaluate(memory, method, where, seed)
        params = {"method": method.name, "disguise": name}
        for row, measured in zip(where.rows, found.by_fact(), strict=True):
            rows.append(Row(NAME, name, "as-built", method.name, row, params, measured))
    progress(Progress(f"{len(chosen)} methods", done=len(chosen), total=len(chosen)))
    return rows


def chosen_study(
    methods: Sequence[str | Callable[..., object]] | None, disguises: Sequence[str] | None
) -> Study:
    """The benchmark of these methods and disguises; all, unless given."""
    from byheart.interpret.loading import methods_named

    for name in disguises or ():
        check_choice("disguises", name, HIDINGS)
    methods_named(methods)  # refused before anything runs
    return replace(STUDY, grid=grid_of(methods, tuple(disguises or HIDINGS)))


def _check_workers(methods: Sequence[str | Callable[..., object]], workers: int | str) -> None:
    given = [method for method in methods if callable(method)]
    if given and workers not in (1, "1"):
        raise ByheartError(
            f"{given[0]!r:.80} was given as a function, which other processes do not have. Leave "
            "out `workers`, or name the method as module:function."
        )
