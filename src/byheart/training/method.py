"""Training as a method: facts -> memory by gradient descent.

Nothing heavy is imported before `Train.build`: a wrong option is refused at once.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from byheart._progress import Report, quiet
from byheart.errors import ByheartError, OptionError, check_choice
from byheart.specs import DTYPES, AttentionOnlySpec, MLPTransformerSpec, SharedBottleneckSpec
from byheart.training.recipe import LOSSES, OPTIMIZERS, SCHEDULES, Recipe
from byheart.training.trainable import TrainableSpec

if TYPE_CHECKING:
    from byheart.facts import Facts
    from byheart.facts.vocabulary import Vocabulary
    from byheart.models.memory import Memory

MODELS: tuple[str, ...] = ("attention", "mlp", "as-coded")
# Facts a head of width d is asked to learn, as a share of d²: full-batch training was measured to
# reach 1.0 to 1.4 d² at N = 50, d = 10 (docs/training.md); half of that trains quickly.
LOAD = 0.5
# From one `seed` to the next, so that no two of them share a start: more than any stack has models.
SEED_STRIDE = 1_000_003


def _option(
    text: str,
    panel: str = "Training",
    *,
    choices: tuple[str, ...] | None = None,
    metavar: str | None = None,
    least: int | None = None,
) -> dict[str, object]:
    """What the command line makes an option of a field with."""
    return {"help": text, "choices": choices, "min": least, "metavar": metavar, "panel": panel}


@dataclass(frozen=True)
class Train:
    """Gradient descent from `seeds` starts together, of which the best is kept.

    The architecture is `training_spec` of `model`, `d`, `H`, `d_h`, `layers` and `width`, or
    `spec`. The training is full-batch Adam with a cosine schedule until every fact is right, with
    `steps`, `lr`, `loss`, `optimizer`, `schedule` and `batch` as given, or `recipe`. `path` forces
    the kernel that computes the gradients. `checkpoint`: a file to resume from after a crash.

    >>> import byheart as bh
    >>> memory = Train(d=8, seeds=2).build(bh.random_associations(N=20, S=2, T=40, seed=1))
    >>> memory.construction["recalled"]
    40
    """

    model: str = field(
        default="attention",
        metadata=_option(
            "attention: one or more attention-only layers; mlp: few heads and a hidden layer; "
            "as-coded: one bottleneck for all heads (Dana et al.'s code).",
            "Sizes",
            choices=MODELS,
            metavar="attention|mlp|as-coded",
        ),
    )
    d: int | None = field(default=None, metadata=_option("Width d.", "Sizes", least=1))
    H: int | None = field(default=None, metadata=_option("Heads H a layer.", "Sizes", least=1))
    d_h: int | None = field(
        default=None, metadata=_option("Head width d_h. Default: d.", "Sizes", least=1)
    )
    layers: int = field(default=1, metadata=_option("Layers.", "Sizes", least=1))
    width: int | None = field(
        default=None, metadata=_option("Hidden units of `model=mlp`.", "Sizes", least=0)
    )
    seeds: int = field(
        default=4, metadata=_option("Starts, trained together; the best is kept.", least=1)
    )
    steps: int = field(default=3000, metadata=_option("At most so many.", least=1))
    lr: float = field(default=0.02, metadata=_option("Learning rate."))
    loss: str = field(
        default="cross-entropy",
        metadata=_option(
            "What is minimised.", choices=LOSSES, metavar="cross-entropy|hinge|mse|total-variation"
        ),
    )
    optimizer: str = field(
        default="adam",
        metadata=_option("Optimizer.", choices=OPTIMIZERS, metavar="adam|adamw|sgd"),
    )
    schedule: str = field(
        default="cosine",
        metadata=_option("Schedule.", choices=SCHEDULES, metavar="cosine|linear|constant"),
    )
    batch: int | None = field(
        default=None,
        metadata=_option("Examples a step, each seen once an epoch. Default: all.", least=1),
    )
    device: str = field(
        default="cpu", metadata=_option("Where the training runs.", metavar="cpu|cuda|mps")
    )
    threads: int | None = field(
        default=1,
        metadata=_option("Threads of torch. Default: 1, the fastest for small models.", least=1),
    )
    checkpoint: str | Path | None = field(
        default=None,
        metadata=_option(
            "Save the run here every 30 s; the same command goes on from it, exactly.",
            metavar="FILE",
        ),
    )
    dtype: str = field(
        default="float32",
        metadata=_option(
            "How the weights are stored.", "Options", choices=DTYPES, metavar="float32|float64"
        ),
    )
    spec: TrainableSpec | None = None
    recipe: Recipe | None = None
    path: str = "auto"

    def __post_init__(self) -> None:
        for f in fields(self):
            value, least = getattr(self, f.name), f.metadata.get("min")
            if f.metadata.get("choices"):
                check_choice(f.name, value, f.metadata["choices"])
            if least is not None and value is not None and value < least:
                raise OptionError(f.name, f"at least {least}", value)
        self._refuse_both("spec", "model", "d", "H", "d_h", "layers", "width")
        self._refuse_both("recipe", "steps", "lr", "loss", "optimizer", "schedule", "batch")
        self.training()  # its limits

    def _refuse_both(self, whole: str, *parts: str) -> None:
        """Refuse parts of a `whole` that is given too: one of them would be passed over."""
        changed = [f.name for f in fields(self) if getattr(self, f.name) != f.default]
        if whole in changed and (twice := [f"`{name}`" for name in parts if name in changed]):
            raise ByheartError(
                f"`{whole}` and {', '.join(twice)} say the same thing twice. Give one of them."
            )

    def training(self) -> Recipe:
        """How the models are trained."""
        if self.recipe is not None:
            return self.recipe
        how = Recipe(
            steps=self.steps,
            lr=self.lr,
            loss=self.loss,
            optimizer=self.optimizer,
            schedule=self.schedule,
            keep_best=True,
        )
        if self.batch is None:
            return how
        return how.but(sampling="without-replacement", batch=self.batch)

    def architecture(self, facts: Facts) -> TrainableSpec:
        """The architecture that is trained on `facts`."""
        if self.spec is not None:
            return self.spec
        return training_spec(
            facts,
            self.model,
            d=self.d,
            H=self.H,
            d_h=self.d_h,
            layers=self.layers,
            width=self.width,
        )

    def build(self, facts: Facts, seed: int = 0, progress: Report = quiet) -> Memory:
        """A memory trained on `facts`. It holds those that it recalls; `construction["lost"]` lists
        the others."""
        started = time.perf_counter()
        if self.batch is not None and self.batch > facts.T:
            raise ByheartError(
                f"`batch={self.batch}` is larger than the table: {facts.T:,} facts. Leave it out "
                "to train on all of them at every step."
            )
        spec, recipe = self.architecture(facts), self.training()
        vocabulary, start_id = fitting(facts, spec)

        import torch

        from byheart.construct.outcome import held, holding
        from byheart.models.memory import Memory
        from byheart.theory import corollary1_capacity
        from byheart.training.data import token_data
        from byheart.training.trainer import train_stack

        trained = train_stack(
            spec,
            token_data(facts, start_id),
            recipe,
            [seed * SEED_STRIDE + m for m in range(self.seeds)],
            sample_seed=seed,
            device=self.device,
            dtype=getattr(torch, self.dtype),
            path=self.path,
            threads=self.threads,
            checkpoint=self.checkpoint,
            progress=progress,
        )
        best = trained.best
        if not trained.outcomes[best].accuracy and all(o.diverged for o in trained.outcomes):
            first = min(o.diverged for o in trained.outcomes if o.diverged is not None)
            raise ByheartError(
                f"all {self.seeds} starts diverged (weights or loss no longer finite, the first by "
                f"step {first:,}): nothing was learned. Use a smaller learning rate `lr` than "
                f"{recipe.lr:g}."
            )
        memory = Memory(
            spec=spec,
            weights=trained.model(best),
            vocabulary=vocabulary,
            facts=facts,
            start_id=start_id,
            pad_id=facts.pad_id,
        )
        promised = None
        if type(spec) is AttentionOnlySpec and spec.layers == 1:
            promised = corollary1_capacity(spec)
        record = {
            "method": "train",
            "readout": "trained",
            "capacity": promised,
            **held(memory, facts),
            "facts": facts.T,
            "dtype": self.dtype,
            "seed": seed,
            "seconds": time.perf_counter() - started,
            "why": [],
            "training": {
                "recipe": recipe.to_json(),
                "path": trained.path,
                "best": best,
                "models": [asdict(outcome) for outcome in trained.outcomes],
            },
        }
        return holding(replace(memory, construction=record), facts)


def train(
    facts: Facts,
    spec: TrainableSpec | None = None,
    *,
    recipe: Recipe | None = None,
    seeds: int = 4,
    seed: int = 0,
    dtype: str = "float32",
    device: str = "cpu",
    path: str = "auto",
    threads: int | None = 1,
    checkpoint: str | Path | None = None,
    progress: Report = quiet,
) -> Memory:
    """A memory trained on `facts`: the best of `seeds` starts, trained together; see `Train`.

    >>> import byheart as bh
    >>> memory = bh.train(bh.random_associations(N=20, S=2, T=100, seed=1))
    >>> memory.construction["recalled"], bh.certify(memory).certified
    (100, True)
    """
    method = Train(
        spec=spec,
        recipe=recipe,
        seeds=seeds,
        dtype=dtype,
        device=device,
        path=path,
        threads=threads,
        checkpoint=checkpoint,
    )
    return method.build(facts, seed, progress)


def training_spec(
    facts: Facts,
    model: str = "attention",
    *,
    d: int | None = None,
    H: int | None = None,
    d_h: int | None = None,
    layers: int = 1,
    width: int | None = None,
    activation: Literal["gelu", "relu"] = "gelu",
) -> TrainableSpec:
    """The architecture to train on `facts`; what is not given is chosen generously.

    "attention": the paper's layer with scores / sqrt(d_h); "mlp": few heads and an MLP of `width`
    (default 4 d); "as-coded": one bottleneck for all heads (Dana et al.'s code).
    """
    check_choice("model", model, MODELS)
    if width is not None and model != "mlp":
        raise ByheartError(f"`width` belongs to `model=mlp`: {model} has no hidden layer.")
    d = d or (16 if facts.T <= 2000 else 32)
    d_h = d_h or d
    if H is None:
        H = 2 if model == "mlp" else max(4, math.ceil(facts.T / (LOAD * d * min(d, d_h) * layers)))
    # One-token keys get the start token in front: a position to attend to besides itself.
    S, N = (facts.S, facts.N) if facts.S > 1 else (2, facts.N + 1)
    if model == "as-coded":
        return SharedBottleneckSpec(N, S, d, d_h, H, layers)
    if model == "mlp":
        w = width if width is not None else max(4 * d, math.ceil(facts.T / (2 * d * layers)))
        return MLPTransformerSpec(
            N, S, d, d_h, H, w, layers=layers, activation=activation, scale=True
        )
    return AttentionOnlySpec(N, S, d, d_h, H, layers=layers, scale=True)


def fitting(facts: Facts, spec: TrainableSpec) -> tuple[Vocabulary, int | None]:
    """Vocabulary and start token (None: none) with which `spec` reads the keys of `facts`: the
    start token is put in front where the spec has one position more. Refuses a spec that does not
    fit."""
    vocabulary, start_id = facts.vocabulary, None
    if spec.S > facts.S:
        vocabulary, start_id = vocabulary.with_special("<start>")
    if (spec.N, spec.S) != (len(vocabulary), facts.S + (start_id is not None)):
        raise ByheartError(
            f"{spec} does not fit the facts: they have {facts.N:,} tokens and keys of {facts.S} "
            f"(with a start token in front {facts.N + 1:,} and {facts.S + 1}). "
            "`training_spec(facts)` makes one that does."
        )
    return vocabulary, start_id
