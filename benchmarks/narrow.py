"""The width-2 networks of Kajitsuka and Sato: CPU ms a step, and what training finds.

python benchmarks/narrow.py              the steps' times (about two minutes)
python benchmarks/narrow.py tables       best errors by N, word vectors and blocks (four minutes)
python benchmarks/narrow.py smallest     the smallest number of blocks by N
python benchmarks/narrow.py length       best errors by length of the sequences (ten minutes)
python benchmarks/narrow.py --quick      does it work, not how fast or how good it is

Seconds are CPU seconds of this process (time.process_time), one thread; ratios are of runs that
alternate in one process, the least of the repeats of each.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np
import torch
from exact import show
from torch import Tensor

from byheart._search import guarded
from byheart.models import feed_forward
from byheart.models.threads import one_thread
from byheart.specs import FeedForwardTransformerSpec
from byheart.training import Data, Recipe, Trained, best_of, kajitsuka2025
from byheart.training.choose import choose
from byheart.training.learner import Learner

Row = dict[str, Any]
CLASSES, WORDS, LENGTH = 3, 5000, 8
TRIALS, ERROR = 10, 0.01
LENGTHS = ((10, TRIALS), (100, TRIALS), (1000, 3), (10_000, 1))
STOP = {"stop_at": 1 - ERROR + 1e-6, "stop_together": True}
SEED = 20_000  # settings were chosen with seeds below it


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


def tried(
    spec: FeedForwardTransformerSpec, data: Data, quick: bool, trials: int = TRIALS,
    attempt: int = 0, **changes: Any,
) -> tuple[Trained, float]:  # fmt: skip
    """The trials of one size, and their CPU seconds."""
    recipe = kajitsuka2025(tuned=True, steps=20 if quick else 1000, evaluate_every=10)
    recipe = recipe.but(keep_best=True, **changes)
    began = time.process_time()
    trained = best_of(spec, data, recipe, trials=trials, seed=SEED + attempt)
    return trained, time.process_time() - began


def row_of(trained: Trained, seconds: float) -> Row:
    errors = sorted(1 - o.accuracy for o in trained.outcomes)
    best = (trained.recipes or (trained.recipe,))[trained.best]
    return {
        "parameters": trained.spec.parameters, "best error": errors[0],
        "median": errors[len(errors) // 2], "trials below .01": sum(e < ERROR for e in errors),
        "rate, warm-up of the best": f"{best.lr:.3f}, {best.warmup:.2f}", "CPU s": seconds,
    }  # fmt: skip


def model_for(d: int, blocks: int) -> FeedForwardTransformerSpec:
    return FeedForwardTransformerSpec.experiment(d, LENGTH, blocks, d_out=CLASSES, read=0)


def tables(quick: bool) -> None:
    rows: list[Row] = []
    sizes = {"trained": (1,), "50": (1, 4, 10, 20), "300": (1, 4, 10, 20), "768": (1, 4)}
    for N in (60,) if quick else (600, 1000, 1400, 2000):
        for embedding, blocks_tried in sizes.items():
            data, d = text(N, embedding, seed=SEED + N)
            name = embedding if embedding == "trained" else f"fixed, d = {embedding}"
            for blocks in blocks_tried[:1] if quick else blocks_tried:
                found = row_of(*tried(model_for(d, blocks), data, quick))
                rows.append({"N": N, "word vectors": name, "blocks": blocks, **found})
                print(rows[-1], file=sys.stderr, flush=True)
    show(f"Best of {TRIALS} trials, 1,000 epochs, 3 random labels, m = 2", rows)


def smallest(quick: bool) -> None:
    """Doubled, bisected, and asked again below what was found; the first success ends a stack."""
    rows: list[Row] = []
    for N in (60,) if quick else (600, 800, 1000, 1200, 1400):
        data, d = text(N, "300", seed=SEED + N)
        asked: list[int] = []
        began = time.process_time()

        def suffices(
            blocks: int, attempt: int, data: Data = data, d: int = d, asked: list[int] = asked
        ) -> bool:
            asked.append(blocks)
            trained, _ = tried(model_for(d, blocks), data, quick, attempt=attempt, **STOP)
            return max(o.accuracy for o in trained.outcomes) > 1 - ERROR

        found = guarded(suffices, limit=4 if quick else 20)
        size = None if found is None else model_for(d, found).parameters
        rows.append({
            "N": N, "smallest blocks": found or "none", "parameters": size,
            "asked": " ".join(map(str, asked)), "CPU s": time.process_time() - began,
        })  # fmt: skip
        print(rows[-1], file=sys.stderr, flush=True)
    show("Smallest number of blocks with an error below .01, fixed vectors in R^300", rows)


def length(quick: bool) -> None:
    """A stack ends with the first trial below .01; long sequences have fewer trials."""
    rows: list[Row] = []
    N = 30 if quick else 500
    for n, trials in ((10, TRIALS),) if quick else LENGTHS:
        source = torch.Generator().manual_seed(SEED + n)
        signs = 2.0 * torch.randint(2, (N, 1), generator=source) - 1
        data = Data(torch.rand(N, n, 6, generator=source), signs, "value")
        for m, blocks in ((2, 4), (6, 2)):
            spec = FeedForwardTransformerSpec.experiment(6, n, blocks, m=m, read=0)
            how = {"loss": "mse", "tolerance": 0.999, **STOP}
            trained, seconds = tried(spec, data, quick, trials, **how)
            epochs = max(o.steps for o in trained.outcomes)
            found = {"trials": trials, "epochs": epochs} | row_of(trained, seconds)
            rows.append({"n": n, "m": m, "blocks": blocks, **found})
            print(rows[-1], file=sys.stderr, flush=True)
    show(f"Length, N = {N}: share of wrong signs", rows)


PARTS = {"steps": steps, "tables": tables, "smallest": smallest, "length": length}

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
