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


TRAIN = Way(
    function="byheart.papers.dana2025.ways:train",
    stack="byheart.papers.dana2025.ways:train_many",
    largest=5,
    seconds=train_seconds,
)


def _prior_task(p: Params) -> tuple[Any, Any, Any]:
    """All pairs, a Zipf prior over them in random order, and a sample drawn from it."""
    import numpy as np

    data = pairs(p)
    rng = np.random.default_rng([TASK_SEED, 1])
    prior = rng.permutation(np.arange(1, data.T + 1.0) ** -p["zipf"])
    prior /= prior.sum()
    drawn = rng.choice(data.T, size=p["batch"] * p["batches"], p=prior)
    return data, prior, drawn


def train_prior(params: Params, seed: int) -> dict[str, Any]:
    """One model on a sample from a Zipf prior; see `train_prior_many`."""
    return train_prior_many([(params, seed)])[0]


def train_prior_many(jobs: Sequence[tuple[Params, int]]) -> list[dict[str, Any]]:
    """Models trained on pairs drawn from the prior i^-zipf.

    `accuracy`: share of all pairs that are right; `prior_accuracy`: weighted by the prior; `known`:
    the number of right pairs beyond guessing, φ^{-1}; `promised`: what Corollary 1 with the
    H d_h + d likeliest pairs promises of the prior's mass, guessing the rest.
    """
    import numpy as np
    import torch

    from byheart.models.architectures import module_of
    from byheart.training import Data, train_stack

    p = jobs[0][0]
    spec = spec_of(p)
    data, prior, drawn = _prior_task(p)
    sample = torch.from_numpy(drawn)
    recipe = recipe_of(p).but(sampling="without-replacement")
    own = Data(data.inputs[sample], data.targets[sample])
    trained = train_stack(spec, own, recipe, [seed for _, seed in jobs])
    with torch.no_grad():
        logits = module_of(spec).forward(spec, trained.weights, data.inputs)
    hits = (logits.argmax(-1) == data.targets).double().numpy()
    room = p["H"] * p["d_h"] + p["d"]
    held = float(np.sort(prior)[::-1][:room].sum())
    return [
        {
            "train_accuracy": o.train_accuracy,
            "accuracy": float(hit.mean()),
            "prior_accuracy": float(hit @ prior),
            "known": phi_inverse(float(hit.mean()), p["N"], data.T),
            "promised": held + (1 - held) / p["N"],
            "loss": o.loss,
            "diverged": o.diverged,
            "parameters": spec.parameters,
        }
        for o, hit in zip(trained.outcomes, hits, strict=True)
    ]


def train_answers(params: Params, seed: int) -> dict[str, Any]:
    """One model on keys with several right answers; see `train_answers_many`."""
    return train_answers_many([(params, seed)])[0]


def train_answers_many(jobs: Sequence[tuple[Params, int]]) -> list[dict[str, Any]]:
    """Models trained on all N^S pairs with `answers` right answers each, equally likely.

    `right`: share of right answers among the `answers` largest logits; `kl`: mean KL(π || softmax)
    in nats; `pairs_known`: right (key, answer) pairs beyond guessing.
    """
    import numpy as np
    import torch

    from byheart.models.architectures import module_of
    from byheart.training import Data, train_stack
    from byheart.training.losses import example_losses

    p = jobs[0][0]
    spec, N, k = spec_of(p), p["N"], p["answers"]
    inputs = pairs(p).inputs
    rng = np.random.default_rng([TASK_SEED, 2])
    answers = torch.from_numpy(rng.permuted(np.tile(np.arange(N), (len(inputs), 1)), axis=1)[:, :k])
    pi = torch.zeros(len(inputs), N).scatter_(1, answers, 1 / k)
    data = Data(inputs, pi, kind="distribution")
    seeds = [seed for _, seed in jobs]
    trained = train_stack(spec, data, recipe_of(p), seeds, sample_seed=TASK_SEED)
    with torch.no_grad():
        logits = module_of(spec).forward(spec, trained.weights, inputs)
        kl = example_losses("kl", logits, pi.expand_as(logits), "distribution").mean(1)
        best = logits.topk(k, dim=-1).indices
        right = (pi.expand_as(logits).gather(-1, best) > 0).double().mean((1, 2))
    return [
        {
            "accuracy": o.accuracy,
            "right": float(share),
            "kl": float(loss),
            "pairs_known": len(inputs) * k * (float(share) - k / N) / (1 - k / N),
            "diverged": o.diverged,
            "parameters": spec.parameters,
        }
        for o, share, loss in zip(trained.outcomes, right, kl, strict=True)
    ]


HERE = "byheart.papers.dana2025.ways"
PRIOR = Way(f"{HERE}:train_prior", f"{HERE}:train_prior_many", 5, seconds=train_seconds)
ANSWERS = Way(f"{HERE}:train_answers", f"{HERE}:train_answers_many", 5, seconds=train_seconds)


def train_cell(experiment: str, way: Way = TRAIN, **settings: Any) -> Cell:
    """A cell of `way`: `DEFAULTS` with some of them changed; d_h is d unless given.

    Equal settings give equal cells, so figures that share models train them once.

    >>> train_cell("exp1", d=10, H=6).hash == train_cell("exp4", H=6, d=10, d_h=10).hash
    True
    """
    own = {PRIOR.function: {"zipf"}, ANSWERS.function: {"answers"}}.get(way.function, set())
    unknown = settings.keys() - {*DEFAULTS, "d", "d_h", "H"} - own
    if unknown:
        raise TypeError(f"no such setting: {', '.join(unknown)}")
    made = {**DEFAULTS, "d_h": settings.get("d"), **settings}
    if made["family"] == "shared" and made["d"] == made["d_h"]:
        made["family"] = "attention"  # nothing to compress: the same model
    return Cell(way, made, experiment)
