"""The experiment of Dana et al. (2025): train one small Transformer, measure it twice.

A cell fixes the sizes, the training and the task; all seeds of a cell share one task and one
sample, as in the authors' code (their seed, 2222; our generator). At the end: variants, training
lengths, what the authors published, and the bound of Corollary 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from byheart.papers.declare import Grid
from byheart.specs import AttentionOnlySpec, MLPTransformerSpec, SharedBottleneckSpec
from byheart.studies import Cell, Jobs, Measurements, Params, Procedure, Row, laws, together
from byheart.theory.dana2025 import phi, phi_inverse

if TYPE_CHECKING:
    from torch import Tensor

    from byheart.training import Data, Outcome, Recipe

TASK_SEED = 2222  # as in the authors' code
PUBLISHED_SCHEDULE = "as-published"  # .1 -> .05; the code's, "as-coded", is .01 -> .0005
Spec = AttentionOnlySpec | SharedBottleneckSpec | MLPTransformerSpec

# What a cell is unless it says otherwise: experiment 1 as coded.
DEFAULTS: Params = {
    "family": "attention",  # attention (per head), shared (bottleneck), mlp
    "N": 50, "S": 2, "layers": 1, "width": 0, "qk_rank": 0, "positions": "attention",
    "scale": True, "batch": 256, "batches": 64, "epochs": 64,
    "schedule": "as-coded",  # .01 -> .0005, or PUBLISHED_SCHEDULE, or a number: a constant rate
    "loss": "cross-entropy",
}  # fmt: skip


def spec_of(p: Params) -> Spec:
    """The architecture of a cell.

    >>> cell = TRAIN.cell("exp2", family="shared", d=10, d_h=5, H=20)
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

    published = p["schedule"] == PUBLISHED_SCHEDULE
    recipe = dana2025(p["batch"], p["batches"], p["epochs"], published=published, loss=p["loss"])
    if isinstance(p["schedule"], float):
        return recipe.but(schedule="constant", lr=p["schedule"])
    return recipe


def pairs(p: Params) -> Data:
    """All N^S sequences, each with an answer drawn uniformly."""
    from byheart.facts import random_associations
    from byheart.training import token_data

    N, S = p["N"], p["S"]
    return token_data(random_associations(N=N, S=S, T=N**S, seed=TASK_SEED))


def train(jobs: Jobs) -> list[Measurements]:
    """Models of one shape, trained together on one task.

    `train_accuracy`: over the last training batches, as the authors report it; `accuracy`: over
    all N^S sequences alike, which is what Corollary 2 speaks of; `associations`: φ^{-1} of it.
    """
    from byheart.training import train_stack

    p, seeds = together(jobs)
    trained = train_stack(spec_of(p), pairs(p), recipe_of(p), seeds, sample_seed=TASK_SEED)
    T0 = p["N"] ** p["S"]
    return [
        {"train_accuracy": o.train_accuracy, "accuracy": o.accuracy, "loss": o.loss,
         "train_associations": phi_inverse(o.train_accuracy or 0.0, p["N"], T0),
         "associations": phi_inverse(o.accuracy, p["N"], T0), **_model(p, o)}
        for o in trained.outcomes
    ]  # fmt: skip


def _model(p: Params, outcome: Outcome) -> Measurements:
    told: Measurements = {"diverged": outcome.diverged, "parameters": spec_of(p).parameters}
    return told if outcome.curve is None else {**told, "curve": outcome.curve.brief()}


def _logits(p: Params, weights: dict[str, Tensor], inputs: Tensor) -> Tensor:
    import torch

    from byheart.models.architectures import module_of

    with torch.no_grad():
        return module_of(spec_of(p)).forward(spec_of(p), weights, inputs)


def train_prior(jobs: Jobs) -> list[Measurements]:
    """Models trained on pairs drawn from the prior i^-zipf.

    `accuracy`: share of all pairs that are right; `prior_accuracy`: weighted by the prior; `known`:
    the number of right pairs beyond guessing, φ^{-1}; `promised`: what Corollary 1 with the
    H d_h + d likeliest pairs promises of the prior's mass, guessing the rest.
    """
    import torch

    from byheart.training import Data, train_stack

    p, seeds = together(jobs)
    data = pairs(p)
    rng = np.random.default_rng([TASK_SEED, 1])
    prior = rng.permutation(np.arange(1, data.T + 1.0) ** -p["zipf"])
    prior /= prior.sum()
    sample = torch.from_numpy(rng.choice(data.T, size=p["batch"] * p["batches"], p=prior))
    recipe = recipe_of(p).but(sampling="without-replacement")
    drawn = Data(data.inputs[sample], data.targets[sample])
    trained = train_stack(spec_of(p), drawn, recipe, seeds)
    logits = _logits(p, trained.weights, data.inputs)
    hits = (logits.argmax(-1) == data.targets).double().numpy()
    held = float(np.sort(prior)[::-1][: p["H"] * p["d_h"] + p["d"]].sum())
    return [
        {"train_accuracy": o.train_accuracy, "accuracy": float(hit.mean()),
         "prior_accuracy": float(hit @ prior), "loss": o.loss, **_model(p, o),
         "known": phi_inverse(float(hit.mean()), p["N"], data.T),
         "promised": held + (1 - held) / p["N"]}
        for o, hit in zip(trained.outcomes, hits, strict=True)
    ]  # fmt: skip


def train_answers(jobs: Jobs) -> list[Measurements]:
    """Models trained on all N^S pairs with `answers` right answers each, equally likely.

    `right`: share of right answers among the `answers` largest logits; `kl`: mean KL(π || softmax)
    in nats; `pairs_known`: right (key, answer) pairs beyond guessing.
    """
    import torch

    from byheart.training import Data, train_stack
    from byheart.training.losses import example_losses

    p, seeds = together(jobs)
    N, k = p["N"], p["answers"]
    inputs = pairs(p).inputs
    rng = np.random.default_rng([TASK_SEED, 2])
    answers = torch.from_numpy(rng.permuted(np.tile(np.arange(N), (len(inputs), 1)), axis=1)[:, :k])
    pi = torch.zeros(len(inputs), N).scatter_(1, answers, 1 / k)
    data = Data(inputs, pi, kind="distribution")
    trained = train_stack(spec_of(p), data, recipe_of(p), seeds, sample_seed=TASK_SEED)
    logits = _logits(p, trained.weights, inputs)
    kl = example_losses("kl", logits, pi.expand_as(logits), "distribution").mean(1)
    best = logits.topk(k, dim=-1).indices
    right = (pi.expand_as(logits).gather(-1, best) > 0).double().mean((1, 2))
    return [
        {"accuracy": o.accuracy, "right": float(share), "kl": float(loss), **_model(p, o),
         "pairs_known": len(inputs) * k * (float(share) - k / N) / (1 - k / N)}
        for o, share, loss in zip(trained.outcomes, right, kl, strict=True)
    ]  # fmt: skip


def step_work(p: Params) -> list[float]:
    """What the time of a step grows with: steps, examples, logits, features, products, MLP."""
    B, d, H = p["batch"], p["d"], p["H"]
    inner = p["d_h"] if p["family"] == "shared" else d
    narrow = p["layers"] == 1 and H < inner
    features = 2 * H * inner if narrow else inner**2
    one = [features, inner**2 * H, p["width"], p["width"] * d]
    return [1.0, B * 1.0, B * p["d"] * p["N"], *(B * p["layers"] * v for v in one)]


# Microseconds of a model-step in a stack of five for each term of `step_work`: one layer with
# hand-written gradients, and autograd (deeper models, other losses); `benchmarks/studies.py times`.
ONE_LAYER = (16.1, 0.376, 0.000145, 0.00247, 0.000278, 0.00453, 0.00018)
AUTOGRAD = (35.6, 2.61, 0.000449, 0.00545, 0.000479, 0.00886, 0)


def train_seconds(p: Params) -> float:
    """Estimated CPU seconds of one model."""
    plain = p["layers"] == 1 and p["loss"] == "cross-entropy" and "answers" not in p
    rates = ONE_LAYER if plain else AUTOGRAD
    step = sum(rate * work for rate, work in zip(rates, step_work(p), strict=True))
    return p["batches"] * p["epochs"] * step * 1e-6


def complete(params: Params) -> Params:
    """d_h is d unless given; a shared bottleneck that compresses nothing is plain attention, so
    that equal models are equal cells and figures that share models train them once.

    >>> TRAIN.cell("exp1", d=10, H=6).hash == TRAIN.cell("exp4", H=6, d=10, d_h=10).hash
    True
    """
    full = {"d_h": params["d"], **params}
    if full["family"] == "shared" and full["d"] == full["d_h"]:
        full["family"] = "attention"
    return full


TRAIN, PRIOR, ANSWERS = (
    Procedure(
        stack=stack, largest=5, seconds=train_seconds, defaults=DEFAULTS, complete=complete,
        name=f"byheart.papers.dana2025.ways:{stack.__name__}",  # stores keep rows by this name
        parameters=("d", "d_h", "H", *own),
    )
    for stack, own in ((train, ()), (train_prior, ("zipf",)), (train_answers, ("answers",)))
)  # fmt: skip

# Variants of the studies: as the authors' code does it, as their text says it, and with both
# measured as the theorems speak.
CODED, AS_PUBLISHED, CORRECTED = "as-coded", "as-published", "corrected"
# The training as the paper prints it: .1 -> .05, 64 batches of 1,024, positions at the input, no
# 1/sqrt(d_h).
PRINTED: Params = {
    "schedule": PUBLISHED_SCHEDULE, "batch": 1024, "positions": "input", "scale": False,
}  # fmt: skip
# Larger and deeper models: what all profiles share, and batch, batches and epochs of each.
LENGTHS: dict[str, tuple[Params, dict[str, tuple[int, int, int]]]] = {
    "N = 70": (
        {"N": 70}, {"paper": (1024, 256, 64), "full": (256, 128, 24), "quick": (256, 128, 8)}),
    "N = 200": (
        {"N": 200}, {"paper": (1024, 64, 64), "full": (256, 256, 8), "quick": (256, 256, 2)}),
    "three layers": (
        {"N": 70, "layers": 3, "schedule": 0.0025},
        {"paper": (512, 128, 64), "full": (128, 256, 16), "quick": (128, 256, 4)}),
}  # fmt: skip
HEADS = (1, 6, 11, 16, 21, 26, 31)
"""H of experiment 1; d_h of experiment 2 is 1..10."""
BY_WIDTH = (0.0815, 0.1096, 0.1554, 0.2094, 0.2879, 0.3567, 0.4534, 0.5457, 0.6391, 0.8044)
PUBLISHED: dict[str, dict[int, float]] = {
    "exp1": {1: 0.1298, 6: 0.3243, 11: 0.5063, 16: 0.6852, 21: 0.8608, 26: 0.9634, 31: 0.9974},
    "exp2": dict(enumerate(BY_WIDTH, start=1)),
}
"""Mean training-sample accuracy of 5 seeds at d = 10, N = 50, from the authors' data files."""


def training(models: str, profile: str) -> Params:
    """N, depth and training of larger models in a profile."""
    shared, lengths = LENGTHS[models]
    return {**shared, **dict(zip(("batch", "batches", "epochs"), lengths[profile], strict=True))}


def grid_of(
    experiment: str, quick: Params, full: Params, models: str | None = None, *, shared: bool = False
) -> Grid:
    """The quick profile's sizes and those of the others; `shared`: with one bottleneck for all
    heads as coded, with projections of each head otherwise."""

    def grid(variant: str, profile: str) -> list[Cell]:
        family = {"family": "shared"} if shared and variant == CODED else {}
        sizes = quick if profile == "quick" else full
        how = training(models, profile) if models else {}
        return TRAIN.grid(experiment, **family, **sizes, **how)

    return grid


def measure_of(variant: str) -> str:
    """The accuracy a variant speaks of: the authors' (training sample), or over all facts."""
    return "accuracy" if variant == CORRECTED else "train_accuracy"


def lower_bound(row: Row, **sizes: float) -> float:
    """φ(H d_h + d): what Corollary 2 promises of the best weights, here or at other sizes."""
    at = {**row.params, **sizes}
    return phi(at["H"] * at["d_h"] + at["d"], at["N"], at["N"] ** at["S"])


def mean_distance(rows: Sequence[Row], experiment: str, x: str, of: str) -> dict[str, float]:
    """{"mean |ours - published|" + of: ...} of training-sample accuracies as coded at d = 10;
    nothing where there are no rows to compare."""
    mine = [r for r in rows if r.experiment == experiment and r.variant == CODED and r["d"] == 10]
    published = PUBLISHED[experiment]
    off = [
        float(np.mean([row["train_accuracy"] for row in same])) - published[at]
        for at, same in laws.group(mine, lambda row: row[x]).items()
        if at in published
    ]
    return {f"mean |ours - published|{of}": float(np.mean(np.abs(off)))} if off else {}
