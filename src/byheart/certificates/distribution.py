"""Proofs about distributions: max |log π - log softmax T| and d_KL(π, T), with error bounds.

With f̂ the computed logits of the answers, |f - f̂| <= e, and c = max f̂: log softmax is
s_j - log Σ_k exp s_k with s = f̂ - c. An error e_j of a logit moves log softmax_j by at most
e_j + max e; the rest is rounding (`rounding`: model of arithmetic). log is assumed to be within a
factor 1 ± `LOG_ERROR` of its value, as exp is; a test compares it with ball arithmetic.

What is claimed: the memory records d_KL and max |log π - log softmax| when it is built. The
certificate proves both, up to a relative 1e-6 and an absolute 1e-6, for the weights as stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from flint import arb, arb_mat
from torch import Tensor

from byheart.certificates import ball
from byheart.certificates.architectures import ball_residuals, bounded_logits
from byheart.certificates.arithmetic import EXACT, FLOAT64, Bounded, U, finite, gamma
from byheart.certificates.proving import NOT_EVALUATED, Asked, certificate, in_vocabulary_of
from byheart.certificates.statement import (
    Certificate,
    DistributionCertificate,
    DistributionProof,
    Failure,
)
from byheart.errors import FactsError
from byheart.facts import Distributions
from byheart.models.construction import DistributionConstruction
from byheart.models.token_memory import TokenMemory
from byheart.theory.divergences import kl, log_ratio

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
    relative = torch.expm1(2 * eta + 4 * FLOAT64.exp + 4 * gamma(A + 4)) * (1 + 2.0**-30)
    log_total = total.log()
    log_q = s - log_total
    error = values.error + values.error.amax(1, keepdim=True)
    error = error + 2 * relative + LOG_ERROR * log_total.abs() + 4 * U * (s.abs() + log_q.abs())
    positive = pi > 0
    log_pi = torch.where(positive, pi, 1.0).log()
    Z = log_pi - log_q
    error = error + LOG_ERROR * log_pi.abs() + 2 * U * Z.abs()
    ends = torch.where(positive, Z.abs() + error, 0.0).amax(1)  # NaN where anything is
    kl = (pi * Z).sum(1)
    slack = (pi * error).sum(1) + 2 * gamma(A + 2) * (pi * Z.abs()).sum(1)
    # All of these are sums of at most A + 20 non-negative terms: 2^-30 covers their own rounding.
    wide = slack * (1 + 2.0**-30) + 2.0**-900 + (values.error.sum(1) - values.error.sum(1))
    return Evaluated((ends * (1 + 2.0**-50)).numpy(), (kl - wide).numpy(), (kl + wide).numpy())


def prove_distributions(memory: TokenMemory, table: Distributions, asked: Asked) -> Certificate:
    """Every sequence within the log ratio that the memory claims, and d_KL within its claim."""
    claim = memory.construction
    if not isinstance(claim, DistributionConstruction):
        raise FactsError(
            "this memory claims no distribution (it was built for single answers): give facts."
        )
    tokens, _, known = in_vocabulary_of(memory, table.facts)
    ids = {token: i for i, token in enumerate(memory.vocabulary.tokens)}
    support = np.array([ids.get(table.vocabulary.token(int(j)), -1) for j in table.support])
    if not known.all() or (support < 0).any():
        raise FactsError(
            "the distributions have tokens that the memory does not know. Is it the right table?"
        )
    found = evaluate(memory, table, tokens, support, asked)
    proof = summarise(claim, table, found)
    within = found.log_ratio <= allowed(claim.max_log_ratio)  # NaN never is

    def failure(i: int) -> Failure:
        ratio = float(found.log_ratio[i])
        reason = f"log ratio up to {ratio:.3g}, claimed {claim.max_log_ratio:.3g}"
        if np.isnan(ratio):
            reason = NOT_EVALUATED.format("weights")
        facts = table.facts
        return Failure(int(facts.rows[i]), table.key(i), facts.answer(i), None, None, reason)

    return certificate(
        DistributionCertificate,
        memory,
        table,
        asked.name(memory),
        within,
        {"distribution": proof},
        failure,
        passed=bool(within.all()) and proof.kl <= allowed(claim.kl),
    )


def evaluate(
    memory: TokenMemory,
    table: Distributions,
    tokens: np.ndarray,
    support: np.ndarray,
    asked: Asked,
) -> Evaluated:
    """Bounds for every sequence, in the arithmetic asked for."""
    ids = memory.with_start(tokens)
    weights = {name: w.to(torch.float64) for name, w in memory.weights.items()}
    if not finite(weights):
        return Evaluated(*(np.full(len(ids), np.nan) for _ in range(3)))
    columns = torch.from_numpy(support.copy())
    answers_only = weights | {"W_U": weights["W_U"][:, columns]}
    pi = torch.from_numpy(table.probabilities.copy())
    if asked.arithmetic == "ball":
        with ball.bits(asked.precision):
            out = ball_residuals(memory.spec, answers_only, ids.numpy(), asked.progress)
            return _in_balls(out, answers_only["W_U"], pi.numpy())
    parts = []
    for batch in memory.batches(len(ids), copies=3):
        if asked.arithmetic == "rounding":
            values = bounded_logits(memory.spec, answers_only, ids[batch], EXACT)
            parts.append(log_ratios(values, pi[batch]))
        else:
            f = memory.outputs(ids[batch], torch.float64)[:, columns].numpy()
            once = kl(pi[batch].numpy(), f)
            parts.append(Evaluated(log_ratio(pi[batch].numpy(), f), once, once))
        asked.progress(f"{batch.stop:,} of {len(ids):,} sequences")
    names = ("log_ratio", "kl_lower", "kl_upper")
    return Evaluated(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _in_balls(out: np.ndarray, W_U: Tensor, pi: np.ndarray) -> Evaluated:
    """The same in Arb: every number with a radius, nothing assumed of exp and log."""
    frame = arb_mat(W_U.tolist())
    ends = np.empty((3, len(out)))
    for t, residual in enumerate(out):
        f = (arb_mat([residual.tolist()]) * frame).entries()
        top = max(f, key=float).mid()
        total = sum(((v - top).exp() for v in f), arb(0))
        log_total = total.log() + top
        largest, mean = arb(0), arb(0)
        for v, p in zip(f, pi[t].tolist(), strict=True):
            if p > 0:
                Z = arb(p).log() - (v - log_total)
                largest, mean = largest.max(abs(Z)), mean + arb(p) * Z
        middle, radius = ball.outward(largest)
        kl_middle, kl_radius = ball.outward(mean)
        ends[:, t] = middle + radius, kl_middle - kl_radius, kl_middle + kl_radius
    # Adding middle and radius rounded once.
    spread = 2.0**-52 * np.abs(ends)
    return Evaluated(ends[0] + spread[0], ends[1] - spread[1], ends[2] + spread[2])


def summarise(
    claim: DistributionConstruction, table: Distributions, found: Evaluated
) -> DistributionProof:
    """Bounds on d_KL: a sum of T products p_t KL_t with rounded terms of either sign."""
    rounding_of_sum = 2 * gamma(table.T + 2)
    kl = float(table.prior @ found.kl_upper)
    kl += rounding_of_sum * float(table.prior @ np.abs(found.kl_upper))
    lower = float(table.prior @ found.kl_lower)
    lower -= rounding_of_sum * float(table.prior @ np.abs(found.kl_lower))
    return DistributionProof(
        kl=kl,
        kl_lower=max(lower, 0.0) if np.isfinite(lower) else lower,
        max_log_ratio=float(found.log_ratio.max()),
        claimed_kl=claim.kl,
        claimed_max_log_ratio=claim.max_log_ratio,
        answers=table.A,
    )


def allowed(claimed: float) -> float:
    """What a proof of a recorded number may come to."""
    return claimed * (1 + RELATIVE) + ABSOLUTE
