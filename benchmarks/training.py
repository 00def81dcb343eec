"""The stacked trainer: throughput, distance from the machine's peak, the paper's experiments.

python benchmarks/training.py                     everything (some forty minutes on 2 cores)
python benchmarks/training.py reference stacked   some of it
python benchmarks/training.py --quick             short runs: does it work, not how fast it is
python benchmarks/training.py --json out.json     also as JSON
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import byheart as bh
from byheart.engine import engine
from byheart.models import multi_head
from byheart.models.threads import one_thread
from byheart.papers.dana2025.experiment import HEADS as PUBLISHED_HEADS
from byheart.papers.dana2025.experiment import published
from byheart.papers.mahdavi2024.experiment import LOOKS, PAPER, steps_of
from byheart.papers.mahdavi2024.sweeps import SWEEPS
from byheart.specs import (
    AttentionOnlySpec,
    MLPTransformerSpec,
    MultiHeadSpec,
    SharedBottleneckSpec,
)
from byheart.training import Data, Recipe, dana2025, token_data, train_stack
from byheart.training.choose import KERNELS, choose
from byheart.training.learner import FlatOptimizer, Learner
from byheart.training.recipe import TrainableSpec
from byheart.training.trainer import initial

# Means of an independent re-run of the code of Dana et al., 5 seeds: training-sample accuracy.
BY_HEADS = (0.1248, 0.3210, 0.4985, 0.6724, 0.8523, 0.9614, 0.9974)
BY_WIDTH = (0.0836, 0.1053, 0.1538, 0.2101, 0.2804, 0.3619, 0.4448, 0.5435, 0.6466, 0.8146)
PER_HEAD = (0.2453, 0.3931, 0.5233, 0.6128, 0.6974, 0.7492, 0.7791, 0.7972, 0.8078, 0.8146)
REPRODUCED: dict[str, dict[int, float]] = {
    "exp1": dict(zip(PUBLISHED_HEADS, BY_HEADS, strict=True)),
    "exp2": dict(enumerate(BY_WIDTH, start=1)),
    "exp2 per head": dict(enumerate(PER_HEAD, start=1)),
}

# The authors' own, by H and by d_h.
PUBLISHED = {
    "exp1": {params["H"]: value for params, value in published("1a", d=10).points},
    "exp2": {params["d_h"]: value for params, value in published("1b").points},
}

Row = dict[str, Any]
N, S, D, BATCH, STEPS, MODELS = 50, 2, 10, 256, 64 * 64, 10
HEADS = (6, 16, 31)
QUICK = os.environ.get("BYHEART_QUICK") == "1"  # --quick; fresh processes inherit it


def show(title: str, rows: list[Row]) -> list[Row]:
    import run

    run.show(title, rows)
    return rows


def fresh(function: Callable[..., Row], *arguments: Any) -> Row:
    import run

    return run.fresh(function, *arguments)


def dana_spec(H: int, d: int = D, d_h: int = 0, tokens: int = N) -> AttentionOnlySpec:
    return AttentionOnlySpec(tokens, S, d, d_h or d, H, positions="attention", scale=True)


def pairs(tokens: int = N) -> Data:
    """All pairs of tokens, each with a random answer."""
    return token_data(bh.random_associations(N=tokens, S=S, T=tokens**2, seed=2222))


class OneModulePerHead(nn.Module):
    """The plain way: a sum of `nn.MultiheadAttention` modules, every position computed.

    Called as it comes: need_weights=False takes a third longer at this size.
    """

    def __init__(self, H: int) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(N, D), nn.Embedding(S, D)
        self.heads = nn.ModuleList(
            nn.MultiheadAttention(D, 1, bias=False, batch_first=True) for _ in range(H)
        )
        self.read = nn.Linear(D, N, bias=False)
        self.register_buffer("future", torch.ones(S, S, dtype=torch.bool).triu(1))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        c = x + self.positions.weight  # what the heads read; the skip goes without
        for head in self.heads:
            x = x + head(c, c, c, attn_mask=self.future)[0]
        return self.read(x)


def one_reference(H: int, threads: int | None, steps: int) -> Row:
    """CPU and wall seconds of `steps` steps after a warm-up, scaled to a whole training."""
    if threads is not None:
        torch.set_num_threads(threads)
    torch.manual_seed(0)
    data = pairs()
    sample = torch.randint(data.T, (BATCH * 64,))
    dataset = torch.utils.data.TensorDataset(data.inputs[sample], data.targets[sample])
    loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH, shuffle=True)
    model = OneModulePerHead(H)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    done, warm = 0, 10
    wall = cpu = 0.0
    while done < steps + warm:
        for tokens, answers in loader:
            loss = nn.functional.cross_entropy(model(tokens)[:, -1], answers)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done == warm:
                wall, cpu = time.perf_counter(), time.process_time()
            if done == steps + warm:
                break
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {
        "H": H,
        "threads": torch.get_num_threads(),
        "steps timed": steps,
        "wall s per model": wall / steps * STEPS,
        "CPU s per model": cpu / steps * STEPS,
    }


_REFERENCE: dict[tuple[int, int | None], Row] = {}  # measured once in a run of this script


def reference_row(H: int, threads: int | None) -> Row:
    if (H, threads) not in _REFERENCE:
        _REFERENCE[H, threads] = fresh(one_reference, H, threads, 16 if QUICK else 512)
    return _REFERENCE[H, threads]


def reference() -> list[Row]:
    """The plain loop, one model at a time."""
    rows = [reference_row(H, threads) for threads in (None, 1) for H in HEADS]
    return show(
        f"Plain loop: one nn.MultiheadAttention a head, DataLoader, Adam (N={N}, d=d_h={D}, "
        f"batch {BATCH}; seconds scaled from the steps timed to {STEPS})",
        rows,
    )


def one_stack(H: int, seeds: list[int], epochs: int) -> Row:
    wall, cpu = time.perf_counter(), time.process_time()
    trained = train_stack(dana_spec(H), pairs(), dana2025(epochs=epochs), seeds)
    return {
        "path": trained.path,
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "accuracy": statistics.mean(o.train_accuracy or 0.0 for o in trained.outcomes),
    }


def stacked() -> list[Row]:
    """The same work through the stacked trainer, on one and on two workers."""
    epochs, stacks = (2, 2) if QUICK else (64, 4)
    rows = []
    for workers in (1, 2):
        with engine(workers) as executor:
            # Starting a worker and importing torch is not training: once, before the clock.
            for future in [executor.submit(one_stack, 6, [0], 1) for _ in range(2 * workers)]:
                future.result()
            for H in HEADS:
                plain, plain_one = reference_row(H, None), reference_row(H, 1)
                began = time.perf_counter()
                seeds = [list(range(MODELS * i, MODELS * (i + 1))) for i in range(stacks)]
                futures = [executor.submit(one_stack, H, some, epochs) for some in seeds]
                results = [future.result() for future in futures]
                scale = 64 / epochs / (MODELS * stacks)
                wall = (time.perf_counter() - began) * scale
                cpu = sum(r["cpu"] for r in results) * scale
                rows.append(
                    {
                        "workers": workers,
                        "H": H,
                        "path": results[0]["path"],
                        "models": MODELS * stacks,
                        "epochs run": epochs,
                        "wall s per model": wall,
                        "CPU s per model": cpu,
                        "times plain, wall": plain["wall s per model"] / wall,
                        "times plain, CPU": plain["CPU s per model"] / cpu,
                        "times plain on 1 thread, wall": plain_one["wall s per model"] / wall,
                        "times plain on 1 thread, CPU": plain_one["CPU s per model"] / cpu,
                        "train accuracy": statistics.mean(r["accuracy"] for r in results),
                    }
                )
    return show(
        f"Stacked: the same trainings, {MODELS} models a stack (dana2025, with batches, logging "
        "and evaluation)",
        rows,
    )


def warm_learner(
    spec: Any, models: int, data: Data, batch: int, path: str = "auto"
) -> tuple[Learner, Callable[[int], None]]:
    """A learner with 16 random batches, and `step(i)`: gradient and Adam."""
    made = choose(spec, "cross-entropy", data, path)(spec, models, Recipe())
    made.load(initial(spec, list(range(models))))
    source = torch.Generator().manual_seed(0)
    made.prepare(data, torch.randint(data.T, (16, models, batch), generator=source))
    optimizer = FlatOptimizer(made.recipe, made.theta, made.grad)

    def step(i: int) -> None:
        made.gradient(i % 16)
        optimizer.step(1e-3)

    return made, step


def step_seconds(
    step: Callable[[int], None], least: float | None = None, threads: int | None = 1
) -> float:
    """Median CPU seconds of a step, over chunks of 4 steps, for at least `least` seconds; on one
    thread, or (None) on as many as torch takes by itself."""
    least = (0.1 if QUICK else 3.0) if least is None else least
    with one_thread() if threads == 1 else nullcontext():
        for i in range(4):
            step(i)
        chunks: list[float] = []
        while sum(chunks) < least or len(chunks) < 3:
            began = time.process_time()
            for i in range(4):
                step(i)
            chunks.append(time.process_time() - began)
    return statistics.median(chunks) / 4


def matmul_peak() -> float:
    """FLOP/s of one core at a product of two 1024 x 1024 float32 matrices, best of many."""
    a, b = torch.rand(1024, 1024), torch.rand(1024, 1024)
    with one_thread():
        torch.mm(a, b)
        seconds = []
        for _ in range(5 if QUICK else 50):
            began = time.process_time()
            torch.mm(a, b)
            seconds.append(time.process_time() - began)
    return 2 * 1024**3 / min(seconds)


def step_flop(spec: AttentionOnlySpec, batch: int) -> int:
    """Matrix products of one model-step, forward and backward, S = 2.

    12 B d² H for scores and values (bilinear and u/z alike), 6 B d N for the logits, 12 d² d_h H
    for G_h, W_h and their gradients, 6 d² N for the tables of the last token.
    """
    d, H, d_h, tokens = spec.d, spec.H, spec.d_h, spec.N
    return 12 * batch * d**2 * H + 6 * batch * d * tokens + 12 * d**2 * d_h * H + 6 * d**2 * tokens


def peak() -> list[Row]:
    """How far a step is from the matrix-multiply peak, and what the rest is."""
    best = matmul_peak()
    rows, tables = [], []
    for H in HEADS:
        spec = dana_spec(H)
        made, step = warm_learner(spec, MODELS, pairs(), BATCH)
        seconds = step_seconds(step) / MODELS
        flop = (step_flop if made.library is None else compiled_flop)(spec, BATCH)
        rows.append(
            {
                "H": H,
                "path": made.name,
                "MFLOP per model-step": flop / 1e6,
                "CPU µs per model-step": seconds * 1e6,
                "GFLOP/s": flop / seconds / 1e9,
                "peak GFLOP/s": best / 1e9,
                "share of peak": flop / seconds / best,
            }
        )
        tables.append((H, profile(step)))
    show(f"Distance from the peak of one core ({MODELS} models, batch {BATCH})", rows)
    for H, table in tables:
        show(
            f"Where the time of a step goes, H = {H} (torch.profiler, own time of operators)", table
        )
    return rows + [row for _, table in tables for row in table]


def profile(step: Callable[[int], None], top: int = 12) -> list[Row]:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    with one_thread(), profiler(activities=[ProfilerActivity.CPU]) as seen:
        for i in range(16 if QUICK else 128):
            step(i)
    averages = seen.key_averages()
    total = sum(event.self_cpu_time_total for event in averages)
    first = sorted(averages, key=lambda event: -event.self_cpu_time_total)[:top]
    count = 16 if QUICK else 128
    return [
        {
            "operator": event.key,
            "calls per step": event.count / count,
            "µs per step": event.self_cpu_time_total / count,
            "share": event.self_cpu_time_total / total,
        }
        for event in first
    ]


class OneHead(nn.Module):
    """A head of Mahdavi et al.'s loop: all n+1 positions read all tokens but the query."""

    def __init__(self, weights: dict[str, Tensor], h: int) -> None:
        super().__init__()
        self.W_Q, self.W_K, self.W_V = (
            nn.Parameter(weights[name][0, h].clone()) for name in ("W_Q", "W_K", "W_V")
        )

    def forward(self, x: Tensor) -> Tensor:
        logits = (x @ self.W_Q) @ (x @ self.W_K).transpose(1, 2) / math.sqrt(x.shape[-1])
        hidden = torch.zeros(x.shape[1], dtype=torch.bool)
        hidden[0] = True
        return torch.softmax(logits.masked_fill(hidden, -torch.inf), -1) @ (x @ self.W_V)


class AllPositions(nn.Module):
    """Their layer: heads in a Python loop, all positions computed, one read."""

    pos: Tensor

    def __init__(self, spec: MultiHeadSpec, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.heads = nn.ModuleList(OneHead(weights, h) for h in range(spec.H))
        self.W_E, self.b_E, self.W_U, self.b_U = (
            nn.Parameter(weights[name][0].clone()) for name in ("W_E", "b_E", "W_U", "b_U")
        )
        self.W_O = nn.Parameter(weights["W_O"][0].flatten(0, 1).clone())
        self.register_buffer("pos", multi_head.positions(spec.n + 1, spec.d, torch.float32))

    def forward(self, context: Tensor, query: Tensor) -> Tensor:
        x = torch.cat([query[:, None], context], 1) @ self.W_E + self.b_E + self.pos
        F = torch.cat([head(x) for head in self.heads], -1)
        return (F @ self.W_O @ self.W_U + self.b_U)[:, 0]


def one_multihead(shared: bool, models: int) -> Row:
    spec = MultiHeadSpec.reference(n=32, H=20, d_out=100, shared=shared)
    source = torch.Generator().manual_seed(0)
    T = 1024
    query = torch.rand(T, spec.d, generator=source)
    context = torch.rand(*(() if shared else (T,)), spec.n, spec.d, generator=source)
    answers = torch.randint(spec.d_out, (T,), generator=source)
    data = Data(query, answers, context=context, contexts_differ=not shared)
    weights = initial(spec, [0])
    literal = AllPositions(spec, weights)
    optimizer = torch.optim.Adam(literal.parameters(), lr=1e-3)
    batches = torch.randint(T, (16, BATCH), generator=source)

    def inputs(i: int) -> tuple[Tensor, Tensor]:
        chosen = batches[i % 16]
        read = context.expand(BATCH, -1, -1) if shared else context[chosen]
        return read, query[chosen]

    with one_thread(), torch.no_grad():
        read, asked = inputs(0)
        known = multi_head.forward(spec, weights, context if shared else read, asked)[0]
        off = float((literal(read, asked) - known).abs().max())
    assert off < 1e-4, f"the loop and the model differ by {off}"

    def literal_step(i: int) -> None:
        loss = nn.functional.cross_entropy(literal(*inputs(i)), answers[batches[i % 16]])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    slow = step_seconds(literal_step, 0.0 if QUICK else 15.0)
    default = step_seconds(literal_step, 0.0 if QUICK else 15.0, threads=None)
    made, step = warm_learner(spec, models, data, BATCH)
    fast = step_seconds(step) / models
    return {
        "contexts": "shared" if shared else "random",
        "models": models,
        "path": made.name,
        "plain CPU ms per step": slow * 1e3,
        "stacked CPU ms per model-step": fast * 1e3,
        "times plain": slow / fast,
        "plain with default threads, CPU ms": default * 1e3,
        "times that": default / fast,
        "asked": 100 if shared else 40,
        "outputs differ by": off,
    }


def multihead() -> list[Row]:
    """Multi-head attention over contexts: the all-positions loop against `scalar heads`."""
    sizes = (1,) if QUICK else (1, 4)
    rows = [fresh(one_multihead, shared, M) for shared in (True, False) for M in sizes]
    return show("Multi-head attention: d=64, n=32, H=20, batch 256, 100 classes, one thread", rows)


AS_CODED: dict[str, Any] = {"positions": "attention", "scale": True}
# Shapes of Dana et al.'s figures that cost the most, and the batch of each.
DEEP_CASES: dict[str, tuple[TrainableSpec, int]] = {
    "3 layers, N=70, d=10, H=9": (AttentionOnlySpec(70, S, 10, 10, 9, 3, **AS_CODED), 512),
    "3 layers, N=70, d=10, H=21": (AttentionOnlySpec(70, S, 10, 10, 21, 3, **AS_CODED), 512),
    "3 layers, N=70, d=10, MLP 240": (
        MLPTransformerSpec(70, S, 10, 10, 1, 240, 3, **AS_CODED), 512,
    ),
    "N=200, d=50, MLP 480": (MLPTransformerSpec(200, S, 50, 50, 1, 480, **AS_CODED), 1024),
    "N=200, d=50, H=7": (AttentionOnlySpec(200, S, 50, 50, 7, **AS_CODED), 1024),
    "N=50, d=10, H=31": (AttentionOnlySpec(50, S, 10, 10, 31, **AS_CODED), 256),
    "figure 3: N=70, d=10, MLP 300": (MLPTransformerSpec(70, S, 10, 10, 1, 300, **AS_CODED), 1024),
    "figure 3: N=70, d=10, H=16": (AttentionOnlySpec(70, S, 10, 10, 16, **AS_CODED), 1024),
    "bottleneck, N=50, d=10, d_h=5, H=20": (SharedBottleneckSpec(50, S, 10, 5, 20), 256),
}  # fmt: skip
T_95 = 2.776  # of Student's distribution for 5 seeds: half a 95 % interval in standard errors


def compiled_flop(spec: TrainableSpec, batch: int) -> int:
    """Matrix products of one model-step of `compiled pairs`, forward and back: G_h and W_h, tables
    of layer 1, heads of later layers, position 0, MLPs, the bottleneck, logits."""
    heads, d, w = spec.heads, spec.d, getattr(spec, "w", 0)
    e, H, later = heads.d, heads.H, heads.layers - 1
    tokens = min(heads.N, batch)
    folded = 6 * e * e * (heads.qk_rank + heads.d_h) * H * heads.layers
    tables = 18 * tokens * e * e * H + 6 * tokens * e * e * heads.layers
    attended = later * 12 * batch * e * e * H
    hidden = 12 * d * w * (batch * heads.layers + tokens * later)
    maps = 12 * d * e * (batch + tokens) * heads.layers if e != d else 0
    return folded + tables + attended + hidden + maps + 6 * batch * d * heads.N


def native_step(name: str) -> Row:
    """A model-step of the compiled kernel beside that of the best one in plain torch: five models,
    in turns, the least of the repeats, since both only lose by what else the machine does."""
    spec, batch = DEEP_CASES[name]
    data, models = pairs(spec.N), 5
    both = [warm_learner(spec, models, data, batch, path) for path in ("torch", "auto")]
    (old, _), (new, _) = both
    least = [math.inf, math.inf]
    with one_thread():
        for repeat in range(2 if QUICK else 12):
            for i, (_, step) in enumerate(both):
                began = time.process_time()
                for k in range(4):
                    step(4 * repeat + k)
                least[i] = min(least[i], (time.process_time() - began) / 4 / models)
    rate = compiled_flop(spec, batch) / least[1]
    return {
        "case": name,
        "batch": batch,
        "plain path": old.name,
        "path": new.name,
        "plain CPU ms": least[0] * 1e3,
        "compiled CPU ms": least[1] * 1e3,
        "times": least[0] / least[1],
        "GFLOP/s": rate / 1e9,
        "share of peak": rate / matmul_peak(),
    }


def native_accuracy(name: str) -> Row:
    """A short training of 5 seeds by both paths: share of all facts that are right, mean over the
    seeds with half its 95 % interval."""
    spec, batch = DEEP_CASES[name]
    recipe = dana2025(batch, batches=16, epochs=1 if QUICK else 64)
    runs = [train_stack(spec, pairs(spec.N), recipe, range(5), path=p) for p in ("torch", "auto")]
    plain, compiled = ([outcome.accuracy for outcome in run.outcomes] for run in runs)
    half = T_95 * statistics.stdev(plain) / math.sqrt(5)
    off = statistics.mean(compiled) - statistics.mean(plain)
    return {
        "case": name,
        "steps": recipe.steps,
        "plain": f"{statistics.mean(plain):.4f} ± {half:.4f}",
        "compiled": f"{statistics.mean(compiled):.4f}",
        "off by": f"{off:+.4f}",
        "within": abs(off) <= half,
    }


def native() -> list[Row]:
    """The compiled kernel for pairs: time and accuracy beside the kernels in plain torch."""
    rows = [native_step(name) for name in DEEP_CASES]
    show("Compiled pairs: CPU time of a model-step, 5 models (interleaved, least of 12)", rows)
    mean = math.exp(statistics.mean(math.log(row["times"]) for row in rows))
    print(f"geometric mean: {mean:.2f} times as fast")
    accuracies = [native_accuracy(name) for name in DEEP_CASES]
    return rows + show("Accuracy of short trainings, 5 seeds, by both paths", accuracies)


def one_shape(shared: bool, H: int, models: int) -> Row:
    """A model-step and the evaluation of a batch, by every path, interleaved; least of three."""
    spec = MultiHeadSpec.reference(n=32, H=H, d_out=100, shared=shared)
    source = torch.Generator().manual_seed(0)
    T = 4096
    query = torch.rand(T, spec.d, generator=source)
    context = torch.rand(*(() if shared else (T,)), spec.n, spec.d, generator=source)
    answers = torch.randint(spec.d_out, (T,), generator=source)
    data = Data(query, answers, context=context, contexts_differ=not shared)
    fits = (k.name for k in KERNELS[MultiHeadSpec] if k.covers(spec, "cross-entropy", data))
    made = {name: warm_learner(spec, models, data, BATCH, name) for name in (*fits, "autograd")}
    steps: dict[str, list[float]] = {name: [] for name in made}
    looks: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(1 if QUICK else 3):
        for name, (learner, step) in made.items():
            steps[name].append(step_seconds(step, 0.1 if QUICK else 0.5))
            began = time.process_time()
            with one_thread():
                learner.score(data)
            looks[name].append((time.process_time() - began) * BATCH / T)
    row: Row = {"contexts": "shared" if shared else "own", "H": H, "models": models}
    for name in made:
        row[f"{name}, ms a step"] = min(steps[name]) / models * 1e3
        row[f"{name}, ms a batch evaluated"] = min(looks[name]) / models * 1e3
    first = next(iter(made))
    return row | {"step s": min(steps[first]) / models, "look s": min(looks[first]) / models}


def figure2() -> list[Row]:
    """Mahdavi et al.'s Figure 2 and its appendix: a model-step at their sizes, and what the sweeps
    over heads take in all if no model stops early."""
    rows: list[Row] = []
    for name in ("fig2a", "heads-own-contexts"):
        points, shared = SWEEPS[name].paper, name == "fig2a"
        heads = [
            fresh(one_shape, shared, H, 3 if shared else 1) for H in _some(list(points.values))
        ]
        hours = 0.0
        for T in points.T:
            count = steps_of({**PAPER, "T": T})
            evaluated = count // LOOKS * T / BATCH  # batches of all evaluations
            hours += sum(count * r["step s"] + evaluated * r["look s"] for r in heads) / 3600
        told = [{k: v for k, v in r.items() if k not in ("step s", "look s")} for r in heads]
        show(f"{name}: d = 64, n = 32, batch {BATCH}, 100 classes", told)
        print(
            f"{name}, one seed, no early stop: {hours:.1f} CPU hours, {hours / 2:.1f} on two cores"
        )
        rows += [*told, {"sweep": name, "CPU hours": hours}]
    return rows


# Name, where the published and the reproduced means are.
EXPERIMENTS: dict[str, tuple[str | None, str]] = {
    "experiment 1, H": ("exp1", "exp1"),
    "experiment 2 as coded (shared bottleneck), d_h": ("exp2", "exp2"),
    "experiment 2 as printed (per head), d_h": (None, "exp2 per head"),
}


def experiment_spec(name: str, x: int) -> AttentionOnlySpec | SharedBottleneckSpec:
    if "1, H" in name:
        return dana_spec(x)
    return SharedBottleneckSpec(N, S, D, x, 20) if "shared" in name else dana_spec(20, d_h=x)


def one_experiment(name: str, x: int, seeds: int) -> Row:
    wall, cpu = time.perf_counter(), time.process_time()
    trained = train_stack(experiment_spec(name, x), pairs(), dana2025(), list(range(seeds)))
    train = [o.train_accuracy or 0.0 for o in trained.outcomes]
    told, again = EXPERIMENTS[name]
    theirs = None if told is None else PUBLISHED[told][x]
    reproduced = REPRODUCED[again][x]
    ours = statistics.mean(train)
    return {
        name.split(", ")[-1]: x,
        "published": "-" if theirs is None else f"{theirs:.4f}",
        "reproduced": f"{reproduced:.4f}",
        "ours": f"{ours:.4f}",
        "sd": f"{statistics.stdev(train):.4f}",
        "- published": "-" if theirs is None else f"{ours - theirs:+.4f}",
        "- reproduced": f"{ours - reproduced:+.4f}",
        "all pairs": f"{statistics.mean(o.accuracy for o in trained.outcomes):.4f}",
        "path": trained.path,
        "wall s": time.perf_counter() - wall,
        "CPU s": time.process_time() - cpu,
    }


def experiments() -> list[Row]:
    """Experiments 1 and 2 of Dana et al. beside the published and the reproduced numbers."""
    seeds, all_rows = 2 if QUICK else 5, []
    began = time.perf_counter()
    with engine(2) as executor:
        futures = {
            name: [
                executor.submit(one_experiment, name, x, seeds)
                for x in _some(list(REPRODUCED[again]))
            ]
            for name, (_, again) in EXPERIMENTS.items()
        }
        for name, some in futures.items():
            rows = [future.result() for future in some]
            show(f"Dana et al., {name} ({seeds} seeds, N={N}, d={D})", rows)
            for column in ("- published", "- reproduced"):
                off = [abs(float(row[column])) for row in rows if row[column] != "-"]
                if off:
                    mean = statistics.mean(off)
                    verdict = "below" if mean < 0.01 else "NOT below"
                    print(f"mean |ours {column}| = {mean:.4f}: {verdict} 0.01; max {max(off):.4f}")
            all_rows += [{"experiment": name, **row} for row in rows]
    wall = time.perf_counter() - began
    print(f"wall time of all {len(all_rows)} settings on 2 workers: {wall:.0f} s")
    return all_rows


def _some(points: list[int]) -> list[int]:
    return [points[0], points[-1]] if QUICK else points


GROWTH: dict[str, tuple[int, ...]] = {
    "H": (8, 16, 32, 64),
    "d": (5, 10, 20, 40),
    "N": (25, 50, 100, 200, 400),
    "batch": (64, 128, 256, 512, 1024),
    "models": (1, 2, 4, 8, 16, 32),
}


def one_growth(name: str, value: int) -> Row:
    """Cost of a model-step with one size changed; memory is what the stack adds to the process."""
    import resource

    size = {"H": 16, "d": D, "N": N, "batch": BATCH, "models": MODELS} | {name: value}
    data = pairs(size["N"])
    torch.mm(torch.rand(64, 64), torch.rand(64, 64))  # what torch needs for itself comes first
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    spec = dana_spec(size["H"], size["d"], tokens=size["N"])
    made, step = warm_learner(spec, size["models"], data, size["batch"])
    seconds = step_seconds(step) / size["models"]
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "size": name,
        "value": value,
        "path": made.name,
        "CPU µs per model-step": seconds * 1e6,
        "MB per model": (after - before) / 1024 / size["models"],
    }


def growth() -> list[Row]:
    """Cost per model-step as each size doubles, with fitted exponents."""
    from run import growth_exponent

    rows, fitted = [], []
    for name, values in GROWTH.items():
        points = [fresh(one_growth, name, value) for value in (values[:3] if QUICK else values)]
        rows += points
        x = [row["value"] for row in points]
        for column in ("CPU µs per model-step", "MB per model"):
            y = [max(row[column], 1e-3) for row in points]
            slope, error = growth_exponent(x, y)
            fitted.append({"size": name, "of": column, "exponent": slope, "± ": error})
    for row in rows:
        del row["peak GB"]
    show(f"Growth from H=16, d=d_h={D}, N={N}, batch {BATCH}, {MODELS} models", rows)
    show("Cost ~ size^exponent (standard error of the fit)", fitted)
    return rows + fitted


# d, H, N, and the largest size that a prototype learned with one seed.
CAPACITIES = ((10, 6, 50, "840"), (2, 5, 10, "40"), (2, 10, 10, "60"), (2, 20, 10, ">= 100"))


def one_capacity(d: int, H: int, tokens: int, known: str) -> Row:
    began = time.perf_counter()
    found = bh.capacity(dana_spec(H, d, tokens=tokens), seeds=2 if QUICK else 5)
    low, high = found.interval
    return {
        "N": tokens,
        "d = d_h": d,
        "H": H,
        "promised": H * d + d,
        "one seed (prototype)": known,
        "facts (median)": found.facts,
        "learned by all": low,
        "not learned": "-" if high is None else str(high),
        "parameters": found.parameters,
        "facts per parameter": found.per_parameter,
        "bits per parameter": found.bits_per_parameter,
        "inversions": sum(len(b.inversions) for b in found.brackets),
        "runs": len(found.trials),
        "wall s": time.perf_counter() - began,
    }


def capacities() -> list[Row]:
    """How many random facts are learned, 5 tables each."""
    rows = [one_capacity(*case) for case in (CAPACITIES[1:2] if QUICK else CAPACITIES)]
    return show("Capacity by training (full batch, 3 starts a size, 5 tables)", rows)


PARTS: dict[str, Callable[[], list[Row]]] = {
    "reference": reference,
    "stacked": stacked,
    "peak": peak,
    "multihead": multihead,
    "native": native,
    "figure2": figure2,
    "experiments": experiments,
    "growth": growth,
    "capacities": capacities,
}


def throughput() -> list[Row]:
    """The parts that `make bench` measures: the plain way and ours."""
    parts = (reference, stacked, multihead)
    return [{"part": part.__name__, **row} for part in parts for row in part()]


def main() -> None:
    global QUICK
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="short runs, figures mean nothing")
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    unknown = set(chosen.names) - PARTS.keys()
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if chosen.quick:
        QUICK, os.environ["BYHEART_QUICK"] = True, "1"
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load average {load:.1f} (0 on a quiet machine)", flush=True)
    results = {name: PARTS[name]() for name in chosen.names or PARTS}
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
