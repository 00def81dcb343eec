"""Studies: what a step of each shape costs, engines that agree, faults survived, all of a paper.

python benchmarks/studies.py times      CPU time of each shape, and the coefficients of --list
python benchmarks/studies.py engines    one study on 1 process, 2 workers, a scheduler: rows equal?
python benchmarks/studies.py faults     20 killed coordinators, killed workers: rows lost
python benchmarks/studies.py full       all studies of dana2025 in full, 2 workers (under an hour)
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]
TESTS = Path(__file__).parents[1] / "tests" / "studies"

ONE_LAYER: list[Row] = [
    *({"d": d, "H": H} for d in (3, 6, 10, 13) for H in (1, 6, 16, 31)),
    {"d": 10, "H": 16, "batch": 1024},
    *({"family": "shared", "d": 10, "d_h": d_h, "H": 20} for d_h in (2, 5, 9)),
    *({"d": 10, "d_h": d_h, "H": 20} for d_h in (2, 5)),
    {"d": 15, "d_h": 10, "H": 20},
    *({"N": 70, "d": d, "H": H, "batch": 512} for d, H in ((7, 6), (10, 16), (13, 31))),
    *(
        {"family": "mlp", "N": 70, "d": d, "H": 1, "width": w, "batch": 512}
        for d, w in ((7, 70), (10, 300), (13, 780))
    ),
    *({"N": 200, "d": d, "H": H, "batch": 1024} for d in (40, 60) for H in (1, 5, 11)),
    *(
        {"family": "shared", "N": 200, "d": 50, "d_h": d_h, "H": 11, "batch": 1024}
        for d_h in (5, 20, 45)
    ),
    *({"family": "mlp", "N": 200, "d": 50, "H": 1, "width": w, "batch": 1024} for w in (200, 1000)),
    {"N": 10, "d": 2, "H": 11},
]
DEEP: list[Row] = [
    *(
        {"N": 70, "d": d, "H": H, "layers": 3, "batch": 512}
        for d, H in ((7, 1), (7, 21), (10, 9), (13, 1), (13, 21))
    ),
    *(
        {"family": "shared", "N": 70, "d": 10, "d_h": d_h, "H": 21, "layers": 3, "batch": 512}
        for d_h in (2, 6)
    ),
    *(
        {"family": "mlp", "N": 70, "d": d, "H": 1, "width": w, "layers": 3, "batch": 512}
        for d, w in ((7, 56), (10, 200), (13, 520))
    ),
    {"d": 7, "H": 8, "layers": 3},
]
OTHER: list[Row] = [{"d": 10, "H": H, "loss": loss} for H in (6, 16) for loss in ("mse", "hinge")]


def step_seconds(settings: Row, models: int = 5) -> tuple[str, float]:
    """CPU seconds of one model-step: gradient and Adam, median of several."""
    import torch

    from byheart.models.threads import one_thread
    from byheart.papers.dana2025.experiment import TRAIN, pairs, spec_of
    from byheart.training.choose import choose
    from byheart.training.learner import FlatOptimizer
    from byheart.training.recipe import Recipe
    from byheart.training.trainer import initial

    p = TRAIN.cell("time", **settings).params
    spec, data = spec_of(p), pairs(p)
    made = choose(spec, p["loss"], data)(spec, models, Recipe(loss=p["loss"]))
    made.load(initial(spec, list(range(models))))
    made.prepare(data, torch.randint(data.T, (8, models, p["batch"])))
    optimizer = FlatOptimizer(made.recipe, made.theta, made.grad)
    seconds = []
    with one_thread():
        while len(seconds) < 3 or (sum(seconds) < 0.5 and len(seconds) < 60):
            began = time.process_time()
            for i in range(4):
                made.gradient(i)
                optimizer.step(1e-3)
            seconds.append(time.process_time() - began)
    return made.name, float(np.median(seconds[1:])) / 4 / models


def times() -> None:
    """Timings of every shape, and a fit with positive coefficients."""
    from scipy.optimize import nnls

    from byheart.papers.dana2025.experiment import TRAIN, step_work

    for name, shapes in (("COMPILED", ONE_LAYER + DEEP), ("AUTOGRAD", OTHER)):
        rows, measured = [], []
        for settings in shapes:
            path, seconds = step_seconds(settings)
            rows.append(step_work(TRAIN.cell("time", **settings).params))
            measured.append(seconds * 1e6)
            print(f"{seconds * 1e6:9.0f} µs per model-step  {path:12s} {settings}", flush=True)
        A, y = np.array(rows), np.array(measured)
        found, _ = nnls(A / y[:, None], np.ones(len(y)))  # relative errors count
        worst = np.abs(A @ found / y - 1).max()
        print(f"{name} = ({', '.join(f'{v:.3g}' for v in found)})  # off by at most {worst:.0%}")


def tools(name: str = "study_tools") -> Any:
    """A module that the tests of studies use too."""
    return importlib.import_module(name)


def engines() -> None:
    """Figure 1a at d = 10 (quick, as coded) on three engines."""
    from byheart.papers import find
    from byheart.studies import run

    [study] = find("dana2025/fig1a")
    cluster = tools().Cluster()
    kept: dict[str, list[Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, workers in (
            ("1 process", 1),
            ("2 local workers", 2),
            ("external scheduler, 2 workers", cluster.address),
        ):
            store = Path(folder) / f"{name}.db"
            report = run(study, store, variant="as-coded", workers=workers)
            kept[name] = tools().content(store)
            same = kept[name] == kept["1 process"]
            print(f"{name:30s} {report.computed} rows, {report.seconds:6.1f} s, identical: {same}")
    cluster.close()


def faults(kills: int = 20, points: int = 120) -> None:
    """Coordinators killed at random times; then the rows are counted and compared."""
    from byheart.studies import run

    with tempfile.TemporaryDirectory() as folder:
        store, whole = Path(folder) / "killed.db", Path(folder) / "whole.db"
        left = tools().kill_in_a_loop(store, kills, points)
        run(tools("tiny_study").tiny(points, pause=0.01), whole, profile="paper")
        a, b = tools().content(store), tools().content(whole)
        print(f"rows after each kill: {left}")
        print(
            f"coordinators killed: {len(left)}; rows {len(a)} of {len(b)}, lost {len(b) - len(a)}, "
            f"different {sum(x != y for x, y in zip(a, b, strict=False))}"
        )


def full() -> None:
    """All studies of dana2025, 5 seeds, 2 workers."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "byheart", "reproduce", "dana2025", "--profile", "paper"]
    subprocess.run([*command, "--workers", "2"], check=False)
    print(f"wall time {time.perf_counter() - began:.0f} s")


PARTS = {"times": times, "engines": engines, "faults": faults, "full": full}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=", ".join(PARTS))
    chosen = parser.parse_args()
    unknown = set(chosen.names) - PARTS.keys()
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    sys.path.insert(0, str(TESTS))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} (0 on a quiet machine)")
    for name in chosen.names or ("times", "engines", "faults"):
        PARTS[name]()


if __name__ == "__main__":
    main()
