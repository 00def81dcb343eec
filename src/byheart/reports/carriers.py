"""Who carries which fact: the additive parts of a margin, attention, and what a head's loss costs.

For a fact with answer g and runner-up j, margin = skip + Σ_h part_h exactly, because logits are
linear in the heads. `part_h` says what a head adds; the head map shows another number, the effect

    effect_h(t) = margin(t) - margin(t) with head h replaced by its mean over the facts,

since a head that adds the same to every fact holds none of them (`measure.specialisation`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import singledispatch

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from byheart.errors import ByheartError
from byheart.facts import Facts, VectorFacts
from byheart.models.memory import HeadParts, Memory, answer_margins
from byheart.models.threads import one_thread
from byheart.models.token_memory import TokenMemory
from byheart.models.vector_memory import VectorMemory

MAP_BYTES = 256 * 2**20  # of the logits that a head map holds at once
NO_FACTS = "The memory was saved without its facts."


@dataclass(frozen=True)
class Contributions:
    """Of chosen facts (B): the K heads with the largest parts, and everything else summed up.

    `heads` (B, K) with -1 where there are fewer, `parts` (B, K), `attention` (B, K, P), `skip`
    (B,) (biases included), `rest` (B,) of all other heads, `runners_up` (B,) token or class ids;
    margin (or number, where that is the label) = skip + Σ parts + rest. `most`: as many heads
    belong to one fact, at most.
    """

    heads: np.ndarray
    parts: np.ndarray
    attention: np.ndarray
    skip: np.ndarray
    rest: np.ndarray
    runners_up: np.ndarray
    most: int


@dataclass(frozen=True)
class HeadMap:
    """`effect` (rows, H) of the facts `rows`, sorted by `owner`, the head with the largest effect
    (or the construction's); `lost`: the fact is lost with the head; `what` the effect is of."""

    rows: np.ndarray
    effect: np.ndarray
    lost: np.ndarray
    owner: np.ndarray
    owner_from: str
    total: int
    what: str

    @property
    def concentration(self) -> float:
        """Mean over facts of the largest head's share of the effect: 1/H even, 1 one head alone."""
        size = np.abs(self.effect)
        total = size.sum(1)
        return float((size.max(1)[total > 0] / total[total > 0]).mean()) if total.any() else 0.0


def colour_scale(effect: np.ndarray) -> float:
    """The 99th percentile of the effects that are not 0: the end of the colours."""
    size = np.abs(effect[effect != 0])
    return float(np.quantile(size, 0.99)) if len(size) else 1.0


def why_no_heads(memory: Memory) -> str | None:
    """None where the margins of a memory's own facts can be split over heads; else why not."""
    return NO_FACTS if memory.facts is None else memory.no_heads


def head_count(memory: Memory) -> int:
    """The heads of the last layer."""
    return max(part.heads for part in memory.parts())


def held_facts(memory: Memory) -> Facts | VectorFacts:
    """The facts of a memory; an error where it was saved without."""
    if memory.facts is None:
        raise ByheartError(NO_FACTS)
    return memory.facts


def parts_of(memory: Memory, chosen: np.ndarray) -> Iterator[HeadParts]:
    """The margins of the facts `chosen` split over heads; `at` are indices into `chosen`."""
    some = held_facts(memory).subset(chosen)
    return memory.head_parts(memory.inputs_of(some), memory.answers_of(some))


@one_thread()
def contributions(memory: Memory, chosen: np.ndarray, K: int) -> Contributions:
    """What the skip and at most K heads, the largest, of each of the facts `chosen` add.

    >>> import byheart as bh
    >>> memory = bh.build("elements")
    >>> largest = contributions(memory, np.array([0, 1]), 5)
    >>> margins = largest.skip + largest.parts.sum(1) + largest.rest
    >>> bool(np.allclose(margins, memory.margins()[:2], atol=1e-4))
    True
    """
    tables, most = [], 0
    for part in parts_of(memory, chosen):
        most = max(most, len(part.heads))
        top = part.parts.abs().topk(min(K, len(part.heads)), dim=1).indices
        largest = part.parts.gather(1, top)
        seen = part.attention.gather(1, top[:, :, None].expand(-1, -1, part.attention.shape[2]))
        rest = part.parts.sum(1) - largest.sum(1)
        short = (0, K - top.shape[1])
        heads = pad(part.heads[top], short, value=-1)
        columns = (heads, pad(largest, short), pad(seen, (0, 0, *short)), part.skip, rest)
        tables.append((part.at, *columns, part.runners_up))
    at, *columns = (torch.cat(column) for column in zip(*tables, strict=True))
    table = [column[at.argsort()].numpy() for column in columns]
    table[:3] = [column[:, : min(K, most)] for column in table[:3]]
    return Contributions(*table, most=most)


@one_thread()
def head_map(memory: Memory, rows: int = 600) -> HeadMap:
    """The effects of all heads on at most `rows` facts, spread evenly over the owners.

    >>> import byheart as bh
    >>> heads = head_map(bh.build(bh.random_vectors(T=29, n=8, d=16)))
    >>> heads.effect.shape, heads.owner_from
    ((29, 4), 'construction')
    """
    owners, T = memory.owners(), held_facts(memory).T
    groups = np.zeros(T, dtype=int) if owners is None else owners.shard
    chosen = np.argsort(groups, kind="stable")
    if T > rows:
        chosen = chosen[np.linspace(0, T - 1, rows).astype(int)]
    effect, lost, what = effects(memory, chosen)
    owner = effect.argmax(1)
    if owners is not None and all(len(heads) <= 1 for heads in owners.heads):
        # Each head owns facts by itself: no ablation has to find it.
        owner = np.array([[*owners.heads_of(i), -1][0] for i in chosen.tolist()])
    order = np.lexsort((-effect.max(1), owner, groups[chosen]))
    source = "ablation" if owners is None else "construction"
    return HeadMap(chosen[order], effect[order], lost[order], owner[order], source, T, what)


@singledispatch
def effects(memory: Memory, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
    """Effect and loss (rows, H) of each head on the facts `chosen`, and what the effect is of.

    What the contract tells of any family is the lead over the runner-up: effect = part - its mean.
    """
    T = held_facts(memory).T
    parts, before = np.zeros((T, head_count(memory))), np.zeros(T)
    for some in parts_of(memory, np.arange(T)):
        parts[np.ix_(some.at.numpy(), some.heads.numpy())] = some.parts.numpy()
        before[some.at.numpy()] = some.margins.numpy()
    effect = (parts - parts.mean(0))[chosen]
    held = before[chosen, None] > 0
    return effect, held & (before[chosen, None] <= effect), "of the lead over the next best"


@effects.register
def _(memory: TokenMemory, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
    means, W_U = _means(memory), memory.weights["W_U"].double()
    effect = np.zeros((len(chosen), len(means)))
    lost = np.zeros(effect.shape, dtype=bool)
    for part in parts_of(memory, chosen):
        assert part.written is not None
        step = max(1, MAP_BYTES // (8 * max(1, len(part.heads)) * W_U.shape[1]))
        for i in range(0, len(part.at), step):
            b = slice(i, i + step)
            change = (means[part.heads] - part.written[b]) @ W_U  # (B, heads, N)
            after = (part.logits[b, None] + change).flatten(0, 1)
            right = part.answers[b].repeat_interleave(len(part.heads))
            margin = answer_margins(after, right).view(change.shape[:2])
            before = part.margins[b, None]
            cells = np.ix_(part.at[b].numpy(), part.heads.numpy())
            effect[cells] = (before - margin).numpy()
            lost[cells] = ((before > 0) & (margin <= 0)).numpy()
    return effect, lost, "of the margin"


@effects.register
def _(memory: VectorMemory, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
    from byheart.measure.specialisation import ablation

    effect, lost = ablation(memory, memory.fitting(held_facts(memory)))
    what = "of the output" if memory.classes is None else "of the margin"
    return effect[chosen], lost[chosen], what


def _means(memory: TokenMemory) -> Tensor:
    """The mean of W_O^h F^h over all facts, (H, d): heads of other shards are silent, 0."""
    table = memory.own()
    total = torch.zeros(head_count(memory), len(memory.weights["W_U"]), dtype=torch.float64)
    for part in memory.head_parts(memory.inputs_of(table)):
        assert part.written is not None
        total[part.heads] += part.written.sum(0)
    return total / table.T
