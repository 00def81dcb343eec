"""Theorems 1 and 2 measured: d_KL of memories that are built, against ε, the entropy and the width,
beside what the theorems promise of them.

Every row has `own`, what the theorem's own construction loses, `best`, what the best memory of the
same sizes that we can build loses, and `bound`, what the theorem promises of both, in nats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from byheart.papers.declare import declare
from byheart.studies import Axes, Cell, Claim, Finding, Params, Procedure, Row, figure, laws
from byheart.studies.cell import Measurements, group
from byheart.studies.fits import combined, span
from byheart.studies.study import Interval, Record

NOTHING = 1e-9  # nats: a smaller divergence is rounding, and no bound is broken by as little
TIGHT = 10.0  # a bound within this factor of what it bounds is called tight


def likely(params: Params, seed: int) -> Measurements:
    """Theorem 1: layers that follow the best encoder f = W E; m = H d_h + d of T features.

    `own`: d_KL(π, T) - d_KL(π, f) with the read-out of the proof, solved for the m likely
    sequences; `best`: with the convex read-out, the least that these heads can lose. `bound`:
    sqrt 2 · C · ε · ||W E||_2, ε the prior of the other sequences; `printed`: the same without
    sqrt 2; `sharper`: sequence by sequence; `promise`: d_KL(π, f) + bound.
    """
    from byheart.construct.encoders import encode
    from byheart.construct.methods import DistributionAttention
    from byheart.facts import random_distributions

    kind = {name: params[name] for name in ("N", "tau", "zipf")}
    table = random_distributions("gauss", **kind, seed=seed)
    f = encode(table, params["d"], seed=seed)
    sizes = {"encoder": f, "H": params["H"], "d_h": params["d"], "dtype": "float64"}
    methods = (DistributionAttention(readout=name, **sizes) for name in ("literal", "convex"))
    own, best = (method.build(table, seed).construction for method in methods)
    theorem, floor = own.theorem1, own.kl_encoder
    assert theorem is not None and theorem.excess is not None  # else there were no read-out
    return {
        "own": own.kl - floor, "best": best.kl - floor, "bound": theorem.excess,
        "printed": theorem.excess / math.sqrt(2), "sharper": theorem.sharp,
        "promise": floor + theorem.excess, "uniform": math.log(table.A) - own.entropy,
        "eps": own.eps, "C": theorem.C, "norm": theorem.norm, "kl_encoder": floor,
    }  # fmt: skip


def ranked(params: Params, seed: int) -> Measurements:
    """Theorem 2: layers of width d with heads for every sequence (ε = 0), so that d_KL is that of
    their encoder: λ_t W_g of the proof (`own`), and the best of rank d that was found (`best`).

    `bound`: (1+μ₋)/(1-μ₊) · E_t[(1-π_g) log((N-1)/(e^{H_t}-1))]; `printed`: with the factor
    (1+2C)/(1-2C), where C < 1/2, else None. `entropy`: E_t H_t.
    """
    from byheart.construct.encoders import encode
    from byheart.construct.methods import DistributionAttention
    from byheart.facts import random_distributions
    from byheart.theory.dana2025 import coherence, theorem2_bound

    table = random_distributions("lut", N=params["N"], eta=params["eta"], seed=seed)
    encoders = [encode(table, params["d"], name, seed=seed) for name in ("theorem2", "best")]
    own, best = (
        DistributionAttention(encoder=f, readout="exact", dtype="float64").build(table, seed)
        for f in encoders
    )
    W = encoders[0].W
    C, *_ = coherence(W)
    bound = partial(theorem2_bound, table.probabilities, W, table.prior)
    return {
        "own": own.construction.kl, "best": best.construction.kl, "bound": bound(),
        "printed": bound("published") if C < 0.5 else None, "promise": bound(), "C": C,
        "uniform": math.log(table.A) - own.construction.entropy,
        "entropy": own.construction.entropy,
    }  # fmt: skip


def seconds(params: Params) -> float:
    """Estimated CPU seconds of one table: the search for the best encoder is nearly all of it."""
    return (0.31 + 0.075 * params["d"]) * (params["N"] / 20) ** 3


LIKELY = Procedure(likely, seconds=seconds, defaults={"N": 20, "d": 8, "tau": 1.0, "zipf": 1.5})
RANKED = Procedure(ranked, seconds=seconds, defaults={"N": 20, "d": 8, "eta": 0.03})


@dataclass(frozen=True)
class Axis:
    """What a theorem is followed along: the rows of the experiment `name`, and their `x`.

    `memories`: what `own` and `best` are called. `power`: that of x in the bound as the theorem
    writes it, with a constant; None where it has none.
    """

    theorem: str
    name: str
    x: str
    label: str
    memories: Mapping[str, str]
    power: float | None = None

    def __str__(self) -> str:
        return f"{self.theorem}, along {self.name}"


READ_OUTS = {"own": "read-out of the proof", "best": "convex read-out"}
ENCODERS = {"own": "encoder of the proof", "best": "best encoder"}
AXES = (
    Axis("Theorem 1", "ε", "eps", "ε, the prior of what is not solved for", READ_OUTS, power=1.0),
    Axis("Theorem 2", "entropy", "entropy", "mean entropy, nats", ENCODERS),
    Axis("Theorem 2", "d", "d", "width d", ENCODERS),
)
LOOSE = (("bound", "own"), ("promise", "uniform"))


def grid(variant: str, profile: str) -> list[Cell]:
    quick = profile == "quick"
    heads = (4, 19, 39) if quick else (4, 9, 19, 29, 39, 46)
    etas = (0.3, 0.03, 0.003) if quick else (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
    widths = (4, 8, 16) if quick else (2, 4, 8, 12, 16, 19)
    return [
        *LIKELY.grid("ε", H=heads), *RANKED.grid("entropy", eta=etas), *RANKED.grid("d", d=widths)
    ]  # fmt: skip


Settings = Sequence[tuple[float, list[Row]]]
"""The rows of every cell of an axis, by their mean x."""


def settings(axis: Axis, rows: Sequence[Row]) -> Settings:
    """Entropies differ from table to table: a cell stands at the mean of its seeds."""
    mine = group((row for row in rows if row.experiment == axis.name), lambda row: row.cell)
    placed = [(float(np.mean([row[axis.x] for row in same])), same) for same in mine.values()]
    return sorted(placed, key=lambda pair: pair[0])


def left(at: Settings, measure: str) -> Settings:
    """The settings in which something is lost: at d = N - 1 nothing need be (Proposition 2)."""
    return [(x, same) for x, same in at if all(row[measure] > NOTHING for row in same)]


def mean_factor(at: Settings, measure: str, over: str) -> Interval:
    """The geometric mean over all settings of one measurement over another."""
    logs = [[math.log(row[measure] / row[over]) for row in same] for _, same in at]
    found = combined(logs, np.full(len(logs), 1 / len(logs)))
    return span(*(math.exp(found[end]) for end in ("estimate", "low", "high")))


def exponent(at: Settings, measure: str, over: str | None = None) -> Interval:
    """p of measure ~ x^p, or of measure / over."""
    x = [math.log(place) for place, same in at for _ in same]
    y = [math.log(row[measure] / (row[over] if over else 1.0)) for _, same in at for row in same]
    return laws.slope(np.array(x), np.array(y))


def above(at: Settings, bound: str) -> tuple[int, int]:
    """How many memories lose more than a bound says, and of how many it speaks."""
    pairs = [(abs(row[name]), row[bound]) for _, same in at for row in same
             for name in ("own", "best") if row[bound] is not None]  # fmt: skip
    return sum(lost > limit + NOTHING for lost, limit in pairs), len(pairs)


def claims_along(axis: Axis, at: Settings) -> list[Claim]:
    """That the bound holds, that memories follow its power, that it is tight and says something."""
    broken, number = above(at, "bound")
    name = f"{axis}: memories above the bound, of {number}"
    claims = [Claim(name, laws.counted(broken), most=0)]
    for measure, memory in axis.memories.items():
        kept, lost = left(at, measure), f"{axis}: d_KL ~ {axis.name}^p with the {memory}"
        if len(kept) < 3:
            continue
        if measure == "best" and axis.power is not None:
            claims.append(laws.exponent_claim(lost, exponent(kept, measure), axis.power))
        else:
            more = exponent(kept, measure, "bound")
            claims.append(Claim(f"{lost}, p minus the bound's", more, -laws.NEAR, laws.NEAR))
    if kept := left(at, "own"):
        name = f"{axis}: the bound over d_KL with the {axis.memories['own']}"
        claims.append(Claim(name, mean_factor(kept, "bound", "own"), most=TIGHT))
    name = f"{axis}: the bound over d_KL of the uniform answer"
    return [*claims, Claim(name, mean_factor(at, "promise", "uniform"), most=1.0)]


def numbers_along(axis: Axis, at: Settings) -> Record:
    """The exponents, the bound as it is printed, and how far it is from the best memories."""
    broken, number = above(at, "printed")
    found: Record = {f"{axis}: memories above the bound as printed, of {number}": broken}
    found[f"{axis}: p of the bound"] = exponent(at, "bound")
    for measure, memory in axis.memories.items():
        if len(kept := left(at, measure)) >= 3:
            found[f"{axis}: p with the {memory}"] = exponent(kept, measure)
    if kept := left(at, "best"):
        name = f"{axis}: the bound over d_KL with the {axis.memories['best']}"
        found[name] = mean_factor(kept, "bound", "best")
    return found


def typical(rows: Sequence[Row], measure: str) -> float:
    """The geometric mean of what is not nothing: divergences of the proof have heavy tails."""
    return math.exp(np.mean([math.log(max(row[measure], NOTHING)) for row in rows]))


def analyse(rows: list[Row]) -> Finding:
    claims, numbers, tables, words = [], {}, {}, []
    for axis in AXES:
        at = settings(axis, rows)
        if len(at) < 3:
            continue
        claims += claims_along(axis, at)
        numbers |= numbers_along(axis, at)
        shown = ("own", "best", "bound", "uniform")
        tables[str(axis)] = [{axis.x: x, **{name: typical(same, name) for name in shown}}
                             for x, same in at]  # fmt: skip
        broken, number = above(at, "bound")
        loose, said = (mean_factor(at, *pair)["estimate"] for pair in LOOSE)
        words.append(
            f"{axis}: {broken} of {number} memories above the bound, which is {loose:.3g} times "
            f"d_KL with the {axis.memories['own']} and {said:.3g} times that of the uniform answer"
        )
    if not claims:
        return laws.too_few("three settings along ε, the entropy or d are needed")
    return Finding(f"{'; '.join(words)}.", tuple(claims), numbers, tables)


def draw(rows: list[Row], _: Finding) -> figure.Figure:
    """What is lost against ε, the entropy and d, a panel each; dashed what the theorem promises."""
    drawn, panels = figure.panels("What Theorems 1 and 2 promise and what is lost", "", "nats", 3)
    for panel, axis in zip(panels, AXES, strict=True):
        at = settings(axis, rows)
        for i, (measure, memory) in enumerate(axis.memories.items()):
            kept = left(at, measure)
            x = np.array([place for place, same in kept for _ in same])
            dots = np.array([row[measure] for _, same in kept for row in same])
            panel.plot(x, dots, ".", color=figure.colour(i), alpha=0.25, ms=4)
            figure.curve(panel, *line(kept, measure), memory, i, "o-")
        figure.curve(panel, *line(at, "bound"), axis.theorem, 2, "--")
        figure.curve(panel, *line(at, "uniform"), "uniform answer", 7, ":")
        if at:
            figure.logarithmic(panel)
        panel.set_xlabel(axis.label)
        panel.set_title(str(axis), fontsize=9)
        figure.legend(panel)
    return drawn


def line(at: Settings, measure: str) -> tuple[np.ndarray, np.ndarray]:
    return np.array([x for x, _ in at]), np.array([typical(same, measure) for _, same in at])


STUDIES = (
    declare(
        "dana2025/kl-bounds", grid, analyse,
        (Axes("eps", "best", where="ε", bound="bound", log="xy"),
         Axes("entropy", "best", where="entropy", bound="bound", log="xy"),
         Axes("d", "best", where="d", bound="bound", log="xy")),
        draw, TIGHT=TIGHT, NOTHING=NOTHING,
    ),
)  # fmt: skip
