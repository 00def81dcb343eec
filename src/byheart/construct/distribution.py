"""Attention-only memories of distributions (Dana et al. 2025, Theorems 1 and 3).

An encoder f = W E of rank d comes first: no width-d model is nearer to π (Proposition 1). Then
W_U = W, the heads are random as in `attention_only`, and W_O makes x_S + F W_O follow E, by one of
the read-outs of docs/distributions.md. The softmax runs over the answers only; tokens that are
never answers have zero columns in W_U.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from byheart._progress import Report
from byheart.construct.attention_only import (
    BETAS,
    CHANGED_BASIS,
    Layer,
    check_admissible,
    complete,
    in_basis,
)
from byheart.construct.choice import attention_spec
from byheart.construct.encoders import Encoder, encode
from byheart.construct.methods import DistributionAttention
from byheart.construct.readout import ReadoutTask, kl_readout, ridge_readout
from byheart.construct.solve import (
    DTYPES,
    RankError,
    as_stored,
    check_fits,
    minimum_norm,
    solve_bytes,
)
from byheart.errors import ByheartError, CapacityError, CheckFailed
from byheart.facts import Distributions
from byheart.models.attention_only import Weights
from byheart.models.construction import DistributionConstruction, Theorem1Excess, Theorem3Quantities
from byheart.models.token_memory import DistributionMemory
from byheart.specs import AttentionOnlySpec
from byheart.theory import corollary1_capacity, dana2025
from byheart.theory.divergences import kl, log_ratio, top_answers, total_variation

DEFAULT_WIDTH = 32  # beyond it, `d` says what the rank is worth
MOST_CONDITION = {torch.float32: 1e2, torch.float64: 1e3}  # of M_0, so that scores survive it
MOST_FEATURES = 2000  # chosen by default: a solve of some seconds
SVD_UP_TO = 1200  # features: above, the second way to C takes minutes


@dataclass(frozen=True)
class _Task(Layer):
    """What every read-out starts from."""

    table: Distributions
    encoder: Encoder

    @property
    def targets(self) -> Tensor:
        return torch.from_numpy(self.encoder.E.copy())

    def unembedding(self, W: Tensor | None = None) -> Tensor:
        """W_U with the encoder's W (or another) in the columns of the answers."""
        W = torch.from_numpy(self.encoder.W.copy()) if W is None else W
        W_U = torch.zeros(self.spec.d, self.spec.N, dtype=torch.float64)
        W_U[:, torch.tensor(self.table.support)] = W.T
        return W_U


def distribution_memory(
    table: Distributions, options: DistributionAttention, seed: int, progress: Report
) -> DistributionMemory:
    """A memory whose softmax over the answers is near π_t, verified as stored."""
    spec, why = _sizes(table, options)
    facts, dtype = table.facts, DTYPES[options.dtype]
    check_admissible(spec, 0, facts.last_tokens)
    m = spec.H * spec.d_h + spec.d
    system = solve_bytes(min(table.T, m), max(table.T, m))
    check_fits(system, spec.parameters, f"a read-out of {table.T:,} sequences")
    capacity, readout = corollary1_capacity(spec, facts.last_tokens), options.readout
    if readout == "auto":
        readout = "exact" if capacity >= table.T else "convex"
        said = ">= {:,} sequences (Theorem 1, ε = 0)" if readout == "exact" else "< {:,} sequences"
        why.append(f"{readout} read-out: H·d_h + d = {capacity:,} {said.format(table.T)}")
    if readout == "exact":
        check_admissible(spec, table.T, facts.last_tokens)
    encoder = options.encoder
    if isinstance(encoder, str):
        encoder = encode(table, spec.d, encoder, seed=seed, progress=progress)
    why.append(f"encoder: {encoder.why}")
    task = _Task(facts, spec, dtype, seed, progress, table, encoder.balanced())
    solve = {"exact": _exact, "literal": _literal}.get(readout, partial(_fitted, readout=readout))
    weights, record = solve(task)
    pi, prior = table.probabilities, table.prior
    construction = DistributionConstruction(
        readout=readout,
        capacity=capacity,
        encoder=encoder.name,
        kl=0.0,  # the divergences are measured from the stored weights, below
        kl_encoder=_mean_kl(table, encoder.logits),
        total_variation=0.0,
        max_log_ratio=0.0,
        entropy=float(prior @ table.entropy),
        why=tuple(why),
        **record,
    )
    make = partial(DistributionMemory, distribution=table)
    memory = as_stored(make, spec, weights, dtype, facts, construction)
    f = memory.answer_logits()
    construction = replace(
        construction,
        kl=_mean_kl(table, f),
        total_variation=float(prior @ total_variation(pi, f)),
        max_log_ratio=float(log_ratio(pi, f).max()),
        recalled=int(top_answers(pi, f).sum()),
    )
    if not math.isfinite(construction.kl):
        raise CheckFailed(
            f"the stored {options.dtype} weights give no finite divergence at d={spec.d}, "
            f"H={spec.H}. Nothing was written. Use `dtype=float64` or more heads."
        )
    return replace(memory, construction=construction)


def _mean_kl(table: Distributions, f: np.ndarray) -> float:
    """d_KL; what rounding makes negative is 0, and NaN stays NaN."""
    found = float(table.prior @ kl(table.probabilities, f))
    return 0.0 if found < 0 else found


def _sizes(
    table: Distributions, options: DistributionAttention
) -> tuple[AttentionOnlySpec, list[str]]:
    why: list[str] = []
    d, H, d_h, encoder = options.d, options.H, options.d_h, options.encoder
    if isinstance(encoder, Encoder):
        if d is not None and d != encoder.d:
            raise ByheartError(f"`d={d}` and an encoder of rank {encoder.d} disagree")
        d = encoder.d
    exact = min(table.T, table.A - 1)
    if d is None:
        d = max(min(exact, DEFAULT_WIDTH), d_h or 1)
        why.append(
            f"d = {d} = min(T, A - 1): the rank that leaves no divergence (Proposition 2)"
            if d >= exact
            else f"d = {d}: a default; exact would be d = {exact:,} (Proposition 2)"
        )
    elif d >= exact:
        why.append(f"d = {d} >= min(T, A - 1) = {exact:,}: this rank costs nothing (Proposition 2)")
    d_h = d if d_h is None else d_h
    if H is None:
        wanted = min(table.T * (1 + options.slack), MOST_FEATURES)
        H = max(1, math.ceil(wanted / d_h))
        why.append(f"H = {H}: H·d_h >= {wanted:,.0f} for {table.T:,} sequences")
    return attention_spec(table.facts, why, d=d, d_h=d_h, H=H, qk_rank=options.qk_rank or d_h), why


Solved = tuple[Weights, dict]  # weights, and fields of the construction


def _exact(task: _Task) -> Solved:
    """F W_O + x_S M_0 = E for all sequences: Theorem 1 with ε = 0, by the solve of Corollary 1."""
    spec, failure = task.spec, ""
    W_U = task.rounded({"W_U": task.unembedding()})["W_U"]
    for beta, made in task.draws(task.targets, W_U):
        if not isinstance(made, RankError):
            told = {"condition": made.solution.condition, "skip": made.skip}
            return made.weights, told | {"eps": 0.0, "beta": beta}
        failure = f"β = {beta:g}: {made}"
    failure = f"the keys are not generic enough for Lemma 2 at {spec}: {failure}"
    raise CapacityError(f"{failure}. Use more heads, or `readout=convex`.")


def _fitted(task: _Task, readout: str) -> Solved:
    """Ridge on E over all sequences; "convex" and "joint" go on from there on d_KL itself."""
    spec, table, dtype = task.spec, task.table, task.dtype
    nominal, x_S, F = task.random()
    problem = ReadoutTask(
        torch.cat([F, x_S], 1),
        x_S,
        torch.from_numpy(task.encoder.W.copy()),
        torch.from_numpy(table.probabilities.copy()),
        torch.from_numpy(table.prior.copy()),
    )
    task.progress(f"ridge read-out of {table.T:,} sequences on {problem.X.shape[1]:,} features")
    fit = ridge_readout(problem, task.targets)
    record = {"ridge": fit.ridge, "kl_ridge": fit.kl}
    if readout in ("convex", "joint"):
        task.progress(f"convex KL read-out of {table.T:,} sequences")
        fit = kl_readout(problem, fit.V)
        record |= {"kl_convex": fit.kl, "iterations": fit.iterations}
    record |= _theorems(table, task.encoder, problem.X.numpy())
    if readout == "joint":
        task.progress(f"read-out and unembedding of {table.T:,} sequences at once")
        fit = kl_readout(problem, fit.V, with_W=True)
        record["iterations"] += fit.iterations
    W = problem.W if fit.W is None else fit.W
    M_0 = torch.eye(spec.d, dtype=torch.float64) + fit.V[-spec.d :]
    M_0, record["condition"], clipped = _well_conditioned(M_0, MOST_CONDITION[dtype])
    W_O = fit.V[: -spec.d]
    weights = task.rounded(in_basis(nominal, M_0))
    if clipped or dtype != torch.float64:
        # The basis moved the skip or the features: fit W_O once more to what is really stored.
        x_S, F = task.features(weights)
        stored = replace(problem, X=F, base=x_S, W=W)
        again = ridge_readout(stored, task.targets) if readout == "ridge" else None
        W_O = (again or kl_readout(stored, W_O)).V
    weights = complete(spec, weights, W_O, task.unembedding(W))
    return task.rounded(weights), record | {"beta": BETAS[0], "skip": CHANGED_BASIS}


def _well_conditioned(M_0: Tensor, most: float) -> tuple[Tensor, float, bool]:
    """M_0 with singular values of at least 1/most of the largest, its condition number, and
    whether it had to be changed: scores pass through M_0 and its inverse, and would be rounding
    errors where a read-out ignores a direction of the skip."""
    U, s, Vt = torch.linalg.svd(M_0)
    least = s[0] / most
    if s[-1] >= least:
        return M_0, float(s[0] / s[-1]), False
    return U * s.clamp_min(least) @ Vt, most, True


def _literal(task: _Task) -> Solved:
    """Theorem 1 as written: X_1 [W_O; M_0] = E_1 on the m = H d_h + d likely sequences."""
    spec, table = task.spec, task.table
    m = spec.H * spec.d_h + spec.d
    if table.T < m or table.facts.last_tokens < spec.d:
        raise CapacityError(
            f"the square solve of Theorem 1 needs T >= H·d_h + d = {m:,} sequences and d = "
            f"{spec.d} distinct last tokens, found {table.T:,} and {table.facts.last_tokens}. "
            "Use fewer heads, or `readout=exact`."
        )
    nominal, x_S, F = task.random()
    X = torch.cat([F, x_S], 1)
    likely = torch.from_numpy(table.by_prior()[:m].copy())
    task.progress(f"solving for the {m:,} likely sequences")
    try:
        solution = minimum_norm(X[likely], task.targets[likely])
    except RankError as error:
        told = f"X_1 is singular: {error}. Use another `seed` or other sizes."
        raise CapacityError(told) from None
    W_O, M_0 = solution.W[: -spec.d], solution.W[-spec.d :]
    weights = complete(spec, in_basis(nominal, M_0), W_O, task.unembedding())
    record = {"condition": solution.condition, "beta": BETAS[0], "skip": CHANGED_BASIS}
    return task.rounded(weights), record | _theorems(table, task.encoder, X.numpy())


def _theorems(table: Distributions, encoder: Encoder, X: np.ndarray) -> dict:
    """What Theorems 1 and 3 say about the features X (T, m) = [F, x_S]: fields of the construction.

    ε is the prior of all but the m likely sequences. Theorem 1: C in two ways, ||W E||_2 (of the
    logits without their mean in each sequence, which softmax does not see) and both bounds on
    d_KL(π, T) - d_KL(π, f). Theorem 3: the pieces of d_KL(π, M) + O(ε log 1/ε): δ = max |log π /
    softmax f| over the support, `logit_range` the max f_t - min f_t that Lemma 4 bounds by
    O(log 1/δ), `per_log` its quotient by log 1/p with p the smallest positive probability.
    """
    m, order = X.shape[1], table.by_prior()
    eps = float(table.prior[order[m:]].sum())
    f, positive = encoder.logits, table.probabilities[table.probabilities > 0]
    logit_range = float((f.max(axis=1) - f.min(axis=1)).max())
    theorem3 = Theorem3Quantities(
        delta=float(log_ratio(table.probabilities, f).max()),
        logit_range=logit_range,
        per_log=logit_range / max(math.log(1 / float(positive.min())), 1e-300),
        eps_log=eps * math.log(1 / eps) if eps > 0 else 0.0,
    )
    theorem1 = Theorem1Excess(C=1.0, C_svd=1.0, excess=0.0, sharp=0.0)
    if m < table.T:
        X, centred = X[order].T, f - f.mean(axis=1, keepdims=True)
        pi, prior, E = table.probabilities[order], table.prior[order], encoder.E[order].T
        try:
            C = dana2025.theorem1_constant(X[:, :m], X[:, m:])
            svd = dana2025.theorem1_constant_svd(X[:, :m], X[:, m:]) if m <= SVD_UP_TO else None
            sharp = dana2025.theorem1_excess_per_sequence(pi, prior, encoder.W, E, X)
            excess, norm = dana2025.theorem1_excess(C, eps, centred), np.linalg.norm(centred, 2)
            theorem1 = Theorem1Excess(C=C, C_svd=svd, norm=float(norm), excess=excess, sharp=sharp)
        except ByheartError as error:
            theorem1 = Theorem1Excess(reason=str(error))
    return {"eps": eps, "theorem1": theorem1, "theorem3": theorem3}
