"""Which loss to train with: one attention-only layer, four losses, at equal size.

A private Adam loop over stacked models: learning rates and seeds share the model axis, so that
every loss is given the rate that suits it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

import byheart as bh
from byheart.facts import Distributions
from byheart.models.attention_only import forward
from byheart.specs import AttentionOnlySpec

LOSSES = ("KL", "cross-entropy, drawn answers", "total variation", "squares")
RATES, SEEDS, STEPS = (0.01, 0.03), 5, 2000


def loss_of(name: str, logits: Tensor, pi: Tensor, drawn: Tensor) -> Tensor:
    """One loss a model: (models,); `drawn` (T,) answers drawn from π for this step."""
    if name == "KL":  # cross-entropy against π itself is this plus a constant
        return -(pi * torch.log_softmax(logits, -1)).sum(-1).mean(-1)
    if name.startswith("cross-entropy"):
        index = drawn.expand(logits.shape[:-1])[..., None]
        return -torch.log_softmax(logits, -1).gather(-1, index)[..., 0].mean(-1)
    difference = torch.softmax(logits, -1) - pi
    if name == "total variation":
        return 0.5 * difference.abs().sum(-1).mean(-1)
    return difference.square().sum(-1).mean(-1)


def train(table: Distributions, spec: AttentionOnlySpec, name: str, steps: int) -> Tensor:
    """Logits (models, T, N) after training; the models are (rate, seed) with the seed inside."""
    rates = torch.tensor([rate for rate in RATES for _ in range(SEEDS)])
    generator = torch.Generator().manual_seed(0)
    seeded = {
        k: torch.randn(SEEDS, *shape, generator=generator) / math.sqrt(shape[-2])
        for k, shape in spec.weight_shapes().items()
    }
    weights = {
        k: w.repeat(len(RATES), *[1] * (w.dim() - 1)).requires_grad_() for k, w in seeded.items()
    }
    tokens, pi = torch.tensor(table.tokens), torch.tensor(table.probabilities).float()
    first = {k: torch.zeros_like(w) for k, w in weights.items()}
    second = {k: torch.zeros_like(w) for k, w in weights.items()}
    for step in range(1, steps + 1):
        drawn = torch.multinomial(pi, 1, generator=generator)[:, 0]
        total = loss_of(name, forward(spec, weights, tokens), pi, drawn).sum()
        gradients = torch.autograd.grad(total, list(weights.values()))
        cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
        with torch.no_grad():
            for (k, w), g in zip(weights.items(), gradients, strict=True):
                first[k].mul_(0.9).add_(0.1 * g)
                second[k].mul_(0.999).add_(0.001 * g * g)
                m, v = first[k] / (1 - 0.9**step), second[k] / (1 - 0.999**step)
                rate = (cosine * rates).reshape(-1, *[1] * (w.dim() - 1))
                w -= rate * m / (v.sqrt() + 1e-8)
    return forward(spec, weights, tokens).detach()


def compare_losses(steps: int = STEPS) -> list[dict[str, Any]]:
    """KL, total variation and accuracy after training with each loss; the best rate by each."""
    from byheart.measure import losses

    rows = []
    spec = AttentionOnlySpec(N=20, S=2, d=8, d_h=8, H=8)
    for kind in ("lut", "gauss"):
        table = bh.random_distributions(kind, 20, eta=0.03, tau=1.0)
        for name in LOSSES:
            logits = train(table, spec, name, steps).double().numpy()
            found = [losses(table, f).mean() for f in logits]
            by_rate = np.array([[m["kl"], m["total_variation"], m["accuracy"], m["squared_error"]]
                                for m in found]).reshape(len(RATES), SEEDS, 4)  # fmt: skip
            best = int(by_rate[:, :, 0].mean(1).argmin())
            mean, sd = by_rate[best].mean(0), by_rate[best].std(0, ddof=1)
            rows.append({
                "task": f"{kind}, entropy {table.describe()['entropy_share']:.0%} of log N",
                "loss": name, "rate": RATES[best],
                **{what: f"{mean[i]:.4f} ({sd[i]:.4f})"
                   for i, what in enumerate(("d_KL", "total variation", "accuracy", "squares"))},
                "least total variation of any rate": float(by_rate[:, :, 1].mean(1).min()),
                "most accuracy of any rate": float(by_rate[:, :, 2].mean(1).max()),
            })  # fmt: skip
            print(rows[-1], flush=True)
        rows.append(built_row(table, spec))
        print(rows[-1], flush=True)
    return rows


def built_row(table: Distributions, spec: AttentionOnlySpec) -> dict[str, Any]:
    """The same size without training: random heads, joint read-out."""
    from byheart.measure import memory_losses

    memory = bh.build(
        table,
        bh.DistributionAttention(
            d=spec.d, H=spec.H, d_h=spec.d_h, readout="joint", dtype="float64"
        ),
    )
    mean = memory_losses(memory).mean()
    names = ("kl", "total_variation", "accuracy", "squared_error")
    shown = dict(zip(("d_KL", "total variation", "accuracy", "squares"), names, strict=True))
    return {
        "task": f"rank-{spec.d} encoder {memory.construction.to_json()['kl_encoder']:.4f}",
        "loss": "not trained: joint read-out",
        "rate": "-",
        **{what: f"{mean[name]:.4f}" for what, name in shown.items()},
        "least total variation of any rate": mean["total_variation"],
        "most accuracy of any rate": mean["accuracy"],
    }
