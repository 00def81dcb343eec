"""New: hardmax against softmax, number formats and bits."""

from __future__ import annotations

import numpy as np

from byheart.papers.declare import declare
from byheart.papers.kajitsuka2025.experiment import BUILT, TRAIN
from byheart.papers.kajitsuka2025.scaling import loglog
from byheart.studies import Axes, Cell, Finding, Record, Row, figure, laws

KINDS = ("uniform", "softmax", "hardmax", "hardmax, annealed")
SAME = 0.05  # of accuracy: closer counts as equal


def kind_of(row: Row) -> str:
    annealed = row["attention"] == "hardmax" and row["surrogate"] == "annealed"
    return "hardmax, annealed" if annealed else row["attention"]


def attention_grid(variant: str, profile: str) -> list[Cell]:
    N, sizes = (160, (1, 2, 3, 4)) if profile == "quick" else (600, (2, 4, 8, 12, 16))
    cells = []
    for kind in KINDS:
        attention, _, annealed = kind.partition(", ")
        how = {"attention": attention} | ({"surrogate": annealed} if annealed else {})
        cells += TRAIN.grid("attention", N=N, blocks=sizes, **how)
    return cells


def analyse_attention(rows: list[Row]) -> Finding:
    accuracies: dict[str, dict[int, list[float]]] = {
        kind: {size: [row["accuracy"] for row in r] for size, r in laws.by(same, "blocks").items()}
        for kind, same in laws.group(rows, kind_of).items()
    }
    if "uniform" not in accuracies or len(accuracies) < 2:
        return laws.too_few("uniform attention and another one are needed")
    table, gains = [], []
    for kind in [k for k in KINDS if k in accuracies and k != "uniform"]:
        both = sorted(accuracies[kind].keys() & accuracies["uniform"].keys())
        differences = np.array(
            [a - b for size in both
             for a, b in zip(accuracies[kind][size], accuracies["uniform"][size], strict=False)]
        )  # fmt: skip
        if len(differences) < 2:
            continue
        error = float(differences.std(ddof=1) / np.sqrt(len(differences)))
        mean = float(differences.mean())
        gains.append(laws.span(mean, mean - 2 * error, mean + 2 * error))
        level = float(np.mean([v for s in both for v in accuracies[kind][s]]))
        table.append({"attention": kind, "gain_over_uniform": mean, "standard_error": error,
                      "accuracy": level})  # fmt: skip
    if not gains:
        return laws.too_few("two sizes are needed")
    verdict = laws.judged(
        all(gain["high"] <= SAME for gain in gains), any(gain["low"] > SAME for gain in gains)
    )
    words = ", ".join(f"{row['attention']} {row['gain_over_uniform']:+.3f}" for row in table)
    sentence = f"Accuracy against uniform attention at equal blocks: {words}."
    numbers = {f"gain of {row['attention']}": gain for row, gain in zip(table, gains, strict=True)}
    return Finding(verdict, sentence, numbers, {"attention": table})


@figure.one_panel("Hardmax, softmax and uniform attention", "blocks", "accuracy")
def draw_attention(panel: figure.Panel, rows: list[Row]) -> None:
    kinds = {kind: [row for row in rows if kind_of(row) == kind] for kind in KINDS}
    figure.groups(panel, kinds, "blocks", "accuracy")


AXES = Axes("blocks", "accuracy", "attention", label="{value}")
HARDMAX = declare(
    "kajitsuka2025/hardmax-vs-softmax", attention_grid, analyse_attention, AXES, draw_attention,
    SAME=SAME,
)  # fmt: skip

FORMATS = ("float16", "float32", "float64", "longdouble")
LIMITS = {32: "32 bits", 40: "40 bits", 53: "53 bits", None: "no limit"}


def precision_grid(variant: str, profile: str) -> list[Cell]:
    formats = BUILT.grid("format", N=(8, 16, 32, 64, 128, 256), formats=list(FORMATS))
    sizes = (100, 300, 1000, 3000) + (() if profile == "quick" else (10_000, 30_000))
    return formats + BUILT.grid("bits", max_bits=tuple(LIMITS), N=sizes, V=50)


def limited(rows: list[Row]) -> dict[str, list[Row]]:
    """The rows of the experiment with bits, by their limit."""
    mine = [row for row in rows if row.experiment == "bits"]
    return {name: [row for row in mine if row["max_bits"] == n] for n, name in LIMITS.items()}


def largest_right(rows: list[Row], name: str) -> int:
    """The largest N of which every network is right in a number format; 0 if there is none."""
    mine = [row for row in rows if row.experiment == "format" and name in row.measurements]
    sizes = laws.by(mine, "N").items()
    return max((N for N, same in sizes if min(row[name] for row in same) >= 1), default=0)


def analyse_precision(rows: list[Row]) -> Finding:
    numbers: Record = {}
    table, verdicts = [], []
    for limit, same in limited(rows).items():
        p = loglog(same, "parameters")
        if p is not None:
            numbers[f"exponent of N, {limit}"] = p
            verdicts.append(laws.exponent_verdict(p, 0.5 if limit == LIMITS[None] else 1.0))
            table.append({"limit": limit, "p": p["estimate"], "low": p["low"], "high": p["high"]})
    if not table:
        return laws.too_few("three N at one limit are needed")
    right = {name: largest_right(rows, name) for name in FORMATS}
    numbers |= {f"largest N all right in {name}": N for name, N in right.items()}
    exponents = ", ".join(f"{row['limit']}: {row['p']:.2f}" for row in table)
    upto = {name: f"up to N = {N}" if N else "at no N" for name, N in right.items()}
    sentence = (
        f"Exponent of the parameters in N by length of weights: {exponents}. All labels are right "
        f"in float32 {upto['float32']}, in float64 {upto['float64']}."
    )
    formats = [{"format": k, "largest_N": v} for k, v in right.items()]
    return Finding(laws.worst(verdicts), sentence, numbers, {"bits": table, "formats": formats})


def draw_precision(rows: list[Row], finding: Finding) -> figure.Figure:
    drawn, (left, right) = figure.panels("Precision", "sequences N", "parameters", 2, 4.8)
    figure.groups(left, limited(rows), "N", "parameters")
    formats = [r for r in rows if r.experiment == "format"]
    for i, name in enumerate(FORMATS):
        figure.points(right, *figure.series(formats, "N", name), name, i)
    right.set_ylabel("share of labels right")
    for panel, log in ((left, "xy"), (right, "x")):
        if panel.has_data():
            figure.logarithmic(panel, log)
            figure.legend(panel)
    return drawn


BITS = Axes("N", "parameters", "max_bits", "sequences N", log="xy", where="bits")
PRECISION = declare(
    "kajitsuka2025/precision", precision_grid, analyse_precision, BITS, draw_precision
)
