"""One method on one memory whose owners are known: how well it finds them, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from byheart.errors import ByheartError
from byheart.interpret.attribution import direct_lead
from byheart.interpret.loading import Attribution, method_named
from byheart.interpret.scores import (
    average_precision,
    chance_precision,
    misplaced,
    precision_at_k,
    true_shares,
)
from byheart.interpret.subject import Subject
from byheart.models import Memory

Array = np.ndarray
BY_FACT = ("average_precision", "precision", "misplaced")


@dataclass(frozen=True)
class Truth:
    """Where the asked facts of a memory are: `rows` (n,) of its table, `owners` (n, layers, H) true
    for the heads that hold each, `shares` (n, layers, H) of the owners in the lead of the
    answer."""

    rows: tuple[int, ...]
    owners: Array
    shares: Array

    @property
    def chance(self) -> float:
        """The expected average precision of a random order of the heads."""
        held = self.owners.reshape(len(self.rows), -1)
        return float(np.mean([chance_precision(int(own.sum()), own.size) for own in held]))


@dataclass(frozen=True)
class Evaluation:
    """What a method found on a memory, fact by fact (n,): `average_precision`, `precision` at k =
    number of owners, `misplaced` score; and passes through the model per fact. `chance`: the
    average precision to be expected of a random order.

    >>> import byheart as bh
    >>> facts = bh.random_associations(N=8, S=2, T=12, seed=1)
    >>> evaluate(bh.build(facts, bh.Sharded(shard_size=1)), "direct")
    <direct on 12 facts: average precision 1, precision at k 1, 1 forward and 0 backward passes>
    """

    method: str
    average_precision: Array
    precision: Array
    misplaced: Array
    forwards: float
    backwards: float
    chance: float

    @cached_property
    def measurements(self) -> dict[str, float]:
        """Means over the facts, by the names that rows have."""
        means = {name: float(getattr(self, name).mean()) for name in BY_FACT}
        return means | self._passes | {"chance": self.chance}

    def by_fact(self) -> list[dict[str, float]]:
        """The same, fact by fact; passes are the mean of all."""
        return [
            {name: float(getattr(self, name)[i]) for name in BY_FACT} | self._passes
            for i in range(len(self.precision))
        ]

    @property
    def _passes(self) -> dict[str, float]:
        both = self.forwards + self.backwards
        return {"forwards": self.forwards, "backwards": self.backwards, "passes": both}

    def __repr__(self) -> str:
        m = self.measurements
        return (
            f"<{self.method} on {len(self.precision)} facts: average precision "
            f"{m['average_precision']:.3g}, precision at k {m['precision']:.3g}, "
            f"{self.forwards:g} forward and {self.backwards:g} backward passes>"
        )


def truth(memory: Memory, asked: int | None = None, seed: int = 0) -> Truth:
    """Where the facts of a memory are, by its owners: all of them, or `asked` drawn at random. The
    shares are those of `Memory.split`, of the owners alone."""
    owners = memory.owners()
    if owners is None:
        raise ByheartError(
            f"a {memory.name} has no owners: no fact is held by known heads, so nothing tells "
            "whether a method finds them. Build the facts with `method=sharded`, and keep them in "
            "the folder."
        )
    subject = Subject(memory)
    rows = [row for row in range(len(subject.keys)) if owners.heads_of(row)]
    if asked is not None and asked < len(rows):
        drawn = np.random.default_rng(seed).permutation(len(rows))[:asked]
        rows = sorted(rows[i] for i in drawn.tolist())
    held = np.zeros((len(rows), subject.layers, subject.H), dtype=bool)
    shares = np.zeros(held.shape)
    for i, row in enumerate(rows):
        held[i, owners.layer, list(owners.heads_of(row))] = True
        parts = direct_lead(subject, subject.keys[row], int(subject.answers[row])).numpy()
        shares[i] = true_shares(parts, held[i])
    return Truth(tuple(rows), held, shares)


def evaluate(
    memory: Memory,
    method: str | Callable[..., object] | Attribution,
    where: Truth | None = None,
    seed: int = 0,
) -> Evaluation:
    """Ask a method for the heads of each fact, and compare with `where` they are (all facts, unless
    given)."""
    chosen = method if isinstance(method, Attribution) else method_named(method)
    where = truth(memory) if where is None else where
    subject = Subject(memory, seed)
    found = [
        chosen.scores(subject, subject.keys[row], int(subject.answers[row])) for row in where.rows
    ]

    def each(measure: Callable[[Array, Array], float], of: Sequence[Array] | Array) -> Array:
        return np.array([measure(s, right) for s, right in zip(found, of, strict=True)])

    n = len(where.rows)
    return Evaluation(
        chosen.name,
        each(average_precision, where.owners),
        each(precision_at_k, where.owners),
        each(misplaced, where.shares),
        subject.forwards / n,
        subject.backwards / n,
        where.chance,
    )
