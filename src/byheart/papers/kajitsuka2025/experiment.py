"""The experiments of Kajitsuka and Sato (2025): their model trained on sentences, the construction.

E_out o FF_2 o attention o FF_1 o E_in with m = 2, q = 4 m and #blocks feed-forward blocks on either
side (eq. 165), AdamW on the full batch. The authors tuned the learning rate by a few trials; here a
trial is one start with one of a few learning rates, and the best trial counts.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from byheart.errors import ByheartError
from byheart.papers.kajitsuka2025 import text
from byheart.specs import FeedForwardTransformerSpec
from byheart.studies import Measurements, Params, Procedure

if TYPE_CHECKING:
    from torch import Tensor

    from byheart.training import Data, Outcome

ERROR = 0.01  # the paper's ε: a size suffices if the training error is below it

# What a cell is unless it says otherwise.
DEFAULTS: Params = {
    "data": "text",  # sentences, or "random" vectors with labels ±1
    "n": 8, "d": 16, "m": 2, "classes": 3, "attention": "uniform",  # or softmax, hardmax
    "surrogate": "straight-through", "epochs": 1000, "rates": [0.03, 0.06], "starts": 4,
    "start": "scaled",  # or "linear": see `start_of`
    "corpus": text.SYSTEM,
}  # fmt: skip


def spec_of(p: Params, blocks: int) -> FeedForwardTransformerSpec:
    """`blocks` blocks before and `blocks` after the attention; the first token is read.

    >>> spec_of({**DEFAULTS}, 4).parameters
    378
    """
    uniform = p["attention"] == "uniform"
    return FeedForwardTransformerSpec(
        d=p["d"], n=p["n"], m=p["m"], q=4 * p["m"], blocks=2 * blocks, uniform=uniform, read=0,
        attention="softmax" if uniform else p["attention"],
        d_out=1 if p["data"] == "random" else p["classes"],
    )  # fmt: skip


def data_of(p: Params, seed: int) -> Data:
    """Sentences as vectors: every word has its Gaussian vector in R^d, drawn from the seed; or
    tokens uniform in [0, 1)^d with labels ±1, as in the paper's experiment on length."""
    import torch

    from byheart.training import Data
    from byheart.training.data import generator

    source = generator(seed, "data of kajitsuka2025")
    N, n, d = p["N"], p["n"], p["d"]
    if p["data"] == "random":
        inputs = torch.rand(N, n, d, generator=source)
        signs = torch.randint(2, (N, 1), generator=source)
        return Data(inputs, (2 * signs - 1).float(), "value")
    if text.digest(p["corpus"]) != p["text"]:
        raise ByheartError(
            f"the text of {p['corpus']} is not this cell's: the files have changed, or this worker "
            "has others."
        )
    tokens, labels = text.examples(p["corpus"], N, n, p["classes"], seed)
    table = torch.randn(int(tokens.max()) + 1, d, generator=source)
    return Data(table[torch.tensor(tokens)], torch.tensor(labels))


def start_of(p: Params, spec: FeedForwardTransformerSpec, seeds: list[int]) -> dict[str, Tensor]:
    """Weights to begin with: "linear", as torch's layers start; "scaled", the same with the outputs
    of every block divided by sqrt(blocks), without which more blocks were learned less well (N =
    200, 6 + 6 blocks: best accuracy .89 and .99). The paper does not say how its models start."""
    from byheart.training.trainer import initial

    weights = initial(spec, seeds)
    if p["start"] == "scaled":
        for name in ("W_2", "b_2"):
            weights[name] = weights[name] / spec.blocks**0.5
    return weights


def trials(p: Params, blocks: int, data: Data, seed: int, enough: bool) -> list[Outcome]:
    """All trials of one size; with `enough`, no further learning rate after a success."""
    from byheart.training import kajitsuka2025, train_stack

    values = data.kind == "value"
    outcomes: list[Outcome] = []
    for rate in p["rates"]:
        recipe = kajitsuka2025(
            steps=p["epochs"], lr=rate, loss="mse" if values else "cross-entropy",
            tolerance=0.999,  # of a label ±1: the sign is right
            stop_at=1 - ERROR + 1e-6 if enough else 1.0, evaluate_every=50, keep_best=True,
            surrogate=p["surrogate"],
        )  # fmt: skip
        seeds = [seed + k for k in range(p["starts"])]
        spec = spec_of(p, blocks)
        outcomes += train_stack(spec, data, recipe, seeds, start=start_of(p, spec, seeds)).outcomes
        if enough and max(o.accuracy for o in outcomes) > 1 - ERROR:
            break
    return outcomes


def train(p: Params, seed: int) -> Measurements:
    """The best of all trials of one size, as the paper reports it, and the mean of them."""
    outcomes = trials(p, p["blocks"], data_of(p, seed), seed, enough=False)
    best = max(outcomes, key=lambda o: (o.accuracy, -math.inf if o.loss is None else -o.loss))
    mean = sum(o.accuracy for o in outcomes) / len(outcomes)
    told = {"mean_accuracy": mean, "trials": len(outcomes)}
    size = spec_of(p, p["blocks"]).parameters
    return {"accuracy": best.accuracy, "loss": best.loss, **told, "parameters": size}


def minimal(p: Params, seed: int) -> Measurements:
    """The smallest #blocks with training error below 0.01, sizes tried in rising order.

    `blocks` is None if none of `sizes` suffices.
    """
    data = data_of(p, seed)
    best = 0.0
    for blocks in p["sizes"]:
        best = max(o.accuracy for o in trials(p, blocks, data, seed, enough=True))
        if best > 1 - ERROR:
            needed = spec_of(p, blocks).parameters
            return {"blocks": blocks, "parameters": needed, "accuracy": best}
    return {"blocks": None, "parameters": None, "accuracy": best}


def built(p: Params, seed: int) -> Measurements:
    """The exact network for N random multisets of n words out of V: what it counts.

    `max_bits` limits the longest weight (Theorem F.1's trade-off); `formats`: the share of the
    labels that is right when the network is computed in a number format.
    """
    import numpy as np

    from byheart.exact.build import memorize
    from byheart.exact.precision import evaluate_in

    rng = np.random.default_rng(seed)
    tokens = np.empty((0, p["n"]), dtype=np.int64)
    while len(tokens) < p["N"]:
        more = np.sort(rng.integers(p["V"], size=(2 * p["N"], p["n"])), axis=1)
        tokens = np.unique(np.concatenate([tokens, more]), axis=0)
    tokens = rng.permutation(tokens)[: p["N"]]
    labels = 1 + rng.integers(p["classes"], size=p["N"])  # 0 would cost nothing
    memory = memorize(tokens, labels, ff1=p["ff1"], max_bits=p["max_bits"], seed=seed)
    counts = memory.network.counts()
    wrong = int((memory.structured.evaluate(tokens) != labels).sum())
    right = {
        name: float((evaluate_in(memory.network, tokens, name) == labels).mean())
        for name in p["formats"]
    }
    return {
        "parameters": counts.parameters, "dense": counts.dense, "depth": counts.depth,
        "bits": counts.max_bits, "total_bits": counts.total_bits, "wrong": wrong,
        "accuracy": 1 - wrong / p["N"], **right,
    }  # fmt: skip


def trial_seconds(p: Params, blocks: int) -> float:
    """CPU seconds of all trials of one size: tokens and blocks, from one timed cell of a shape."""
    rows = p["N"] * p["n"]
    block = 3e-5 + (rows + p["N"]) * p["m"] * 4e-8
    return len(p["rates"]) * p["starts"] * p["epochs"] * (1e-4 + blocks * block)


def minimal_seconds(p: Params) -> float:
    """As if N / 25 blocks were needed at m = 2, and all sizes below that were tried."""
    needed = max(1, round(p["N"] / 25 / (p["m"] / 2) ** 2))
    return sum(trial_seconds(p, size) for size in p["sizes"] if size <= needed)


def complete(params: Params) -> Params:
    """The digest of the text is part of a cell: other sentences are another cell. What has no
    consequence is left out or the same everywhere, so that equal cells are equal."""
    full = dict(params)
    if full["data"] == "random":
        del full["corpus"]
        full["classes"] = 2
    else:
        full["text"] = text.digest(full["corpus"])
    if full["attention"] != "hardmax":
        full["surrogate"] = "straight-through"
    return full


ROWS = "byheart.papers.kajitsuka2025.ways"  # under this name the rows of stores are kept
_make = partial(Procedure, defaults=DEFAULTS, complete=complete)
TRAIN = _make(
    train, name=f"{ROWS}:train", parameters=("N", "blocks"),
    seconds=lambda p: trial_seconds(p, p["blocks"]),
)  # fmt: skip
MINIMAL = _make(minimal, name=f"{ROWS}:minimal", parameters=("N", "sizes"), seconds=minimal_seconds)
BUILT = Procedure(
    built, name=f"{ROWS}:built",
    seconds=lambda p: 0.05 + 2.5e-4 * p["N"] + 2e-3 * p["N"] * len(p["formats"]),
    defaults={"n": 8, "V": 1000, "classes": 3, "ff1": "hash", "max_bits": None, "formats": []},
)  # fmt: skip
