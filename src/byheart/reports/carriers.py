"""Who carries which fact: the additive parts of a margin, attention, and what a head's loss costs.

For a fact with answer g and runner-up j, margin = skip + Σ_h part_h exactly, because logits are
linear in the heads. `part_h` says what a head adds; the head map shows another number, the effect

    effect_h(t) = margin(t) - margin(t) with head h replaced by its mean over the facts,

since a head that adds the same to every fact holds none of them (`measure.specialisation`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from byheart.models import Memory, VectorMemory, attention_only
from byheart.models.sharded import own_attention, own_features, shard_of
from byheart.models.threads import one_thread
from byheart.specs import AttentionOnlySpec, ShardedSpec

MAP_BYTES = 256 * 2**20  # of the logits that a head map holds at once


@dataclass(frozen=True)
class Stories:
    """Of chosen facts (B): the K heads with the largest parts, and everything else summed up.

    `heads` (B, K) with -1 where there are fewer, `parts` (B, K), `attention` (B, K, P), `skip`
    (B,) (biases included), `rest` (B,) of all other heads, `runners_up` (B,) token or class ids;
    margin = skip + Σ parts + rest. Vector memories with numbers as labels: parts of the output.
    """

    heads: np.ndarray
    parts: np.ndarray
    attention: np.ndarray
    skip: np.ndarray
    rest: np.ndarray
    runners_up: np.ndarray

    @property
    def totals(self) -> np.ndarray:
        return self.skip + self.parts.sum(1) + self.rest


@dataclass(frozen=True)
class HeadMap:
    """`effect` (rows, H) of the facts `rows`, sorted by `owner`, the head with the largest effect
    (or the construction's); `lost`: the fact is lost with the head; `margins` (rows,)."""

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


def why_no_heads(memory: Any) -> str | None:
    """None where a margin can be split over heads; else why it cannot."""
    if isinstance(memory, VectorMemory):
        return None if memory.facts is not None else "The memory was saved without its facts."
    spec = memory.spec
    if memory.facts is None:
        return "The memory was saved without its facts."
    if spec.N == 1:
        return "There is only one token: no answer has a competitor, and no margin is split."
    if isinstance(spec, (AttentionOnlySpec, ShardedSpec)):
        return None
    reasons = {
        "associative": "An associative memory is one matrix: it has no heads.",
        "sqrt": "A square-root Transformer has one uniform attention: every fact runs through the "
        "same integers, and none belongs to a head.",
    }
    return reasons.get(
        spec.family,
        "Feed-forward or shared layers follow the heads: the logit is no sum over heads.",
    )


@one_thread()
def stories(memory: Memory | VectorMemory, chosen: np.ndarray, K: int) -> Stories:
    """The stories of the facts `chosen`, the K largest heads of each.

    >>> import byheart as bh
    >>> memory = bh.build(bh.read_facts("elements"))
    >>> told = stories(memory, np.array([0, 1]), 5)
    >>> bool(np.allclose(told.totals, memory.margins(memory.facts).numpy()[:2], atol=1e-4))
    True
    """
    tables = []
    for part in _parts(memory, chosen):
        k = min(K, part.parts.shape[1])
        top = part.parts.abs().topk(k, dim=1).indices
        kept = part.parts.gather(1, top)
        attention = part.attention.gather(
            1, top[:, :, None].expand(-1, -1, part.attention.shape[2])
        )
        heads = part.heads[top]
        rest = part.parts.sum(1) - kept.sum(1)
        short = (0, K - k)
        tables.append(
            (
                part.at,
                torch.nn.functional.pad(heads, short, value=-1),
                torch.nn.functional.pad(kept, short),
                torch.nn.functional.pad(attention, (0, 0, *short)),
                part.skip,
                rest,
                part.runners_up,
            )
        )
    at, *columns = (torch.cat(column) for column in zip(*tables, strict=True))
    order = at.argsort()
    return Stories(*(column[order].numpy() for column in columns))


@one_thread()
def head_map(memory: Memory | VectorMemory, rows: int = 600) -> HeadMap:
    """The effects of all heads on at most `rows` facts, spread evenly over the owners.

    >>> import byheart as bh
    >>> found = head_map(bh.build(bh.random_vectors(T=29, n=8, d=16)))
    >>> found.effect.shape, found.owner_from
    ((29, 4), 'construction')
    """
    if isinstance(memory, VectorMemory):
        return _vector_map(memory, rows)
    facts, spec = memory.facts, memory.spec
    assert facts is not None and isinstance(spec, (AttentionOnlySpec, ShardedSpec))
    shards = np.zeros(facts.T, dtype=int)
    if isinstance(spec, ShardedSpec):
        shards = shard_of(dict(memory.weights), memory.with_start(facts.tokens)).numpy()
    chosen = _evenly(np.argsort(shards, kind="stable"), rows)
    effect = np.zeros((len(chosen), spec.H))
    lost = np.zeros((len(chosen), spec.H), dtype=bool)
    means = _means(memory)
    W_U = memory.weights["W_U"].double()
    answers = torch.tensor(facts.answers)[chosen]
    for part in _parts(memory, chosen, outputs=True):
        assert part.out is not None
        change = (means[part.heads] - part.out) @ W_U  # (B, heads, N)
        after = part.logits[:, None] + change
        right = answers[part.at][:, None, None].expand(-1, after.shape[1], 1)
        own = after.gather(2, right)[..., 0]
        margin = own - after.scatter(2, right, -torch.inf).amax(2)
        before = part.skip + part.parts.sum(1)
        at, heads = part.at.numpy(), part.heads.numpy()
        effect[np.ix_(at, heads)] = (before[:, None] - margin).numpy()
        lost[np.ix_(at, heads)] = ((before[:, None] > 0) & (margin <= 0)).numpy()
    owner = effect.argmax(1)
    source = "construction" if isinstance(spec, ShardedSpec) else "ablation"
    order = np.lexsort((-effect.max(1), owner, shards[chosen]))
    what = "of the margin"
    return HeadMap(chosen[order], effect[order], lost[order], owner[order], source, facts.T, what)


def _vector_map(memory: VectorMemory, rows: int) -> HeadMap:
    from byheart.measure.specialisation import ablation, owners

    facts = memory.facts
    assert facts is not None
    effect, breaks = ablation(memory, facts)
    owner, source = owners(memory, facts, effect)
    order = _evenly(np.lexsort((-effect.max(1), owner)), rows)
    what = "of the output" if facts.classes is None else "of the margin"
    return HeadMap(order, effect[order], breaks[order], owner[order], source, facts.T, what)


def _evenly(order: np.ndarray, rows: int) -> np.ndarray:
    if len(order) <= rows:
        return order
    return order[np.linspace(0, len(order) - 1, rows).astype(int)]


@dataclass(frozen=True)
class _Part:
    """Some of the facts, all with the same heads: `at` are places in `chosen`, `out` (B, H, d)."""

    at: Tensor
    heads: Tensor
    parts: Tensor
    attention: Tensor
    skip: Tensor
    runners_up: Tensor
    logits: Tensor
    out: Tensor | None = None


def _parts(
    memory: Memory | VectorMemory, chosen: np.ndarray, *, outputs: bool = False
) -> Iterator[_Part]:
    if isinstance(memory, VectorMemory):
        yield from _vector_parts(memory, chosen)
        return
    facts = memory.facts
    assert facts is not None
    tokens = memory.with_start(facts.tokens[chosen])
    answers = torch.tensor(facts.answers[chosen])
    ways = _sharded_parts if isinstance(memory.spec, ShardedSpec) else _dense_parts
    for at, heads, skip, out, attention in ways(memory, tokens):
        W_U = memory.weights["W_U"].double()
        step = len(at)
        if outputs:  # a head map needs logits without each head
            step = max(1, MAP_BYTES // (8 * len(heads) * W_U.shape[1]))
        for i in range(0, len(at), step):
            b = slice(i, i + step)
            logits = (skip[b] + out[b].sum(1)) @ W_U
            g = answers[at[b]]
            j = logits.scatter(1, g[:, None], -torch.inf).argmax(1)
            direction = (W_U[:, g] - W_U[:, j]).T
            yield _Part(
                at[b],
                heads,
                torch.einsum("bhd,bd->bh", out[b], direction),
                attention[b],
                (skip[b] * direction).sum(1),
                j,
                logits,
                out[b],
            )


_Raw = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def _dense_parts(memory: Memory, tokens: Tensor) -> Iterator[_Raw]:
    spec = memory.spec
    assert isinstance(spec, AttentionOnlySpec)
    weights = {name: w[None].double() for name, w in memory.weights.items()}
    heads = torch.arange(spec.H)
    for batch in memory.batches(len(tokens), copies=3):
        skip, F = attention_only.head_outputs(spec, weights, tokens[batch])
        out = torch.einsum("bhe,hed->bhd", F[0], weights["W_O"][0, -1])
        a = attention_only.attention(spec, weights, tokens[batch])[0]
        yield torch.arange(batch.start, batch.stop), heads, skip[0], out, a


def _sharded_parts(memory: Memory, tokens: Tensor) -> Iterator[_Raw]:
    spec = memory.spec
    assert isinstance(spec, ShardedSpec)
    weights = dict(memory.weights)
    shards = shard_of(weights, tokens)
    for shard in shards.unique().tolist():
        at = (shards == shard).nonzero()[:, 0]
        first, end = weights["head_start"][shard : shard + 2].tolist()
        skip, F = own_features(spec, weights, tokens[at], end - first, torch.float64)
        W_O = weights["W_O"][first:end].double()[..., : spec.d_g]
        out = torch.einsum("bhe,hed->bhd", F, W_O)
        yield (
            at,
            torch.arange(first, end),
            skip,
            out,
            own_attention(spec, weights, tokens[at], first, end),
        )


def _means(memory: Memory) -> Tensor:
    """The mean of W_O^h F^h over all facts, (H, d): heads of other shards are silent, 0."""
    facts, spec = memory.facts, memory.spec
    assert facts is not None
    ways = _sharded_parts if isinstance(spec, ShardedSpec) else _dense_parts
    d = memory.weights["W_U"].shape[0]
    total = torch.zeros(spec.H, d, dtype=torch.float64)  # type: ignore[union-attr]
    for _, heads, _, out, _ in ways(memory, memory.with_start(facts.tokens)):
        total[heads] += out.sum(0)
    return total / facts.T


def _vector_parts(memory: VectorMemory, chosen: np.ndarray) -> Iterator[_Part]:
    facts = memory.facts
    assert facts is not None
    heads = torch.arange(memory.spec.H)
    step = max(1, MAP_BYTES // (8 * memory.spec.H * (memory.spec.d_out + memory.spec.n)))
    for i in range(0, len(chosen), step):
        some = chosen[i : i + step]
        own = None if memory.context is not None else facts.contexts()[some]
        parts = memory.contributions(facts.query[some], own)  # (B, H, d_out)
        out = memory.outputs(facts.query[some], own, torch.float64)
        constant = out - parts.sum(1)  # the decoder's bias, if there is one
        attention = memory.attention(facts.query[some], own)
        at = torch.arange(i, i + len(some))
        if facts.classes is None:
            # The coordinate that is furthest from 0 tells the story of an output of several.
            j = torch.tensor(facts.targets[some]).abs().argmax(1)
            pick = j[:, None, None].expand(-1, parts.shape[1], 1)
            split, skip = parts.gather(2, pick)[..., 0], constant.gather(1, j[:, None])[:, 0]
        else:
            g = torch.tensor(facts.label[some]).long()
            j = out.scatter(1, g[:, None], -torch.inf).argmax(1)
            index = torch.arange(len(g))
            split = parts[index, :, g] - parts[index, :, j]
            skip = constant[index, g] - constant[index, j]
        yield _Part(at, heads, split, attention, skip, j, out)
