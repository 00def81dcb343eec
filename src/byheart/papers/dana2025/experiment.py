"""The experiment of Dana et al. (2025): train one small Transformer, measure it twice.

A cell fixes the sizes, the training and the task; all seeds of a cell share one task and one
sample, as in the authors' code (their seed, 2222; our generator). At the end: variants, training
lengths, what the authors published, and the bound of Corollary 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from byheart.errors import check_choice
from byheart.papers.declare import Grid
from byheart.specs import AttentionOnlySpec, MLPTransformerSpec, SharedBottleneckSpec
from byheart.studies import Cell, Finding, Jobs, Measurements, Params, Procedure, figure, together
from byheart.studies.cell import Value, group
from byheart.studies.fits import combined
from byheart.studies.published import read
from byheart.studies.study import Published, Record, Row
from byheart.theory.dana2025 import phi, phi_inverse

if TYPE_CHECKING:
    from torch import Tensor

    from byheart.training import Data, Outcome, Recipe

TASK_SEED = 2222  # as in the authors' code
CODED_SCHEDULE, PUBLISHED_SCHEDULE = "as-coded", "as-published"  # .01 -> .0005, and .1 -> .05
Spec = AttentionOnlySpec | SharedBottleneckSpec | MLPTransformerSpec

# What a cell is unless it says otherwise: experiment 1 as coded.
DEFAULTS: Params = {
    "family": "attention",  # attention (per head), shared (bottleneck), mlp
    "N": 50, "S": 2, "layers": 1, "width": 0, "qk_rank": 0, "positions": "attention",
    "scale": True, "batch": 256, "batches": 64, "epochs": 64,
    "schedule": CODED_SCHEDULE,  # see `recipe_of`
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
    """The training of a cell. `schedule`: CODED_SCHEDULE, PUBLISHED_SCHEDULE, a number (a constant
    learning rate), or a first and a last rate, "0.01 -> 0.0001", linear over the epochs.

    >>> recipe = recipe_of(TRAIN.cell(d=10, H=1, schedule=MLP_SCHEDULE).params)
    >>> [round(recipe.learning_rate(step), 6) for step in (0, recipe.steps)]
    [0.01, 0.0001]
    """
    from byheart.training import dana2025

    schedule = p["schedule"]
    published = schedule == PUBLISHED_SCHEDULE
    recipe = dana2025(p["batch"], p["batches"], p["epochs"], published=published, loss=p["loss"])
    if isinstance(schedule, float):
        return recipe.but(schedule="constant", lr=schedule)
    first, arrow, last = schedule.partition(" -> ")
    if arrow:
        return recipe.but(schedule="dana-as-published", lr=float(first), lr_low=float(last))
    check_choice("schedule", schedule, (CODED_SCHEDULE, PUBLISHED_SCHEDULE))
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


def drawn_from_prior(p: Params) -> tuple[np.ndarray, np.ndarray]:
    """The prior i^-zipf over all pairs, in random order, and the numbers of those in the sample:
    the same for all seeds."""
    T = p["N"] ** p["S"]
    rng = np.random.default_rng([TASK_SEED, 1])
    prior = rng.permutation(np.arange(1, T + 1.0) ** -p["zipf"])
    prior /= prior.sum()
    return prior, rng.choice(T, size=p["batch"] * p["batches"], p=prior)


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
    prior, numbers = drawn_from_prior(p)
    sample = torch.from_numpy(numbers)
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


# Microseconds of a model-step in a stack of five for each term of `step_work`: of the compiled
# kernels, least squares of relative errors over the recorded rows; of autograd, for losses that
# they do not have, `benchmarks/studies.py times`.
COMPILED = ("cross-entropy", "cross-entropy-as-coded", "total-variation")
ONE_LAYER = (36.3, 0.0388, 0.000138, 0.000987, 7.38e-05, 0.0021, 0.000137)
DEEPER = (125.0, 0, 0.000188, 1.88e-05, 0.000281, 0.00199, 0.000206)
AUTOGRAD = (35.6, 2.61, 0.000449, 0.00545, 0.000479, 0.00886, 0)


def train_seconds(p: Params) -> float:
    """Estimated CPU seconds of one model."""
    rates = ONE_LAYER if p["layers"] == 1 else DEEPER
    if p["loss"] not in COMPILED or "answers" in p:
        rates = AUTOGRAD
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
# Larger and deeper models: what both profiles share, and batch, batches and epochs of each.
LENGTHS: dict[str, tuple[Params, dict[str, tuple[int, int, int]]]] = {
    "N = 70": ({"N": 70}, {"paper": (1024, 256, 64), "quick": (256, 128, 8)}),
    "N = 200": ({"N": 200}, {"paper": (1024, 64, 64), "quick": (256, 256, 2)}),
    "three layers": (
        {"N": 70, "layers": 3, "schedule": 0.0025},
        {"paper": (512, 128, 64), "quick": (128, 256, 4)}),
}  # fmt: skip
MLP_SCHEDULE = "0.01 -> 0.0001"  # the authors' rate of models of one layer with an MLP
HEADS = (1, 6, 11, 16, 21, 26, 31)
"""H of experiment 1; d_h of experiment 2 is 1..10."""
SHOWN = {"train_accuracy": "training sample", "accuracy": "all facts"}


def training(models: str, profile: str, family: str = "attention") -> Params:
    """N, depth and training of larger models in a profile."""
    shared, lengths = LENGTHS[models]
    rate = {"schedule": MLP_SCHEDULE} if family == "mlp" and "schedule" not in shared else {}
    length = dict(zip(("batch", "batches", "epochs"), lengths[profile], strict=True))
    return {**shared, **rate, **length}


def printed(profile: str) -> Params:
    """The training as the paper prints it; in the quick profile a quarter as long."""
    return {**PRINTED, "epochs": 16} if profile == "quick" else PRINTED


def grid_of(
    experiment: str, quick: Params, paper: Params, models: str | None = None, *,
    shared: bool = False,
) -> Grid:  # fmt: skip
    """The sizes of both profiles; `shared`: with one bottleneck for all heads as coded, with
    projections of each head otherwise. As published, the training is the printed one."""

    def grid(variant: str, profile: str) -> list[Cell]:
        family = {"family": "shared"} if shared and variant == CODED else {}
        sizes = quick if profile == "quick" else paper
        how = training(models, profile) if models else {}
        if variant == AS_PUBLISHED:
            how = printed(profile)
        return TRAIN.grid(experiment, **family, **sizes, **how)

    return grid


def measure_of(variant: str) -> str:
    """The accuracy a variant speaks of: the authors' (training sample), or over all facts."""
    return "accuracy" if variant == CORRECTED else "train_accuracy"


def published(*figures: str, d: int | None = None) -> Published:
    """The authors' accuracies of these figures (at one d), mean of their seeds on the training
    sample, each with all parameters of the cell that their code trained."""

    def params(line: Record) -> Params | None:
        if str(line["figure"]) not in figures or d not in (None, line["d"]):
            return None
        family = "mlp" if line["architecture"] == "mlp" else "shared"
        models = "three layers" if line["layers"] == 3 else f"N = {line['N']}"
        how = training(models, "paper", family) if models in LENGTHS else {"N": line["N"]}
        sizes = {name: line[name] for name in ("d", "d_h", "H")}
        return TRAIN.cell(family=family, width=line["mlp_width"], **sizes, **how).params

    points = read("dana2025", params, "accuracy")
    source = "repository of the authors, Transformer_Attentional_Memory"
    return Published(source, "train_accuracy", tuple(points), CODED)


def published_rows(known: Published) -> list[Row]:
    """The published points as rows, one each, to be fitted and drawn like ours."""
    return [
        Row("", "published", known.variant, f"published {i}", 0, params,
            {known.measure: value, "parameters": spec_of(params).parameters})
        for i, (params, value) in enumerate(known.points)
    ]  # fmt: skip


def printed_minus_published(known: Published, rows: list[Row]) -> Record:
    """Ours with the printed training minus published, mean over the sizes that both have."""

    def sizes(p: Params) -> tuple[Value, ...]:
        return p["family"] == "mlp", *(p[k] for k in ("N", "d", "d_h", "H", "width", "layers"))

    mine = group((r for r in rows if r.variant == AS_PUBLISHED), lambda row: sizes(row.params))
    pairs = [(mine[sizes(p)], value) for p, value in known.points if sizes(p) in mine]
    if not pairs:
        return {}
    groups = [[row[known.measure] - value for row in same] for same, value in pairs]
    found = combined(groups, np.full(len(groups), 1 / len(groups)))
    return {f"as printed minus published, mean of {len(groups)} settings": found}


def beside(
    known: Published, analyse: Callable[[list[Row]], Finding]
) -> Callable[[list[Row]], Finding]:
    """The analysis, with what it estimates from the published data among its numbers, and how far
    the printed training is from them."""

    def both(rows: list[Row]) -> Finding:
        finding, theirs = analyse(rows), analyse(published_rows(known))
        if not finding.claims:
            return finding
        estimates = {claim.statement: claim.found["estimate"] for claim in theirs.claims}
        numbers = {f"published data: {k}": v for k, v in {**estimates, **theirs.numbers}.items()}
        numbers |= printed_minus_published(known, rows)
        return replace(finding, numbers={**finding.numbers, **numbers})

    return both


def draw_published(
    panel: figure.Panel, known: Published | None, x: str, ink: str = "black", **only: object
) -> None:
    """The published points that have these parameters as crosses, behind ours."""
    rows = published_rows(known) if known else []
    kept = [row for row in rows if all(row[name] == value for name, value in only.items())]
    if kept:
        assert known is not None
        figure.crosses(panel, *figure.series(kept, x, known.measure), ink)


def lower_bound(row: Row, **sizes: float) -> float:
    """φ(H d_h + d): what Corollary 2 promises of the best weights, here or at other sizes."""
    at = {**row.params, **sizes}
    return phi(at["H"] * at["d_h"] + at["d"], at["N"], at["N"] ** at["S"])
