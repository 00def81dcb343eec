"""What the paper asks or states without an experiment: sequence to sequence (open question 1), the
dimension of the tokens (d + sqrt N parameters), bits against parameters (Theorem F.1)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from byheart.papers.declare import declare
from byheart.papers.kajitsuka2025.experiment import BUILT, BUILT_VECTORS, EVERY, MINIMAL
from byheart.papers.kajitsuka2025.scaling import LADDER
from byheart.studies import Axes, Cell, Claim, Finding, Params, Record, Row, figure, laws
from byheart.studies.fits import combined
from byheart.studies.study import Interval
from byheart.theory.kajitsuka2025 import Literal, theorem43_parameters, theoremF1

ATTENTIONS = ("uniform", "softmax", "hardmax")
SAVED = 0.2  # of hardmax's parameters: what softmax must save to count as fewer
FLAT = 0.25  # exponent of d: closer to 0 counts as none
HALF = 0.5  # of a parameter for one more dimension, where E_in needs one
WORDS = 50  # different ones of the study of bits
# Blocks of q = m units, a quarter of the paper's: smaller steps from one size to the next.
SMALL: Params = {"trials": 6, "m": 4, "q": 4, "sizes": LADDER[:14]}


def labels(row: Row) -> int:
    """n N, the labels of sequences with one for every token."""
    return row["n"] * row["N"]


def exponent_in(rows: list[Row], x: str | Callable[[Row], float], y: str) -> Interval | None:
    """p of y ~ x^p by least squares of logarithms; no interval where a search found no size, and
    None where fewer than three x have one."""
    at, values = figure.series(rows, x, y)
    if len(np.unique(at)) < 3:
        return None
    p = laws.exponent(at, values)
    return p if len(at) == len(rows) else laws.unknown(p)


def sizes_of(way: str, rows: list[Row], x: str) -> list[Record]:
    """The mean parameters at each x; None where no search found a size."""
    groups = laws.by(rows, x).items()
    return [{"way": way, x: at, "parameters": laws.mean(r, "parameters")} for at, r in groups]


def none_of(rows: list[Row]) -> list[str]:
    """How many searches found no size, in words, where there are such."""
    none = sum(row["parameters"] is None for row in rows)
    return [f"{none} of {len(rows)} searches found no size that suffices"] if none else []


# Sequence to sequence, N = n.


def sequence_grid(variant: str, profile: str) -> list[Cell]:
    """Trained with each attention; hardmax, which is slow, up to a smaller n. Built besides."""
    quick = profile == "quick"
    cells = []
    for kind in ATTENTIONS:
        n = (6, 8, 10) if quick else (12, 14, 17, 20, 24)[: -1 if kind == "hardmax" else None]
        for k in n:
            how = {"N": k, "n": k, "d": 4, "classes": 2, "attention": kind, "data": EVERY}
            less = {"epochs": 400, "trials": 3} if quick else {}
            cells += MINIMAL.grid("trained", **{**SMALL, **how, **less})
    for k in (12, 20, 32, 50) if quick else (12, 20, 32, 50, 100, 200):
        cells += BUILT_VECTORS.grid("built", N=k, n=k, d=4, every=True)
    return cells


def saved(softmax: list[Row], hardmax: list[Row]) -> Interval | None:
    """The share of hardmax's parameters that softmax saves, mean over the n that both have: 1 -
    ratio of the means; None where a search found no size."""
    ours, theirs = laws.by(softmax, "n"), laws.by(hardmax, "n")
    both = sorted(ours.keys() & theirs.keys())
    some = [row for n in both for row in ours[n] + theirs[n]]
    if not both or any(row["parameters"] is None for row in some):
        return None
    scale = [laws.mean(theirs[n], "parameters") or math.nan for n in both]
    less = [
        [1 - row["parameters"] / at for row in ours[n]] for n, at in zip(both, scale, strict=True)
    ]
    spread = [
        [row["parameters"] / at - 1 for row in theirs[n]] for n, at in zip(both, scale, strict=True)
    ]
    share = np.full(len(both), 1 / len(both))
    return combined([*less, *spread], [*share, *share])


def analyse_sequences(rows: list[Row]) -> Finding:
    trained = [row for row in rows if row.experiment == "trained"]
    kinds = {k: [row for row in trained if row["attention"] == k] for k in ATTENTIONS}
    claims, told, table = [], [], []
    for kind, mine in kinds.items():
        p = exponent_in(mine, labels, "parameters")
        if p is not None:
            statement = f"{kind}, trained: no fewer than sqrt(nN): parameters ~ (nN)^p, p >= 0.5"
            claims.append(Claim(statement, p, 0.5))
            told.append(f"(nN)^{p['estimate']:.2f} trained with {kind} attention")
        told += none_of(mine)
        table += sizes_of(kind, mine, "n")
    less = saved(kinds["softmax"], kinds["hardmax"])
    if less is not None:
        statement = "softmax saves no parameters over hardmax: share saved"
        claims.append(Claim(statement, less, most=SAVED))
        told.append(f"softmax needs {1 - less['estimate']:.0%} of what hardmax does")
    networks = [row for row in rows if row.experiment == "built"]
    built = exponent_in(networks, labels, "parameters")
    if built is not None:
        claims.append(laws.exponent_claim("parameters ~ (nN)^p, built (Corollary 4.1)", built, 0.5))
        told.append(f"(nN)^{built['estimate']:.2f} in the construction")
    if not claims:
        return laws.too_few("three n with a number of blocks that suffices are needed")
    table += sizes_of("built", networks, "n")
    sentence = f"Parameters for n N labels, N = n: {'; '.join(told)}."
    return Finding(sentence, tuple(claims), tables={"sizes": table})


def way_of(row: Row) -> str:
    """The attention of a trained model, or "built"."""
    return row["attention"] if row.experiment == "trained" else row.experiment


@figure.one_panel("Parameters needed for n N labels, N = n", "labels n N", "parameters")
def draw_sequences(panel: figure.Panel, rows: list[Row]) -> None:
    for i, way in enumerate((*ATTENTIONS, "built")):
        mine = [row for row in rows if way_of(row) == way]
        figure.points(panel, *figure.series(mine, labels, "parameters"), way, i)
    if rows:
        sizes = [row["n"] for row in rows]
        n = np.arange(min(sizes), max(sizes) + 1)
        lower = np.array([theorem43_parameters(int(k), int(k)) for k in n])
        figure.curve(panel, n * n, lower, "lower bound for hardmax (Theorem 4.3)", 4, "--")
        figure.logarithmic(panel)


SEQUENCES = declare(
    "kajitsuka2025/sequence-to-sequence", sequence_grid, analyse_sequences,
    Axes("n", "parameters", "attention", "tokens n = sequences N", log="xy", label="{value}"),
    draw_sequences, SAVED=SAVED,
)  # fmt: skip


# The dimension of the tokens: d + sqrt N parameters.

QUICK_D, PAPER_D = (2, 4, 8), (2, 4, 8, 16, 32, 64)


def dimension_grid(variant: str, profile: str) -> list[Cell]:
    quick = profile == "quick"
    d, N = (QUICK_D, 60) if quick else (PAPER_D, 300)
    less = {"epochs": 400, "trials": 3} if quick else {}
    cells = MINIMAL.grid("trained", **{**SMALL, "data": "random", "N": N, "n": 4, "d": d, **less})
    N = 300 if quick else 3000
    return cells + BUILT_VECTORS.grid("built", N=N, d=d if quick else (*d, 128))


def inner(row: Row) -> float | None:
    """The parameters besides the d m of E_in."""
    needed = row["parameters"]
    return None if needed is None else needed - row["d"] * row["m"]


def analyse_tokens(rows: list[Row]) -> Finding:
    trained, networks = ([r for r in rows if r.experiment == e] for e in ("trained", "built"))
    claims, told = [], none_of(trained)
    found = sorted((row["d"], more) for row in trained if (more := inner(row)) is not None)
    x, y = (np.array([pair[i] for pair in found], dtype=float) for i in (0, 1))
    if len(np.unique(x)) >= 3:
        p = laws.exponent(x, y)
        p = p if len(x) == len(trained) else laws.unknown(p)
        claims.append(Claim("trained: parameters besides E_in ~ d^p: p = 0", p, -FLAT, FLAT))
        told.append(f"training needs parameters as d^{p['estimate']:.2f}, without those of E_in")
    x, y = figure.series(networks, "d", "parameters")
    if len(np.unique(x)) >= 3:
        slope = laws.slope(x, y)
        claims.append(Claim("built: parameters for one more dimension", slope, 1 - HALF, 1 + HALF))
        told.append(f"the construction {slope['estimate']:.2f} more for one more dimension")
    if not claims:
        return laws.too_few("three d with a number of blocks that suffices are needed")
    table = sizes_of("trained", trained, "d")
    if any(line["parameters"] for line in table):
        least = min((line for line in table if line["parameters"]), key=lambda t: t["parameters"])
        fewest = f"{least['parameters']:.0f}, at d = {least['d']}"
        told.append(f"trained models have fewest in all, {fewest}")
    table += sizes_of("built", networks, "d")
    sentence = f"For tokens of dimension d, {'; '.join(told)}."
    return Finding(sentence, tuple(claims), tables={"dimensions": table})


D, NEEDED = "dimension d of the tokens", "parameters needed"
TOKENS = declare(
    "kajitsuka2025/token-dimension", dimension_grid, analyse_tokens,
    (Axes("d", "parameters", None, D, NEEDED, log="x", bottom=0, where="trained"),
     Axes("d", "parameters", None, D, NEEDED, bottom=0, where="built")),
    FLAT=FLAT, HALF=HALF,
)  # fmt: skip

# Bits against parameters at a fixed N.

# From what keys and sums need to about half of what the cheapest network has, in steps of sqrt 2.
BITS = (48, 68, 96, 136, 192, 272)


def bits_grid(variant: str, profile: str) -> list[Cell]:
    N, limits = (1000, BITS[:3]) if profile == "quick" else (10_000, BITS)
    return BUILT.grid("bits", N=N, V=WORDS, max_bits=(*limits, None))


def published(N: int, n: int, most: float) -> Literal | None:
    """Theorem F.1 for three labels and words that are numbers up to 50: its fewest parameters with
    weights of at most so many bits (without the constant, which the paper does not give); None
    where it needs more."""
    every = (theoremF1(N, n, 1, WORDS, 3, B) for B in range(2, math.isqrt(N) + 1))
    return min((t for t in every if t.bits <= most), key=lambda t: t.parameters, default=None)


def analyse_bits(rows: list[Row]) -> Finding:
    limited = [row for row in rows if row["max_bits"] is not None]
    p = exponent_in(limited, "bits", "parameters")
    if p is None:
        return laws.too_few("three lengths of weights are needed")
    table: list[Record] = []
    for row in sorted(rows, key=lambda row: row["bits"]):
        bound = published(row["N"], row["n"], row["bits"])
        table.append({"limit": row["max_bits"] or "none", "seed": row.seed, "bits": row["bits"],
                      "parameters": row["parameters"], "total_bits": row["total_bits"],
                      "theorem_F1": None if bound is None else bound.parameters})  # fmt: skip
    claims = (laws.exponent_claim("parameters ~ bits^p at fixed N", p, -1.0),)
    first, last = table[0], table[-1]
    sentence = (
        f"With weights of {first['bits']} bits the construction has {first['parameters']:,.0f} "
        f"parameters, with weights of {last['bits']} bits {last['parameters']:,.0f}; as long as a "
        f"limit on their length is felt, parameters go as bits^{p['estimate']:.2f} (no interval: "
        "every seed has its own longest weight)."
    )
    return Finding(sentence, claims, tables={"bits": table})


@figure.one_panel("Bits of a weight against parameters", "bits of the longest weight", "parameters")
def draw_bits(panel: figure.Panel, rows: list[Row]) -> None:
    figure.points(panel, *figure.series(rows, "bits", "parameters"), "built", 0)
    if rows:
        N, n = rows[0]["N"], rows[0]["n"]
        every = [theoremF1(N, n, 1, WORDS, 3, B) for B in range(2, math.isqrt(N) + 1)]
        x, y = (np.array([getattr(t, name) for t in every]) for name in ("bits", "parameters"))
        figure.curve(panel, x, y, "Theorem F.1, dense, as published", 1, "--")
        figure.logarithmic(panel)


TRADE = declare(
    "kajitsuka2025/bits-vs-parameters", bits_grid, analyse_bits,
    Axes("bits", "parameters", None, "bits of the longest weight", log="xy"), draw_bits,
)  # fmt: skip
