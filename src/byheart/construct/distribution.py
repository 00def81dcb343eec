"""Attention-only memories of distributions (Dana et al. 2025, Theorems 1 and 3).

An encoder f = W E of rank d comes first: no width-d model is nearer to π (Proposition 1). Then
W_U = W, the heads are random as in `attention_only`, and W_O makes x_S + F W_O follow E:

exact    H d_h + d >= T_0: interpolates E, d_KL(π, memory) = d_KL(π, encoder) (ε = 0).
convex   fewer heads: the convex KL problem in [W_O, M_0] over all sequences (default there).
joint    the same and W_U at once: not convex any more, never worse, better at low entropy.
ridge    fewer heads: prior-weighted least squares on E.
literal  fewer heads: the paper's square solve on the m = H d_h + d likely sequences. Its bound
         sqrt 2 C ε ||W E|| holds, and is as large as what it bounds: the others are extrapolated.

The softmax runs over the answers only; tokens that are never answers have zero columns in W_U.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from byheart.construct.attention_only import (
    attention_only_weights,
    check_admissible,
    features,
    in_basis,
    random_attention,
    rounded,
)
from byheart.construct.choose import check_slack
from byheart.construct.dense import BETAS, SEED_STRIDE
from byheart.construct.distribution_readout import (
    ReadoutTask,
    convex_kl_readout,
    joint_kl_readout,
    ridge_readout,
)
from byheart.construct.distribution_theory import theorem1_quantities, theorem3_quantities
from byheart.construct.encoders import Encoder, encode
from byheart.construct.outcome import Progress, check_fits, weight_bytes
from byheart.construct.solve import RankError, minimum_norm, solve_bytes
from byheart.errors import ByheartError, CapacityError, CheckFailed
from byheart.facts import Distributions
from byheart.models.attention_only import Weights
from byheart.models.memory import Memory
from byheart.specs import AttentionOnlySpec
from byheart.theory import corollary1_capacity
from byheart.theory.divergences import kl, log_ratio, top_answers, total_variation

READOUTS: tuple[str, ...] = ("auto", "exact", "convex", "joint", "ridge", "literal")
DTYPES = {"float32": torch.float32, "float64": torch.float64}
DEFAULT_WIDTH = 32  # beyond it, --d-model says what the rank is worth
MOST_CONDITION = {torch.float32: 1e2, torch.float64: 1e3}  # of M_0, so that scores survive it
MOST_FEATURES = 2000  # chosen by default: a solve of some seconds


def build_distribution(
    table: Distributions,
    *,
    d: int | None = None,
    H: int | None = None,
    d_h: int | None = None,
    qk_rank: int | None = None,
    encoder: str | Encoder = "best",
    readout: str = "auto",
    dtype: str = "float64",
    slack: float = 0.05,
    seed: int = 0,
    progress: Progress = lambda _: None,
) -> Memory:
    """A memory whose softmax over the answers is near π_t for every sequence, verified as stored.

    `readout`: "auto" is "exact" where H d_h + d >= T and "convex" elsewhere. `encoder`: a name of
    `byheart.construct.encoders.ENCODERS`, "best", or an encoder.

    >>> import byheart as bh
    >>> memory = build_distribution(bh.random_distributions("gauss", N=6, seed=1), d=5)
    >>> memory.construction["kl"] < 1e-12  # d = N - 1 and H d_h >= T: exact
    True
    """
    started = time.perf_counter()
    for name, value, known in (("readout", readout, READOUTS), ("dtype", dtype, tuple(DTYPES))):
        if value not in known:
            raise ByheartError(f"{name} must be one of {', '.join(known)}, found {value!r}")
    spec, why = _sizes(table, d, H, d_h, qk_rank, slack, encoder)
    check_admissible(spec, 0, table.facts.last_tokens)
    m = spec.H * spec.d_h + spec.d
    check_fits(
        solve_bytes(min(table.T, m), max(table.T, m)) + weight_bytes(spec.parameters),
        f"a read-out of {table.T:,} sequences",
    )
    capacity = corollary1_capacity(spec, table.facts.last_tokens)
    if readout == "auto":
        readout = "exact" if capacity >= table.T else "convex"
        why.append(_reason(readout, capacity, table.T))
    if readout == "exact":
        check_admissible(spec, table.T, table.facts.last_tokens)
    if isinstance(encoder, str):
        encoder = encode(table, spec.d, encoder, seed=seed, progress=progress)
    why.append(f"encoder: {encoder.why}")
    way = {"exact": _exact, "literal": _literal}.get(readout, _fitted)
    weights, record = way(table, spec, encoder.balanced(), readout, DTYPES[dtype], seed, progress)
    memory = _memory(table, spec, weights, DTYPES[dtype])
    pi, prior = table.probabilities, table.prior
    f = answer_logits(memory, table)
    construction = {
        "method": "attention",
        "kind": "distribution",
        "readout": readout,
        "capacity": capacity,
        "encoder": encoder.name,
        "kl": _mean_kl(table, f),
        "kl_encoder": _mean_kl(table, encoder.logits),
        "total_variation": float(prior @ total_variation(pi, f)),
        "max_log_ratio": float(log_ratio(pi, f).max()),
        "entropy": float(prior @ table.entropy),
        "recalled": int(top_answers(pi, f).sum()),
        "facts": table.T,
        "lost": [],
        "margin": None,
        **record,
        "why": why,
        "dtype": dtype,
        "seed": seed,
        "seconds": time.perf_counter() - started,
    }
    if not math.isfinite(construction["kl"]):
        raise CheckFailed(
            f"the stored {dtype} weights give no finite divergence at d={spec.d}, H={spec.H}. "
            "Nothing was written. Use --dtype float64 or more heads."
        )
    return replace(memory, construction=construction)


def _mean_kl(table: Distributions, f: np.ndarray) -> float:
    """d_KL; what rounding makes negative is 0, and NaN stays NaN."""
    found = float(table.prior @ kl(table.probabilities, f))
    return 0.0 if found < 0 else found


def answer_logits(memory: Memory, table: Distributions) -> np.ndarray:
    """Logits (T, A) of the answers, the stored weights evaluated in float64."""
    ids = memory.with_start(table.tokens)
    support = torch.tensor(table.support)
    parts = [
        memory.logits(ids[batch], torch.float64)[:, support] for batch in memory.batches(len(ids))
    ]
    return torch.cat(parts).numpy()


def _sizes(
    table: Distributions,
    d: int | None,
    H: int | None,
    d_h: int | None,
    qk_rank: int | None,
    slack: float,
    encoder: str | Encoder,
) -> tuple[AttentionOnlySpec, list[str]]:
    check_slack(slack)
    why: list[str] = []
    for flag, value in (
        ("--d-model", d),
        ("--heads", H),
        ("--d-head", d_h),
        ("--qk-rank", qk_rank),
    ):
        if value is not None and value < 1:
            raise ByheartError(f"{flag} must be at least 1, found {value}")
    if isinstance(encoder, Encoder):
        if d is not None and d != encoder.d:
            raise ByheartError(f"--d-model {d} and an encoder of rank {encoder.d} disagree")
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
        why.append(f"d = {d} >= min(T, A - 1) = {exact:,}: no divergence is left to the rank")
    d_h = d if d_h is None else d_h
    if H is None:
        wanted = min(table.T * (1 + slack), MOST_FEATURES)
        H = max(1, math.ceil(wanted / d_h))
        why.append(f"H = {H}: H·d_h >= {wanted:,.0f} for {table.T:,} sequences")
    S, N = table.S, table.N
    if S == 1:
        S, N = 2, N + 1
        why.append("a start token stands in front: attention over one position is constant")
    spec = AttentionOnlySpec(N=N, S=S, d=d, d_h=d_h, H=H, qk_rank=qk_rank or d_h)
    return spec, why


def _reason(readout: str, capacity: int, T: int) -> str:
    if readout == "exact":
        return f"exact read-out: H·d_h + d = {capacity:,} >= {T:,} sequences (Theorem 1, ε = 0)"
    return f"convex read-out: H·d_h + d = {capacity:,} < {T:,} sequences"


def _tokens(table: Distributions, spec: AttentionOnlySpec) -> Tensor:
    tokens = torch.tensor(table.tokens)
    if spec.S == table.S:
        return tokens
    return torch.cat([torch.full((table.T, 1), spec.N - 1), tokens], dim=1)


def _unembedding(table: Distributions, spec: AttentionOnlySpec, W: Tensor) -> Tensor:
    W_U = torch.zeros(spec.d, spec.N, dtype=torch.float64)
    W_U[:, torch.tensor(table.support)] = W.T
    return W_U


Made = tuple[Weights, dict[str, Any]]


def _exact(
    table: Distributions,
    spec: AttentionOnlySpec,
    encoder: Encoder,
    readout: str,
    dtype: torch.dtype,
    seed: int,
    progress: Progress,
) -> Made:
    """F W_O + x_S M_0 = E for all sequences: Theorem 1 with ε = 0, by the solve of Corollary 1."""
    W_U = rounded({"W_U": _unembedding(table, spec, torch.from_numpy(encoder.W.copy()))}, dtype)[
        "W_U"
    ]
    targets, tokens = torch.from_numpy(encoder.E.copy()), _tokens(table, spec)
    failures = []
    for attempt, beta in enumerate(BETAS):
        progress(f"solving for {table.T:,} sequences in {spec.H * spec.d_h:,} head outputs")
        try:
            made = attention_only_weights(
                spec,
                tokens,
                targets,
                W_U,
                seed=seed + SEED_STRIDE * attempt,
                beta=beta,
                dtype=dtype,
            )
        except RankError as error:
            failures.append(f"β = {beta:g}: {error}")
            continue
        record = {"condition": made.solution.condition, "eps": 0.0, "beta": beta, "skip": made.skip}
        return made.weights, record
    raise CapacityError(
        f"the keys are not generic enough for Lemma 2 at {spec}: {failures[-1]}. Use more heads, "
        "or --readout convex."
    )


def _fitted(
    table: Distributions,
    spec: AttentionOnlySpec,
    encoder: Encoder,
    readout: str,
    dtype: torch.dtype,
    seed: int,
    progress: Progress,
) -> Made:
    """Ridge on E over all sequences; "convex" and "joint" go on from there on d_KL itself."""
    nominal = random_attention(spec, seed, BETAS[0])
    tokens = _tokens(table, spec)
    x_S, F = features(spec, nominal, tokens)
    task = _task(table, encoder, torch.cat([F, x_S], 1), x_S)
    progress(f"ridge read-out of {table.T:,} sequences on {task.X.shape[1]:,} features")
    fit = ridge_readout(task, torch.from_numpy(encoder.E.copy()))
    record: dict[str, Any] = {"ridge": fit.ridge, "kl_ridge": fit.kl}
    if readout in ("convex", "joint"):
        progress(f"convex KL read-out of {table.T:,} sequences")
        fit = convex_kl_readout(task, fit.V)
        record |= {"kl_convex": fit.kl, "iterations": fit.iterations}
    record |= _theorems(table, encoder, task.X)
    if readout == "joint":
        progress(f"read-out and unembedding of {table.T:,} sequences at once")
        fit = joint_kl_readout(task, fit.V)
        record["iterations"] += fit.iterations
    W = task.W if fit.W is None else fit.W
    M_0 = torch.eye(spec.d, dtype=torch.float64) + fit.V[-spec.d :]
    M_0, condition, clipped = _well_conditioned(M_0, MOST_CONDITION[dtype])
    record["condition"] = condition
    W_O = fit.V[: -spec.d]
    weights = rounded(in_basis(nominal, M_0), dtype)
    if clipped or dtype != torch.float64:
        # The basis moved the skip or the features: fit W_O once more to what is really stored.
        x_S, F = features(spec, weights, tokens)
        stored = replace(task, X=F, base=x_S, W=W)
        if readout == "ridge":
            W_O = ridge_readout(stored, torch.from_numpy(encoder.E.copy())).V
        else:
            W_O = convex_kl_readout(stored, W_O).V
    weights["W_O"] = W_O.reshape(1, spec.H, spec.d_h, spec.d)
    weights["W_U"] = _unembedding(table, spec, W)
    return rounded(weights, dtype), record | {"beta": BETAS[0], "skip": "change of basis"}


def _well_conditioned(M_0: Tensor, most: float) -> tuple[Tensor, float, bool]:
    """M_0 with singular values of at least 1/most of the largest, its condition number, and
    whether it had to be changed.

    A read-out that ignores a direction of the skip has a singular M_0. Scores pass through M_0 and
    its inverse: beyond some condition number they are rounding errors.
    """
    U, s, Vt = torch.linalg.svd(M_0)
    least = s[0] / most
    if s[-1] >= least:
        return M_0, float(s[0] / s[-1]), False
    return U * s.clamp_min(least) @ Vt, most, True


def _literal(
    table: Distributions,
    spec: AttentionOnlySpec,
    encoder: Encoder,
    readout: str,
    dtype: torch.dtype,
    seed: int,
    progress: Progress,
) -> Made:
    """Theorem 1 as written: X_1 [W_O; M_0] = E_1 on the m = H d_h + d likely sequences."""
    m = spec.H * spec.d_h + spec.d
    if table.T < m or table.facts.last_tokens < spec.d:
        raise CapacityError(
            f"the square solve of Theorem 1 needs T >= H·d_h + d = {m:,} sequences and d = "
            f"{spec.d} distinct last tokens, found {table.T:,} and {table.facts.last_tokens}. "
            "Use fewer heads, or --readout exact."
        )
    nominal = random_attention(spec, seed, BETAS[0])
    x_S, F = features(spec, nominal, _tokens(table, spec))
    X = torch.cat([F, x_S], 1)
    likely = torch.from_numpy(table.by_prior()[:m].copy())
    progress(f"solving for the {m:,} likely sequences")
    try:
        solution = minimum_norm(X[likely], torch.from_numpy(encoder.E.copy())[likely])
    except RankError as error:
        raise CapacityError(
            f"X_1 is singular: {error}. Use another --seed or other sizes."
        ) from None
    weights = in_basis(nominal, solution.W[-spec.d :])
    weights["W_O"] = solution.W[: -spec.d].reshape(1, spec.H, spec.d_h, spec.d)
    weights["W_U"] = _unembedding(table, spec, torch.from_numpy(encoder.W.copy()))
    record = {"condition": solution.condition, "beta": BETAS[0], "skip": "change of basis"}
    return rounded(weights, dtype), record | _theorems(table, encoder, X)


def _task(table: Distributions, encoder: Encoder, X: Tensor, x_S: Tensor) -> ReadoutTask:
    return ReadoutTask(
        X,
        x_S,
        torch.from_numpy(encoder.W.copy()),
        torch.from_numpy(table.probabilities.copy()),
        torch.from_numpy(table.prior.copy()),
    )


def _theorems(table: Distributions, encoder: Encoder, X: Tensor) -> dict[str, Any]:
    return {
        **theorem1_quantities(table, encoder, X.numpy()),
        "theorem3": theorem3_quantities(table, encoder, X.shape[1]),
    }


def _memory(
    table: Distributions, spec: AttentionOnlySpec, weights: Weights, dtype: torch.dtype
) -> Memory:
    vocabulary, start_id = table.vocabulary, None
    if spec.S > table.S:
        vocabulary, start_id = vocabulary.with_special("<start>")
    return Memory(
        spec=spec,
        weights={name: w.to(dtype) for name, w in weights.items()},
        vocabulary=vocabulary,
        facts=table.facts,
        start_id=start_id,
        pad_id=table.facts.pad_id,
        distribution=table,
    )
