"""The sparse regime dP < N_ε, which the slides leave open: fewer attention modules (P of width d)
than the ⌈N_ε/d⌉ of their theorem; N_ε is the smallest number of questions of probability 1 - ε.

Two memories of one width, with the same random heads and the same encoder of rank d. Built: the
theorem's square solve for the m = dP + d likeliest questions (for all, where m >= T). Convex: the
read-out that minimises d_KL over all questions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from byheart.papers.declare import by_profile, declare
from byheart.studies import figure, laws
from byheart.studies.cell import Measurements, Params, Procedure
from byheart.studies.fits import combined
from byheart.studies.study import Axes, Claim, Finding, Record, Row
from byheart.theory.dana2025 import phi_inverse

if TYPE_CHECKING:
    from byheart.facts import Distributions

ETA, EPS = 0.03, 0.01
NEAR = 0.15  # what is built holds dP + d within this share
ZERO = 1e-6  # nats: what rounding leaves of a difference of divergences that is 0
SHARES = (0.12, 0.18, 0.25, 0.4, 0.6, 0.8, 1.0)  # of ⌈N_ε/d⌉ modules


def questions(N: int, zipf: float, seed: int) -> Distributions:
    """All N² questions, each with one answer of probability 1 - η; prior i^-zipf."""
    from byheart.facts import random_distributions

    return random_distributions("lut", N=N, eta=ETA, zipf=zipf, seed=seed)


def modules(share: float, N_eps: int, d: int) -> int:
    """A share of ⌈N_ε/d⌉, at least one.

    >>> modules(1.0, 571, 6), modules(0.5, 571, 6), modules(0.001, 571, 6)
    (96, 48, 1)
    """
    return max(1, round(share * math.ceil(N_eps / d)))


def built_and_convex(p: Params, seed: int) -> Measurements:
    """Divergences and questions known, of both memories and of what they are compared with.

    `*_known`: questions whose likeliest answer comes first, beyond guessing (φ^{-1}); `bound`: what
    the theorem allows the built memory beside its encoder (Dana et al. 2025, Theorem 1, summed over
    the questions, with its missing constant).
    """
    from byheart.construct.encoders import encode
    from byheart.construct.methods import DistributionAttention
    from byheart.methods import build
    from byheart.theory.divergences import kl

    table = questions(p["N"], p["zipf"], seed)
    N_eps = table.facts.effective_size(EPS)
    P, d, T = modules(p["share"], N_eps, p["d"]), p["d"], table.T
    m = d * P + d
    encoder = encode(table, d, "best", seed=seed)
    solve = "literal" if m <= T else "exact"
    found: Measurements = {"P": P, "N_eps": N_eps, "T": T, "features": min(m, T)}
    uniform = kl(table.probabilities, np.zeros_like(table.probabilities))
    found |= {"uniform_kl": float(table.prior @ uniform), "bound": 0.0}
    for name, readout in (("built", solve), ("convex", "convex")):
        method = DistributionAttention(encoder=encoder, readout=readout, H=P, dtype="float64")
        made = build(table, method, seed=seed).construction
        found[f"{name}_kl"], found["encoder_kl"] = made.kl, made.kl_encoder
        found[f"{name}_known"] = phi_inverse(made.recalled / T, p["N"], T)
        if readout == "literal" and made.theorem1 is not None:
            found["bound"] = made.theorem1.sharp
    return found


MEMORIES = Procedure(built_and_convex, seconds=lambda p: 0.2 + 3e-6 * p["N"] ** 4)
QUICK: Params = {"N": 12, "d": 4, "share": SHARES}
PAPER: Params = {"N": 24, "d": 6, "share": SHARES}
GRID = by_profile(MEMORIES, "sparse", QUICK, PAPER, zipf=(0.0, 1.0))


def analyse(rows: list[Row]) -> Finding:
    sparse = [row for row in rows if row["share"] < 1]
    even = [row for row in sparse if row["zipf"] == 0]
    roomy = [row for row in even if 2 * row["features"] <= row["T"]]
    if len({row["features"] for row in roomy}) < 3:
        return laws.too_few("three sizes with room for twice their features are needed")
    features, known = figure.series(roomy, "features", "convex_known")
    held = {
        name: combined(groups := shares_of(mine, name), np.full(len(groups), 1 / len(groups)))
        for name, mine in (("built", even), ("convex", roomy))
    }
    worse = [[math.log(row["built_kl"] / row["uniform_kl"]) for row in same]
             for same in laws.by_cell(sparse).values()]  # fmt: skip
    broken = sum(abs(row["built_kl"] - row["encoder_kl"]) > row["bound"] + ZERO for row in rows)
    claims = (
        Claim("built: questions known by dP + d, mean of the sizes", held["built"], 1 - NEAR,
              1 + NEAR),
        Claim("built: log of d_KL by that of the uniform answer, least of the sizes",
              laws.least(worse, [0.0] * len(worse)), 0.0),
        Claim("built: memories further from their encoder than the theorem allows",
              laws.counted(broken), most=0),
        Claim("convex: questions known by dP + d, mean of the sizes", held["convex"], 1.0),
        Claim("convex: questions known ~ (dP + d)^p: p > 1", laws.exponent(features, known), 1.0),
    )  # fmt: skip
    sentence = (
        f"With fewer than ⌈N_ε/d⌉ modules the built memory knows {held['built']['estimate']:.2f} "
        f"questions for each of its dP + d features, the convex read-out "
        f"{held['convex']['estimate']:.2f}."
    )
    return Finding(sentence, claims, tables={"memories": memories_table(rows)})


def shares_of(rows: list[Row], name: str) -> list[list[float]]:
    """Questions known for each feature, the seeds of every cell together."""
    cells = laws.by_cell(rows).values()
    return [[row[f"{name}_known"] / row["features"] for row in same] for same in cells]


def memories_table(rows: list[Row]) -> list[Record]:
    """A line for each prior and size: means over seeds."""
    table = []
    for same in laws.by_cell(rows).values():
        line: Record = {"zipf": same[0]["zipf"], "share": same[0]["share"]}
        names = ("P", "features", "N_eps", "T", "encoder_kl", "uniform_kl", "bound", "built_kl",
                 "convex_kl", "built_known", "convex_known")  # fmt: skip
        table.append(line | {name: laws.mean(same, name) for name in names})
    return sorted(table, key=lambda line: (line["zipf"], line["share"]))


@figure.one_panel("Fewer modules than ⌈N_ε/d⌉", "features dP + d", "questions known")
def draw(panel: figure.Panel, rows: list[Row]) -> None:
    even = [row for row in rows if row["zipf"] == 0]
    for i, name in enumerate(("built", "convex")):
        figure.points(panel, *figure.series(even, "features", f"{name}_known"), name, i)
    if even:
        at = np.array(sorted({float(row["features"]) for row in even}))
        figure.curve(panel, at, at, "dP + d", 2, "--")
        figure.logarithmic(panel)


AXES = (
    Axes("features", "built_known", "zipf", "features dP + d", "questions known, built"),
    Axes("features", "convex_known", "zipf", "features dP + d", "questions known, convex"),
)
STUDY = declare(
    "slides/sparse", GRID, analyse, AXES, draw, ETA=ETA, EPS=EPS, SHARE=NEAR, ZERO=ZERO,
    SHARES=", ".join(f"{share:g}" for share in SHARES),
)  # fmt: skip
