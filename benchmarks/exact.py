"""The square-root Transformer: parameters, bits, build and recall times, float limits, figure.

python benchmarks/exact.py                    every table of docs/square-root.md (about 15 minutes)
python benchmarks/exact.py scale airports     some of them
python benchmarks/exact.py --json out.json    also as JSON

Seconds are CPU seconds of one process (time.process_time).
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from byheart.exact import Built, evaluate, memorize

if TYPE_CHECKING:
    from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # what benchmarks and tests share

Row = dict[str, Any]
FIGURE = Path(__file__).parents[1] / "docs" / "images" / "square-root.svg"
# Non-zero parameters of the prototype in the recipes, C = 2, n = 10, d = 4, all tokens different.
RECIPES = {
    ("hash", 100): 608, ("hash", 1000): 1431, ("hash", 10**4): 4330, ("hash", 10**5): 13834,
    ("paper", 100): 1049, ("paper", 1000): 3076, ("paper", 10**4): 10125, ("paper", 10**5): 34763,
}  # fmt: skip


def show(title: str, rows: list[Row]) -> None:
    print(f"\n{title}\n")
    names = list(dict.fromkeys(name for row in rows for name in row))
    print("| " + " | ".join(names) + " |\n|" + "---|" * len(names))
    for row in rows:
        cells = (_cell(row.get(name, "")) for name in names)
        print("| " + " | ".join(cells) + " |", flush=True)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def timed(action: Callable[[], Any]) -> tuple[Any, float]:
    started = time.process_time()
    return action(), time.process_time() - started


def different_tokens(N: int, n: int, seed: int = 0) -> np.ndarray:
    """(N, n, 4): all tokens different, coordinates below 2^11: the worst case."""
    rng = np.random.default_rng(seed)
    chosen = np.unique(rng.integers(0, 1 << 44, size=N * n + N * n // 100 + 100))
    chosen = rng.permutation(chosen)[: N * n]
    return np.stack([(chosen >> (11 * j)) & 2047 for j in range(4)], 1).reshape(N, n, 4)


def sizes(built: Built) -> Row:
    counts = built.network.counts()
    return {
        "parameters": counts.parameters,
        "dense": counts.dense,
        "distinct": counts.distinct,
        "depth": counts.depth,
        "width": counts.width,
        "max bits": counts.max_bits,
        "total bits": counts.total_bits,
    }


def right(built: Built, tokens: np.ndarray, labels: np.ndarray, literal: int, **how: Any) -> Row:
    """Labels by both evaluators; `literal` sequences block by block."""
    fast, seconds = timed(lambda: built.structured.evaluate(tokens, **how))
    chosen = np.random.default_rng(1).permutation(len(tokens))[:literal]
    slow, long = timed(lambda: evaluate(built.network, tokens[chosen], **how))
    assert (fast == labels).all(), "the structured evaluator is wrong"
    assert (slow == labels[chosen]).all(), "the literal evaluator is wrong"
    return {
        "right (literal)": f"{len(chosen):,} of {len(chosen):,}",
        "literal s": long,
        "right (structured)": f"{len(tokens):,} of {len(tokens):,}",
        "structured seq/s": int(len(tokens) / max(seconds, 1e-9)),
    }


def exponent(N: Sequence[float], parameters: Sequence[float]) -> float:
    return float(np.polyfit(np.log(N), np.log(parameters), 1)[0])


def one_scale(N: int, mode: str, classes: str, grouping: str) -> Row:
    tokens = different_tokens(N, 10)
    rng = np.random.default_rng(7)
    labels = rng.integers(0, 2, N) + (classes == "1, 2 or unknown")
    built, seconds = timed(lambda: memorize(tokens, labels, ff1=mode, grouping=grouping))
    literal = N if N <= 10**4 else 2000 if mode != "paper" else 300
    return {
        "N": N,
        "FF1": built.mode,
        "grouping": grouping,
        "labels": classes,
        **sizes(built),
        "recipes": RECIPES.get((mode, N), "") if grouping == "sorted" else "",
        "build s": seconds,
        **right(built, tokens, labels, literal),
    }


def scale() -> list[Row]:
    """N sequences of 10 tokens, all different, 2 classes."""
    rows = []
    for mode in ("hash", "product", "paper"):
        for classes in ("0 or 1", "1, 2 or unknown"):
            mine = [one_scale(10**e, mode, classes, "sorted") for e in (2, 3, 4, 5)]
            rows += mine
            N, p = [r["N"] for r in mine], [r["parameters"] for r in mine]
            print(
                f"{mode}, labels {classes}: parameters ~ N^{exponent(N, p):.3f} "
                f"(N >= 1000: N^{exponent(N[1:], p[1:]):.3f})",
                flush=True,
            )
    rows += [one_scale(10**e, "hash", "0 or 1", "interp") for e in (4, 5)]
    show("N sequences, n = 10, d = 4, all 10 N tokens different", rows)
    return rows


def below() -> list[Row]:
    """From which N on there are fewer parameters than sequences."""
    rows = []
    for mode, tried in (("hash", (800, 1000, 1200, 2000)), ("paper", (4000, 6000, 8000, 12000))):
        for N in tried:
            tokens = different_tokens(N, 10)
            labels = np.random.default_rng(7).integers(0, 2, N)
            for marks in (labels, labels + 1):
                built = memorize(tokens, marks, ff1=mode)
                assert (built.structured.evaluate(tokens) == marks).all()
                p = built.network.counts().parameters
                what = "0 or 1" if marks is labels else "1, 2 or unknown"
                rows.append(
                    {"FF1": mode, "N": N, "labels": what, "parameters": p, "fewer than N": p < N}
                )
    show("Fewer parameters than sequences", rows)
    return rows


def lengths() -> list[Row]:
    """N = 1,000 sequences of 10, 100 and 1,000 tokens, all different."""
    rows = []
    for mode in ("hash", "product", "paper"):
        first = 0
        for n in (10, 100, 1000):
            tokens = different_tokens(1000, n)
            labels = np.random.default_rng(7).integers(0, 2, 1000)
            built, seconds = timed(lambda t=tokens, y=labels, m=mode: memorize(t, y, ff1=m))
            p = built.network.counts().parameters
            first = first or p
            check = right(built, tokens, labels, 1000 if n < 1000 or mode != "paper" else 50)
            rows.append(
                {"FF1": mode, "n": n, "parameters": p, "growth": p / first - 1, "build s": seconds}
                | check
            )
    show("Length at N = 1,000", rows)
    return rows


def registers() -> list[Row]:
    """Links and parameters with a register token and without, N = 1,000, hash (Remark 4.5)."""
    rows = []
    for n in (10, 100, 1000):
        tokens, labels = different_tokens(1000, n), np.random.default_rng(7).integers(0, 2, 1000)
        for pooling in ("attention", "register"):
            built = memorize(tokens, labels, pooling=pooling)
            sizes = {"links": built.network.links(n)} | built.network.counts().to_json()
            rows.append({"n": n, "pooling": pooling} | sizes | right(built, tokens, labels, 1000))
    show("A register token", rows)
    return rows


def sequence() -> list[Row]:
    """Sequence to sequence: a label for each of n N tokens."""
    rows = []
    for N, n in ((100, 10), (10, 100), (1000, 10), (100, 100), (10**4, 10), (1000, 100)):
        tokens = different_tokens(N, n)
        labels = np.random.default_rng(7).integers(0, 2, (N, n))
        for mode in ("hash", "paper") if N * n <= 10**4 else ("hash",):
            built, seconds = timed(lambda t=tokens, y=labels, m=mode: memorize(t, y, ff1=m))
            literal = N if N * n <= 10**4 else 1000 // n * 5
            check = right(built, tokens, labels, literal, every=True)
            rows.append(
                {"nN": N * n, "N": N, "n": n, "FF1": built.mode, **sizes(built), "build s": seconds}
                | check
            )
    show("Sequence to sequence, 2 classes, all tokens different", rows)
    return rows


def airport_files(place: Path) -> dict[str, Path]:
    """ICAO code -> country: the code as one token, and as four characters."""
    import airportsdata

    airports = sorted(airportsdata.load().items())
    whole, letters = place / "codes.csv", place / "characters.csv"
    with open(whole, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("code", "country"), *((k, a["country"]) for k, a in airports)])
    with open(letters, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("c1", "c2", "c3", "c4", "country"))
        writer.writerows((*k.ljust(4), a["country"]) for k, a in airports)
    return {"code as one token": whole, "code as 4 characters": letters}


def byheart(*arguments: str) -> str:
    program = "from byheart.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


def airports() -> list[Row]:
    """Real facts, through the command line."""
    rows = []
    with tempfile.TemporaryDirectory() as text:
        place = Path(text)
        for name, table in airport_files(place).items():
            for options in ([], ["--grouping", "interp"], ["--abstain"]):
                folder = place / "memory"
                made = json.loads(
                    byheart("build", str(table), "--method", "sqrt", "-o", str(folder), "--force",
                            "--json", *options)
                )  # fmt: skip
                proof = json.loads(byheart("certify", str(folder), "--json"))
                with open(table, encoding="utf-8", newline="") as file:
                    facts = list(csv.reader(file))[1:]
                asked = [facts[i] for i in (0, len(facts) // 2, -1)]
                said = [json.loads(byheart("recall", str(folder), "--json", "--", *row[:-1]))
                        for row in asked]  # fmt: skip
                assert [s["answer"] for s in said] == [row[-1] for row in asked]
                assert made["recalled"] == len(facts) and proof["certified"]
                data = table.read_bytes()
                rows.append(
                    {
                        "key": name,
                        "options": " ".join(options),
                        "facts": made["facts"],
                        "parameters": made["parameters"],
                        "dense": made["spec"]["dense"],
                        "max bits": made["spec"]["max_bits"],
                        "total bits": made["spec"]["total_bits"],
                        "certificate": proof["arithmetic"],
                        "certify s": proof["seconds"],
                        "build s": made["seconds"],
                        "others answered": f"{made['unknown']['answered']:,} of "
                        f"{made['unknown']['asked']:,}",
                        "expected share": made["unknown"]["rate"],
                        "network.bin": (folder / "network.bin").stat().st_size,
                        "memory.json": (folder / "memory.json").stat().st_size,
                        "table": len(data),
                        "table, gzip -9": len(gzip.compress(data, 9)),
                    }
                )
    show("Real airports: ICAO code -> country", rows)
    return rows


def speed() -> list[Row]:
    """Recalls per second at N = 10^4, and the literal certificate."""
    N = 10**4
    tokens = different_tokens(N, 10)
    labels = np.random.default_rng(7).integers(0, 2, N)
    rows = []
    for mode in ("hash", "product", "paper"):
        built = memorize(tokens, labels, ff1=mode)
        fast = built.structured
        _, raw = timed(lambda f=fast: [f.evaluate(tokens) for _ in range(5)])
        keys = fast.keys(tokens.reshape(-1, 4)).reshape(N, 10)
        ids = fast.ids(keys.reshape(-1)).reshape(N, 10)
        out, cached = timed(lambda f=fast, k=keys, i=ids: [f.outputs(k, i) for _ in range(20)])
        assert (out[0] == labels).all()
        slow, literal = timed(lambda b=built: evaluate(b.network, tokens))
        assert (slow == labels).all()
        rows.append(
            {
                "FF1": mode,
                "seq/s from vectors": int(5 * N / raw),
                "seq/s, ids of tokens kept": int(20 * N / cached),
                "literal, all 10,000, s": literal,
            }
        )
    show("N = 10^4, n = 10: structured recall and literal evaluation, one core", rows)
    return rows


def adversarial() -> list[Row]:
    """Sets that break simple hashes."""
    rng = np.random.default_rng(0)
    base = rng.integers(0, 10**6, size=(2000, 9))
    sums = np.concatenate([base, (10**7 - base.sum(1))[:, None]], 1)
    order = np.array([rng.permutation(10) for _ in range(2000)])
    order = np.unique(order, axis=0)
    position = np.broadcast_to(np.arange(10), order.shape)
    huge = np.array([[(1 << 200) + int(x) for x in row] for row in base[:300]], dtype=object)
    pairs = np.array([(a, 1000 - a) for a in range(1, 500)])
    sets: dict[str, np.ndarray] = {
        "2,000 sequences of one token sum": sums,
        "permutations of one multiset, ordered": np.stack([order, position], 2),
        "tokens above 2^200": huge,
        "one token each": rng.permutation(3000)[:, None],
        "pairs a, 1000 - a": pairs,
        "n = 10^4 tokens": rng.integers(0, 50, size=(40, 10**4)),
    }
    rows = []
    for name, tokens in sets.items():
        labels = rng.integers(0, 2, len(tokens))
        for mode in ("hash", "product", "paper"):
            built = memorize(tokens, labels, ff1=mode)
            rows.append(
                {"set": name, "asked for": mode, "got": built.mode,
                 "parameters": built.network.counts().parameters}
                | right(built, tokens, labels, len(tokens))
            )  # fmt: skip
    show("Adversarial sets, labels 0 or 1", rows)
    return rows


def classes() -> list[Row]:
    """10^4 sequences of 10 tokens with 2 to 65,536 labels."""
    tokens = different_tokens(10**4, 10)
    rows = []
    for C in (2, 16, 256, 65_536):
        labels = np.random.default_rng(7).integers(1, C + 1, 10**4)
        built = memorize(tokens, labels)
        rows.append({"C": C, **sizes(built), **right(built, tokens, labels, 1000)})
    show("Classes (labels 1..C, everything else unknown)", rows)
    return rows


def floats() -> list[Row]:
    """The smallest table (2 labels, all keys recorded) that a number format gets wrong."""
    from oracles.table_formats import table_limits

    rows = table_limits(seeds=3)
    show("FF2's table alone, 2 labels, keys exact: largest all right, smallest wrong K", rows)
    return rows


def tradeoff() -> list[Row]:
    """Theorem F.1's trade-off: group size against parameters and bits; written as a figure."""
    from oracles.table_formats import tradeoff_points

    from byheart.theory.plots import save

    rows = [vars(p) for N in (10**3, 10**4, 10**5) for p in tradeoff_points(N)]
    show("Bits against parameters (table of K keys, 2 labels)", rows)
    save(tradeoff_figure((10**3, 10**4, 10**5)), FIGURE)
    return rows


def tradeoff_figure(sizes: Sequence[int]) -> Figure:
    """Parameters against bits of the longest weight, one line for each number of keys."""
    from oracles.table_formats import tradeoff_points

    from byheart._style import COLOURS, name, new_figure

    figure, (axes,) = new_figure(8.5)
    for colour, K in zip(COLOURS, sizes, strict=False):
        points = tradeoff_points(K)
        x, y = [p.max_bits for p in points], [p.parameters for p in points]
        axes.plot(x, y, "o-", color=colour, lw=1.8, ms=4)
        axes.axhline(K, color=colour, lw=0.8, ls=":")
        name(axes, x[-1], y[-1], f"{K:,} keys", colour)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("bits of the longest weight")
    axes.set_ylabel("parameters (non-zero)")
    axes.set_title("Bits buy parameters (dotted: one parameter a key)", loc="left")
    return figure


def million() -> list[Row]:
    """N = 10^6 (n = 10, all tokens different): what it costs."""
    from byheart.exact.files import dump, load

    N, rows = 10**6, []
    tokens = different_tokens(N, 10)
    labels = np.random.default_rng(7).integers(0, 2, N)
    for mode in ("hash", "paper"):
        built, seconds = timed(lambda m=mode: memorize(tokens, labels, ff1=m))
        row = {"N": N, "FF1": mode, **sizes(built), "build s": seconds}
        row |= right(built, tokens, labels, 200 if mode == "hash" else 20)
        data, writing = timed(lambda b=built: dump(b.integers))
        again, reading = timed(lambda d=data: load(d))
        assert again == built.integers
        row |= {"file bytes": len(data), "write s": writing, "read s": reading}
        row["peak GB so far"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        rows.append(row)
        show("A million sequences", rows)
    return rows


def formulas() -> list[Row]:
    """Counts beside Theorem 4.1 as published, the lower bounds, N and the information limit."""
    from byheart.theory.kajitsuka2025 import theorem41, theorem42_parameters, theorem43_parameters

    rows = []
    for N in (100, 1000, 10**4, 10**5):
        tokens = different_tokens(N, 10)
        labels = np.random.default_rng(7).integers(0, 2, N)
        counts = memorize(tokens, labels).network.counts()
        paper = theorem41(N, 10, 4, 2.0**12, 2)
        rows.append(
            {
                "N": N,
                "non-zero": counts.parameters,
                "dense": counts.dense,
                "distinct": counts.distinct,
                "total bits": counts.total_bits,
                "Theorem 4.1, dense": paper.parameters,
                "its depth": paper.depth,
                "Theorem 4.2, at least": math.ceil(theorem42_parameters(N)),
                "Theorem 4.3 (seq-to-seq), at least": math.ceil(theorem43_parameters(N, 10)),
                "information, bits": N,
            }
        )
    show("Counts, hash, labels 0 or 1, beside the theorems", rows)
    return rows


BENCHMARKS: dict[str, Callable[[], list[Row]]] = {
    "scale": scale, "below": below, "lengths": lengths, "registers": registers,
    "sequence": sequence, "airports": airports, "speed": speed, "adversarial": adversarial,
    "classes": classes, "formulas": formulas, "floats": floats, "tradeoff": tradeoff,
    "million": million,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=", ".join(BENCHMARKS))
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    unknown = set(chosen.names) - BENCHMARKS.keys()
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    print(f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}")
    results = {name: BENCHMARKS[name]() for name in chosen.names or BENCHMARKS}
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(results, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
