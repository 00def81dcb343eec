"""facts -> memory, by gradient descent: the door to the trainer."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from byheart.construct.outcome import held, holding
from byheart.errors import ByheartError
from byheart.facts import Facts
from byheart.facts.vocabulary import Vocabulary
from byheart.models.memory import Memory
from byheart.specs import AttentionOnlySpec, MLPTransformerSpec, SharedBottleneckSpec
from byheart.theory import corollary1_capacity
from byheart.training.data import token_data
from byheart.training.recipe import Recipe
from byheart.training.trainer import Progress, train_stack

MODELS: tuple[str, ...] = ("attention", "mlp", "as-coded")
DTYPES = {"float32": torch.float32, "float64": torch.float64}
# Facts a head of width d is asked to learn, as a share of d²: full-batch training was measured to
# reach 1.0 to 1.4 d² at N = 50, d = 10 (docs/training.md); half of that trains quickly.
LOAD = 0.5

TrainableSpec = AttentionOnlySpec | MLPTransformerSpec | SharedBottleneckSpec


def training_spec(
    facts: Facts,
    model: str = "attention",
    *,
    d: int | None = None,
    H: int | None = None,
    d_h: int | None = None,
    layers: int = 1,
    width: int | None = None,
    activation: str = "gelu",
) -> TrainableSpec:
    """The architecture to train on `facts`; what is not given is chosen generously.

    "attention": the paper's layer with scores / sqrt(d_h); "mlp": few heads and an MLP of `width`
    (default 4 d); "as-coded": one bottleneck for all heads (Dana et al.'s code).
    """
    if model not in MODELS:
        raise ByheartError(f"model must be one of {', '.join(MODELS)}, found {model!r}")
    if width is not None and model != "mlp":
        raise ByheartError(f"--width belongs to --model mlp: {model} has no hidden layer.")
    d = d or (16 if facts.T <= 2000 else 32)
    d_h = d_h or d
    if H is None:
        H = 2 if model == "mlp" else max(4, math.ceil(facts.T / (LOAD * d * min(d, d_h) * layers)))
    # One-token keys get the start token in front: a position to attend to besides itself.
    S, N = (facts.S, facts.N) if facts.S > 1 else (2, facts.N + 1)
    sizes: dict[str, Any] = {"N": N, "S": S, "d": d, "d_h": d_h, "H": H, "layers": layers}
    if model == "as-coded":
        return SharedBottleneckSpec(**sizes)
    if model == "mlp":
        w = width if width is not None else max(4 * d, math.ceil(facts.T / (2 * d * layers)))
        return MLPTransformerSpec(**sizes, w=w, activation=activation, scale=True)  # type: ignore[arg-type]
    return AttentionOnlySpec(**sizes, scale=True)


def fitting(facts: Facts, spec: Any) -> tuple[Vocabulary, int | None]:
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


def train(
    facts: Facts,
    spec: TrainableSpec | None = None,
    *,
    recipe: Recipe | None = None,
    models: int = 4,
    seed: int = 0,
    dtype: str = "float32",
    device: str = "cpu",
    path: str = "auto",
    threads: int | None = 1,
    checkpoint: str | Path | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Memory:
    """A memory trained on `facts`: the best of `models` starts, trained together.

    `spec`: an architecture (`training_spec` chooses one). `recipe`: full-batch Adam, cosine, until
    every fact is right, unless given. The memory holds the facts it recalls;
    `construction["lost"]` lists the others. `checkpoint`: a file to resume from after a crash.

    >>> import byheart as bh
    >>> memory = bh.train(bh.random_associations(N=20, S=2, T=100, seed=1))
    >>> memory.construction["recalled"], bh.certify(memory).certified
    (100, True)
    """
    started = time.perf_counter()
    if dtype not in DTYPES:
        raise ByheartError(f"dtype must be float32 or float64, found {dtype!r}")
    if models < 1:
        raise ByheartError(f"models must be at least 1, found {models}")
    spec = spec if spec is not None else training_spec(facts)
    recipe = recipe if recipe is not None else Recipe(keep_best=True)
    vocabulary, start_id = fitting(facts, spec)
    trained = train_stack(
        spec,
        token_data(facts, start_id),
        recipe,
        [seed * 1_000_003 + m for m in range(models)],
        sample_seed=seed,
        device=device,
        dtype=DTYPES[dtype],
        path=path,
        threads=threads,
        checkpoint=checkpoint,
        progress=progress,
    )
    best = trained.best
    if not trained.outcomes[best].accuracy and all(o.diverged for o in trained.outcomes):
        first = min(o.diverged for o in trained.outcomes if o.diverged is not None)
        raise ByheartError(
            f"all {models} starts diverged (weights or loss no longer finite, the first by step "
            f"{first:,}): nothing was learned. Use a smaller learning rate than {recipe.lr:g} "
            "(--lr)."
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
    if isinstance(spec, AttentionOnlySpec) and spec.layers == 1:
        promised = corollary1_capacity(spec)
    record = {
        "method": "train",
        "readout": "trained",
        "capacity": promised,
        **held(memory, facts),
        "facts": facts.T,
        "dtype": dtype,
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
