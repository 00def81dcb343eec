"""facts -> sharded memory."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from byheart._progress import Report
from byheart.construct.attention_only import POSITION_SHARE, TOKEN_SHARE
from byheart.construct.dense import SEED_STRIDE
from byheart.construct.frames import ideal_margin, unembedding
from byheart.construct.outcome import DTYPES
from byheart.construct.sharded.codes import lattice
from byheart.construct.sharded.fingerprint import abstention, coordinates
from byheart.construct.sharded.plan import Plan, plan
from byheart.construct.sharded.solve import (
    batches,
    by_shard,
    largest_score,
    unknowns_needed,
)
from byheart.construct.sharded.spread import solve_all
from byheart.construct.solve import RankError
from byheart.errors import CheckFailed
from byheart.facts import Facts
from byheart.models.attention_only import Weights
from byheart.models.construction import ShardedConstruction, finite
from byheart.models.sharded import fingerprints, heads_sum, residual
from byheart.models.sharded_memory import ShardedMemory
from byheart.models.threads import one_thread
from byheart.specs import ShardedSpec

if TYPE_CHECKING:
    from byheart.construct.methods import Sharded

# Slack of the second and third draw of a sharded memory: shards with fewer distinct tokens than
# d_h have heads of smaller rank, which only more heads make up for.
MORE_SLACK = (0.0, 0.2, 1.0)
# A draw that keeps this share of the frame's margin is taken at once: what rounding took is then
# far from enough, in the literal layer too. Otherwise the best of all draws.
SAFE_SHARE = 0.5

# Foreign heads put at most ε = 1e-12 on real tokens: 28 nats beyond the largest score.
LEAK_NATS = -math.log(1e-12)
# And all of them together move the output by at most this, whatever the norms of W_O.
TOTAL_LEAK = 1e-9
# A subject sink leaves V (A - x_1), nearly 0 where a head attends to x_1 alone (2 % of the facts
# of a head): shards of a few facts need several heads, so that W_O stays small.
SINK_HEADS = 4


def sharded_memory(facts: Facts, options: Sharded, seed: int, progress: Report) -> ShardedMemory:
    """Shards of some hundred facts; other draws and more slack if one of them fails."""
    layout = plan(
        facts,
        d_g=options.d,
        d_h=options.d_h,
        seed=seed,
        dtype=options.dtype,
        untied=options.untied,
        gate=options.gate or "query",
        shard=options.shard_size,
        code=options.code or "lat2",
    )
    failures: list[str] = []
    best, best_margin = None, -math.inf
    for attempt, least in enumerate(MORE_SLACK):
        draw = replace(options, slack=max(options.slack, least))
        try:
            memory = build_sharded(facts, layout, draw, seed + SEED_STRIDE * attempt, progress)
        except RankError as error:
            failures.append(str(error))
            continue
        progress(f"recalling {facts.T:,} facts")
        recalled, margin = recalled_through_own_heads(memory, facts)
        made = memory.construction
        if recalled == facts.T and margin > best_margin:
            made = replace(
                made,
                capacity=memory.spec.H * layout.d_h,
                recalled=recalled,
                margin=finite(margin),
            )
            memory = replace(memory, construction=made)
            if options.abstain:
                try:
                    abstain = abstention(memory, facts, seed + SEED_STRIDE * attempt)
                except CheckFailed as error:
                    failures.append(str(error))
                    continue
                memory = replace(memory, construction=replace(made, abstain=abstain))
            best, best_margin = memory, margin
        if best_margin >= SAFE_SHARE * made.ideal_margin:
            break
        failures.append(f"{recalled:,} of {facts.T:,} recalled, condition {made.condition:.0e}")
    if best is not None:
        return best
    raise CheckFailed(
        f"not all {facts.T:,} facts survive at d_g={layout.d_g}, d_h={layout.d_h}: "
        f"{'; '.join(failures)}. Nothing was written. Use a larger `d` or `dtype=float64`."
    )


@one_thread()
def build_sharded(
    facts: Facts, layout: Plan, options: Sharded, seed: int, progress: Report
) -> ShardedMemory:
    """Weights for the layout; only W_O depends on the facts. With `abstain`: and fingerprints.
    `workers`: processes or the address of a Dask scheduler; the bytes are the same."""
    dtype, slack = DTYPES[options.dtype], options.slack
    order = layout.order(facts.S)
    tokens = torch.from_numpy(facts.tokens[:, order])
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
    rows, W_U = unembedding(facts.answer_ids, layout.d_g, facts.N + 1, seed)
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
        check=coordinates(dtype) if options.abstain else 0,
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
    W_O, error, condition = solve_all(
        spec, weights, made, members, tokens, targets, start, options.workers, progress
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
    construction = ShardedConstruction(
        readout="exact",
        start_id=start_id,
        ideal_margin=ideal_margin(rows, spec.N),
        residual=error,
        condition=condition,
        s_max=reach,
        beta=layout.beta,
        slack=slack,
        why=tuple(layout.why),
    )
    return ShardedMemory(
        spec=spec,
        weights=weights,
        vocabulary=vocabulary,
        construction=construction,
        facts=facts,
        pad_id=facts.pad_id,
        order=tuple(order),
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


def recalled_through_own_heads(memory: ShardedMemory, facts: Facts) -> tuple[int, float]:
    """How many facts the stored weights recall, in the stored arithmetic, and the least margin.

    With δ = residual - w_g and frame margin m, every logit gap is at least m - 2|δ|: that decides
    almost always, without the logits of all tokens. Facts for which it does not are looked at in
    full. The margin returned is this lower bound where it is positive.
    """
    spec, weights = memory.spec, memory.tensors
    ideal = memory.construction.ideal_margin
    if not math.isfinite(ideal):
        return facts.T, ideal
    with one_thread():
        out = residual(spec, weights, memory.in_order(facts.tokens))[:, : spec.d_g]
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
