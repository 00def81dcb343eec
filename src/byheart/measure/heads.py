"""Who carries an answer: the exact additive split of a margin over heads and skip."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from byheart.errors import ByheartError
from byheart.models import Memory
from byheart.models.attention_only import head_outputs
from byheart.models.sharded import own_features, shard_of
from byheart.specs import AttentionOnlySpec, ShardedSpec


@dataclass(frozen=True)
class HeadSplit:
    """margin = skip + Σ_h heads[h], with margin = (w_g - w_j)·residual for answer g, runner-up j.

    `heads` (B, H), `skip` (B,), `answers` and `runners_up` (B,) token ids; float64.
    """

    heads: Tensor
    skip: Tensor
    answers: Tensor
    runners_up: Tensor

    @property
    def margins(self) -> Tensor:
        return self.skip + self.heads.sum(1)


def head_split(memory: Memory, tokens: Tensor, answers: Tensor | None = None) -> HeadSplit:
    """Split each margin over the heads of the last layer: (w_g - w_j)·W_O^h F^h(t) per head.

    `tokens` (B, S) as the model reads them (`memory.encode`, `memory.with_start`). `answers`
    defaults to what the memory says. The split is exact because logits are linear in the heads.

    >>> import byheart as bh
    >>> memory = bh.build(bh.read_facts("elements"))
    >>> split = head_split(memory, memory.encode([("Fe", "name")]))
    >>> memory.vocabulary.token(int(split.answers[0])), split.heads.shape[1] == memory.spec.H
    ('iron', True)
    """
    spec = memory.spec
    if isinstance(spec, ShardedSpec):
        raise ByheartError("a sharded memory has its own split: use byheart.measure.owner")
    if not isinstance(spec, AttentionOnlySpec):
        raise ByheartError(f"a memory of the {spec.family} family has no heads to split over")
    weights = {name: w[None].to(torch.float64) for name, w in memory.weights.items()}
    parts = []
    for batch in memory.batches(len(tokens)):
        skip, F = head_outputs(spec, weights, tokens[batch])
        # One vector per head: W_O^h F^h(t), (B, H, d).
        out = torch.einsum("bhe,hed->bhd", F[0], weights["W_O"][0, -1])
        W_U = weights["W_U"][0]
        logits = (skip[0] + out.sum(1)) @ W_U
        g = logits.argmax(1) if answers is None else answers[batch]
        j = logits.scatter(1, g[:, None], -torch.inf).argmax(1)
        direction = (W_U[:, g] - W_U[:, j]).T
        parts.append(
            (torch.einsum("bhd,bd->bh", out, direction), (skip[0] * direction).sum(1), g, j)
        )
    return HeadSplit(*(torch.cat(column) for column in zip(*parts, strict=True)))


@dataclass(frozen=True)
class Owner:
    """Who holds a key in a sharded memory: shard, heads `first`..`first + len(parts) - 1`, and what
    each contributes to the margin (answer against runner-up); every other head is silent."""

    shard: int
    first: int
    parts: list[float]
    skip: float
    answer: int
    runner_up: int

    @property
    def margin(self) -> float:
        return self.skip + sum(self.parts)


def owner(memory: Memory, *key: str) -> Owner | None:
    """The owner of one key; None if its deciding token decides for no shard.

    >>> import byheart as bh
    >>> memory = bh.build(bh.read_facts("countries"), "sharded")
    >>> found = owner(memory, "France", "capital")
    >>> memory.vocabulary.token(found.answer), len(found.parts) < memory.spec.H
    ('Paris', True)
    """
    spec = memory.spec
    if not isinstance(spec, ShardedSpec):
        raise ByheartError(
            f"only sharded memories have owners; this one is {spec.family}, where every head "
            "carries a part of every fact (byheart recall shows the parts)."
        )
    weights = dict(memory.weights)
    tokens = memory.encode([key])
    shard = int(shard_of(weights, tokens)[0])
    if shard < 0:
        return None
    first, end = weights["head_start"][shard : shard + 2].tolist()
    x_S, F = own_features(spec, weights, tokens, end - first, torch.float64)
    W_O = weights["W_O"][first:end].double()[..., : spec.d_g]
    out = torch.einsum("he,hed->hd", F[0], W_O)
    W_U = weights["W_U"].double()
    logits = (x_S[0] + out.sum(0)) @ W_U
    g, j = logits.topk(2).indices.tolist()
    direction = W_U[:, g] - W_U[:, j]
    parts = (out @ direction).tolist()
    return Owner(shard, first, parts, float(x_S[0] @ direction), g, j)
