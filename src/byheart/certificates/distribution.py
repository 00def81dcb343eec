"""Proofs about distributions: max |log π - log softmax T| and d_KL(π, T), with error bounds.

With f̂ the computed logits of the answers, |f - f̂| <= e, and c = max f̂: log softmax is
s_j - log Σ_k exp s_k with s = f̂ - c. An error e_j of a logit moves log softmax_j by at most
e_j + max e; the rest is rounding (`rounding`: model of arithmetic). log is assumed to be within a
factor 1 ± `LOG_ERROR` of its value, as exp is; a test compares it with ball arithmetic.

What is claimed: the memory records d_KL and max |log π - log softmax| when it is built. The
certificate proves both, up to a relative 1e-6 and an absolute 1e-6, for the weights as stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from flint import arb, arb_mat, ctx
from torch import Tensor

from byheart.certificates import ball, rounding
from byheart.certificates.rounding import EXP_ERROR, Bounded, U, gamma
from byheart.certificates.statement import DistributionProof
from byheart.errors import ByheartError, FactsError
from byheart.facts import Distributions
from byheart.models import Memory
from byheart.specs import AttentionOnlySpec

LOG_ERROR = 2.0**-47
RELATIVE, ABSOLUTE = 1e-6, 1e-6  # what a proof may add to the recorded numbers


@dataclass(frozen=True)
class Evaluated:
    """Upper ends (T,) of the largest log ratio, and lower and upper ends (T,) of KL_t; NaN where
    a sequence could not be evaluated."""

    log_ratio: np.ndarray
    kl_lower: np.ndarray
    kl_upper: np.ndarray


def log_ratios(values: Bounded, pi: Tensor) -> Evaluated:
    """Bounds from logits (B, A) of the answers with errors, and π (B, A)."""
    s = values.value - values.value.amax(1, keepdim=True)
    A = s.shape[1]
    # The largest term of the sum is 1, so what underflows does not count.
    eta = (2 * U * s.abs()).amax(1, keepdim=True)
    total = torch.exp(s).sum(1, keepdim=True)
    relative = torch.expm1(2 * eta + 4 * EXP_ERROR + 4 * gamma(A + 4)) * (1 + 2.0**-30)
    log_total = total.log()
    log_q = s - log_total
    error = values.error + values.error.amax(1, keepdim=True)
    error = error + 2 * relative + LOG_ERROR * log_total.abs() + 4 * U * (s.abs() + log_q.abs())
    positive = pi > 0
    log_pi = torch.where(positive, pi, 1.0).log()
    Z = log_pi - log_q
    error = error + LOG_ERROR * log_pi.abs() + 2 * U * Z.abs()
    ends = torch.where(positive, Z.abs() + error, 0.0).amax(1)
    kl = (pi * Z).sum(1)
    slack = (pi * error).sum(1) + 2 * gamma(A + 2) * (pi * Z.abs()).sum(1)
    # All of these are sums of at most A + 20 non-negative terms: 2^-30 covers their own rounding.
    wide = slack * (1 + 2.0**-30) + 2.0**-900
    return Evaluated((ends * (1 + 2.0**-50)).numpy(), (kl - wide).numpy(), (kl + wide).numpy())


def evaluate(
    memory: Memory,
    table: Distributions,
    tokens: np.ndarray,
    support: np.ndarray,
    arithmetic: str,
    precision: int,
    progress: Callable[[str], None],
) -> Evaluated:
    """Bounds for every sequence, in the arithmetic asked for."""
    spec = memory.spec
    if not isinstance(spec, AttentionOnlySpec):
        raise ByheartError(f"distributions are certified for attention-only layers, not {spec}")
    ids = memory.with_start(tokens)
    weights = {name: w.to(torch.float64) for name, w in memory.weights.items()}
    if not rounding.admissible(weights):
        return Evaluated(*(np.full(len(ids), np.nan) for _ in range(3)))
    columns = torch.from_numpy(support.copy())
    answers_only = weights | {"W_U": weights["W_U"][:, columns]}
    pi = torch.from_numpy(table.probabilities.copy())
    if arithmetic == "ball":
        return _in_balls(spec, answers_only, ids.numpy(), pi.numpy(), precision, progress)
    parts = []
    for batch in memory.batches(len(ids), copies=3):
        if arithmetic == "rounding":
            values = rounding.logits(spec, answers_only, ids[batch])
            parts.append(log_ratios(values, pi[batch]))
        else:
            f = memory.logits(ids[batch], torch.float64)[:, columns]
            parts.append(_plain(f.numpy(), pi[batch].numpy()))
        progress(f"{batch.stop:,} of {len(ids):,} sequences")
    names = ("log_ratio", "kl_lower", "kl_upper")
    return Evaluated(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _plain(f: np.ndarray, pi: np.ndarray) -> Evaluated:
    from byheart.theory.divergences import kl, log_ratio

    once = kl(pi, f)
    return Evaluated(log_ratio(pi, f), once, once)


def _in_balls(
    spec: AttentionOnlySpec,
    weights: dict[str, Tensor],
    tokens: np.ndarray,
    pi: np.ndarray,
    precision: int,
    progress: Callable[[str], None],
) -> Evaluated:
    """The same in Arb: every number with a radius, nothing assumed of exp and log."""
    old, ctx.prec = ctx.prec, precision
    try:
        out = ball.residuals(spec, weights, tokens, progress)
        frame = arb_mat(weights["W_U"].tolist())
        ends = np.empty((3, len(out)))
        for t, residual in enumerate(out):
            f = (arb_mat([residual]) * frame).entries()
            top = max(f, key=float).mid()
            total = sum(((v - top).exp() for v in f), arb(0))
            log_total = total.log() + top
            largest, kl = arb(0), arb(0)
            for v, p in zip(f, pi[t].tolist(), strict=True):
                if p > 0:
                    Z = arb(p).log() - (v - log_total)
                    largest, kl = largest.max(abs(Z)), kl + arb(p) * Z
            middle, radius = ball.outward(largest)
            kl_middle, kl_radius = ball.outward(kl)
            ends[:, t] = middle + radius, kl_middle - kl_radius, kl_middle + kl_radius
        # Adding middle and radius rounded once.
        spread = 2.0**-52 * np.abs(ends)
        return Evaluated(ends[0] + spread[0], ends[1] - spread[1], ends[2] + spread[2])
    finally:
        ctx.prec = old


def summarise(
    memory: Memory, table: Distributions, found: Evaluated
) -> tuple[DistributionProof, np.ndarray]:
    """The proof, and which sequences stay within what the memory claims (NaN never does)."""
    made = memory.construction
    claimed_kl, claimed_ratio = made.get("kl"), made.get("max_log_ratio")
    if claimed_kl is None or claimed_ratio is None:
        raise FactsError(
            "this memory claims no distribution (it was built for single answers): give facts."
        )
    # A sum of T products p_t KL_t with rounded terms of either sign.
    rounding_of_sum = 2 * gamma(table.T + 2)
    kl = float(table.prior @ found.kl_upper)
    kl += rounding_of_sum * float(table.prior @ np.abs(found.kl_upper))
    lower = float(table.prior @ found.kl_lower)
    lower -= rounding_of_sum * float(table.prior @ np.abs(found.kl_lower))
    proof = DistributionProof(
        kl=kl,
        kl_lower=max(lower, 0.0) if np.isfinite(lower) else lower,
        max_log_ratio=float(found.log_ratio.max()),
        claimed_kl=claimed_kl,
        claimed_max_log_ratio=claimed_ratio,
        answers=table.A,
    )
    within = found.log_ratio <= allowed(claimed_ratio)
    return proof, within


def allowed(claimed: float) -> float:
    """What a proof of a recorded number may come to."""
    return claimed * (1 + RELATIVE) + ABSOLUTE
