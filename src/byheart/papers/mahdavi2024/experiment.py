"""The experiment of Mahdavi et al. (2024): the reference model trained on random data.

A seed draws its own queries and labels (and contexts, where examples have their own), its own
start and its own batches; a context that all examples share is the same for all seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from byheart.specs import DeepMultiHeadSpec, MultiHeadSpec
from byheart.studies import Jobs, Measurements, Params, Procedure, together
from byheart.theory.mahdavi2024 import effective_parameters, theorem1_capacity

if TYPE_CHECKING:
    from byheart.training import Data, Recipe

CONTEXT_SEED = 42  # the authors' seed; our generator
LOOKS = 500  # steps between two evaluations, as in the authors' code

# What a cell is unless it says otherwise. The quick profiles are the paper's model at a quarter of
# its width, ten classes in place of a hundred, and a higher learning rate for a shorter training.
SCALED: Params = {
    "task": "classes",  # classes (cross-entropy) or values (scalar labels, squared error)
    "context": "shared",  # one for all examples, or each its "own"
    "d": 16,
    "classes": 10,
    "lr": 1e-2,
    "batch": 256,
    "least_steps": 3000,
    "epochs": 0,
}
LONGER: Params = {"d": 64, "classes": 100, "lr": 1e-3, "least_steps": 50_000, "epochs": 500}
PAPER: Params = {**SCALED, **LONGER}


def steps_of(p: Params) -> int:
    """max(epochs T / batch, least_steps), the authors' rule with epochs = 500.

    >>> steps_of({"T": 130_000, "batch": 256, "epochs": 500, "least_steps": 50_000})
    253906
    """
    return max(p["epochs"] * p["T"] // p["batch"], p["least_steps"])


def spec_of(p: Params) -> MultiHeadSpec | DeepMultiHeadSpec:
    """The authors' model: embedding, scale and decoder, d_v = 1; or, with `layers`, `heads` heads
    in all spread evenly over them: the same parameters whatever the depth.

    >>> p = {**SCALED, "n": 8, "d_h": 16, "heads": 12}
    >>> [spec_of({**p, "layers": L}).parameters for L in (1, 2, 3, 6)]
    [6698, 6698, 6698, 6698]
    """
    d, n, d_h, shared = p["d"], p["n"], p["d_h"], p["context"] == "shared"
    outputs = p["classes"] if p["task"] == "classes" else 1
    if "layers" in p:
        H = p["heads"] // p["layers"]
        return DeepMultiHeadSpec(d, n, d_h, H, p["layers"], 1, outputs, shared)
    parts = {"embed": True, "scale": True, "decoder": True}
    return MultiHeadSpec(d, n, d_h, p["H"], 1, outputs, shared, **parts)


def recipe_of(p: Params) -> Recipe:
    """The authors' training; regression never stops early."""
    from byheart.training import mahdavi2024

    values = p["task"] == "values"
    return mahdavi2024(
        p["T"], steps=steps_of(p), lr=p["lr"], batch=p["batch"], evaluate_every=LOOKS,
        loss="mse" if values else "cross-entropy", stop_at=None if values else 1.0,
        best_by=p.get("best_by", "accuracy"),
    )  # fmt: skip


def data_of(p: Params, seeds: Sequence[int]) -> Data:
    """Entries of queries and contexts uniform in [0, 1], labels uniform, one draw a seed."""
    import torch

    from byheart.training import Data
    from byheart.training.data import generator

    T, n, d = p["T"], p["n"], p["d"]
    own, classes = p["context"] == "own", p["task"] == "classes"
    drawn: list[tuple[torch.Tensor, ...]] = []
    for seed in seeds:
        source = generator(seed, "data of mahdavi2024")
        contexts = [torch.rand(T, n, d, generator=source)] if own else []
        query = torch.rand(T, d, generator=source)
        if classes:
            label = torch.randint(p["classes"], (T,), generator=source)
        else:
            label = torch.rand(T, 1, generator=source)
        drawn.append((query, label, *contexts))
    queries, labels, *contexts = (torch.stack(some) for some in zip(*drawn, strict=True))
    shared = torch.rand(n, d, generator=generator(CONTEXT_SEED, "context of mahdavi2024"))
    how = {"context": contexts[0] if own else shared, "own": True, "contexts_differ": own}
    return Data(queries, labels, "class" if classes else "value", **how)


def train(jobs: Jobs) -> list[Measurements]:
    """Models of one shape, each trained on its own data.

    `share`: accuracy (classes), or the share of the labels' variance that is explained (values):
    frozen random attention of rank D explains D / T. `memorized`: share x T.
    """
    from byheart.training import train_stack

    p, seeds = together(jobs)
    spec, data = spec_of(p), data_of(p, seeds)
    sizes: Measurements = {"parameters": spec.parameters}
    if "layers" in p:
        sizes["H"] = spec.H
    else:
        shared = p["context"] == "shared"
        sizes["theorem"] = theorem1_capacity(p["H"], p["n"], p["d_h"])
        sizes["P"] = effective_parameters(p["H"], p["n"], p["d"], p["d_h"], shared=shared)
    rows = []
    for m, o in enumerate(train_stack(spec, data, recipe_of(p), seeds).outcomes):
        names = ("accuracy", "train_accuracy", "loss", "steps", "diverged")
        row: Measurements = {name: getattr(o, name) for name in names}
        share = o.accuracy
        if p["task"] == "values":
            loss = math.nan if o.loss is None else o.loss
            share = 1 - loss / float(data.targets[m].var(correction=0))
        told = {} if "layers" in p else {"share": share}  # of deep models it is the accuracy
        curve = {} if o.curve is None else {"curve": o.curve.brief()}
        rows.append({**row, **told, "memorized": share * p["T"], **sizes, **curve})
    return rows


def train_seconds(p: Params) -> float:
    """CPU seconds of one model that is not stopped early: an overhead of a step and the entries of
    the attention (one token of its own needs none); an evaluation costs about half as much for each
    example. Fitted to recorded rows."""
    B, H, n, d = min(p["batch"], p["T"]), p["H"], p["n"], p["d"]
    if p["context"] == "own":
        step = 600 + (0.0058 * B * H * (n + d) if n > 1 else 0)
    else:
        step = 600 + (0.004 + 1e-4 * d) * B * H * (n + 5)
    return steps_of(p) * step * (1 + 0.5 * p["T"] / (LOOKS * B)) * 1e-6


def complete(params: Params) -> Params:
    """d_h is d unless given; of regression the smallest error is reported, as the authors do.

    >>> TRAIN.cell("x", H=2, n=8, T=500).hash == TRAIN.cell("y", T=500, n=8, H=2, d_h=16).hash
    True
    """
    best = {"best_by": "loss"} if params["task"] == "values" else {}
    return {"d_h": params["d"], **best, **params}


_procedure = partial(
    Procedure, stack=train, seconds=train_seconds, defaults=SCALED, complete=complete,
    name="byheart.papers.mahdavi2024.ways:train",  # under this name the rows of stores are kept
    parameters=("H", "n", "T", "d_h", "best_by"),
)  # fmt: skip
TRAIN = _procedure(largest=3)
# Contexts of their own are up to a gigabyte a model in the paper's sizes: one at a time.
TRAIN_OWN = _procedure(largest=1)
TRAIN_DEEP = Procedure(
    stack=train, name="byheart.papers.mahdavi2024.depth:train", largest=3,
    seconds=lambda p: train_seconds({**p, "H": p["heads"]}) * (1.6 + 0.5 * p["layers"]),
)  # fmt: skip
