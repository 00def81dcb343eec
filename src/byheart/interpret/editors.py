"""Editors: a memory and new answers for some of its keys -> the memory with other weights.

All of them change one matrix, the read-out y(t) = b(t) + k(t) W of `readout`. Keys k are rows here,
where the papers have columns: their W is our W^T. v* = y + δ is the stream that gives an edit its
new answer (`least_change`); K_1 (E, m) are the keys of the edits, R (E, d) their changes δ, K_0 the
keys of the facts that shall stay.

An editor is any function `editor(memory, edits) -> memory`, with `edits` a dict key -> answer in
words; those here are frozen dataclasses that can be called, with their settings as fields.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from byheart.construct.sharded.edit import edit
from byheart.errors import ByheartError, FactsError
from byheart.facts import Facts
from byheart.interpret.readout import Block, Readout, readout_of
from byheart.models.memory import Memory
from byheart.models.threads import one_thread
from byheart.models.token_memory import TokenMemory

Edits = Mapping[tuple[str, ...], str]
Editor = Callable[[Memory, Edits], Memory]


@dataclass(frozen=True)
class Task:
    """Edits as an editor of the read-out needs them: the `rows` (E,) of the edited facts and their
    new `answers` (E,), the rows of the `others`, the read-out, and the `margin` that an edit shall
    have, the median of the memory's own."""

    readout: Readout
    rows: Tensor
    answers: Tensor
    others: Tensor
    margin: float

    @classmethod
    def of(cls, memory: TokenMemory, edits: Edits) -> Task:
        facts = memory.facts
        if not isinstance(facts, Facts):
            raise FactsError("editors need the facts of a memory: it was saved without them.")
        row = {key: i for i, key in enumerate(map(tuple, facts.keys()))}
        missing = next((key for key in edits if key not in row), None)
        if missing is not None:
            raise FactsError(f"only stored keys can be edited, found {' '.join(missing)!r}.")
        rows = torch.tensor([row[key] for key in edits], dtype=torch.long)
        answers = torch.tensor([facts.vocabulary.id(answer) for answer in edits.values()])
        others = torch.ones(facts.T, dtype=torch.bool)
        others[rows] = False
        readout = readout_of(memory, facts)
        before = readout.margins(torch.tensor(facts.answers))
        return cls(readout, rows, answers, others.nonzero()[:, 0], float(before.median()))

    def changes(self) -> Tensor:
        """R (E, d): what the stream of each edit lacks."""
        y = self.readout.streams()[self.rows]
        wanted = zip(y, self.answers.tolist(), strict=True)
        return torch.stack(
            [least_change(self.readout.W_U, stream, a, self.margin) for stream, a in wanted]
        )

    def blocks(self) -> list[tuple[Block, Block | None, Tensor]]:
        """For each block with edits: these, the others in it, and the numbers of the edits."""
        number = {fact: i for i, fact in enumerate(self.rows.tolist())}
        others = {block.at.start: block for block in self.readout.selected(self.others.tolist())}
        found = []
        for block in self.readout.selected(self.rows.tolist()):
            numbers = torch.tensor([number[fact] for fact in block.facts.tolist()])
            found.append((block, others.get(block.at.start), numbers))
        return found


def least_change(W_U: Tensor, stream: Tensor, answer: int, margin: float) -> Tensor:
    """The least δ (d,) with which `answer` leads by `margin`:

        min |δ|²   subject to   (w_a - w_j)·(y + δ) >= margin   for all tokens j != a,

    w_j the columns of W_U (d, N), y the `stream` (d,). Logits are linear in y, so that the descent
    by which ROME finds v* is not needed: this is least distance programming (Lawson and Hanson
    1974, ch. 23), one non-negative least squares problem, and ends with the exact minimum.

    >>> W_U = torch.eye(2, dtype=torch.float64)
    >>> least_change(W_U, torch.tensor([1.0, 0.0], dtype=torch.float64), 1, 0.5)
    tensor([-0.7500,  0.7500], dtype=torch.float64)
    """
    from scipy.optimize import nnls

    contrasts = torch.cat([W_U[:, :answer], W_U[:, answer + 1 :]], dim=1).neg_()
    contrasts += W_U[:, answer : answer + 1]
    lacking = margin - stream @ contrasts
    wanted = torch.cat([contrasts, lacking[None]]).numpy()
    u, _ = nnls(wanted, np.eye(len(wanted))[-1])
    r = wanted @ u
    r[-1] -= 1.0
    if not r[-1] < -1e-12:  # the constraints contradict each other
        raise ByheartError(f"no stream gives token {answer} the largest logit by {margin:.3g}.")
    return torch.from_numpy(-r[:-1] / r[-1])


def random_keys(facts: Facts, seed: int) -> Facts:
    """As many keys as there are facts, or a few less: each position drawn from what stands there in
    the facts, so that most are not stored. Their answers mean nothing."""
    rng = np.random.default_rng(seed)
    drawn = np.stack([rng.choice(column, facts.T) for column in facts.tokens.T], axis=1)
    keys = np.unique(drawn, axis=0)
    return Facts.make(keys, np.zeros(len(keys), dtype=np.int64), facts.vocabulary, name="random")


def covariance(K: Tensor) -> Tensor:
    """E[k k^T] (m, m) over the rows of K."""
    return K.T @ K / len(K)


class ReadoutEditor(ABC):
    """An editor that changes the read-out matrix W and nothing else."""

    @abstractmethod
    def change(self, task: Task, memory: TokenMemory) -> Tensor:
        """W (rows, d) after the edits."""

    def __call__(self, memory: Memory, edits: Edits) -> Memory:
        if not isinstance(memory, TokenMemory):
            raise FactsError(f"expected a memory of tokens, found {memory.name}.")
        if not edits:
            return memory
        with one_thread():
            task = Task.of(memory, edits)
            return task.readout.written(memory, self.change(task, memory))


@dataclass(frozen=True)
class ExactShards:
    """`byheart.edit`: W_O of every shard with an edit is solved again, from all of its facts as
    they shall be; all other shards keep every bit (docs/sharded-editing.md). For sharded memories.

    >>> import byheart as bh
    >>> memory = bh.build("countries", "sharded")
    >>> ExactShards()(memory, {("France", "capital"): "Lima"}).recall("France", "capital").answer
    'Lima'
    """

    def __call__(self, memory: Memory, edits: Edits) -> Memory:
        return edit(memory, set=dict(edits))


@dataclass(frozen=True)
class RankOne(ReadoutEditor):
    """ROME's closed form (Meng et al. 2022, equation 2), one edit after the other:

        W' = W + C^+ k^T (v* - k W) / (k C^+ k^T),      C = E[k^T k] over all facts,

    the least change of Σ_t |k(t) (W' - W)|² for which k W' = v* exactly. What it adds to another
    fact is δ times k_j C^+ k^T / (k C^+ k^T), a ratio of entries of the hat matrix K C^+ K^T / T.
    That is the identity where the keys of all facts are linearly independent: then nothing is added
    to others. C has no inverse there, hence the pseudo-inverse. `sampled`: C over as many random
    keys instead, stored or not, as where an editor does not know the facts.
    """

    sampled: bool = False
    seed: int = 0

    def change(self, task: Task, memory: TokenMemory) -> Tensor:
        readout, W = task.readout, task.readout.W.clone()
        known = self._known(memory, readout)
        for edits, _, at in task.blocks():
            # Keys do not depend on W: neither C nor what follows from it moves with the edits.
            C = covariance(known.get(edits.at.start, edits.K))
            directions = edits.K @ torch.linalg.pinv(C, hermitian=True)
            for i in at.argsort().tolist():
                k, toward, mine = edits.K[i], directions[i], W[edits.at]
                stream = readout.base[edits.facts[i]] + k @ mine
                delta = least_change(readout.W_U, stream, int(task.answers[at[i]]), task.margin)
                mine += torch.outer(toward / (k @ toward), delta)
        return W

    def _known(self, memory: TokenMemory, readout: Readout) -> dict[int, Tensor]:
        """The keys from which C is computed, by the first row of their block."""
        if self.sampled:
            assert isinstance(memory.facts, Facts)
            readout = readout_of(memory, random_keys(memory.facts, self.seed))
        return {block.at.start: block.K for block in readout.blocks if block.K.shape[1]}


@dataclass(frozen=True)
class LeastSquares(ReadoutEditor):
    """MEMIT's closed form for one layer (Meng et al. 2023, equation 14), all edits at once:

        Δ = (C_0 + K_1^T K_1)^+ K_1^T R,      C_0 = λ E[k^T k] over the facts that shall stay,

    the least λ E|k Δ|² + |K_1 Δ - R|². `weight` is λ by the number of those facts: at 1 a fact
    that shall stay counts as much as an edit. As λ falls to 0, Δ interpolates the edits.
    """

    weight: float = 0.01

    def change(self, task: Task, memory: TokenMemory) -> Tensor:
        W, R = task.readout.W.clone(), task.changes()
        for edits, others, at in task.blocks():
            normal = edits.K.T @ edits.K
            if others is not None:
                normal += self.weight * len(others.K) * covariance(others.K)
            W[edits.at] += torch.linalg.pinv(normal, hermitian=True) @ (edits.K.T @ R[at])
        return W


@dataclass(frozen=True)
class NullSpace(ReadoutEditor):
    """AlphaEdit's projection (Fang et al. 2025, equation 13, without earlier edits), all at once:

        Δ = P (P K_1^T K_1 P + ρ I)^-1 P K_1^T R,      P the projection on the null space of K_0,

    so that k Δ = 0 for what shall stay. The null space is that of eigenvalues of E[k^T k] below
    `threshold` times their mean, and ρ is `ridge` times that mean: the paper's 0.02 and 1 are in
    the units of its models.
    """

    threshold: float = 2e-2
    ridge: float = 1e-9

    def change(self, task: Task, memory: TokenMemory) -> Tensor:
        W, R = task.readout.W.clone(), task.changes()
        for edits, others, at in task.blocks():
            kept = edits.K[:0] if others is None else others.K
            scale = float((torch.cat([edits.K, kept]) ** 2).mean())  # mean eigenvalue of E[k^T k]
            values, vectors = torch.linalg.eigh(kept.T @ kept / max(1, len(kept)))
            P = vectors[:, values < self.threshold * scale]
            free = edits.K @ P  # (E, dimension of the null space)
            inner = free.T @ free + self.ridge * scale * torch.eye(P.shape[1], dtype=P.dtype)
            W[edits.at] += P @ torch.linalg.solve(inner, free.T @ R[at])
        return W
