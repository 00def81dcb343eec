"""`make bench`: what byheart costs on this machine, each row measured in a fresh process.

python benchmarks/run.py                 everything (about twelve minutes on 2 cores)
python benchmarks/run.py build airports  some of it
python benchmarks/run.py --json out.json also as JSON
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import sharded
import training

from byheart import Memory

Row = dict[str, Any]


def fresh(function: Callable[..., Row], *arguments: Any) -> Row:
    """`function(*arguments)` in a new process; adds its peak memory."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_with_peak, function, arguments).result()


def _with_peak(function: Callable[..., Row], arguments: Sequence[Any]) -> Row:
    row = function(*arguments)
    row["peak GB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return row


def show(title: str, rows: list[Row]) -> None:
    print(f"\n{title}\n")
    names = list(rows[0])
    print("| " + " | ".join(names) + " |\n|" + "---|" * len(names))
    for row in rows:
        cells = (f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values())
        print("| " + " | ".join(cells) + " |", flush=True)


def growth_exponent(T: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Slope of log seconds against log T, and its standard error (few points: a rough one)."""
    x, y = np.log(T), np.log(seconds)
    slope, intercept = np.polyfit(x, y, 1)
    residual = y - slope * x - intercept
    spread = ((x - x.mean()) ** 2).sum()
    return float(slope), float(np.sqrt((residual**2).sum() / max(1, len(x) - 2) / spread))


def _sizes(memory: Memory) -> str:
    spec = memory.spec.to_json()
    return f"d={spec['d']}, H={spec['H']}"


def one_build(T: int) -> Row:
    import byheart as bh

    facts = bh.random_associations(N=200, S=2, T=T)
    memory = bh.build(facts, "attention")
    made = memory.construction
    proof = bh.certify(memory)
    sample = facts.subset(np.arange(min(T, 1000)))
    ball = bh.certify(memory, sample, arithmetic="ball")
    assert made.recalled == T
    assert proof.certified
    assert ball.certified
    return {
        "facts": T,
        "spec": _sizes(memory),
        "build s": made.seconds,
        "certify s": proof.seconds,
        "proved as it runs": proof.evaluation and proof.evaluation.proved,
        "per 1,000: rounding s": proof.seconds / T * 1000,
        "per 1,000: ball s": ball.seconds / sample.T * 1000,
        "condition": made.to_json()["condition"],
        "margin": proof.margin,
        "error bound": proof.error_bound,
    }


def build() -> list[Row]:
    """Build and certify T random facts; float32 weights, default sizes."""
    rows = [fresh(one_build, T) for T in (1000, 2000, 5000, 10_000)]
    show("Build and certify (random facts, N = 200, S = 2, float32 weights)", rows)
    for name in ("build s", "certify s"):
        slope, error = growth_exponent([r["facts"] for r in rows], [r[name] for r in rows])
        print(f"{name}: grows like T^{slope:.2f} (standard error {error:.2f})")
    return rows


def airport_table(path: Path, rows: int) -> None:
    """`rows` facts about real airports: code, relation -> city, country or time zone."""
    import csv

    import airportsdata

    relations = {"city": "city", "country": "country", "time zone": "tz"}
    facts = [
        (code, relation, airport[field])
        for code, airport in sorted(airportsdata.load("IATA").items())
        for relation, field in relations.items()
        if airport[field]
    ]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("code", "relation", "answer"))
        writer.writerows(facts[:rows])


def one_airports(rows: int) -> Row:
    import byheart as bh

    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "airports.csv"
        airport_table(path, rows)
        started = time.perf_counter()
        facts = bh.read_facts(path)
        memory = bh.build(facts, "attention")
        proof = bh.certify(memory)
        memory.save(Path(place) / "airports.memory")
        proof.write(Path(place) / "airports.memory")
        total = time.perf_counter() - started
    assert proof.certified
    return {
        "facts": facts.T,
        "answers": len(facts.answer_ids),
        "spec": _sizes(memory),
        "recalled": memory.construction.recalled,
        "certified": proof.facts - proof.failed,
        "build s": memory.construction.seconds,
        "certify s": proof.seconds,
        "proved as it runs": proof.evaluation and proof.evaluation.proved,
        "total s": total,
        "condition": memory.construction.to_json()["condition"],
        "margin": proof.margin,
        "error bound": proof.error_bound,
    }


def airports() -> list[Row]:
    """Real airports, from CSV to a certified memory on disk."""
    rows = [fresh(one_airports, n) for n in (5000, 10_000)]
    show("Real airports: read, build, certify, save (float32 weights)", rows)
    return rows


def one_capacity(d: int, N: int, seed: int) -> Row:
    """Largest T that the convex read-out holds in full, by bisection to 2 %."""
    import byheart as bh

    H = (100 - d) // d
    m = H * d + d

    def holds(T: int) -> bool:
        facts = bh.random_associations(N=N, S=3, T=T, seed=seed)
        memory = bh.build(facts, d=d, H=H, d_h=d, readout="convex", seed=seed, dtype="float64")
        return not memory.construction.lost

    low, high = m, 2 * m
    while holds(high):
        low, high = high, high + m
    while high - low > 0.02 * m:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return {"d": d, "N": N, "seed": seed, "m = H·d_h + d": m, "T held": low, "T/m": low / m}


PROTOTYPE = {(2, 10): 1.56, (2, 50): 1.29, (10, 10): 4.35, (10, 50): 2.86}


def readout() -> list[Row]:
    """How many facts the convex read-out holds, in units of H d_h + d."""
    rows = [one_capacity(d, N, seed) for d, N in PROTOTYPE for seed in (0, 1, 2)]
    show("Convex read-out: largest T held in full (frozen random attention, S = 3)", rows)
    print()
    for (d, N), known in PROTOTYPE.items():
        values = [r["T/m"] for r in rows if (r["d"], r["N"]) == (d, N)]
        spread = np.std(values, ddof=1)
        print(f"d={d}, N={N}: {np.mean(values):.2f} ± {spread:.2f} m (earlier prototype: {known})")
    return rows


def scale() -> list[Row]:
    """10^3 to 10^6 random facts in shards, on one core."""
    rows = [fresh(sharded.one_scale, *sizes) for sizes in sharded.SCALES]
    for row in rows:
        row["all heads"] = row.pop(next(k for k in row if k.startswith("all heads")))
    show("Sharded: T random facts, one core, float32", rows)
    large = [r for r in rows if r["facts"] >= 10_000]
    for name in ("build s", "certify s"):
        slope, error = growth_exponent([r["facts"] for r in large], [r[name] for r in large])
        print(f"{name}: grows like T^{slope:.2f} from 10^4 on (standard error {error:.2f})")
    return rows


def tables() -> list[Row]:
    """Real and awkward tables at full size, on one core."""
    rows = [fresh(sharded.one_table, name) for name in sharded.TABLES]
    show("Sharded: real and awkward tables, one core, float32", rows)
    return rows


def side_by_side() -> list[Row]:
    """One dense layer against shards."""
    methods = ("attention", "sharded")
    rows = [fresh(sharded.one_side, T, m) for T in (1000, 2000, 5000) for m in methods]
    show("Dense against sharded (random facts, N = 200, S = 2)", rows)
    return rows


def gates() -> list[Row]:
    """The gates and options of sharded memories, on one core."""
    rows = [fresh(sharded.one_gate, *case) for case in sharded.GATES]
    show("Sharded: gates and options, one core, float32 weights", rows)
    return rows


BENCHMARKS: dict[str, Callable[[], list[Row]]] = {
    "build": build,
    "airports": airports,
    "readout": readout,
    "scale": scale,
    "tables": tables,
    "side": side_by_side,
    "gates": gates,
    "training": training.throughput,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=", ".join(BENCHMARKS))
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    unknown = set(chosen.names) - BENCHMARKS.keys()
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    print(f"{platform.machine()}, {multiprocessing.cpu_count()} cores, {platform.python_version()}")
    results = {name: BENCHMARKS[name]() for name in chosen.names or BENCHMARKS}
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
