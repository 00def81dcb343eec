"""The editing benchmark: edits on memories in which every other fact is known, and all are counted.

A memory recalls all of its facts before. E of them, drawn at random, get another answer. An editor
changes the weights; then every fact is asked of the changed memory as it is stored: how many edits
are held, how many of the others are lost, and by how much the margins of the others fell.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import NamedTuple, cast

import numpy as np

from byheart._progress import Progress, Report, quiet
from byheart.errors import ByheartError, FactsError, OptionError, check_choice, did_you_mean
from byheart.facts import Facts, random_associations
from byheart.interpret.edit_table import COUNTS, SIZES, EditBenchmark, EditRow
from byheart.interpret.editors import (
    Editor,
    Edits,
    ExactShards,
    LeastSquares,
    NullSpace,
    RankOne,
)
from byheart.interpret.fine_tuning import FineTune
from byheart.models import Memory, ShardedMemory

EDITORS: dict[str, Editor] = {
    "shards": ExactShards(),
    "rank-one": RankOne(),
    "rank-one-sampled": RankOne(sampled=True),
    "least-squares": LeastSquares(),
    "null-space": NullSpace(),
    "fine-tune": FineTune(),
    "fine-tune-mixed": FineTune(mixed=True),
}
WIDTH, HIDDEN = 32, 128  # of the trained MLP Transformer: fewer hidden units than facts


def benchmark_memory(kind: str, T: int | None = None, seed: int = 0) -> Memory:
    """A memory of T random facts (keys of two tokens) that recalls all of them.

    "sharded" and "dense" (one attention layer) are built; "trained" is an MLP Transformer of one
    layer with 2 heads, d = 32 and 128 hidden units, trained until it has all facts.

    >>> benchmark_memory("dense", 50).margins().min() > 0
    np.True_
    """
    check_choice("kind", kind, SIZES)
    usual, N = SIZES[kind]
    T = usual if T is None else T
    N = max(N, int(np.ceil(np.sqrt(3 * T)))) if T > usual else N
    facts = random_associations(N=N, S=2, T=T, seed=seed)
    return MAKERS[kind](facts, seed)


def _sharded(facts: Facts, seed: int) -> Memory:
    from byheart.methods import build

    return build(facts, "sharded", seed=seed)


def _dense(facts: Facts, seed: int) -> Memory:
    from byheart.methods import build

    return build(facts, "attention", seed=seed)


def _trained(facts: Facts, seed: int) -> Memory:
    from byheart.specs import MLPTransformerSpec
    from byheart.training import train

    spec = MLPTransformerSpec(facts.N, facts.S, WIDTH, WIDTH, 2, HIDDEN, scale=True)
    return train(facts, spec, seed=seed, seeds=1)


MAKERS: dict[str, Callable[[Facts, int], Memory]] = {
    "sharded": _sharded,
    "dense": _dense,
    "trained": _trained,
}


def draw_edits(facts: Facts, count: int, seed: int = 0) -> dict[tuple[str, ...], str]:
    """`count` facts at random, each with another answer, drawn from the answers there are. Fewer
    edits with the same seed are the first of more.

    >>> facts = random_associations(N=9, S=2, T=20, seed=1)
    >>> few, many = draw_edits(facts, 2), draw_edits(facts, 5)
    >>> list(many.items())[:2] == list(few.items())
    True
    """
    answers = facts.answer_ids
    if not 1 <= count < facts.T:
        raise OptionError(
            "counts", f"from 1 to {facts.T - 1:,}, so that one other fact is left", count
        )
    if len(answers) < 2:
        raise FactsError(
            "expected facts with two different answers or more: an edit needs another."
        )
    rng = np.random.default_rng(seed)
    rows = rng.permutation(facts.T)
    place = np.searchsorted(answers, facts.answers[rows])
    shift = rng.integers(1, len(answers), size=facts.T)
    new = answers[(place + shift) % len(answers)]
    name = facts.vocabulary.token
    return {facts.key(int(i)): name(int(a)) for i, a in zip(rows[:count], new[:count], strict=True)}


class Measured(NamedTuple):
    """What is measured of an editor at work, as in `EditRow`."""

    held: int
    others: int
    lost: int
    fall: float
    largest_fall: float
    cpu_seconds: float


def measure_edits(memory: Memory, editor: Editor, edits: Edits) -> Measured:
    """The editor at work, then all facts asked of the memory that it returns, as it is stored."""
    facts = memory.facts
    if not isinstance(facts, Facts):
        raise FactsError("expected a memory of tokens with its facts, from which edits are drawn.")
    before = memory.margins(facts)
    if not (before > 0).all():
        wrong = f"{int((before <= 0).sum()):,} of {facts.T:,} are lost already"
        raise FactsError(f"expected a memory that recalls all of its facts; {wrong}.")
    began = time.process_time()
    edited = editor(memory, edits)
    seconds = time.process_time() - began
    if not isinstance(edited, Memory):
        raise ByheartError(f"an editor must return a memory, found {type(edited).__name__}.")
    keys = [facts.key(i) for i in range(facts.T)]
    is_edit = np.array([key in edits for key in keys])
    answers = facts.answers.copy()
    answers[is_edit] = [facts.vocabulary.id(edits[key]) for key in keys if key in edits]
    after = edited.margins(replace(facts, answers=answers))
    fall = (before - after)[~is_edit] / float(np.median(before))
    held, lost = int((after[is_edit] > 0).sum()), int((~(after[~is_edit] > 0)).sum())
    others, largest = int((~is_edit).sum()), float(fall.max())
    return Measured(held, others, lost, float(fall.mean()), largest, seconds)


def edit_benchmark(
    memory: Memory, editors: Mapping[str, Editor] | Iterable[str] | None = None, *,
    counts: Sequence[int] = COUNTS, seed: int = 0, name: str = "memory", progress: Report = quiet,
) -> EditBenchmark:  # fmt: skip
    """Edits on one memory by several editors, all other facts counted.

    `editors`: names ("shards", "rank-one", "rank-one-sampled", "least-squares", "null-space",
    "fine-tune", "fine-tune-mixed", or "module:function"), or name -> your own function
    `editor(memory, edits) -> memory`; all that fit the memory unless given. `counts`: how many
    facts are edited; counts that leave no other fact are passed over.

    >>> import byheart as bh
    >>> memory = bh.build("countries", "sharded")
    >>> result = edit_benchmark(memory, ["shards"], counts=(1, 10))
    >>> [(row.held, row.lost) for row in result.rows]
    [(1, 0), (10, 0)]
    """
    chosen = fitting(memory) if editors is None else editors_of(editors)
    facts = memory.facts
    if not isinstance(facts, Facts):
        raise FactsError("expected a memory of tokens with its facts, from which edits are drawn.")
    possible = [count for count in counts if count < facts.T]
    if not possible:
        raise OptionError("counts", f"below {facts.T:,}, the facts there are", list(counts))
    rows: list[EditRow] = []
    total = len(chosen) * len(possible)
    for count in possible:
        edits = draw_edits(facts, count, seed)
        for editor, function in chosen.items():
            text = f"{name}: {count:,} edits by {editor}"
            progress(Progress(text, done=len(rows), total=total))
            found = measure_edits(memory, function, edits)
            rows.append(EditRow(name, facts.T, editor, count, seed, *found))
    return EditBenchmark(tuple(rows))


def fitting(memory: Memory) -> dict[str, Editor]:
    """The editors that take such a memory: all, `shards` only for sharded ones."""
    sharded = isinstance(memory, ShardedMemory)
    return {name: editor for name, editor in EDITORS.items() if sharded or name != "shards"}


def editors_of(wanted: Mapping[str, Editor] | Iterable[str]) -> dict[str, Editor]:
    """Editors by their names, or by "module:function"; those of a mapping as they are."""
    if isinstance(wanted, Mapping):
        return dict(wanted)
    return {name: EDITORS[name] if name in EDITORS else _own(name) for name in wanted}


def _own(name: str) -> Editor:
    """The function that "module:function" names, from the working folder or installed."""
    place, colon, function = name.partition(":")
    expected = f"one of {', '.join(EDITORS)}, or module:function"
    if not colon:
        raise OptionError("editors", expected, name, did_you_mean(name, EDITORS))
    sys.path.insert(0, "")
    try:
        found = getattr(import_module(place), function, None)
    except Exception as error:  # whatever a module of somebody else raises
        wrong = f"{type(error).__name__}: {error}"
        raise ByheartError(f"the editor {name!r} cannot be imported: {wrong}") from error
    finally:
        sys.path.remove("")
    if not callable(found):
        raise OptionError("editors", expected, name, f"{place} has no such function.")
    return cast("Editor", found)
