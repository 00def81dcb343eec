"""The width-2 networks of Kajitsuka and Sato: CPU ms a step, and what training finds.

python benchmarks/narrow.py              the steps' times (about two minutes)
python benchmarks/narrow.py tables       best errors by N, word vectors and blocks (half an hour)
python benchmarks/narrow.py length       the same by length of the sequences
python benchmarks/narrow.py --quick      does it work, not how fast or how good it is

Seconds are CPU seconds of this process (time.process_time), one thread; ratios are of runs that
alternate in one process, the least of the repeats of each.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch
from exact import show
from torch import Tensor

from byheart.models import feed_forward
from byheart.models.threads import one_thread
from byheart.specs import FeedForwardTransformerSpec
from byheart.training import Data, Recipe, Trained, best_of, kajitsuka2025
from byheart.training.choose import choose
from byheart.training.learner import Learner

Row = dict[str, Any]
CLASSES, WORDS, LENGTH = 3, 5000, 8
TRIALS = 10
SEED = 20_000  # no seed below it was ever used to choose a setting


def sentences(N: int, seed: int, words: int = WORDS) -> tuple[Tensor, int, Tensor]:
    """N random sentences of 8 words out of `words`, the k-th most frequent 1/k as frequent as the
    first; how many words occur; random labels."""
    rng = np.random.default_rng(seed)
    frequency = 1 / np.arange(1, words + 1)
    drawn = rng.choice(words, size=(N, LENGTH), p=frequency / frequency.sum())
    used, ids = np.unique(drawn, return_inverse=True)
    return (
        torch.tensor(ids.reshape(N, LENGTH)),
        len(used),
        torch.tensor(rng.integers(CLASSES, size=N)),
    )


def text(N: int, embedding: str, seed: int) -> tuple[Data, int]:
    """The sentences with word vectors as `embedding` says ("trained", or the dimension of fixed
    Gaussian ones), and the d of a model for them."""
    ids, used, labels = sentences(N, seed)
    if embedding == "trained":
        return Data(ids, labels), used
    d = int(embedding)
    table = torch.randn(used, d, generator=torch.Generator().manual_seed(seed))
    return Data(ids, labels, context=table), d


class Distinct(Learner[FeedForwardTransformerSpec]):
    """The same work in torch: autograd, FF_1 once a distinct word, as a batch over models."""

    name = "torch, distinct words"

    def forward(self, *inputs: Tensor) -> Tensor:
        table, ids = inputs
        z = torch.matmul(table, self.leaves["E_in"])
        for block in range(self.spec.first):
            z = feed_forward.ff_block(self.leaves, block, z)
        z = z.index_select(1, ids.flatten()).unflatten(1, ids.shape)
        y = feed_forward.attended(self.spec, self.leaves, z)
        for block in range(self.spec.first, self.spec.blocks):
            y = feed_forward.ff_block(self.leaves, block, y)
        return y @ self.leaves["E_out"]


def times(kinds: list[Any], spec: FeedForwardTransformerSpec, data: Data, loss: str, models: int,
          repeats: int) -> list[float]:  # fmt: skip
    """CPU ms of a model's loss and gradient on all data, by learner; turn by turn."""
    learners = []
    for kind in kinds:
        learner = kind(spec, models, Recipe(loss=loss))
        learner.theta.copy_(0.1 * torch.randn(len(learner.theta), generator=torch.manual_seed(0)))
        learner.prepare(data, None)
        learners.append(learner)
    least = [float("inf")] * len(kinds)
    for repeat in range(repeats + 1):  # the first is a warm-up
        for i, learner in enumerate(learners):
            began = time.process_time()
            learner.gradient(0)
            if repeat:
                least[i] = min(least[i], time.process_time() - began)
    return [1e3 * seconds / models for seconds in least]


def steps(quick: bool) -> None:
    rows: list[Row] = []
    N = 200 if quick else 2000
    data, d = text(N, "50", seed=0)
    for blocks in (2,) if quick else (10, 50):
        spec = FeedForwardTransformerSpec.experiment(d, LENGTH, blocks, d_out=CLASSES, read=0)
        kernel = choose(spec, "cross-entropy", data)
        for models in (1, TRIALS):
            kinds = [Learner, Distinct, kernel]
            today, torch_ms, ms = times(kinds, spec, data, "cross-entropy", models, 3)
            rows.append({
                "N": N, "n": LENGTH, "blocks": blocks, "models": models, "path": kernel.name,
                "today, ms": today, "torch, distinct words, ms": torch_ms, "ms": ms,
                "times today": today / ms, "times torch at equal work": torch_ms / ms,
            })  # fmt: skip
    N, n = (20, 100) if quick else (500, 10_000)
    source = torch.Generator().manual_seed(0)
    signs = 2.0 * torch.randint(2, (N, 1), generator=source) - 1
    long = Data(torch.rand(N, n, 6, generator=source), signs, "value")
    spec = FeedForwardTransformerSpec.experiment(6, n, 4)
    kernel = choose(spec, "mse", long)
    today, ms = times([Learner, kernel], spec, long, "mse", 1, 2)
    rows.append({
        "N": N, "n": n, "blocks": 4, "models": 1, "path": kernel.name, "today, ms": today,
        "ms": ms, "times today": today / ms,
    })  # fmt: skip
    show("Loss and gradient of a model, CPU ms", rows)


def tried(spec: FeedForwardTransformerSpec, data: Data, epochs: int, **changes: Any) -> Trained:
    recipe = kajitsuka2025(tuned=True, steps=epochs, evaluate_every=10, keep_best=True, **changes)
    return best_of(spec, data, recipe, trials=TRIALS, seed=SEED)


def row_of(trained: Trained, seconds: float) -> Row:
    outcomes = trained.outcomes
    errors = sorted(1 - o.accuracy for o in outcomes)
    best = trained.recipes[trained.best]
    return {
        "parameters": trained.spec.parameters, "best error": errors[0],
        "median error": errors[len(errors) // 2], "below .01": sum(e < 0.01 for e in errors),
        "best rate": best.lr, "best warm-up": best.warmup, "CPU s": seconds,
    }  # fmt: skip


def tables(quick: bool) -> None:
    rows: list[Row] = []
    for N in (60,) if quick else (600, 1000, 1400, 2000):
        for embedding in ("trained", "50", "300", "768"):
            sizes = (1,) if quick or embedding == "trained" else (1, 4, 10, 16)
            for blocks in sizes:
                data, d = text(N, embedding, seed=SEED + N)
                spec = FeedForwardTransformerSpec.experiment(
                    d, LENGTH, blocks, d_out=CLASSES, read=0
                )
                began = time.process_time()
                trained = tried(spec, data, 20 if quick else 1000)
                found = row_of(trained, time.process_time() - began)
                words = embedding if embedding == "trained" else f"fixed, d = {embedding}"
                rows.append({"N": N, "word vectors": words, "blocks": blocks, **found})
    show(f"Best of {TRIALS} trials, 1,000 epochs, 3 random labels, m = 2", rows)


def length(quick: bool) -> None:
    rows: list[Row] = []
    N = 30 if quick else 500
    for n in (10,) if quick else (10, 100, 1000, 10_000):
        source = torch.Generator().manual_seed(SEED + n)
        signs = 2.0 * torch.randint(2, (N, 1), generator=source) - 1
        data = Data(torch.rand(N, n, 6, generator=source), signs, "value")
        for m, blocks in ((2, 4), (6, 2)):
            spec = FeedForwardTransformerSpec.experiment(6, n, blocks, m=m)
            began = time.process_time()
            trained = tried(spec, data, 20 if quick else 1000, loss="mse", tolerance=0.999)
            found = row_of(trained, time.process_time() - began)
            rows.append({"n": n, "m": m, "blocks": blocks, **found})
    show(f"Length, N = {N}, best of {TRIALS} trials: share of wrong signs", rows)


PARTS = {"steps": steps, "tables": tables, "length": length}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=["steps"])
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    with one_thread():
        for part in chosen.parts:
            PARTS[part](chosen.quick)
