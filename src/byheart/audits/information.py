"""How much a vector in front of W_U says about the next token, on text that it was not fitted to.

A feature z (d_h numbers a position) and a matrix U (d_h, K) give the K tokens of a text the logits
c = z U. Beside the frequencies u of the tokens they predict

    p(t) = u(t) exp(β c_t) / Σ_k u(k) exp(β c_k),   β >= 0,

and what they say of the token t that follows is log p(t)/u(t), in nats: 0 where they say nothing.
Its mean is the entropy that they take off the frequencies. u, β and the mean of z (which is
subtracted: what is the same in every context is frequency) come from one half of the text's chunks,
the nats from the other half, both ways round. β stands for the scale of the model's last norm,
which is positive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

ENTRIES = 2**23  # logits in memory at once: 32 MB in float32
FITTED = 2048  # positions that β is fitted on: its error then costs about 1/(2·2048) nats
STEPS = 20  # of Newton's method; the objective is concave in β
CLOSE = 1e-3  # relative change of β that ends it


@dataclass(frozen=True)
class Estimate:
    """Nats a token, mean of all positions, with the 95 % interval of the mean of its chunks."""

    nats: float
    low: float
    high: float

    def to_json(self) -> dict[str, float]:
        return dict(vars(self))


@dataclass(frozen=True)
class Text:
    """Contexts as indices (T, n) into the text's own tokens `kinds` (K,), in `chunks` runs of
    contexts; even chunks are fitted to odd ones and the other way round."""

    indices: Tensor
    kinds: Tensor
    chunks: int
    seed: int = 0

    @classmethod
    def of(cls, tokens: np.ndarray, chunks: int, seed: int) -> Text:
        kinds, indices = torch.unique(torch.as_tensor(tokens), return_inverse=True)
        return cls(indices, kinds, min(chunks, len(tokens)), seed)

    @property
    def K(self) -> int:
        return len(self.kinds)

    @cached_property
    def sources(self) -> Tensor:
        """The token before each predicted one, (M,): M = T(n - 1) positions."""
        return self.indices[:, :-1].flatten()

    @cached_property
    def targets(self) -> Tensor:
        return self.indices[:, 1:].flatten()

    @cached_property
    def chunk(self) -> Tensor:
        """The chunk of each position, (M,)."""
        T, n = self.indices.shape
        return (torch.arange(T) * self.chunks // T).repeat_interleave(n - 1)

    def fitted(self, half: int) -> Tensor:
        """Which positions (M,) are fitted on where half `half` (0 or 1) is held out."""
        return self.chunk % 2 != half

    @cached_property
    def log_u(self) -> Tensor:
        """Frequencies for each held-out half, (2, K): (1 - λ) count/M + λ/K, where λ = (tokens seen
        once + 1)/(M + 1) is Good's estimate of what was not seen."""
        rows = []
        for half in (0, 1):
            count = torch.bincount(self.targets[self.fitted(half)], minlength=self.K).double()
            M = count.sum()
            unseen = ((count == 1).sum() + 1) / (M + 1)
            rows.append(((1 - unseen) * count / M + unseen / self.K).log())
        return torch.stack(rows)

    @cached_property
    def log_u_of_targets(self) -> Tensor:
        """log u of the token that follows, each position by the half it is held out in, (M,)."""
        return self.log_u[(self.chunk % 2), self.targets]

    def estimate(self, nats: Tensor) -> Estimate:
        """The mean of nats (M,), with Student's interval over chunks."""
        from scipy.stats import t

        mean = float(nats.mean())
        if self.chunks < 3:
            return Estimate(mean, math.nan, math.nan)
        means = [float(nats[self.chunk == c].mean()) for c in range(self.chunks)]
        wide = float(t.ppf(0.975, self.chunks - 1)) * np.std(means, ddof=1) / self.chunks**0.5
        return Estimate(mean, mean - float(wide), mean + float(wide))

    def explained(self, z: Tensor, U: Tensor, row: Tensor | None = None) -> Tensor:
        """log p(t)/u(t) at each position when it is held out, (M,). `row` (M,): which row of z is
        the feature of a position; without it z has a row a position."""
        row = torch.arange(len(self.targets)) if row is None else row
        nats = torch.zeros(len(row), dtype=torch.float64)
        draw = torch.Generator().manual_seed(self.seed)
        for half in (0, 1):
            fit, log_u = self.fitted(half), self.log_u[half].to(z.dtype)
            chosen = fit.nonzero().flatten()
            chosen = chosen[torch.randperm(len(chosen), generator=draw)[:FITTED]]
            centred = z - z[row[fit]].mean(0)
            beta = _fitted_scale(centred, U, row[chosen], self.targets[chosen], log_u)
            if beta > 0:
                held = ~fit
                gains = _gains(beta, centred, U, row[held], self.targets[held], log_u)
                nats[held] = gains[0].double()
        return nats

    def bigram_table(self) -> Tensor:
        """The same for a table of the pairs of the other half, with the frequencies where it has
        none (Witten and Bell): (count(s, t) + kinds(s) u(t)) / (count(s) + kinds(s)). (M,)"""
        nats = torch.zeros(len(self.targets), dtype=torch.float64)
        keys = self.sources * self.K + self.targets
        for half in (0, 1):
            fit, u = self.fitted(half), self.log_u[half].exp()
            pairs, counts = torch.unique(keys[fit], return_counts=True)
            after = torch.bincount(self.sources[fit], minlength=self.K)
            kinds = torch.bincount(pairs // self.K, minlength=self.K).clamp(min=1)
            at = torch.searchsorted(pairs, keys[~fit]).clamp(max=len(pairs) - 1)
            count = torch.where(pairs[at] == keys[~fit], counts[at], 0)
            s, prior = self.sources[~fit], u[self.targets[~fit]]
            nats[~fit] = ((count + kinds[s] * prior) / (after[s] + kinds[s]) / prior).log()
        return nats


def _fitted_scale(z: Tensor, U: Tensor, row: Tensor, target: Tensor, log_u: Tensor) -> float:
    """The β >= 0 of the largest mean of log p(t)/u(t), by Newton's method from 0, halved where a
    step overshoots."""
    beta, best = 0.0, 0.0
    _, slope, curvature = _gains(0.0, z, U, row, target, log_u, slopes=True)
    for _ in range(STEPS):
        step = slope / curvature if curvature > 0 else 0.0
        if beta == 0 and slope <= 0:
            return 0.0
        while True:
            tried = max(0.0, beta + step)
            gains, slope, curvature = _gains(tried, z, U, row, target, log_u, slopes=True)
            if float(gains.mean()) >= best or abs(step) <= CLOSE * beta:
                break
            step /= 2
        done = abs(tried - beta) <= CLOSE * tried
        beta, best = tried, float(gains.mean())
        if done:
            break
    return beta


def _gains(
    beta: float, z: Tensor, U: Tensor, row: Tensor, target: Tensor, log_u: Tensor, *,
    slopes: bool = False,
) -> tuple[Tensor, float, float]:  # fmt: skip
    """log p(t)/u(t) = β c_t - log Σ u exp(β c) at each position; with `slopes` the derivative of
    its mean in β, which is the mean of c_t - E_p[c], and minus the second one, that of Var_p[c]."""
    rows, back = torch.unique(row, return_inverse=True)
    logs, means, spreads = (torch.zeros(len(rows), dtype=z.dtype) for _ in range(3))
    size = max(1, ENTRIES // U.shape[1])
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        c = z[rows[part]] @ U
        tilted = torch.add(log_u, c, alpha=beta)
        logs[part] = tilted.logsumexp(1)
        if slopes:
            p = tilted.sub_(logs[part, None]).exp_()
            means[part] = torch.linalg.vecdot(p, c)
            spreads[part] = torch.linalg.vecdot(p, c.square_()) - means[part] ** 2
    own = torch.linalg.vecdot(z[row], U.T[target])
    gains = beta * own - logs[back]
    if not slopes:
        return gains, math.nan, math.nan
    return gains, float((own - means[back]).mean()), float(spreads[back].mean())
