"""New: exact capacity against the number P of effective parameters; built against trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from byheart.papers.declare import by_profile, declare, largest_passing
from byheart.specs import MultiHeadSpec
from byheart.studies import figure, laws
from byheart.studies.cell import Cell, Measurements, Params, Procedure
from byheart.studies.fits import combined
from byheart.studies.study import Axes, Claim, Finding, Row
from byheart.theory.mahdavi2024 import effective_parameters, generic_rank, theorem1_capacity

if TYPE_CHECKING:
    from byheart.facts import VectorFacts

FITTED = 1e-6  # largest error of a label, labels in [0, 1]
SHARES = (0.8, 0.9, 0.95, 1.0, 1.05)
STARTS = 3
SLOPE = (0.9, 1.1)  # of the largest T fitted against P
# H, n, d, d_h, context
SMALL = (
    (2, 6, 12, 12, "shared"), (3, 6, 12, 12, "shared"), (4, 8, 16, 2, "shared"),
    (4, 8, 16, 4, "shared"), (4, 8, 16, 16, "shared"), (2, 8, 16, 4, "own"), (4, 8, 16, 4, "own"),
)  # fmt: skip
LARGER = (*SMALL, (6, 8, 16, 16, "shared"), (6, 10, 20, 20, "shared"), (4, 8, 16, 16, "own"))


class Newton(NamedTuple):
    """The largest error of a label in the best start, and the starts that were made."""

    error: float
    starts: int


def best_start(facts: VectorFacts, H: int, d_h: int, seed: int, starts: int = STARTS) -> Newton:
    """Levenberg-Marquardt on all weights, from one start after the other until one fits."""
    from byheart.construct.multi_head.generic import LOGITS, newton_run

    error, start = float("inf"), 0
    for start in range(1, starts + 1):
        logits = LOGITS[(start - 1) % len(LOGITS)]
        error = min(error, newton_run(facts, H, d_h, seed + start, logits).error)
        if error < FITTED:
            break
    return Newton(error, start)


def newton(p: Params, seed: int) -> Measurements:
    """Levenberg-Marquardt on all weights of the bare layer, T = share x P scalar labels, up to
    STARTS starts; the largest error of the best."""
    from byheart.facts import random_vectors

    sizes = (p["H"], p["n"], p["d"], p["d_h"])
    P = effective_parameters(*sizes, shared=p["context"] == "shared")
    T = int(p["share"] * P)
    context = "fixed" if p["context"] == "shared" else "random"
    facts = random_vectors(T, p["n"], p["d"], context, seed=seed)
    # Above P nothing can succeed: one start shows by how much it fails.
    error, starts = best_start(facts, p["H"], p["d_h"], seed, 1 if T > P else STARTS)
    return {"T": T, "P": P, "theorem": theorem1_capacity(p["H"], p["n"], p["d_h"]),
            "error": error, "fitted": error < FITTED, "starts": starts}  # fmt: skip


def newton_seconds(p: Params) -> float:
    """CPU seconds of one fit: of the time at T = P, fewer iterations below, one start above."""
    share = 0.3 if p["share"] > 1 else p["share"] ** 12
    return 0.3 + share * 4e-4 * p["H"] * (p["n"] * p["d"]) ** 1.8


NEWTON = Procedure(newton, seconds=newton_seconds)


def newton_grid(variant: str, profile: str) -> list[Cell]:
    cells = []
    for layer in SMALL if profile == "quick" else LARGER:
        sizes = dict(zip(("H", "n", "d", "d_h", "context"), layer, strict=True))
        cells += NEWTON.grid("capacity-vs-P", **sizes, share=SHARES)
    return cells


def largest_fitted(rows: list[Row]) -> dict[int, tuple[int, list[int]]]:
    """P -> (theorem, the largest T that each seed fitted)."""
    names = ("P", "theorem", "H", "n", "d_h", "context")
    layers = laws.group(rows, lambda row: tuple(row[name] for name in names))
    largest = {}
    for (P, theorem, *_), same in sorted(layers.items(), key=lambda item: item[0][0]):
        seeds = laws.group(same, lambda row: row.seed).values()
        largest[P] = theorem, [max(r["T"] * r["fitted"] for r in mine) for mine in seeds]
    return largest


def points(largest: dict[int, tuple[int, list[int]]]) -> tuple[np.ndarray, np.ndarray]:
    """P and the largest T fitted, one of each for every seed."""
    pairs = [(P, t) for P, (_, T) in largest.items() for t in T]
    return np.array([P for P, _ in pairs], float), np.array([t for _, t in pairs], float)


def analyse_newton(rows: list[Row]) -> Finding:
    largest = largest_fitted(rows)
    if len(largest) < 3:
        return laws.too_few("three layers are needed")
    slope = laws.slope(*points(largest))
    above = sum(row["fitted"] and row["T"] > row["P"] for row in rows)
    table = [
        {"P": P, "theorem": theorem, "largest_T": float(np.mean(T)), "of_P": float(np.mean(T)) / P,
         "of_theorem": float(np.mean(T)) / theorem}
        for P, (theorem, T) in largest.items()
    ]  # fmt: skip
    shares = [np.array(T) / theorem for theorem, T in largest.values()]
    ratio = combined(shares, np.full(len(shares), 1 / len(shares)))
    claims = (
        Claim("nothing beyond P: number of fits at 1.05 P", laws.counted(above), most=0),
        Claim("up to P: slope of the largest T fitted against P", slope, *SLOPE),
        Claim("more than Theorem 1: largest T by H(r-1)+1, mean of the layers", ratio, 1.0),
    )
    sentence = (
        f"The largest T that is fitted, of five by layer, grows as {slope['estimate']:.2f} P, "
        f"on average {ratio['estimate']:.0f} times H(r-1)+1; {above} fits above P."
    )
    return Finding(sentence, claims, tables={"layers": table})


@figure.one_panel("Largest number of scalar labels fitted exactly", "effective parameters P",
                  "examples T")  # fmt: skip
def draw_newton(panel: figure.Panel, rows: list[Row]) -> None:
    largest = largest_fitted(rows)
    if largest:
        P = np.array(list(largest), float)
        figure.points(panel, *points(largest), "Levenberg-Marquardt", 0, line=False)
        figure.curve(panel, P, P, "P (hard limit)", 1, "--")
        theorem = np.array([t for t, _ in largest.values()], float)
        panel.plot(P, theorem, "s", color=figure.colour(2), ms=4, label="H(r-1)+1 (Theorem 1)")


AXES = Axes("P", "T", "fitted", "effective parameters P", "examples T")
CAPACITY = declare(
    "mahdavi2024/capacity-vs-P", newton_grid, analyse_newton, AXES, draw_newton,
    SHARES=", ".join(f"{share:g} P" for share in SHARES), FITTED=FITTED, SLOPE=SLOPE,
)  # fmt: skip

CLASSES = 10
METHODS = ("one-hot", "convex", "trained")


def held(p: Params, seed: int) -> Measurements:
    """The largest T of random classes that one method holds in one layer, all of them right."""
    from byheart.construct.methods import MultiHead
    from byheart.errors import ByheartError
    from byheart.facts import random_vectors

    shared = p["context"] == "shared"
    context = "fixed" if shared else "random"
    rank = generic_rank(p["H"], p["n"], p["d"], shared=shared)
    width = min(p["n"] if shared else p["d"], CLASSES)
    spec = MultiHeadSpec(p["d"], p["n"], p["d_h"], p["H"], width, CLASSES, shared)

    def holds(T: int) -> bool:
        facts = random_vectors(T, p["n"], p["d"], context, classes=CLASSES, seed=seed)
        if p["method"] != "trained":
            convex = p["method"] == "convex"
            proof, readout = ("random", "convex") if convex else ("one-hot", "exact")
            method = MultiHead(proof=proof, readout=readout, H=p["H"], d_h=p["d_h"])
            try:
                return method.build(facts, seed).construction.recalled == T
            except ByheartError:
                return False

        import torch

        from byheart.training import Data, Recipe, train_stack

        query, label, E = (torch.tensor(x) for x in (facts.query, facts.label, facts.context))
        data = Data(query.float(), label, "class", E.float(), contexts_differ=not shared)
        recipe = Recipe(steps=p["steps"], lr=p["lr"], warmup=0.05)
        outcomes = train_stack(spec, data, recipe, [seed, seed + 1]).outcomes
        return max(o.accuracy for o in outcomes) == 1.0

    T = largest_passing(holds, rank)
    return {"T": T, "rank": rank, "theorem": theorem1_capacity(p["H"], p["n"], p["d_h"]),
            "parameters": spec.parameters, "of_rank": T / rank}  # fmt: skip


def held_seconds(p: Params) -> float:
    """CPU seconds of one search (some eight trainings of two models or eight builds)."""
    rank = p["H"] * (p["n"] - 1) + 1 if p["context"] == "shared" else p["H"] * p["d"]
    if p["method"] != "trained":
        return 0.3 + 0.02 * rank
    return 12 * p["steps"] * (6e-4 + 6 * rank * p["H"] * (p["n"] + p["d"]) * 4e-8)


HELD = Procedure(held, seconds=held_seconds)


def analyse_held(rows: list[Row]) -> Finding:
    slopes, table = {}, []
    for method, same, x, y in laws.enough(laws.by(rows, "method"), "H", "T", 2):
        slopes[method] = laws.at_each(x, y)
        table.append({"method": method, **laws.columns("examples_a_head", laws.slope(x, y)),
                      "of_rank": laws.mean(same, "of_rank")})  # fmt: skip
    if not set(METHODS) <= slopes.keys():
        return laws.too_few("built and trained layers of two sizes are needed")
    claims = []
    for more, fewer in (("trained", "convex"), ("convex", "one-hot")):
        (x, ours), (at, theirs) = slopes[more], slopes[fewer]
        weights = [*laws.slope_weights(x), *-laws.slope_weights(at)]
        statement = f"{more} holds more than {fewer}: examples a head, difference"
        claims.append(Claim(statement, combined([*ours, *theirs], weights), 0.0))
    told = ", ".join(f"{line['method']} {line['examples_a_head']:.0f}" for line in table)
    return Finding(
        f"Examples for each head more: {told}.", tuple(claims), tables={"methods": table}
    )


HELD_GRID = by_profile(
    HELD, "built-vs-trained", {"H": (1, 2, 3, 4), "steps": 1500, "lr": 0.02},
    {"H": (1, 2, 4), "steps": 8000, "lr": 0.01},
    method=METHODS, context="shared", n=6, d=12, d_h=12,
)  # fmt: skip
HELD_AXES = Axes("H", "T", "method", "heads H", "examples held", log="y", label="{value}")
BUILT = declare("mahdavi2024/built-vs-trained", HELD_GRID, analyse_held, HELD_AXES)
