"""The trainer: a stack of models of one spec, many steps, and what became of each model."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from byheart import _progress
from byheart._folders import locked
from byheart._progress import Report, quiet
from byheart.errors import ByheartError
from byheart.models import architectures
from byheart.models.attention_only import Hardmax
from byheart.models.construction import Outcome
from byheart.models.devices import on_cpu
from byheart.models.threads import one_thread
from byheart.specs import Spec
from byheart.training import checkpoint as files
from byheart.training.choose import (
    AUTO,
    PLAIN,
    Kernel,
    check_recipes,
    check_shapes,
    check_work,
    choose,
)
from byheart.training.curves import Trace, training_figure
from byheart.training.data import Data, Sampler, generator
from byheart.training.devices import training_device
from byheart.training.learner import FlatOptimizer, Learner, Weights, contiguous
from byheart.training.recipe import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOGGED = 101  # batches before an evaluation whose accuracy is kept (as coded: all but the last)
REPACK = 0.75  # finished models leave the stack when at most this share of it is still running


class Progress(_progress.Progress):
    """Where a run is: `done` of `total` steps, and how many models are `running`. `loss` and
    `accuracy` are the best model's of the last evaluation; `state` is the text without the steps.

    >>> print(Progress(200, 3000, 2, loss=0.125, accuracy=0.25))
    step 200 of 3,000, 2 models, best loss 0.125, accuracy 0.2500
    """

    running: int
    loss: float | None
    accuracy: float | None
    state: str

    def __new__(
        cls, done: int, total: int, running: int, loss: float | None = None,
        accuracy: float | None = None,
    ) -> Self:  # fmt: skip
        state = f"{running} model{'s'[: running != 1]}"
        if loss is not None and accuracy is not None:
            state += f", best loss {loss:.3g}, accuracy {accuracy:.4f}"
        text = f"step {done:,} of {total:,}, {state}"
        message = super().__new__(cls, text, done=done, total=total)
        message.running, message.loss, message.accuracy = running, loss, accuracy
        message.state = state
        return message


@dataclass(frozen=True)
class Trained:
    """Weights (models, ...) and outcomes, in the order of the seeds; the recipe, or, where the
    models had learning rates of their own, `recipes` (and the first of them)."""

    spec: Spec
    weights: Weights
    outcomes: tuple[Outcome, ...]
    recipe: Recipe
    path: str
    recipes: tuple[Recipe, ...] = ()

    def model(self, m: int) -> Weights:
        """The weights of one model, without the model axis."""
        return {name: w[m] for name, w in self.weights.items()}

    def figure(self) -> Figure:
        """Loss and accuracy over steps, a line a model (`outcomes[m].curve` has the numbers)."""
        return training_figure(self.outcomes, str(self.spec))

    @property
    def best(self) -> int:
        """The model with the highest accuracy, then the lowest loss."""
        scores = [(o.accuracy, o.loss if o.diverged is None else math.inf) for o in self.outcomes]
        return max(range(len(scores)), key=lambda m: _rank(scores[m]))


@on_cpu
def train_stack(
    spec: Spec, data: Data, recipe: Recipe | Sequence[Recipe], seeds: Sequence[int], *,
    start: Weights | None = None, sample_seed: int = 0, device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32, path: str = "auto", threads: int | None = 1,
    checkpoint: str | Path | None = None, checkpoint_seconds: float = 30.0,
    progress: Report = quiet,
) -> Trained:  # fmt: skip
    """Train one model per seed, all at once, on shared data or each on its own.

    A model's start and its batches come from generators of its own seed, so they do not depend on
    the stack. A model that diverges is recorded and never harms its neighbours. With `checkpoint`
    (a file) the run is saved every `checkpoint_seconds`, between blocks of batches, and a run that
    was cut off goes on from there to bit-identical weights. `start`: weights to begin with, in
    place of `recipe.init`. `progress` is told after every block: a text that is a `Progress`.
    `device`: "auto" is a GPU where there is one; without it the CPU (or that of `training_on`).
    `recipe` may be a list of one for each seed, which differ in learning rate and warm-up.

    >>> import byheart as bh
    >>> from byheart.training import Recipe, token_data, train_stack
    >>> facts = bh.random_associations(N=10, S=2, T=40, seed=1)
    >>> spec = bh.AttentionOnlySpec(N=10, S=2, d=4, d_h=4, H=8, positions="attention", scale=True)
    >>> trained = train_stack(spec, token_data(facts), Recipe(steps=1000), seeds=[0, 1])
    >>> max(outcome.accuracy for outcome in trained.outcomes)
    1.0
    """
    recipes = [recipe] * len(seeds) if isinstance(recipe, Recipe) else list(recipe)
    recipe = check_recipes(recipes, len(seeds))
    device = training_device(device, dtype)
    check_shapes(spec, data, recipe, start, len(seeds))
    kernel = choose(spec, recipe.loss, data, path, device=device, dtype=dtype)
    if torch.device(device).type == "cpu":
        check_work(kernel, spec, data, recipe, len(seeds), dtype.itemsize)
    file = None if checkpoint is None else Path(checkpoint)
    alone = contextlib.nullcontext()
    if file is not None:
        files.check_file(file)
        alone = locked(file, wait=1.0)  # two runs would overwrite each other's steps
    with alone, one_thread() if threads == 1 else contextlib.nullcontext():
        if start is None:
            start = initial(spec, seeds, recipe.init, data)
        run = _Run(spec, data.to(device, dtype), recipes, list(seeds), sample_seed, kernel, dtype)
        run.begin(start, file, path)
        saved = time.monotonic()
        while run.running:
            run.block()
            progress(run.progress())
            if file and (not run.running or time.monotonic() - saved >= checkpoint_seconds):
                run.save(file)
                saved = time.monotonic()
        return run.result()


def initial(
    spec: Spec, seeds: Sequence[int], init: str | None = None, data: Data | None = None
) -> Weights:
    """Starting weights (models, ...), each model's from its own seed; some starts look at the
    data."""
    generators = [generator(seed, "initial weights") for seed in seeds]
    inputs = None if data is None else partial(data.span, 0)
    return architectures.initial(spec, generators, init=init, inputs=inputs)


class _Run:
    """The state of a run between two blocks; `block` is the loop."""

    def __init__(
        self, spec: Spec, data: Data, recipes: list[Recipe], seeds: list[int], sample_seed: int,
        kernel: Kernel, dtype: torch.dtype,
    ) -> None:  # fmt: skip
        recipe = recipes[0]
        self.spec, self.all_data, self.recipe, self.seeds = spec, data, recipe, seeds
        self.recipes = recipes if len(set(recipes)) > 1 else []
        self.kernel, self.dtype, self.device = kernel, dtype, data.inputs.device
        self.identity: dict[str, object] = {
            "spec": {"family": spec.family, **spec.to_json()}, "recipe": recipe.to_json(),
            "seeds": seeds, "sample_seed": sample_seed, "data": files.data_digest(data),
            "dtype": str(dtype),
            "rates": [(r.lr, r.lr_low, r.warmup) for r in self.recipes] or None,
        }  # fmt: skip
        sources = [generator(seed, "order of the batches") for seed in seeds]
        self.all_sampler = Sampler(recipe, data, sources, sample_seed)
        self.step = 0
        self.live = list(range(len(seeds)))  # the models in the stack, by number
        self.done: dict[int, tuple[Weights, Outcome]] = {}
        self.diverged: dict[int, int] = {}
        self.seconds = [0.0] * len(seeds)
        self.best: dict[int, tuple[float, float, Weights]] = {}
        self.rank = partial(_rank, by=recipe.best_by)
        self.hits: list[Tensor] = []  # right answers of the last batches, (live,) each
        self.seen: tuple[float, float] | None = None
        self.trace = Trace(len(seeds))

    @property
    def running(self) -> list[int]:
        return [m for m in self.live if m not in self.done]

    def _pack(self, weights: Weights, moments: dict[str, Weights]) -> None:
        """Put the live models' weights and optimizer state into a fresh learner."""
        r = self.recipe
        self.data = self.all_data.select(self.live)
        self.sampler = self.all_sampler.select(self.live)
        how = {"device": self.device, "dtype": self.dtype}
        self.learner: Learner[Any] = self.kernel(self.spec, len(self.live), r, **how)
        self.learner.load(weights)
        owner = self.learner.owner() if self.recipes or r.clip is not None else None
        self.optimizer = FlatOptimizer(r, self.learner.theta, self.learner.grad, owner=owner)
        for key, named in moments.items():
            self.learner.load(named, self.optimizer.state[key])
        self.optimizer.t.fill_(self.step)
        if r.sampling == "full":
            self.learner.prepare(self.data, None)

    def block(self) -> None:
        """One block of batches, then evaluation, departures and divergences."""
        began = time.perf_counter()
        r = self.recipe
        order = self.sampler.next()
        if order is not None:
            self.learner.prepare(self.data, order)
        count = min(self.sampler.block, r.steps - self.step)
        due = _next_evaluation(self.step, self.sampler.block, r.evaluate_every, r.steps)
        hard = getattr(self.spec, "attention", "softmax") == "hardmax"
        for i in range(count):
            if hard:
                heat = r.temperature(self.step) if r.surrogate == "annealed" else 1.0
                self.learner.options = {"hardmax": Hardmax(r.surrogate, heat)}
            log = due - self.step <= LOGGED and r.sampling != "full"
            traced = self.trace.wants(self.step)
            right = self.learner.gradient(0 if order is None else i, log or traced)
            if traced and right is not None:
                self.trace.add(self.step, self._point(right))
            self.optimizer.step(self._rates())
            self.step += 1
            if right is not None and log:
                self.hits = [*self.hits[-(LOGGED - 1) :], right]
        views = self.learner.views(self.learner.theta)
        finite = torch.stack([w.isfinite().flatten(1).all(1) for w in views.values()]).all(0)
        for m, fine in zip(self.live, finite.tolist(), strict=True):
            if not fine and m not in self.done:
                self.diverged.setdefault(m, self.step)
        spent = (time.perf_counter() - began) / len(self.live)
        for m in self.running:
            self.seconds[m] += spent
        if self.step >= due:
            self._evaluate()

    def _point(self, right: Tensor) -> Tensor:
        """Loss and accuracy of every model on the batch of this step, (live, 2)."""
        batch = self.sampler.batch
        if self.recipe.sampling == "full":
            batch = self.data.T if self.data.rows is None else self.data.rows
        accuracy, losses = right / batch, self.learner.losses
        losses = torch.full_like(accuracy, math.nan) if losses is None else losses
        return torch.stack([losses.to(accuracy.dtype), accuracy], 1)

    def _rates(self) -> float | Tensor:
        """The learning rate of this step, or that of every live model."""
        if not self.recipes:
            return self.recipe.learning_rate(self.step)
        rates = [self.recipes[m].learning_rate(self.step) for m in self.live]
        return torch.tensor(rates, dtype=self.dtype, device=self.device)

    def _evaluate(self) -> None:
        views = self.learner.views(self.learner.theta)
        accuracy, loss = self.learner.score(self.data)
        scores = list(zip(accuracy.tolist(), loss.tolist(), strict=True))
        self.won = self.recipe.stop_together and any(
            self._reached(scores[self.live.index(m)][0]) for m in self.running
        )
        for m in self.running:
            slot = self.live.index(m)
            self._take(m, scores[slot], {k: w[slot] for k, w in views.items()})
        running = self.running
        known = [self.best[m][:2] for m in running if m in self.best]
        self.seen = max(known or scores, key=self.rank)
        # Diverged models stay as ballast: a slot in the stack decides how sums are rounded, so
        # the others would not be bit-identical to a stack in which nobody diverged.
        staying = [m for m in self.live if m not in self.done or m in self.diverged]
        if running and len(staying) <= REPACK * len(self.live):
            self._leave(staying)

    def _reached(self, accuracy: float) -> bool:
        return self.recipe.stop_at is not None and accuracy >= self.recipe.stop_at

    def _take(self, m: int, score: tuple[float, float], views: Weights) -> None:
        """One model's evaluation: its best weights, and whether it is done."""
        r = self.recipe
        if not math.isfinite(score[1]):
            self.diverged.setdefault(m, self.step)
        better = m not in self.best or self.rank(score) > self.rank(self.best[m][:2])
        reached = self._reached(score[0])
        over = self.step >= r.steps or reached or self.won or m in self.diverged
        if not over and not (r.keep_best and better):
            return
        weights = {k: contiguous(w) for k, w in views.items()}
        if r.keep_best and better:
            self.best[m] = (*score, weights)
        if not over:
            return
        if not better:
            score, weights = self.best[m][:2], self.best[m][2]
        slot = self.live.index(m)
        hits = [float(h[slot]) / self.sampler.batch for h in self.hits[:-1]]
        train = sum(hits) / len(hits) if hits else None
        if r.sampling == "full":  # a batch is all facts
            train = score[0]
        self.done[m] = weights, Outcome(
            seed=self.seeds[m], steps=self.step, accuracy=score[0], train_accuracy=train,
            loss=score[1], diverged=self.diverged.get(m), stopped=self.step if reached else None,
            seconds=self.seconds[m], curve=self.trace.curve(slot, self.step),
        )  # fmt: skip

    def _leave(self, staying: list[int]) -> None:
        """Finished models leave; the others carry on with weights and moments as they are."""
        slots = [self.live.index(m) for m in staying]
        weights = {k: w[slots] for k, w in self.learner.weights().items()}
        moments = {
            key: {k: w[slots] for k, w in self.learner.weights(flat).items()}
            for key, flat in self.optimizer.state.items()
        }
        self.hits = [h[slots] for h in self.hits]
        self.trace.select(slots)
        self.live = staying
        self._pack(weights, moments)

    def progress(self) -> Progress:
        accuracy, loss = self.seen if self.seen is not None else (None, None)
        return Progress(self.step, self.recipe.steps, len(self.running), loss, accuracy)

    def result(self) -> Trained:
        models, outcomes = zip(*(self.done[m] for m in range(len(self.seeds))), strict=True)
        stacked = {k: torch.stack([w[k].cpu() for w in models]) for k in models[0]}
        name = self.learner.name
        return Trained(self.spec, stacked, outcomes, self.recipe, name, tuple(self.recipes))

    def save(self, file: Path) -> None:
        parts = {"weight": self.learner.weights()}
        parts |= {f"moment.{k}": self.learner.weights(v) for k, v in self.optimizer.state.items()}
        parts |= {f"done.{m}": weights for m, (weights, _) in self.done.items()}
        parts |= {f"best.{m}": best[2] for m, best in self.best.items()}
        tensors = {f"{name}.{k}": w for name, named in parts.items() for k, w in named.items()}
        for m, source in enumerate(self.all_sampler.generators):
            tensors[f"generator.{m}"] = source.get_state()
        if self.hits:
            tensors["hits"] = torch.stack(self.hits)
        tensors["curve"] = self.trace.kept()
        done = {m: asdict(outcome) for m, (_, outcome) in self.done.items()}
        best = {m: best[:2] for m, best in self.best.items()}
        record = {"step": self.step, "live": self.live, "done": done, "best": best}
        record |= {"diverged": self.diverged, "seconds": self.seconds}
        record |= {"path": self.kernel.name, "curve": self.trace.steps}
        files.save(file, self.identity, record, tensors)

    def begin(self, start: Weights, file: Path | None, path: str) -> None:
        """From the starting weights, or from the checkpoint if there is one."""
        self.identity["start"] = files.digest(start)
        if file is None or not file.exists():
            self._pack(start, {})
            return
        models = len(self.seeds)
        saved, tensors = files.load(file, self.identity, models, self.recipe.steps)
        self.step, self.live, self.seconds = saved.step, saved.live, saved.seconds
        self.diverged = saved.diverged
        self._go_on_with(saved.path, path, file)
        with files.checked(file):
            self._check(saved, tensors)
            for m, source in enumerate(self.all_sampler.generators):
                source.set_state(tensors[f"generator.{m}"])
        for m, outcome in saved.done.items():
            self.done[m] = files.part(tensors, f"done.{m}."), outcome
        for m, scores in saved.best.items():
            self.best[m] = *scores, files.part(tensors, f"best.{m}.")
        if "curve" in tensors:  # checkpoints of earlier versions have none
            self.trace.restore(saved.curve, tensors["curve"])
        else:
            self.trace.select(self.live)
        moments = {key: files.part(tensors, f"moment.{key}.") for key in ("m", "v")}
        self._pack(files.part(tensors, "weight."), {k: w for k, w in moments.items() if w})
        self.hits = [h.to(self.device) for h in tensors.get("hits", ())]

    def _go_on_with(self, computed: str | None, path: str, file: Path) -> None:
        """The path that computed the checkpoint: another one rounds differently."""
        if path in (AUTO, PLAIN):
            how = {"device": self.device, "dtype": self.dtype}
            try:  # before there were compiled kernels, paths were not written down
                self.kernel = choose(
                    self.spec, self.recipe.loss, self.all_data, computed or PLAIN, **how
                )
            except ByheartError as error:
                raise ByheartError(
                    f"{file} was computed by the path {computed!r}, and others round differently. "
                    f"{error} Or delete the checkpoint to start again."
                ) from None
        elif computed not in (None, self.kernel.name):
            raise ByheartError(
                f"{file} was computed by the path {computed!r}, `path` is {path!r}: they round "
                "differently. Leave `path` out to go on, or delete the checkpoint to start again."
            )

    def _check(self, saved: files.Saved, tensors: Weights) -> None:
        """Refuse tensors that are not those of a run of this recipe, where it is."""
        shapes = self.spec.weight_shapes()
        moments = FlatOptimizer.moments(self.recipe.optimizer, self.recipe.momentum)
        wanted = {
            f"{part}.{name}": (len(self.live), *shape)
            for part in ("weight", *(f"moment.{key}" for key in moments))
            for name, shape in shapes.items()
        }
        for part, kept in (("done", saved.done), ("best", saved.best)):
            wanted |= {f"{part}.{m}.{name}": shape for m in kept for name, shape in shapes.items()}
        files.check_tensors(tensors, wanted, self.dtype)
        if "hits" in tensors:
            rows = len(tensors["hits"])
            files.check_tensors(tensors, {"hits": (rows, len(self.live))}, torch.int64)
            wanted |= {"hits": ()}
        if saved.curve or "curve" in tensors:
            points = {"curve": (len(saved.curve), len(self.live), 2)}
            files.check_tensors(tensors, points, torch.float32)
            wanted |= points
        others = sorted(
            tensors.keys() - wanted.keys() - {f"generator.{m}" for m in range(len(self.seeds))}
        )
        if others:
            raise ValueError(f"tensors of no such run: {', '.join(others[:3])}")


def _next_evaluation(step: int, block: int, every: int, steps: int) -> int:
    """The first end of a block after `step` that reaches or passes a multiple of `every`; at the
    latest the last step."""
    end = (step // block + 1) * block
    while end < steps and end // every == (end - block) // every:
        end += block
    return min(end, steps)


def _rank(score: tuple[float, float], by: str = "accuracy") -> tuple[float, float]:
    """Of (accuracy, loss): the higher the better; the other one decides where `by` is equal."""
    accuracy, loss = score
    return (accuracy, -loss) if by == "accuracy" else (-loss, accuracy)
