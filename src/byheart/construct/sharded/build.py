"""facts -> sharded memory: one small system a shard, many shards at a time, in this process or on
workers, with the same bytes."""

from __future__ import annotations

import math
from collections import deque
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from byheart._progress import Report
from byheart.construct.attention_only import POSITION_SHARE, SEED_STRIDE, TOKEN_SHARE, gaussians
from byheart.construct.frames import ideal_margin, unembedding
from byheart.construct.methods import Sharded
from byheart.construct.sharded.fingerprint import abstention, coordinates
from byheart.construct.sharded.housing import unknowns_needed
from byheart.construct.sharded.neutral import neutral_rest
from byheart.construct.sharded.plan import (
    Batch,
    Plan,
    batches,
    lattice,
    layout_weights,
    plan,
)
from byheart.construct.sharded.shares import (
    equal_shares,
    lost_with_one_head,
    quiet_embeddings,
    steady_values,
)
from byheart.construct.solve import DTYPES, RankError, minimum_norm
from byheart.engine import engine
from byheart.errors import CheckFailed
from byheart.facts import Facts
from byheart.models.attention_only import Weights
from byheart.models.construction import ShardedConstruction, finite
from byheart.models.sharded import fingerprints, heads_sum, own_features, residual
from byheart.models.sharded_memory import ShardedMemory
from byheart.models.threads import one_thread
from byheart.specs import ShardedSpec

# Slack of the second and third draw of a sharded memory: shards with fewer distinct tokens than
# d_h have heads of smaller rank, which only more heads make up for.
MORE_SLACK = (0.0, 0.2, 1.0)
SAFE_SHARE = 0.5  # of the frame's margin: a draw that keeps it is taken at once
# Foreign heads put at most ε = 1e-12 on real tokens: 28 nats beyond the largest score. And all of
# them together move the output by at most `TOTAL_LEAK`, whatever the norms of W_O.
LEAK_NATS, TOTAL_LEAK = -math.log(1e-12), 1e-9
# A subject sink leaves V (A - x_1), nearly 0 where a head attends to x_1 alone (2 % of the facts
# of a head): shards of a few facts need several heads, so that W_O stays small.
SINK_HEADS = 4
HEADS_AT_ONCE = 1024  # untied heads whose largest scores are looked for together
BY_TOKEN = ("W_E", "group", "bits", "subject")  # weights with one row a token
NOT_READ = ("W_U", "W_O", "cancel")  # weights that a solve does not look at
Sizes = list[int]
IN_FLIGHT = 16  # tasks handed out at once: bounds the memory of data under way


def sharded_memory(facts: Facts, options: Sharded, seed: int, progress: Report) -> ShardedMemory:
    """Shards of some hundred facts; other draws and more slack if one of them fails."""
    layout = plan(facts, options, seed)
    failures: list[str] = []
    best, best_margin, needs_all = None, -math.inf, facts.T
    for attempt, least in enumerate(MORE_SLACK):
        exact = options.facts_per_head is not None  # one head, neither more nor less
        draw = options if exact else replace(options, slack=max(options.slack, least))
        own_seed = seed + SEED_STRIDE * attempt
        try:
            answers = seed if options.known_heads else own_seed  # twins share the answers' vectors
            memory = build_sharded(facts, layout, draw, own_seed, answers, progress)
            progress(f"recalling {facts.T:,} facts")
            recalled, margin = recalled_through_own_heads(memory, facts)
            made = replace(memory.construction, recalled=recalled, margin=finite(margin))
            alone = lost_with_one_head(memory, facts) if options.copies > 1 else 0
            if recalled == facts.T and (-alone, margin) > (-needs_all, best_margin):
                made, needs_all = replace(made, why=(*made.why, *_kept(options, alone))), alone
                memory = replace(memory, construction=made)
                if options.abstain:
                    made = replace(made, abstain=abstention(memory, facts, own_seed))
                best, best_margin = replace(memory, construction=made), margin
        except (RankError, CheckFailed) as error:
            failures.append(str(error))
            continue
        if best_margin >= SAFE_SHARE * made.ideal_margin and not needs_all:
            break
        failures.append(f"{recalled:,} of {facts.T:,} recalled, condition {made.condition:.0e}")
    if best is not None:
        return best
    raise CheckFailed(
        f"not all {facts.T:,} facts survive at d_g={layout.d_g}, d_h={layout.d_h}: "
        f"{'; '.join(failures)}. Nothing was written. Use a larger `d` or `dtype=float64`."
    )


def _kept(options: Sharded, alone: int) -> tuple[str, ...]:
    """Whether copies do what they are for, in words."""
    if options.copies == 1:
        return ()
    if not alone:
        return ("every fact is kept when any single head is zeroed, measured as stored",)
    return (
        f"copies={options.copies} did not reach its end: {alone:,} facts are lost when one of "
        "their heads is zeroed. Use more copies, or a smaller `shard_size`",
    )


@one_thread()
def build_sharded(
    facts: Facts, layout: Plan, options: Sharded, seed: int, answers: int, progress: Report
) -> ShardedMemory:
    """Weights for the layout; only W_O depends on the facts. `answers`: the seed of W_U. With
    `abstain`: and fingerprints. `workers`: processes or the address of a Dask scheduler; the bytes
    are the same."""
    dtype, slack = DTYPES[options.dtype], options.slack if options.facts_per_head is None else 0.0
    order, sizes = layout.order(facts.S), layout.sizes
    tokens, by_last = torch.from_numpy(facts.tokens[:, order]), layout.gate == "query"
    needed = unknowns_needed(layout.shard, sizes, tokens.numpy(), layout.d_h, by_last)
    if layout.gate == "subject-sink":
        needed = np.maximum(needed, SINK_HEADS * layout.d_h)
    made = batches(sizes, layout.d_h, slack, needed)
    if options.known_heads:
        made = _for_facts_only(made, sizes, options.copies)
    heads = np.zeros(len(sizes), dtype=np.int64)
    for batch in made:
        heads[batch.shards] = batch.heads
    H = int(heads.sum())
    weights = _random_parts(facts, layout, int(H if options.untied else heads.max()), seed, dtype)
    progress(f"placing {len(facts.answer_ids):,} answers in R^{layout.d_g}")
    rows, W_U = unembedding(facts.answer_ids, layout.d_g, facts.N + 1, answers)
    weights["W_U"] = W_U.to(dtype)
    if options.facts_per_head == 1:
        weights = steady_values(weights, layout.bits.shape[1] > 0)
    if options.copies > 1:
        weights = quiet_embeddings(weights)
    if options.known_heads:
        weights["W_E"] = neutral_rest(facts, tokens[:, -1], weights, seed)
    code = lattice(len(layout.level), layout.k)
    spec = ShardedSpec(
        N=facts.N + 1,
        S=facts.S,
        d_g=layout.d_g,
        d_h=layout.d_h,
        H=H,
        groups=len(layout.level),
        shards=len(sizes),
        lam=1.0,  # own heads do not see it: chosen when W_O is known
        s1=code.s1,
        s2=code.s2,
        k=layout.k,
        bits=layout.bits.shape[1],
        check=coordinates(dtype) if options.abstain else 0,
        gate=layout.gate,
        untied=options.untied,
    )
    why = layout.why
    if options.known_heads:
        why = (*why, _cost(facts, spec))
        progress(why[-1])
    weights |= layout_weights(layout.group, layout.level, code.points, heads, layout.bits)
    weights["far"] = torch.from_numpy(code.far).int()
    if spec.gate != "query":
        weights["deciding"] = torch.zeros(1, dtype=torch.int32)
    if layout.subject is not None:
        weights["subject"] = torch.from_numpy(layout.subject)
    targets = weights["W_U"].double()[:, torch.from_numpy(facts.answers.copy())].T
    if spec.check:
        targets = torch.cat([targets, fingerprints(tokens, spec.check, seed)], dim=1)
    members, run = by_shard(layout.shard, sizes), (options.workers, progress)
    W_O, error, condition = solve_all(spec, weights, made, members, tokens, targets, *run)
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
        capacity=H * layout.d_h,
        start_id=start_id,
        ideal_margin=ideal_margin(rows, spec.N),
        residual=error,
        condition=condition,
        s_max=reach,
        beta=layout.beta,
        slack=slack,
        why=why,
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


def _for_facts_only(made: list[Batch], sizes: np.ndarray, copies: int) -> list[Batch]:
    """Heads for shards that have facts, `copies` times as many, and none for the others."""
    some = [(batch, batch.shards[sizes[batch.shards] > 0]) for batch in made]
    return [
        Batch(shards, copies * batch.heads, batch.size, equal=copies > 1)
        for batch, shards in some
        if len(shards)
    ]


def _cost(facts: Facts, spec: ShardedSpec) -> str:
    """What known heads cost, in words."""
    per = spec.parameters / facts.T
    return (
        f"{spec.H:,} heads for {facts.T:,} facts: {spec.parameters:,} parameters in the literal "
        f"layer, {per:,.0f} a fact"
    )


def strength(spec: ShardedSpec, weights: Weights, reach: float) -> float:
    """λ: the least power of two (gates stay exact in float32) at which foreign heads are silent,
    S e^{s_max - λ} <= S ε each and S e^{s_max - λ} max|x| Σ_h ||V^h||_F ||W_O^h||_F <= `TOTAL_LEAK`
    together (twice that for a subject sink: `certificates.sharded`). `reach`: s_max."""
    longest = sum(float(weights[name].double().norm(dim=1).max()) for name in ("W_E", "W_pos"))
    V = float(weights["V"].double().flatten(1).norm(dim=1).max())
    W_O = float(weights["W_O"].flatten(1).norm(dim=1, dtype=torch.float64).sum())
    together = math.log(max(2 * spec.S * longest * V * W_O, 1e-300) / TOTAL_LEAK)
    return 2.0 ** math.ceil(math.log2(reach + max(LEAK_NATS, together)))


def _random_parts(facts: Facts, layout: Plan, J: int, seed: int, dtype: torch.dtype) -> Weights:
    """Generic embeddings and J heads (tied: those of the largest shard; untied: all), already as
    they will be stored."""
    d, gaussian = layout.d_g, gaussians(seed)
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


def solve_batch(
    spec: ShardedSpec, weights: Weights, batch: Batch, tokens: Tensor, targets: Tensor, sizes: Sizes
) -> tuple[Tensor, float, float]:
    """W_O (shards, heads, d_h, out) of a batch, its largest residual, and the condition number of
    its first, largest shard. `tokens`, `targets` of its facts, shard after shard, `sizes` of them.

    F W_O = target - x_S, minimum norm by Cholesky with one refinement; rows of padding are zero
    with a unit diagonal, so they change nothing.
    """
    B, n = len(batch.shards), batch.size
    places = [i * n + np.arange(size) for i, size in enumerate(sizes)]
    place = torch.from_numpy(np.concatenate(places))
    x_S, F = own_features(spec, weights, tokens, batch.heads, torch.float64)
    Y = targets.clone()
    Y[:, : spec.d_g] -= x_S
    X = torch.zeros(B * n, F.shape[1] * F.shape[2], dtype=torch.float64)
    R = torch.zeros(B * n, Y.shape[1], dtype=torch.float64)
    X[place], R[place] = F.flatten(1), Y
    X, R = X.view(B, n, -1), R.view(B, n, -1)
    K = torch.bmm(X, X.transpose(1, 2))
    padding = torch.ones(B * n, dtype=torch.float64)
    padding[place] = 0.0
    K.diagonal(dim1=1, dim2=2).add_(padding.view(B, n))
    L, info = torch.linalg.cholesky_ex(K)
    W = X.transpose(1, 2) @ torch.cholesky_solve(R, L)
    W += X.transpose(1, 2) @ torch.cholesky_solve(R - X @ W, L)
    if batch.equal:
        tolerance = torch.finfo(weights["W_E"].dtype).eps ** 0.5
        W = equal_shares(X, R, batch.heads, padding.view(B, n), tolerance)
    residual = (X @ W - R).abs().amax((1, 2))
    for i in torch.nonzero((info != 0) | ~(residual < 1e-9))[:, 0].tolist():
        # Too ill conditioned for Cholesky: solve this one shard by QR.
        solution = minimum_norm(X[i, : sizes[i]], R[i, : sizes[i]])
        W[i], residual[i] = solution.W, solution.residual
    # cond(X) from X X^T; padding of the diagonal with 1 lies inside the spectrum's range.
    values = torch.linalg.eigvalsh(K[0])
    condition = float((values[-1] / values[0].clamp_min(1e-300)).sqrt())
    return W.view(B, batch.heads, spec.d_h, -1), float(residual.max()), condition


def by_shard(shard: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """The facts of each shard, in order."""
    order = np.argsort(shard, kind="stable")
    return np.split(order, np.cumsum(sizes)[:-1])


def largest_score(spec: ShardedSpec, weights: Weights, tokens: Tensor) -> float:
    """How far a head's generic score can lift a real token over the sink, for any key made of the
    tokens in use: max_j (max |u_j·x_S|)(max_s |w_j·x_s|) over BOS, which scores 0. A subject sink
    has a score of its own, and max_s |w_j·x_s| + max |w_j·x_1| stands for the second factor.
    """
    E, pos = weights["W_E"].double(), weights["W_pos"].double()
    x = [E[tokens[:, s].unique()] + pos[s + 1] for s in range(tokens.shape[1])]
    largest = 0.0
    for i in range(0, len(weights["u"]), HEADS_AT_ONCE):
        u, w = (weights[name][i : i + HEADS_AT_ONCE].double() for name in ("u", "w"))
        keys = torch.stack([(x_s @ w.T).abs().amax(0) for x_s in x])
        reach = keys.amax(0) + (keys[0] if spec.gate == "subject-sink" else 0.0)
        largest = max(largest, float(((x[-1] @ u.T).abs().amax(0) * reach).max()))
    return largest


def solve_all(
    spec: ShardedSpec,
    weights: Weights,
    made: list[Batch],
    members: list[np.ndarray],
    tokens: Tensor,
    targets: Tensor,
    workers: int | str,
    progress: Report,
) -> tuple[Tensor, float, float]:
    """W_O (H, d_h, out) of all shards, the largest residual, the largest condition number seen."""
    W_O = torch.zeros(spec.H, spec.d_h, spec.d_g + spec.check, dtype=weights["W_E"].dtype)
    start = weights["head_start"].tolist()
    worst = condition = done = 0
    waiting: deque[tuple[Batch, Future[tuple[np.ndarray, float, float]]]] = deque()

    def take() -> None:
        nonlocal worst, condition, done
        batch, future = waiting.popleft()
        blocks, residual, cond = future.result()
        for g, block in zip(batch.shards.tolist(), blocks, strict=True):
            W_O[start[g] : start[g] + batch.heads] = torch.from_numpy(block)
        worst, condition = max(worst, residual), max(condition, cond)
        done += len(batch.shards)
        progress(f"{done:,} of {spec.shards:,} shards solved")

    with engine(workers) as executor:
        for batch in made:
            own = [members[g] for g in batch.shards]
            facts = torch.from_numpy(np.concatenate(own))
            seen, local = tokens[facts].unique(return_inverse=True)
            part = {
                name: (w[seen] if name in BY_TOKEN else w).numpy()
                for name, w in weights.items()
                if name not in NOT_READ
            }
            sizes = [len(m) for m in own]
            task = (spec, part, batch, local.numpy(), targets[facts].numpy(), sizes)
            waiting.append((batch, executor.submit(solve_packed, *task)))
            if len(waiting) >= IN_FLIGHT:
                take()
        while waiting:
            take()
    return W_O, float(worst), float(condition)


def solve_packed(
    spec: ShardedSpec,
    part: dict[str, np.ndarray],
    batch: Batch,
    tokens: np.ndarray,
    targets: np.ndarray,
    sizes: Sizes,
) -> tuple[np.ndarray, float, float]:
    """`solve_batch` on plain arrays with token ids of their own; blocks rounded to the stored
    format. Runs anywhere."""
    # torch.tensor copies into aligned memory, on which results do not depend on where it came from.
    weights = {name: torch.tensor(array) for name, array in part.items()}
    with one_thread():
        blocks, residual, condition = solve_batch(
            spec, weights, batch, torch.tensor(tokens), torch.tensor(targets), sizes
        )
    return blocks.to(weights["W_E"].dtype).numpy(), residual, condition
