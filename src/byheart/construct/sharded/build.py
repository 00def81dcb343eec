"""facts -> sharded memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from byheart.construct.attention_only import POSITION_SHARE, TOKEN_SHARE
from byheart.construct.frames import frame, ideal_margin
from byheart.construct.sharded.codes import lattice
from byheart.construct.sharded.fingerprint import coordinates, fingerprints
from byheart.construct.sharded.plan import Plan
from byheart.construct.sharded.solve import (
    batches,
    by_shard,
    largest_score,
    unknowns_needed,
)
from byheart.construct.sharded.spread import solve_all
from byheart.facts import Facts
from byheart.models.attention_only import Weights
from byheart.models.memory import Memory
from byheart.models.sharded import heads_sum, residual
from byheart.models.threads import one_thread
from byheart.specs import ShardedSpec

# Foreign heads put at most ε = 1e-12 on real tokens: 28 nats beyond the largest score.
LEAK_NATS = -math.log(1e-12)
# And all of them together move the output by at most this, whatever the norms of W_O.
TOTAL_LEAK = 1e-9
# A subject sink leaves V (A - x_1), nearly 0 where a head attends to x_1 alone (2 % of the facts
# of a head): shards of a few facts need several heads, so that W_O stays small.
SINK_HEADS = 4


def build_sharded(
    facts: Facts,
    layout: Plan,
    *,
    slack: float,
    seed: int,
    dtype: torch.dtype,
    progress: Callable[[str], None],
    abstain: bool = False,
    workers: int | str = 1,
) -> Memory:
    """Weights for the layout; only W_O depends on the facts. `abstain`: with fingerprints.
    `workers`: processes or the address of a Dask scheduler; the bytes are the same."""
    order = layout.order(facts.S)
    tokens = torch.from_numpy(facts.tokens[:, order])
    with one_thread():
        return _build(facts, layout, tokens, order, slack, seed, dtype, progress, abstain, workers)


def _build(
    facts: Facts,
    layout: Plan,
    tokens: Tensor,
    order: list[int],
    slack: float,
    seed: int,
    dtype: torch.dtype,
    progress: Callable[[str], None],
    abstain: bool,
    workers: int | str,
) -> Memory:
    needed = unknowns_needed(
        layout.shard, layout.sizes, tokens.numpy(), layout.d_h, layout.gate == "query"
    )
    if layout.gate == "subject-sink":
        needed = np.maximum(needed, SINK_HEADS * layout.d_h)
    made = batches(layout.sizes, layout.d_h, slack, needed)
    J = max(batch.heads for batch in made)
    heads = np.empty(len(layout.sizes), dtype=np.int64)
    for batch in made:
        heads[batch.shards] = batch.heads
    start = np.concatenate([[0], np.cumsum(heads)])
    H = int(start[-1])
    weights = _random_parts(facts, layout, H if layout.untied else J, seed, dtype)
    progress(f"placing {len(facts.answer_ids):,} answers in R^{layout.d_g}")
    answers = torch.from_numpy(facts.answer_ids.copy())
    rows = frame(len(answers), layout.d_g, seed)
    W_U = torch.zeros(layout.d_g, facts.N + 1, dtype=torch.float64)
    W_U[:, answers] = rows.T
    weights["W_U"] = W_U.to(dtype)
    code = lattice(len(layout.level), layout.k)
    spec = ShardedSpec(
        N=facts.N + 1,
        S=facts.S,
        d_g=layout.d_g,
        d_h=layout.d_h,
        H=H,
        groups=len(layout.level),
        shards=len(layout.sizes),
        lam=1.0,  # own heads do not see it: chosen when W_O is known
        s1=code.s1,
        s2=code.s2,
        k=code.k,
        bits=layout.bits.shape[1],
        check=coordinates(dtype) if abstain else 0,
        gate=layout.gate,
        untied=layout.untied,
    )
    weights |= {
        "point": torch.from_numpy(code.points).int(),
        "far": torch.from_numpy(code.far).int(),
        "group": torch.from_numpy(layout.group).int(),
        "level": torch.from_numpy(layout.level).int(),
        "first": torch.from_numpy(layout.first).int(),
        "head_start": torch.from_numpy(start),
    }
    if spec.bits:
        weights["bits"] = torch.from_numpy(layout.bits)
    if spec.gate != "query":
        weights["deciding"] = torch.zeros(1, dtype=torch.int32)
    if layout.subject is not None:
        weights["subject"] = torch.from_numpy(layout.subject)
    targets = weights["W_U"].double()[:, torch.from_numpy(facts.answers.copy())].T
    if spec.check:
        targets = torch.cat([targets, fingerprints(tokens, spec.check, seed)], dim=1)
    members = by_shard(layout.shard, layout.sizes)
    W_O, residual, condition = solve_all(
        spec, weights, made, members, tokens, targets, start, workers, progress
    )
    weights["W_O"] = W_O.to(dtype)
    reach = largest_score(spec, weights, tokens)
    spec = replace(spec, lam=strength(spec, weights, reach))
    if spec.cancelling_heads:
        # After rounding W_O, in two parts: a sum over all heads is too large for one rounding.
        total = -heads_sum(spec, weights)
        coarse = total.to(dtype)
        weights["cancel"] = torch.stack([coarse, (total - coarse.double()).to(dtype)])
    vocabulary, start_id = facts.vocabulary.with_special("<start>")
    return Memory(
        spec=spec,
        weights=weights,
        vocabulary=vocabulary,
        facts=facts,
        pad_id=facts.pad_id,
        order=tuple(order),
        construction={
            "method": "sharded",
            "readout": "exact",
            "start_id": start_id,
            "ideal_margin": ideal_margin(rows, spec.N),
            "residual": residual,
            "condition": condition,
            "s_max": reach,
            "beta": layout.beta,
            "slack": slack,
            "why": list(layout.why),
        },
    )


def strength(spec: ShardedSpec, weights: Weights, reach: float) -> float:
    """λ: the least power of two (gates stay exact in float32) at which foreign heads are silent,
    S e^{s_max - λ} <= S ε each and S e^{s_max - λ} max|x| Σ_h ||V^h||_F ||W_O^h||_F <= `TOTAL_LEAK`
    together (twice that for a subject sink: `certificates.sharded`). `reach`: s_max.
    """
    longest = sum(float(weights[name].double().norm(dim=1).max()) for name in ("W_E", "W_pos"))
    V = float(weights["V"].double().flatten(1).norm(dim=1).max())
    W_O = float(weights["W_O"].flatten(1).norm(dim=1, dtype=torch.float64).sum())
    together = 2 * spec.S * longest * V * W_O
    return 2.0 ** math.ceil(
        math.log2(reach + max(LEAK_NATS, math.log(max(together, 1e-300) / TOTAL_LEAK)))
    )


def _random_parts(facts: Facts, layout: Plan, J: int, seed: int, dtype: torch.dtype) -> Weights:
    """Generic embeddings and J heads (tied: those of the largest shard; untied: all), already as
    they will be stored."""
    generator = torch.Generator().manual_seed(seed)

    def gaussian(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    d = layout.d_g
    W_E = gaussian(facts.N + 1, d) * math.sqrt(TOKEN_SHARE / d)
    W_pos = gaussian(facts.S + 1, d) * math.sqrt(POSITION_SHARE / d)
    W_E[-1] = W_pos[0] = 0.0  # x_BOS = 0: it attracts what is not ours, and says nothing
    parts = {
        "W_E": W_E,
        "W_pos": W_pos,
        "u": layout.beta * gaussian(J, d),
        "w": gaussian(J, d),
        "V": torch.linalg.qr(gaussian(J, d, layout.d_h)).Q.contiguous(),
    }
    return {name: w.to(dtype) for name, w in parts.items()}


def recalled_through_own_heads(memory: Memory, facts: Facts) -> tuple[int, float]:
    """How many facts the stored weights recall, in the stored arithmetic, and the least margin.

    With δ = residual - w_g and frame margin m, every logit gap is at least m - 2|δ|: that decides
    almost always, without the logits of all tokens. Facts for which it does not are looked at in
    full. The margin returned is this lower bound where it is positive.
    """
    spec, weights = memory.spec, dict(memory.weights)
    assert isinstance(spec, ShardedSpec)
    ideal = memory.construction["ideal_margin"]
    if not math.isfinite(ideal):
        return facts.T, ideal
    with one_thread():
        out = residual(spec, weights, memory.with_start(facts.tokens))[:, : spec.d_g]
    right = torch.from_numpy(facts.answers.copy())
    # The stored rows are rounded: each inner product of the frame by at most 2 eps.
    ideal -= 4 * torch.finfo(weights["W_U"].dtype).eps
    lower = ideal - 2 * (out - weights["W_U"][:, right].T).norm(dim=1).double()
    doubtful = torch.nonzero(~(lower > 0))[:, 0]
    if len(doubtful) == 0:
        return facts.T, float(lower.min())
    margins = memory.margins(facts.subset(doubtful.numpy()))
    sure = lower[lower > 0]
    least = min(float(margins.min()), float(sure.min()) if len(sure) else math.inf)
    return facts.T - int((~(margins > 0)).sum()), least
