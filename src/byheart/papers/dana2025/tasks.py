"""Other tasks, losses and depths: Zipf priors, several right answers, losses, layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from byheart.papers.dana2025 import laws, settings
from byheart.papers.dana2025.ways import ANSWERS, PRIOR, train_cell
from byheart.studies import figure
from byheart.studies.cell import Cell
from byheart.studies.fits import interval_of_mean
from byheart.studies.study import Finding, Row, Study, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def groups(rows: list[Row], by: tuple[str, ...], measure: str) -> list[dict[str, Any]]:
    """Mean and interval of a measurement for every combination of parameters."""
    found: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:  # `loss` is a parameter and a measurement: the parameter is meant
        found.setdefault(tuple(row.params[name] for name in by), []).append(row[measure])
    table = []
    for key, values in sorted(found.items(), key=lambda item: tuple(map(str, item[0]))):
        low, high = interval_of_mean(values)
        named = dict(zip(by, key, strict=True))
        table.append({**named, "mean": float(np.mean(values)), "low": low, "high": high})
    return table


def lines(
    rows: list[Row], x: str, y: str, by: str, title: str, label: str, bound: str | None = None
) -> Figure:
    made, axes = figure.axes(title, x, label)
    for i, (value, same) in enumerate(laws.by(rows, by).items()):
        figure.points(axes, *figure.series(same, x, y), f"{by} = {value}", i)
        if bound is not None:
            at, mean, _ = figure.means(*figure.series(same, x, bound))
            figure.curve(axes, at, mean, f"promised, {by} = {value}", i, "--")
    if rows:
        figure.legend(axes)
    return made


def grid_zipf(variant: str, profile: str) -> list[Cell]:
    """Priors i^-zipf over the 2,500 pairs, H = 6 and 16."""
    number = (6, 16) if profile != "quick" else (6,)
    powers = (0.0, 0.5, 1.0, 1.5) if profile != "quick" else (0.0, 1.0)
    return [train_cell("zipf", PRIOR, d=10, H=H, zipf=z) for H in number for z in powers]


def analyse_zipf(rows: list[Row]) -> Finding:
    table = groups(rows, ("H", "zipf"), "known")
    mass = groups(rows, ("H", "zipf"), "prior_accuracy")
    if len(table) < 2:
        return laws.too_few("two priors are needed")
    promised = {(r["H"], r["zipf"]): r["promised"] for r in rows}
    for row, other in zip(table, mass, strict=True):
        row |= {"prior_accuracy": other["mean"], "promised": promised[row["H"], row["zipf"]]}
    below = [r for r in table if r["prior_accuracy"] < r["promised"]]
    uniform = {r["H"]: r["mean"] for r in table if r["zipf"] == 0}
    ratio = [r["mean"] / uniform[r["H"]] for r in table if r["zipf"] > 0 and r["H"] in uniform]
    verdict: Verdict = "confirmed" if not below else "not confirmed"
    span = f"{min(ratio):.2f} to {max(ratio):.2f} times" if ratio else "as many"
    return Finding(
        verdict,
        f"Weighted by the prior, accuracy is at least what H d_h + d facts promise in "
        f"{len(table) - len(below)} of {len(table)} settings; skewed priors leave {span} the "
        "associations of the uniform prior.",
        {"settings below the promise": len(below)},
        {"associations by prior": table},
    )


def draw_zipf(rows: list[Row], finding: Finding) -> Figure:
    title = "Accuracy weighted by a Zipf prior i^-zipf"
    return lines(rows, "zipf", "prior_accuracy", "H", title, "accuracy under the prior", "promised")


def grid_answers(variant: str, profile: str) -> list[Cell]:
    """1, 2 and 4 right answers a key, H = 6 and 16."""
    number = (6, 16) if profile != "quick" else (6,)
    counts, epochs = ((1, 2, 4), 32) if profile != "quick" else ((1, 2), 8)
    return [
        train_cell("multi-answer", ANSWERS, d=10, H=H, answers=k, epochs=epochs)
        for H in number
        for k in counts
    ]


def analyse_answers(rows: list[Row]) -> Finding:
    table = groups(rows, ("H", "answers"), "pairs_known")
    kl = groups(rows, ("H", "answers"), "kl")
    if len(table) < 2:
        return laws.too_few("two numbers of answers are needed")
    for row, other in zip(table, kl, strict=True):
        row["kl"] = other["mean"]
    one = {r["H"]: r for r in table if r["answers"] == 1}
    more = [r for r in table if r["answers"] > 1 and r["H"] in one]
    gains = [r["mean"] / max(1e-9, one[r["H"]]["mean"]) for r in more]
    above = [r["low"] > one[r["H"]]["high"] for r in more]
    verdict: Verdict = "undecided"
    if more and all(above):
        verdict = "confirmed"
    elif more and all(r["high"] < one[r["H"]]["low"] for r in more):
        verdict = "not confirmed"
    return Finding(
        verdict,
        f"Keys with several right answers leave {min(gains):.2f} to {max(gains):.2f} times the "
        "(key, answer) pairs of keys with one."
        if gains
        else "One number of answers only.",
        {"ratio of pairs known, least": min(gains), "most": max(gains)} if gains else {},
        {"pairs known by number of answers": table},
    )


def draw_answers(rows: list[Row], finding: Finding) -> Figure:
    title = "Several right answers: (key, answer) pairs known"
    return lines(rows, "answers", "pairs_known", "H", title, "pairs beyond guessing")


LOSSES = ("cross-entropy", "cross-entropy-as-coded", "mse", "total-variation", "hinge")


def grid_losses(variant: str, profile: str) -> list[Cell]:
    """Five losses at H = 6 and 16; the first is that of experiment 1."""
    number = (6, 16) if profile != "quick" else (6,)
    names = LOSSES if profile != "quick" else (LOSSES[0], "mse", "hinge")
    return [train_cell("losses", d=10, H=H, loss=loss) for H in number for loss in names]


def analyse_losses(rows: list[Row]) -> Finding:
    table = groups(rows, ("H", "loss"), "accuracy")
    wins, counted = 0, 0
    for _, same in laws.by(rows, "H").items():
        mine = {r["loss"]: r for r in groups(same, ("loss",), "accuracy")}
        if "cross-entropy" not in mine or len(mine) < 2:
            continue
        counted += 1
        others = [r for name, r in mine.items() if not name.startswith("cross-entropy")]
        wins += all(mine["cross-entropy"]["low"] > r["high"] for r in others)
    if not counted:
        return laws.too_few("cross-entropy and another loss are needed")
    best = max(table, key=lambda r: r["mean"])
    verdict: Verdict = "undecided"
    if wins == counted:
        verdict = "confirmed"
    elif wins == 0 and not best["loss"].startswith("cross-entropy"):
        verdict = "not confirmed"
    return Finding(
        verdict,
        f"Cross-entropy is ahead of every other loss at {wins} of {counted} sizes; the best is "
        f"{best['loss']} at H = {best['H']}, accuracy {best['mean']:.3f}.",
        {f"accuracy, {r['loss']}, H={r['H']}": {"estimate": r["mean"], **r} for r in table},
        {"accuracy by loss": table},
    )


def draw_losses(rows: list[Row], finding: Finding) -> Figure:
    made, axes = figure.axes(
        "Accuracy by the loss that is trained", "heads H", "accuracy, all facts"
    )
    for i, loss in enumerate(dict.fromkeys(row.params["loss"] for row in rows)):
        same = [row for row in rows if row.params["loss"] == loss]
        figure.points(axes, *figure.series(same, "H", "accuracy"), loss, i)
    if rows:
        figure.legend(axes)
    return made


def grid_depth(variant: str, profile: str) -> list[Cell]:
    """24 heads in 1, 2, 3 or 4 layers: equal parameter counts; d = d_h = 7."""
    layers = (1, 2, 3, 4) if profile != "quick" else (1, 2)
    how: dict[str, Any] = {} if profile != "quick" else {"epochs": 16}
    return [train_cell("depth", d=7, H=24 // n, layers=n, **how) for n in layers]


def analyse_depth(rows: list[Row]) -> Finding:
    table = groups(rows, ("layers",), "accuracy")
    if len(table) < 2:
        return laws.too_few("two depths are needed")
    first, last = table[0], table[-1]
    verdict: Verdict = "undecided"
    if all(r["low"] > first["high"] for r in table[1:]):
        verdict = "confirmed"
    elif all(r["high"] < first["low"] for r in table[1:]):
        verdict = "not confirmed"
    return Finding(
        verdict,
        f"With 24 heads in all, accuracy over all facts is {first['mean']:.3f} in one layer and "
        f"{last['mean']:.3f} in {last['layers']}.",
        {f"accuracy, {r['layers']} layers": {"estimate": r["mean"], **r} for r in table},
        {"accuracy by depth": table},
    )


def draw_depth(rows: list[Row], finding: Finding) -> Figure:
    title = "24 heads in one to four layers"
    return lines(rows, "layers", "accuracy", "d", title, "accuracy, all facts")


ZIPF = Study(
    name="dana2025/zipf-prior",
    title="Priors that are not uniform",
    source="new; Corollary 1 under a prior",
    claim="The H d_h + d likeliest facts are what a layer can surely hold; trained models hold at "
    "least their mass.",
    measurement="accuracy weighted by the prior; associations over all pairs",
    rule="Confirmed if the mean prior-weighted accuracy is at least the mass of the H d_h + d "
    "likeliest facts, guessing the rest, in every setting; not confirmed otherwise.",
    grid=grid_zipf,
    analyse=analyse_zipf,
    draw=draw_zipf,
    variants=("corrected",),
    settings="N = 50, d = d_h = 10, H = 6, 16, zipf = 0, .5, 1, 1.5; a sample of 256 x 64 drawn "
    "from the prior, 64 epochs, .01 -> .0005.",
)
MULTI = Study(
    name="dana2025/multi-answer",
    title="Several right answers",
    source="new; the distribution task with equally likely answers",
    claim="A layer holds more (key, answer) pairs when keys have several answers.",
    measurement="right answers among the k largest logits, beyond guessing; KL in nats",
    rule="Confirmed if for every H and k > 1 the interval of the pairs known lies above that of "
    "k = 1, not confirmed if always below, undecided otherwise.",
    grid=grid_answers,
    analyse=analyse_answers,
    draw=draw_answers,
    variants=("corrected",),
    settings="N = 50, d = d_h = 10, H = 6, 16, all 2,500 keys, k = 1, 2, 4; cross-entropy against "
    "the distribution, 32 epochs.",
)
LOSS = Study(
    name="dana2025/losses",
    title="Does the loss matter?",
    source="new; the paper's open question on other losses",
    claim="Cross-entropy memorizes more than other losses.",
    measurement="accuracy over all 2,500 facts",
    rule="Confirmed if the interval of cross-entropy lies above that of every other loss at every "
    "H (its as-coded form, with a floor of 1e-12, counts as the same); not confirmed if nowhere "
    "and another loss is best; undecided otherwise.",
    grid=grid_losses,
    analyse=analyse_losses,
    draw=draw_losses,
    variants=("corrected",),
    settings="N = 50, d = d_h = 10, H = 6, 16; one recipe for all losses, rates not tuned; "
    + settings.SAMPLE,
)
DEPTH = Study(
    name="dana2025/depth",
    title="Layers at equal parameters",
    source="new",
    claim="At equal parameters more layers memorize more.",
    measurement="accuracy over all 2,500 facts",
    rule="Confirmed if the interval of every deeper model lies above that of one layer, not "
    "confirmed if below, undecided otherwise.",
    grid=grid_depth,
    analyse=analyse_depth,
    draw=draw_depth,
    variants=("corrected",),
    settings="N = 50, d = d_h = 7, 24 heads in 1, 2, 3, 4 layers; " + settings.SAMPLE,
)
STUDIES = (ZIPF, MULTI, DEPTH, LOSS)
