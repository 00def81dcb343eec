"""The way of the experiments of Dana et al. (2025): train one small Transformer, measure it twice.

A cell fixes the sizes, the training and the task; all seeds of a cell share one task and one
sample, as in the authors' code (their seed, 2222; our generator).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from byheart.specs import AttentionOnlySpec, MLPTransformerSpec, SharedBottleneckSpec
from byheart.studies.cell import Cell, Params, Way
from byheart.theory.dana2025 import phi_inverse

if TYPE_CHECKING:
    from byheart.training import Data, Recipe

TASK_SEED = 2222  # as in the authors' code
Spec = AttentionOnlySpec | SharedBottleneckSpec | MLPTransformerSpec

# What a cell is unless it says otherwise: experiment 1 as coded.
DEFAULTS: dict[str, Any] = {
    "family": "attention",  # attention (per head), shared (bottleneck), mlp
    "N": 50,
    "S": 2,
    "layers": 1,
    "width": 0,
    "qk_rank": 0,
    "positions": "attention",
    "scale": True,
    "batch": 256,
    "batches": 64,
    "epochs": 64,
    "schedule": "as-coded",  # as-coded .01 -> .0005, as-published .1 -> .05, or a constant rate
    "loss": "cross-entropy",
}


def spec_of(p: Params) -> Spec:
    """The architecture of a cell.

    >>> cell = train_cell("exp2", family="shared", d=10, d_h=5, H=20)
    >>> spec_of(cell.params).parameters
    3110
    """
    sizes = {name: p[name] for name in ("N", "S", "d", "d_h", "H", "layers")}
    if p["family"] == "shared" and p["d"] != p["d_h"]:
        return SharedBottleneckSpec(**sizes)
    how = {"positions": p["positions"], "scale": p["scale"], "qk_rank": p["qk_rank"]}
    if p["family"] == "mlp":
        return MLPTransformerSpec(**sizes, **how, w=p["width"])
    return AttentionOnlySpec(**sizes, **how)


def recipe_of(p: Params) -> Recipe:
    """The training of a cell; a number as `schedule` is a constant learning rate."""
    from byheart.training import dana2025

    published = p["schedule"] == "as-published"
    made = dana2025(p["batch"], p["batches"], p["epochs"], published=published, loss=p["loss"])
    if isinstance(p["schedule"], float):
        made = made.but(schedule="constant", lr=p["schedule"])
    return made


def pairs(p: Params) -> Data:
    """All N^S sequences, each with an answer drawn uniformly."""
    from byheart.facts import random_associations
    from byheart.training import token_data

    N, S = p["N"], p["S"]
    return token_data(random_associations(N=N, S=S, T=N**S, seed=TASK_SEED))


def train(params: Params, seed: int) -> dict[str, Any]:
    """One model; see `train_many`."""
    return train_many([(params, seed)])[0]


def train_many(jobs: Sequence[tuple[Params, int]]) -> list[dict[str, Any]]:
    """Models of one shape, trained together on one task.

    `train_accuracy`: over the last training batches, as the authors report it; `accuracy`: over
    all N^S sequences alike, which is what Corollary 2 speaks of; `associations`: φ^{-1} of it.
    """
    from byheart.training import train_stack

    p = jobs[0][0]
    spec = spec_of(p)
    seeds = [seed for _, seed in jobs]
    trained = train_stack(spec, pairs(p), recipe_of(p), seeds, sample_seed=TASK_SEED)
    T0 = p["N"] ** p["S"]
    return [
        {
            "train_accuracy": o.train_accuracy,
            "accuracy": o.accuracy,
            "train_associations": phi_inverse(o.train_accuracy or 0.0, p["N"], T0),
            "associations": phi_inverse(o.accuracy, p["N"], T0),
            "loss": o.loss,
            "diverged": o.diverged,
            "parameters": spec.parameters,
        }
        for o in trained.outcomes
    ]


def train_seconds(p: Params) -> float:
    """CPU seconds of one model, from timings of one shape each (benchmarks/studies.py)."""
    steps = p["batches"] * p["epochs"]
    d, H, B = p["d"], p["H"] * p["layers"], p["batch"]
    return steps * (60 + 12 * B * d * d * H / 4.5e4 + 6 * B * d * p["N"] / 2e4) * 1e-6


TRAIN = Way(
    function="byheart.papers.dana2025.ways:train",
    stack="byheart.papers.dana2025.ways:train_many",
    largest=5,
    seconds=train_seconds,
)


def train_cell(experiment: str, **settings: Any) -> Cell:
    """A cell of `train`: `DEFAULTS` with some of them changed; d_h is d unless given.

    Equal settings give equal cells, so figures that share models train them once.

    >>> train_cell("exp1", d=10, H=6).hash == train_cell("exp4", H=6, d=10, d_h=10).hash
    True
    """
    unknown = settings.keys() - {*DEFAULTS, "d", "d_h", "H"}
    if unknown:
        raise TypeError(f"no such setting: {', '.join(unknown)}")
    made = {**DEFAULTS, "d_h": settings.get("d"), **settings}
    if made["family"] == "shared" and made["d"] == made["d_h"]:
        made["family"] = "attention"  # nothing to compress: the same model
    return Cell(TRAIN, made, experiment)
