"""Figures 1 and 2: accuracy and loss against the number of blocks. Figure 3, length and dimension:
the smallest model that suffices, trained and built. New: hardmax against softmax, precision."""

from __future__ import annotations

import numpy as np

from byheart.papers.declare import by_profile, declare
from byheart.papers.kajitsuka2025 import text
from byheart.papers.kajitsuka2025.experiment import BUILT, ERROR, MINIMAL, TRAIN
from byheart.studies import Axes, Cell, Finding, Record, Row, Study, figure, laws
from byheart.theory.kajitsuka2025 import theorem42_parameters

OFFLINE = "offline-text"  # the variant on texts that every machine has
KINDS = ("uniform", "softmax", "hardmax", "hardmax, annealed")
SAME = 0.05  # of accuracy: closer counts as equal
FORMATS = ("float16", "float32", "float64", "longdouble")
LIMITS = {32: "32 bits", 40: "40 bits", 53: "53 bits", None: "no limit"}


def analyse_curves(rows: list[Row]) -> Finding:
    table, verdicts = [], []
    numbers: Record = {}
    for variant, same, x, y in laws.enough(laws.by_variant(rows), "blocks", "accuracy", 3):
        at, mean, _ = figure.means(x, y)
        rise = laws.slope(np.log2(x), y)
        top = float(mean.max())
        verdicts.append(laws.judged(rise["low"] > 0 and top >= 1 - ERROR, rise["high"] <= 0))
        loss = figure.means(*figure.series(same, "blocks", "loss"))[1]
        table += [
            {"variant": variant, "blocks": int(b), "accuracy": a, "loss": c}
            for b, a, c in zip(at, mean, loss, strict=True)
        ]
        numbers[f"accuracy for a doubling of the blocks, {variant}"] = rise
        numbers[f"best accuracy, {variant}"] = top
    if not verdicts:
        return laws.too_few("three numbers of blocks are needed")
    best = max(row["accuracy"] for row in table)
    sentence = f"More blocks memorize more; the best of the trials reaches {best:.3f}."
    return Finding(verdicts[0], sentence, numbers, {"blocks": table})


def curves(
    name: str, source: str, classes: int, N: tuple[int, int], blocks: tuple[int, ...]
) -> Study:
    """Accuracy and loss against the blocks; N of the quick profile, and N and blocks of others."""

    def grid(variant: str, profile: str) -> list[Cell]:
        corpus = text.SYSTEM if variant == OFFLINE else text.local(source)
        if corpus is None:
            return []  # as published: only where the user has the data
        how = {"classes": classes, "corpus": corpus}
        if profile == "quick":
            return TRAIN.grid(name, blocks=(1, 2, 4, 6, 8, 12), N=N[0], **how)
        how |= {"rates": [0.06, 0.03, 0.01], "starts": 4}
        return TRAIN.grid(name, blocks=blocks, N=N[1], **how)

    x = "blocks on either side"
    axes = (
        Axes("blocks", "accuracy", "variant", x, "best accuracy of the trials", label="{value}"),
        Axes("blocks", "loss", "variant", x, label="{value}"),
    )
    return declare(f"kajitsuka2025/{name}", grid, analyse_curves, axes)


FIG1 = curves("fig1", "multinli", 3, (200, 2000), (1, 10, 20, 30, 40, 50))
FIG2 = curves("fig2", "imdb", 2, (300, 3000), (1, 10, 20, 30, 40))

LADDER = [1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 32, 40, 50]
QUICK_N = (100, 120, 140, 160, 180, 200)
FULL_N = tuple(range(600, 1701, 100))
BUILT_N = (100, 300, 1000, 3000, 10_000)
STRAIGHT = 0.9  # R² of a log-log line from which its slope is called an exponent


def grid(variant: str, profile: str) -> list[Cell]:
    """Trained on text (experiment "trained"); the construction on random words ("built")."""
    quick = profile == "quick"
    corpus = text.SYSTEM if variant == OFFLINE else text.local("multinli")
    cells = []
    if corpus is not None:
        # Five starts at two learning rates: best of 10 trials, as in the paper.
        how = {"sizes": LADDER[:10] if quick else LADDER, "corpus": corpus, "starts": 5}
        cells += MINIMAL.grid("trained", N=QUICK_N if quick else FULL_N, **how)
    if variant == OFFLINE:
        cells += BUILT.grid("built", N=BUILT_N if quick else (*BUILT_N, 30_000, 100_000))
    return cells


def loglog(rows: list[Row], y: str) -> laws.Interval | None:
    """The exponent of y ~ N^p by least squares of logarithms, 95 % bootstrap over seeds, R²."""
    x, values = figure.series(rows, "N", y)
    if len(np.unique(x)) < 3:
        return None
    line = laws.fitted("linear", np.log(x), np.log(values))
    return line.interval("b") | {"R2": line.r2}


def sizes_of(way: str, rows: list[Row]) -> list[Record]:
    """The mean sizes at each N, of the rows that found one."""
    found = laws.by([row for row in rows if row["parameters"] is not None], "N")
    return [
        {"way": way, "N": N, "parameters": float(np.mean([r["parameters"] for r in same])),
         "blocks": float(np.mean([r.get("blocks") or r["depth"] for r in same])),
         "lower_bound": theorem42_parameters(N)}
        for N, same in found.items()
    ]  # fmt: skip


def analyse(rows: list[Row]) -> Finding:
    ways = {way: [r for r in rows if r.experiment == way] for way in ("trained", "built")}
    learned, built = (loglog(mine, "parameters") for mine in ways.values())
    if learned is None or built is None:
        return laws.too_few("three N of trained and of built networks are needed")
    numbers = {"exponent of N, trained": learned, "exponent of N, built": built}
    table = [line for way, mine in ways.items() for line in sizes_of(way, mine)]
    failed = sum(row["parameters"] is None for row in ways["trained"])
    straight = learned["R2"] >= STRAIGHT
    verdict = laws.exponent_verdict(learned, 0.5) if straight else "undecided"
    sentence = (
        f"Parameters grow as N^{learned['estimate']:.2f} when trained"
        + ("" if straight else f" (no straight line: R² = {learned['R2']:.2f})")
        + f" and as N^{built['estimate']:.2f} in the construction (nonzero weights); "
        f"{failed} trained searches found no size."
    )
    return Finding(verdict, sentence, numbers, {"sizes": table})


@figure.one_panel("Parameters needed for N sequences", "sequences N", "parameters")
def draw(panel: figure.Panel, rows: list[Row]) -> None:
    for i, name in enumerate(("trained", "built")):
        for variant, mine in laws.by_variant([r for r in rows if r.experiment == name]).items():
            x, y = figure.series(mine, "N", "parameters")
            figure.points(panel, x, y, name if variant == OFFLINE else f"{name}, {variant}", i)
            at = np.unique(x)
            if len(at) >= 2:
                scale = float(np.exp(np.mean(np.log(y)) - 0.5 * np.mean(np.log(x))))
                figure.curve(panel, at, scale * np.sqrt(at), None, i, ":")
    if rows:
        sizes = [r["N"] for r in rows]
        at = np.geomspace(min(sizes), max(sizes), 40)
        lower = np.array([theorem42_parameters(int(N)) for N in at])
        figure.curve(panel, at, lower, "lower bound (Theorem 4.2)", 2, "--")
        figure.logarithmic(panel)
        panel.set_title("dotted: sqrt N through each", fontsize=9)


AXES = Axes("N", "parameters", "experiment", "sequences N", log="xy", label="{value}")
FIG3 = declare("kajitsuka2025/fig3", grid, analyse, AXES, draw, STRAIGHT=STRAIGHT)


def analyse_length(rows: list[Row]) -> Finding:
    x, y = figure.series(rows, "n", "blocks")
    failed = sum(row["blocks"] is None for row in rows)
    if len(np.unique(x)) < 3:
        needed = "three lengths with a size that suffices are needed"
        return laws.too_few(f"{needed}; {failed} had none")
    slope = laws.slope(np.log10(x), y)
    at, mean, _ = figure.means(x, y)
    meets = slope["low"] <= 0.5 and slope["high"] >= -0.5
    verdict = laws.judged(meets and slope["high"] - slope["low"] <= 2, not meets)
    table = [{"n": int(n), "blocks": float(b)} for n, b in zip(at, mean, strict=True)]
    sentence = (
        f"Ten times the length needs {slope['estimate']:.2f} blocks more (mean "
        f"{mean.mean():.1f}); {failed} searches found no size."
    )
    return Finding(verdict, sentence, {"blocks for a tenfold length": slope}, {"lengths": table})


LENGTHS = by_profile(
    MINIMAL, "length",
    {"n": (5, 10, 30, 100), "N": 60, "sizes": LADDER[:8], "starts": 3, "epochs": 600},
    {"n": (10, 100, 1000, 10_000), "N": 500, "sizes": LADDER}, data="random", d=6,
)  # fmt: skip
BLOCKS = Axes("n", "blocks", None, "tokens n", "blocks needed", log="x", bottom=0)
LENGTH = declare("kajitsuka2025/length", LENGTHS, analyse_length, BLOCKS)


def analyse_dimension(rows: list[Row]) -> Finding:
    x, y = figure.series(rows, "m", "parameters")
    failed = sum(row["parameters"] is None for row in rows)
    if len(np.unique(x)) < 3:
        return laws.too_few(f"three m with a size that suffices are needed; {failed} had none")
    p = laws.exponent(x, y)
    verdict = laws.judged(p["low"] <= 0.25 and p["high"] >= -0.25, True)
    table = [
        {"m": m} | {name: laws.mean(same, name) or 0.0 for name in ("blocks", "parameters")}
        for m, same in laws.by(rows, "m").items()
    ]
    least = min((row for row in table if row["parameters"]), key=lambda row: row["parameters"])
    sentence = (
        f"The parameters that training needs go as m^{p['estimate']:.2f}; fewest at m = "
        f"{least['m']} ({least['parameters']:.0f}); {failed} searches found no size."
    )
    return Finding(verdict, sentence, {"exponent of m": p}, {"dimensions": table})


DIMENSIONS = by_profile(
    MINIMAL, "dimension", {"N": 200, "m": (2, 3, 4, 6), "sizes": LADDER[:12]},
    {"N": 600, "m": (2, 3, 4, 6, 8, 12), "sizes": LADDER},
)  # fmt: skip
NEEDED = (
    Axes("m", "parameters", None, "dimension m", "parameters needed", bottom=0),
    Axes("m", "blocks", None, "dimension m", "blocks needed", bottom=0),
)
DIMENSION = declare("kajitsuka2025/embedding-dimension", DIMENSIONS, analyse_dimension, NEEDED)


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
    equal, ahead = all(g["high"] <= SAME for g in gains), any(g["low"] > SAME for g in gains)
    words = ", ".join(f"{row['attention']} {row['gain_over_uniform']:+.3f}" for row in table)
    sentence = f"Accuracy against uniform attention at equal blocks: {words}."
    numbers = {f"gain of {row['attention']}": gain for row, gain in zip(table, gains, strict=True)}
    return Finding(laws.judged(equal, ahead), sentence, numbers, {"attention": table})


@figure.one_panel("Hardmax, softmax and uniform attention", "blocks", "accuracy")
def draw_attention(panel: figure.Panel, rows: list[Row]) -> None:
    kinds = {kind: [row for row in rows if kind_of(row) == kind] for kind in KINDS}
    figure.groups(panel, kinds, "blocks", "accuracy")


BY_KIND = Axes("blocks", "accuracy", "attention", label="{value}")
HARDMAX = declare(
    "kajitsuka2025/hardmax-vs-softmax", attention_grid, analyse_attention, BY_KIND, draw_attention,
    SAME=SAME,
)  # fmt: skip


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


def draw_bits(rows: list[Row], finding: Finding) -> figure.Figure:
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
PRECISION = declare("kajitsuka2025/precision", precision_grid, analyse_precision, BITS, draw_bits)
