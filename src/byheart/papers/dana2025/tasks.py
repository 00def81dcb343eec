"""Other tasks, losses and depths: Zipf priors, several right answers, losses, layers."""

from __future__ import annotations

import numpy as np

from byheart.papers.dana2025.experiment import ANSWERS, PRIOR, TRAIN
from byheart.papers.declare import by_profile, declare
from byheart.studies import Axes, Cell, Finding, Record, Row, Verdict, laws
from byheart.studies.fits import interval_of_mean

LOSSES = ("cross-entropy", "cross-entropy-as-coded", "mse", "total-variation", "hinge")


def groups(rows: list[Row], by: tuple[str, ...], measure: str, *others: str) -> list[Record]:
    """Mean and interval of a measurement for every combination of parameters, means of others."""
    # `loss` is a parameter and a measurement: the parameter is meant.
    values = laws.group(rows, lambda row: tuple(row.params[name] for name in by))
    table = []
    for key, same in sorted(values.items(), key=lambda item: tuple(map(str, item[0]))):
        mean, *more = (float(np.mean([row[name] for row in same])) for name in (measure, *others))
        low, high = interval_of_mean([row[measure] for row in same])
        line = {**dict(zip(by, key, strict=True)), "mean": mean, "low": low, "high": high}
        table.append(line | dict(zip(others, more, strict=True)))
    return table


def accuracies(table: list[Record], label: str) -> Record:
    """The numbers of a finding, from the means of a table; `label` is a format of its columns."""
    return {label.format(**r): {"estimate": r["mean"], **r} for r in table}


def ahead(pairs: list[tuple[Record, Record]]) -> Verdict:
    """Confirmed where the first of every pair is above the second by its interval, not confirmed
    where all are below."""
    above = all(more["low"] > one["high"] for more, one in pairs)
    below = all(more["high"] < one["low"] for more, one in pairs)
    return laws.judged(bool(pairs) and above, bool(pairs) and below)


def analyse_zipf(rows: list[Row]) -> Finding:
    table = groups(rows, ("H", "zipf"), "known", "prior_accuracy")
    if len(table) < 2:
        return laws.too_few("two priors are needed")
    promised = {(r["H"], r["zipf"]): r["promised"] for r in rows}
    for row in table:
        row["promised"] = promised[row["H"], row["zipf"]]
    below = [r for r in table if r["prior_accuracy"] < r["promised"]]
    uniform = {r["H"]: r["mean"] for r in table if r["zipf"] == 0}
    ratio = [r["mean"] / uniform[r["H"]] for r in table if r["zipf"] > 0 and r["H"] in uniform]
    span = f"{min(ratio):.2f} to {max(ratio):.2f} times" if ratio else "as many"
    return Finding(
        laws.judged(not below, True),
        f"Weighted by the prior, accuracy is at least what H d_h + d facts promise in "
        f"{len(table) - len(below)} of {len(table)} settings; skewed priors leave {span} the "
        "associations of the uniform prior.",
        {"settings below the promise": len(below)},
        {"associations by prior": table},
    )


def analyse_answers(rows: list[Row]) -> Finding:
    table = groups(rows, ("H", "answers"), "pairs_known", "kl")
    if len(table) < 2:
        return laws.too_few("two numbers of answers are needed")
    one = {r["H"]: r for r in table if r["answers"] == 1}
    pairs = [(r, one[r["H"]]) for r in table if r["answers"] > 1 and r["H"] in one]
    gains = [more["mean"] / max(1e-9, first["mean"]) for more, first in pairs]
    tables = {"pairs known by number of answers": table}
    if not gains:
        return Finding(ahead(pairs), "One number of answers only.", {}, tables)
    least, most = min(gains), max(gains)
    sentence = (
        f"Keys with several right answers leave {least:.2f} to {most:.2f} times the (key, answer) "
        "pairs of keys with one."
    )
    numbers = {"ratio of pairs known, least": least, "most": most}
    return Finding(ahead(pairs), sentence, numbers, tables)


def analyse_losses(rows: list[Row]) -> Finding:
    table = groups(rows, ("H", "loss"), "accuracy")
    wins, counted = 0, 0
    for same in laws.by(rows, "H").values():
        mine = {r["loss"]: r for r in groups(same, ("loss",), "accuracy")}
        if "cross-entropy" in mine and len(mine) > 1:
            counted += 1
            others = [r for name, r in mine.items() if not name.startswith("cross-entropy")]
            wins += all(mine["cross-entropy"]["low"] > r["high"] for r in others)
    if not counted:
        return laws.too_few("cross-entropy and another loss are needed")
    best = max(table, key=lambda r: r["mean"])
    other = not best["loss"].startswith("cross-entropy")
    return Finding(
        laws.judged(wins == counted, wins == 0 and other),
        f"Cross-entropy is ahead of every other loss at {wins} of {counted} sizes; the best is "
        f"{best['loss']} at H = {best['H']}, accuracy {best['mean']:.3f}.",
        accuracies(table, "accuracy, {loss}, H={H}"),
        {"accuracy by loss": table},
    )


def grid_depth(variant: str, profile: str) -> list[Cell]:
    """24 heads in 1, 2, 3 or 4 layers: equal parameter counts; d = d_h = 7."""
    layers, how = ((1, 2, 3, 4), {}) if profile != "quick" else ((1, 2), {"epochs": 16})
    return [TRAIN.cell("depth", d=7, H=24 // n, layers=n, **how) for n in layers]


def analyse_depth(rows: list[Row]) -> Finding:
    table = groups(rows, ("layers",), "accuracy")
    if len(table) < 2:
        return laws.too_few("two depths are needed")
    first, last = table[0], table[-1]
    return Finding(
        ahead([(deeper, first) for deeper in table[1:]]),
        f"With 24 heads in all, accuracy over all facts is {first['mean']:.3f} in one layer and "
        f"{last['mean']:.3f} in {last['layers']}.",
        accuracies(table, "accuracy, {layers} layers"),
        {"accuracy by depth": table},
    )


ZIPF = by_profile(
    PRIOR, "zipf", {"H": 6, "zipf": (0.0, 1.0)}, {"H": (6, 16), "zipf": (0.0, 0.5, 1.0, 1.5)}, d=10
)
SEVERAL = by_profile(
    ANSWERS, "multi-answer", {"H": 6, "answers": (1, 2), "epochs": 8},
    {"H": (6, 16), "answers": (1, 2, 4), "epochs": 32}, d=10,
)  # fmt: skip
OTHER = by_profile(
    TRAIN, "losses", {"H": 6, "loss": (LOSSES[0], "mse", "hinge")},
    {"H": (6, 16), "loss": LOSSES}, d=10,
)  # fmt: skip
UNDER_PRIOR = Axes("zipf", "prior_accuracy", "H", y_label="accuracy under the prior",
                   bound="promised")  # fmt: skip
PAIRS = Axes("answers", "pairs_known", "H", y_label="pairs beyond guessing")
LAYERS = Axes("layers", "accuracy", "d", y_label="accuracy, all facts")
BY_LOSS = Axes("H", "accuracy", "loss", "heads H", "accuracy, all facts", label="{value}")
STUDIES = (
    declare("dana2025/zipf-prior", ZIPF, analyse_zipf, UNDER_PRIOR),
    declare("dana2025/multi-answer", SEVERAL, analyse_answers, PAIRS),
    declare("dana2025/depth", grid_depth, analyse_depth, LAYERS),
    declare("dana2025/losses", OTHER, analyse_losses, BY_LOSS),
)
