"""Training as a method: facts -> memory by gradient descent.

Nothing heavy is imported before `Train.build`: a wrong option is refused at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from byheart._progress import Report, quiet
from byheart.errors import ByheartError, check_choice
from byheart.methods import Kind, Method, build, option
from byheart.specs import DTYPES, AttentionOnlySpec, MLPTransformerSpec, SharedBottleneckSpec
from byheart.training.recipe import DEVICES, LOSSES, OPTIMIZERS, SCHEDULES, Recipe, TrainableSpec

if TYPE_CHECKING:
    from byheart.facts import Facts
    from byheart.facts.vocabulary import Vocabulary
    from byheart.models.token_memory import TokenMemory

MODELS: tuple[str, ...] = ("attention", "mlp", "as-coded")
# Facts a head of width d is asked to learn, as a share of d²: full-batch training was measured to
# reach 1.0 to 1.4 d² at N = 50, d = 10 (docs/training.md); half of that trains quickly.
LOAD = 0.5
# From one `seed` to the next, so that no two of them share a start: more than any stack has models.
SEED_STRIDE = 1_000_003
SIZES, TRAINING = "Sizes", "Training"  # panels of options
# Options that `spec` and `recipe` hold, too.
OF_SPEC = ("model", "d", "H", "d_h", "layers", "width")
OF_RECIPE = ("steps", "lr", "loss", "optimizer", "schedule")


@dataclass(frozen=True)
class Train(Method["TokenMemory"]):
    """Gradient descent from `seeds` starts together, of which the best is kept.

    The architecture is `training_spec` of `model`, `d`, `H`, `d_h`, `layers` and `width`, or
    `spec`. The training is full-batch Adam with a cosine schedule until every fact is right, with
    `steps`, `lr`, `loss`, `optimizer`, `schedule` and `batch` as given, or `recipe`. `path` forces
    the kernel that computes the gradients. `checkpoint`: a file to resume from after a crash.

    >>> import byheart as bh
    >>> memory = Train(d=8, seeds=2).build(bh.random_associations(N=20, S=2, T=40, seed=1))
    >>> memory.construction.recalled
    40
    """

    name: ClassVar[str] = "train"
    summary: ClassVar[str] = "gradient descent, the best of several starts"
    takes: ClassVar[Kind] = "facts"

    model: str = option(
        "attention",
        "attention: one or more attention-only layers; mlp: few heads and a hidden layer; "
        "as-coded: one bottleneck for all heads (Dana et al.'s code).", SIZES, choices=MODELS,
    )  # fmt: skip
    d: int | None = option(None, "Width d.", SIZES, min=1)
    H: int | None = option(None, "Heads H a layer.", SIZES, min=1)
    d_h: int | None = option(None, "Head width d_h. Default: d.", SIZES, min=1)
    layers: int = option(1, "Layers.", SIZES, min=1)
    width: int | None = option(None, "Hidden units of `model=mlp`.", SIZES, min=0)
    seeds: int = option(4, "Starts, trained together; the best is kept.", TRAINING, min=1)
    steps: int = option(3000, "At most so many.", TRAINING, min=1)
    lr: float = option(0.02, "Learning rate.", TRAINING)
    loss: str = option("cross-entropy", "What is minimised.", TRAINING, choices=LOSSES)
    optimizer: str = option("adam", "Optimizer.", TRAINING, choices=OPTIMIZERS)
    schedule: str = option("cosine", "Schedule.", TRAINING, choices=SCHEDULES)
    batch: int | None = option(
        None, "Examples a step, each seen once an epoch. Default: all.", TRAINING, min=1
    )
    device: str = option(
        "cpu", "Where the training runs; auto: a GPU where there is one.", TRAINING,
        metavar="|".join(DEVICES),
    )  # fmt: skip
    threads: int | None = option(
        1, "Threads of torch: 1 is the fastest for small models.", TRAINING, min=1
    )
    checkpoint: str | Path | None = option(  # noqa: RUF009 a field, like the others
        None, "Save the run here every 30 s; the same command goes on from it, exactly.",
        TRAINING, metavar="FILE",
    )  # fmt: skip
    dtype: str = option("float32", "How the weights are stored.", TRAINING, choices=DTYPES)
    spec: TrainableSpec | None = None
    recipe: Recipe | None = None
    path: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        changed = [f.name for f in fields(self) if getattr(self, f.name) != f.default]
        for whole, parts in (("spec", OF_SPEC), ("recipe", (*OF_RECIPE, "batch"))):
            twice = [f"`{name}`" for name in parts if name in changed]
            if whole in changed and twice:  # one of them would be passed over
                both = f"`{whole}` and {', '.join(twice)}"
                raise ByheartError(f"{both} say the same thing twice. Give one of them.")
        self.training()  # its limits

    def training(self) -> Recipe:
        """How the models are trained."""
        if self.recipe is not None:
            return self.recipe
        how = Recipe(keep_best=True).but(**{name: getattr(self, name) for name in OF_RECIPE})
        if self.batch is None:
            return how
        return how.but(sampling="without-replacement", batch=self.batch)

    def architecture(self, facts: Facts) -> TrainableSpec:
        """The architecture that is trained on `facts`."""
        if self.spec is not None:
            return self.spec
        return training_spec(facts, **{name: getattr(self, name) for name in OF_SPEC})

    def _build(self, facts: Facts, seed: int, progress: Report) -> TokenMemory:
        """A memory trained on `facts`. It holds those that it recalls; `construction.lost` lists
        the others."""
        if self.batch is not None and self.batch > facts.T:
            raise ByheartError(
                f"`batch={self.batch}` is larger than the table: {facts.T:,} facts. Leave it out "
                "to train on all of them at every step."
            )
        spec, recipe = self.architecture(facts), self.training()
        vocabulary, start_id = fitting(facts, spec)

        from byheart.construct.solve import DTYPES, held, holding
        from byheart.models.construction import TrainedConstruction, Training
        from byheart.models.token_memory import TokenMemory
        from byheart.theory import corollary1_capacity
        from byheart.theory.related import memorized_bits
        from byheart.training.data import token_data
        from byheart.training.trainer import train_stack

        starts = [seed * SEED_STRIDE + m for m in range(self.seeds)]
        trained = train_stack(
            spec, token_data(facts, start_id), recipe, starts, sample_seed=seed,
            device=self.device, dtype=DTYPES[self.dtype], path=self.path, threads=self.threads,
            checkpoint=self.checkpoint, progress=progress,
        )  # fmt: skip
        best = trained.best
        if not trained.outcomes[best].accuracy and all(o.diverged for o in trained.outcomes):
            first = min(o.diverged for o in trained.outcomes if o.diverged is not None)
            raise ByheartError(
                f"all {self.seeds} starts diverged (weights or loss no longer finite, the first by "
                f"step {first:,}): nothing was learned. Use a smaller learning rate `lr` than "
                f"{recipe.lr:g}."
            )
        promised = None
        if type(spec) is AttentionOnlySpec and spec.layers == 1:
            promised = corollary1_capacity(spec)
        history = Training(recipe.to_json(), trained.path, best, trained.outcomes)
        made = TrainedConstruction(readout="trained", capacity=promised, training=history)
        memory = TokenMemory(
            spec=spec, weights=trained.model(best), vocabulary=vocabulary, construction=made,
            facts=facts, start_id=start_id, pad_id=facts.pad_id,
        )  # fmt: skip
        memory = held(memory, facts)
        share = memory.construction.recalled / facts.T
        bits = memorized_bits(facts.T, len(facts.answer_ids), share) / spec.parameters
        record = replace(memory.construction, bits_per_parameter=bits)
        return holding(replace(memory, construction=record), facts)


def train(
    data: object, spec: TrainableSpec | None = None, *, seed: int = 0, progress: Report = quiet,
    **options: object,
) -> TokenMemory:  # fmt: skip
    """A memory trained on facts (whatever `as_facts` takes): the best of `seeds` starts, trained
    together. `options` are those of `Train`: `recipe`, `seeds`, `dtype`, `checkpoint` ...

    >>> import byheart as bh
    >>> memory = bh.train(bh.random_associations(N=20, S=2, T=100, seed=1))
    >>> memory.construction.recalled, bh.certify(memory).certified
    (100, True)
    """
    return build(data, "train", seed=seed, progress=progress, spec=spec, **options)


def training_spec(
    facts: Facts, model: str = "attention", *, d: int | None = None, H: int | None = None,
    d_h: int | None = None, layers: int = 1, width: int | None = None,
    activation: Literal["gelu", "relu"] = "gelu",
) -> TrainableSpec:  # fmt: skip
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
    how = {"layers": layers, "scale": True}
    if model == "mlp":
        w = width if width is not None else max(4 * d, math.ceil(facts.T / (2 * d * layers)))
        return MLPTransformerSpec(N, S, d, d_h, H, w, activation=activation, **how)
    return AttentionOnlySpec(N, S, d, d_h, H, **how)


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
