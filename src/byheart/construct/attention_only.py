"""Attention-only memories by construction (Dana et al. 2025, Theorem 1 with ε = 0, Corollary 1).

The heads attend at random; the facts live in W_O. With F(t) in R^{H d_h} the outputs of all heads
and x_S the skip, the memory recalls t exactly when F(t) W_O + x_S M_0 = w_{g(t)}, the row of the
right answer in W_U, solvable for T <= H d_h + d generic facts (Lemma 2; docs/attention-only.md).
M_0 = I up to H d_h facts; else the model is rewritten in a basis where the skip is x_S M_0, and
targets get random parts in the directions that no logit reads, so that M_0 stays invertible.

The associative memory W = Σ_i w_U(g(i)) w_e(i)^T (slides of 2024; Bietti et al. 2023) solves no
system; recall works while the cross-talk of the other facts stays below the margin.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from byheart._progress import Report
from byheart.construct.choice import choose_attention_only
from byheart.construct.frames import ideal_margin, unembedding
from byheart.construct.methods import Associative, AttentionOnly
from byheart.construct.readout import convex_readout
from byheart.construct.solve import (
    DTYPES,
    RankError,
    Solution,
    as_stored,
    check_fits,
    held,
    holding,
    minimum_norm,
    solve_bytes,
)
from byheart.errors import CapacityError, CheckFailed
from byheart.facts import Facts
from byheart.models import associative
from byheart.models.attention_only import Weights, head_outputs
from byheart.models.construction import AssociativeConstruction, AttentionConstruction, finite
from byheart.models.memory import BATCH_BYTES
from byheart.models.token_memory import TokenMemory
from byheart.specs import AssociativeSpec, AttentionOnlySpec
from byheart.theory import corollary1_capacity, corollary1_heads

# Share of |x|² = 1 that tokens and positions get.
TOKEN_SHARE, POSITION_SHARE = 0.7, 0.3
CHANGED_BASIS = "change of basis"  # how the skip is taken care of: this, or "fixed"
# Standard deviations of the scores that are tried, in turn: 16 conditions large systems best,
# small ones with few heads sometimes saturate there and want less.
BETAS = (16.0, 4.0, 64.0, 1.0)
SEED_STRIDE = 7919  # between attempts, so that neighbouring seeds share no draw
GROWTH, GROWTHS = 1.25, 3  # of the heads when all fail and their number is ours to choose
GOOD_MARGIN = 0.5  # of the ideal margin: the first attempt that keeps it is taken

WIDEST = 8192  # the largest width of an associative memory tried: half a gigabyte in float64


def attention_memory(
    facts: Facts, options: AttentionOnly, seed: int, progress: Report
) -> TokenMemory:
    """One dense layer with the smallest sizes that are not given, by the read-out asked for."""
    spec, why = choose_attention_only(facts, options)
    exact, growths = options.readout == "exact", GROWTHS if options.H is None else 0
    layer = Layer(facts, spec, DTYPES[options.dtype], seed, progress)
    check_admissible(spec, facts.T if exact else 0, facts.last_tokens)
    m, what = spec.H * spec.d_h + spec.d, "one dense solve for" if exact else "a read-out of"
    system = solve_bytes(facts.T, m) if exact else solve_bytes(m, facts.T)
    check_fits(system, spec.parameters, f"{what} {facts.T:,} facts")
    progress(f"placing {len(facts.answer_ids):,} answers in R^{spec.d}")
    rows, W_U = unembedding(facts.answer_ids, spec.d, spec.N, seed)
    W_U = layer.rounded({"W_U": W_U})["W_U"]
    ideal = finite(ideal_margin(rows, spec.N))
    told = AttentionConstruction(readout=options.readout, ideal_margin=ideal, why=why)
    return (_exact if exact else _convex)(layer, W_U, told, growths)


@dataclass(frozen=True)
class Layer:
    """A dense layer in the making: the facts, the sizes and how it is stored."""

    facts: Facts
    spec: AttentionOnlySpec
    dtype: torch.dtype
    seed: int
    progress: Report

    def features(self, weights: Weights) -> tuple[Tensor, Tensor]:
        """x_S and F of all keys, after the start token if the layer has one."""
        start = (self.spec.S - self.facts.S, 0)
        keys = pad(torch.tensor(self.facts.tokens), start, value=self.spec.N - 1)
        return features(self.spec, weights, keys)

    def random(self) -> tuple[Weights, Tensor, Tensor]:
        """Random heads, and their x_S and F."""
        weights = random_attention(self.spec, self.seed, BETAS[0])
        return weights, *self.features(weights)

    def rounded(self, weights: Weights) -> Weights:
        return rounded(weights, self.dtype)

    def memory(self, weights: Weights, record: AttentionConstruction) -> TokenMemory:
        capacity = corollary1_capacity(self.spec, self.facts.last_tokens)
        record = replace(record, capacity=capacity)
        return as_stored(TokenMemory, self.spec, weights, self.dtype, self.facts, record)

    def draws(
        self, targets: Tensor, W_U: Tensor
    ) -> Iterator[tuple[float, Constructed | RankError]]:
        """What `solved` finds at every β of `BETAS`, or why it does not."""
        for attempt, beta in enumerate(BETAS):
            outputs = self.spec.H * self.spec.d_h
            self.progress(f"solving for {self.facts.T:,} facts in {outputs:,} head outputs")
            try:
                own = replace(self, seed=self.seed + SEED_STRIDE * attempt)
                yield beta, own.solved(targets, W_U, beta)
            except RankError as error:
                yield beta, error

    def solved(self, targets: Tensor, W_U: Tensor, beta: float) -> Constructed:
        """Weights with residual(t) = target(t) for all facts: `targets` (T, d) rows of W_U^T, `W_U`
        (d, N), `beta` the standard deviation of the attention scores."""
        spec, T = self.spec, self.facts.T
        check_admissible(spec, T, self.facts.last_tokens)
        nominal = random_attention(spec, self.seed, beta)
        if T <= spec.H * spec.d_h:
            # Fixed skip: F W_O = target - x_S, everything but W_O already as it will be stored.
            weights = self.rounded(nominal)
            x_S, F = self.features(weights)
            with contextlib.suppress(RankError):  # few tokens: the heads alone may not be enough
                solution = minimum_norm(F, targets - x_S)
                weights = complete(spec, weights, solution.W, W_U)
                return Constructed(self.rounded(weights), solution, "fixed")
        # F W_O + x_S (I + D) = target, then the basis in which the skip is x_S (I + D).
        targets = targets + unread_parts(W_U, T, self.seed)
        x_S, F = self.features(nominal)
        solution = minimum_norm(torch.cat([F, x_S], 1), targets - x_S)
        W_O, D = solution.W[: -spec.d], solution.W[-spec.d :]
        weights = self.rounded(in_basis(nominal, torch.eye(spec.d, dtype=D.dtype) + D))
        if self.dtype != torch.float64:
            # The rounded basis moved the features: fit W_O once more to what is really stored.
            x_S, F = self.features(weights)
            W_O = W_O + torch.linalg.lstsq(F, targets - x_S - F @ W_O).solution
        weights = complete(spec, weights, W_O, W_U)
        return Constructed(self.rounded(weights), solution, CHANGED_BASIS)


class Constructed(NamedTuple):
    """Weights (float64 values that the stored format holds exactly; no model axis) and how well
    the system that made them was conditioned."""

    weights: Weights
    solution: Solution
    skip: str


def _exact(layer: Layer, W_U: Tensor, told: AttentionConstruction, growths: int) -> TokenMemory:
    """Corollary 1: the first attempt with a good margin, else the best that recalls all facts."""
    facts, spec, ideal = layer.facts, layer.spec, told.ideal_margin
    targets = W_U[:, torch.tensor(facts.answers)].T
    failures: list[str] = []
    ranks: list[int | None] = []
    for growth in range(1 + growths):
        if growth:
            # Heads that each add less to the rank than d_h are needed in greater number.
            known = [rank for rank in ranks if rank]
            factor = max(GROWTH, facts.T / max(known)) if known else GROWTH
            spec = replace(spec, H=math.ceil(spec.H * factor))
            told = replace(told, why=(*told.why, f"H raised to {spec.H}: {failures[-1]}"))
        ranks.clear()
        best, best_margin = None, -math.inf
        layer = replace(layer, spec=spec)
        for beta, made in layer.draws(targets, W_U):
            if isinstance(made, RankError):
                failures.append(f"β = {beta:g}: {made}")
                ranks.append(made.rank)
                continue
            _, condition, residual, solver = made.solution
            record = replace(told, condition=condition, residual=residual, solver=solver)
            memory = layer.memory(made.weights, replace(record, skip=made.skip, beta=beta))
            margins = memory.margins(facts)
            recalled, margin = int((margins > 0).sum()), float(margins.min())
            if recalled == facts.T and (best is None or margin > best_margin):
                record = replace(memory.construction, recalled=recalled, margin=finite(margin))
                best, best_margin = replace(memory, construction=record), margin
                if margin >= GOOD_MARGIN * min(math.inf if ideal is None else ideal, 1.0):
                    return best
            failures.append(
                f"β = {beta:g}: {recalled:,} of {facts.T:,} recalled, margin {margin:.1e}, "
                f"condition number {condition:.0e}"
            )
        if best is not None:
            return best
    sizes = f"d={spec.d}, H={spec.H}, d_h={spec.d_h}"
    if len(ranks) == len(BETAS):
        raise CapacityError(
            f"the keys are not generic enough for Lemma 2 at {sizes}: {failures[-1]}. With "
            f"{facts.N} tokens and {facts.S} positions a head adds at most "
            f"{min(spec.d_h, facts.N + facts.S - 2)} to the rank. Use more heads."
        )
    dtype = str(layer.dtype).removeprefix("torch.")
    other = " or `dtype=float64`" if dtype == "float32" else ""
    raise CheckFailed(
        f"not all {facts.T:,} facts survive in {dtype} weights at {sizes}: "
        f"{'; '.join(failures[-len(BETAS) :])}. Nothing was written. "
        f"Use `H={spec.H + max(1, spec.H // 20)}`{other}."
    )


def _convex(layer: Layer, W_U: Tensor, told: AttentionConstruction, growths: int) -> TokenMemory:
    """The logistic read-out; more heads, if they are ours to choose, until all facts are held."""
    facts, spec = layer.facts, layer.spec
    answers = torch.from_numpy(facts.answer_ids.copy())
    right = torch.searchsorted(answers, torch.tensor(facts.answers))
    tried: list[TokenMemory] = []
    for growth in range(1 + growths):
        if growth:
            spec = replace(spec, H=math.ceil(spec.H * GROWTH))
            reason = f"H raised to {spec.H}: fewer heads did not hold all facts"
            layer, told = replace(layer, spec=spec), replace(told, why=(*told.why, reason))
        layer.progress(f"fitting {facts.T:,} facts on {spec.H * spec.d_h + spec.d:,} features")
        weights, x_S, F = layer.random()
        fit = convex_readout(F, x_S, W_U[:, answers].T, right, torch.tensor(facts.prior))
        weights = complete(spec, in_basis(weights, fit.M_0), fit.W_O, W_U)
        record = replace(told, iterations=fit.iterations, beta=BETAS[0])
        tried.append(held(layer.memory(weights, record), facts))
        if not tried[-1].construction.lost:
            break
    return holding(max(tried, key=lambda memory: memory.construction.recalled or 0), facts)


def check_admissible(spec: AttentionOnlySpec, T: int, last_tokens: int) -> None:
    """Refuse, with the theorem's reason, what Corollary 1 does not cover."""
    if spec.d_h > spec.d:
        raise CapacityError(f"d_h <= d is needed: {spec.d_h} > {spec.d}. Use `d_h={spec.d}`.")
    capacity = corollary1_capacity(spec, last_tokens)
    if capacity >= T:
        return
    heads, skip = corollary1_heads(T, spec.d, spec.d_h, last_tokens), f"{spec.d}"
    if last_tokens < spec.d:
        skip = f"min({spec.d}, {last_tokens} distinct last tokens)"
    raise CapacityError(
        f"{T:,} facts are more than H·d_h + d = {spec.H}·{spec.d_h} + {skip} = {capacity:,}, what "
        f"d={spec.d}, H={spec.H}, d_h={spec.d_h} holds for certain (Dana et al. 2025, "
        f"Corollary 1). Use `H={heads}` or more, or `readout=convex`, which often holds more."
    )


def complete(spec: AttentionOnlySpec, weights: Weights, W_O: Tensor, W_U: Tensor) -> Weights:
    """Embeddings and heads with the read-out W_O (H d_h, d) and W_U."""
    return {**weights, "W_O": W_O.reshape(1, spec.H, spec.d_h, spec.d), "W_U": W_U}


def unread_parts(W_U: Tensor, T: int, seed: int) -> Tensor:
    """Random vectors (T, d) of about unit length in the directions that no column of W_U reads."""
    directions, sizes, _ = torch.linalg.svd(W_U)
    free = directions[:, int((sizes > 1e-9 * sizes[0]).sum()) :]
    return gaussians(seed + 1)(T, free.shape[1]) @ free.T / math.sqrt(len(W_U))


def gaussians(seed: int) -> Callable[..., Tensor]:
    """Normal float64 tensors of any shape, one after the other from one stream."""
    generator = torch.Generator().manual_seed(seed)
    return partial(torch.randn, generator=generator, dtype=torch.float64)


def random_attention(spec: AttentionOnlySpec, seed: int, beta: float) -> Weights:
    """Generic e, pos, W_Q, W_K, W_V: |x|² ≈ 1, scores of standard deviation β, orthonormal W_V."""
    heads, d, r, gaussian = (1, spec.H), spec.d, spec.qk_rank, gaussians(seed)
    # A product of two rank-r Gaussian factors has scores of variance r: r^(1/4) in each undoes it.
    half_score = math.sqrt(beta) / r**0.25
    if spec.scale:
        half_score *= r**0.25
    return {
        "W_E": gaussian(spec.N, d) * math.sqrt(TOKEN_SHARE / d),
        "W_pos": gaussian(spec.S, d) * math.sqrt(POSITION_SHARE / d),
        "W_Q": gaussian(*heads, d, r) * half_score,
        "W_K": gaussian(*heads, d, r) * half_score,
        "W_V": torch.linalg.qr(gaussian(*heads, d, spec.d_h)).Q.contiguous(),
    }


def in_basis(weights: Weights, M_0: Tensor) -> Weights:
    """The same scores and features, with the skip x_S M_0 instead of x_S."""
    back, info = torch.linalg.inv_ex(M_0)
    if int(info) != 0:
        raise RankError("the matrix M_0 of the change of basis is singular")
    moved = {name: weights[name] @ M_0 for name in ("W_E", "W_pos")}
    return moved | {name: back @ weights[name] for name in ("W_Q", "W_K", "W_V")}


def features(spec: AttentionOnlySpec, weights: Weights, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """x_S (T, d) and F (T, H d_h) of all facts, in batches of bounded memory."""
    stacked = {name: w[None] for name, w in weights.items()}
    T = len(tokens)
    x_S = torch.empty(T, spec.d, dtype=torch.float64)
    F = torch.empty(T, spec.H * spec.d_h, dtype=torch.float64)
    step = max(1, BATCH_BYTES // spec.row_bytes(8))
    for i in range(0, T, step):
        skip, heads = head_outputs(spec, stacked, tokens[i : i + step])
        x_S[i : i + step] = skip[0]
        F[i : i + step] = heads[0].flatten(1)
    return x_S, F


def rounded(weights: Weights, dtype: torch.dtype) -> Weights:
    """The weights as `dtype` stores them, as float64."""
    return {name: w.to(dtype).to(torch.float64) for name, w in weights.items()}


def associative_weights(facts: Facts, spec: AssociativeSpec, seed: int = 0) -> dict[str, Tensor]:
    """Weights (no model axis, float64) of the associative memory that adds up all facts."""
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, (spec.S, spec.N, spec.d), generator=generator)
    W_E = (2 * signs - 1).to(torch.float64)
    _, W_U = unembedding(facts.answer_ids, spec.d, spec.N, seed)
    tokens, right = torch.tensor(facts.tokens), torch.tensor(facts.answers)
    keys = associative.keys(spec, {"W_E": W_E[None]}, tokens)[0]
    return {"W_E": W_E, "W": keys.T @ W_U[:, right].T, "W_U": W_U}


def associative_memory(
    facts: Facts, options: Associative, seed: int, progress: Report
) -> TokenMemory:
    """The Hebbian sum; without `d`, the width is doubled until every fact is recalled."""
    d, dtype = options.d, DTYPES[options.dtype]
    width = d or 16
    while True:
        spec = AssociativeSpec(N=facts.N, S=facts.S, d=width)
        check_fits(0, spec.parameters, f"an associative memory of width {width:,}")
        progress(f"adding up {facts.T:,} facts in a {width} x {width} matrix")
        weights = associative_weights(facts, spec, seed)
        made = AssociativeConstruction(readout="sum", capacity=width)
        memory = held(as_stored(TokenMemory, spec, weights, dtype, facts, made), facts)
        lost = memory.construction.lost
        if not lost or d is not None or width >= WIDEST:
            break
        width *= 2
    reason = ": the first power of two at which the cross-talk stays below the margin"
    if d is not None or lost:
        reason = ": the largest width tried" if d is None else " as asked"
    construction = replace(memory.construction, why=(f"d = {width}{reason}",))
    return holding(replace(memory, construction=construction), facts)
