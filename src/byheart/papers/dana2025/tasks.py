"""Other tasks, losses and depths: Zipf priors, several right answers, losses, layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from byheart.papers.dana2025.experiment import ANSWERS, PRIOR, TRAIN, drawn_from_prior
from byheart.papers.declare import by_profile, declare
from byheart.studies import Axes, Cell, Claim, Finding, Record, Row, figure, laws
from byheart.studies.cell import Params, Value, group
from byheart.studies.fits import combined, of_means

LOSSES = ("cross-entropy", "cross-entropy-as-coded", "mse", "total-variation", "hinge")
RATES = (0.003, 0.01, 0.03, 0.1)  # first learning rates; the last is a twentieth, as coded
TUNING = 2  # seeds by which a loss gets its rate; the others judge it


def by_params(rows: list[Row], *names: str) -> dict[tuple[Value, ...], list[Row]]:
    """Rows by the values of parameters, in order. `loss` is a parameter and a measurement: the
    parameter is meant."""
    found = group(rows, lambda row: tuple(row.params[name] for name in names))
    return dict(sorted(found.items(), key=lambda item: item[0]))


def values(rows: Sequence[Row], name: str) -> list[float]:
    return [row[name] for row in rows]


def averaged(groups: dict[tuple[Value, ...], list[Row]], names: Sequence[str],
             *measures: str) -> list[Record]:  # fmt: skip
    """A line for each group: its parameters, mean and interval of the first measurement, means of
    the others."""
    table = []
    for key, rows in groups.items():
        first, *others = measures
        line: Record = dict(zip(names, key, strict=True)) | combined([values(rows, first)], [1.0])
        table.append(line | {name: float(np.mean(values(rows, name))) for name in others})
    return table


def minus(statement: str, more: list[Row], less: list[Row], measure: str) -> Claim:
    """That one group of rows is above another in a measurement."""
    found = combined([values(more, measure), values(less, measure)], [1.0, -1.0])
    return Claim(statement, found, 0.0)


def analyse_zipf(rows: list[Row]) -> Finding:
    names = ("H", "zipf")
    groups = by_params(rows, *names)
    if len(groups) < 2:
        return laws.too_few("two priors are needed")
    table = averaged(groups, names, "prior_accuracy", "promised", "known")
    for line, same in zip(table, groups.values(), strict=True):
        line["drawn"] = len(np.unique(drawn_from_prior(same[0].params)[1]))
    accuracies = [values(same, "prior_accuracy") for same in groups.values()]
    margin = laws.least(accuracies, [line["promised"] for line in table])
    statement = f"least of accuracy under the prior minus the promise over {len(table)} settings"
    claim = Claim(statement, margin, 0.0)
    numbers = {
        f"associations over those of the uniform prior, H = {H}, zipf = {zipf}": of_means(
            [values(same, "known"), values(groups[H, 0.0], "known")], lambda m: m[0] / m[1]
        )
        for (H, zipf), same in groups.items()
        if zipf > 0 and (H, 0.0) in groups
    }
    sentence = (
        "Where accuracy under the prior is closest to what H d_h + d facts promise, it differs by "
        f"{claim.found['estimate']:+.3f}."
    )
    if numbers:
        ratios = laws.extent([found["estimate"] for found in numbers.values()])
        drawn = [line["drawn"] for line in table]
        shares = laws.extent([line["known"] / line["drawn"] for line in table])
        sentence += (
            f" A skewed prior leaves fewer pairs in the sample ({max(drawn):,} to {min(drawn):,}): "
            f"a model knows {ratios} times as many as under the uniform one, {shares} of those "
            "that its sample holds."
        )
    return Finding(sentence, (claim,), numbers, {"accuracy under the prior": table})


def analyse_answers(rows: list[Row]) -> Finding:
    names = ("H", "answers")
    groups = by_params(rows, *names)
    pairs = [(key, same, groups[key[0], 1]) for key, same in groups.items()
             if key[1] > 1 and (key[0], 1) in groups]  # fmt: skip
    if not pairs:
        return laws.too_few("one and several answers at the same number of heads are needed")
    claims = [
        minus(f"pairs known with {k} answers minus with one, H = {H}", same, one, "pairs_known")
        for (H, k), same, one in pairs
    ]
    numbers = {
        f"pairs known with {k} answers over those with one, H = {H}": of_means(
            [values(same, "pairs_known"), values(one, "pairs_known")], lambda m: m[0] / m[1]
        )
        for (H, k), same, one in pairs
    }
    ratios = [found["estimate"] for found in numbers.values()]
    sentence = (
        "That a model learns more (key, answer) pairs of keys with several right answers than of "
        f"keys with one is {laws.tally(claims, 'settings')}: {laws.extent(ratios)} times as many."
    )
    table = averaged(groups, names, "pairs_known", "kl")
    return Finding(sentence, tuple(claims), numbers, {"pairs known by number of answers": table})


def tuned(rows: list[Row]) -> tuple[list[Record], dict[tuple[Value, ...], list[Row]]]:
    """Every loss and number of heads at the rate that is best on the first seeds: what each rate
    gave there, and the rows of the other seeds at the best."""
    table, judged = [], {}
    for (H, loss), same in by_params(rows, "H", "loss").items():
        seeds = sorted({row.seed for row in same})[:TUNING]
        rates = by_params(same, "schedule")
        first = {rate: [r["accuracy"] for r in mine if r.seed in seeds]
                 for (rate,), mine in rates.items()}  # fmt: skip
        means = {rate: float(np.mean(found)) for rate, found in first.items() if found}
        best = max(means, key=lambda rate: means[rate])
        rest = [row for row in rates[best,] if row.seed not in seeds]
        table += [{"H": H, "loss": loss, "rate": rate, "accuracy": mean, "best": rate == best}
                  for rate, mean in means.items()]  # fmt: skip
        if rest:
            judged[H, loss] = rest
    return table, judged


def analyse_losses(rows: list[Row]) -> Finding:
    table, judged = tuned(rows)
    entropy, coded, *_ = LOSSES
    pairs = [(H, loss, judged[H, entropy], same) for (H, loss), same in judged.items()
             if not loss.startswith(entropy) and (H, entropy) in judged]  # fmt: skip
    if not pairs:
        return laws.too_few("cross-entropy and another loss are needed, and seeds to tune both")
    ends = {shown(RATES[0]), shown(RATES[-1])}
    edges = [(line["H"], line["loss"]) for line in table if line["best"] and line["rate"] in ends]
    claims = [
        minus(f"accuracy with cross-entropy minus with {loss}, H = {H}", own, other, "accuracy")
        for H, loss, own, other in pairs
    ]
    claims = [  # a loss whose best rate may lie beyond those tried has no interval
        replace(claim, found=laws.unknown(claim.found)) if {(H, loss), (H, entropy)} & {*edges}
        else claim
        for claim, (H, loss, *_) in zip(claims, pairs, strict=True)
    ]  # fmt: skip
    floor = "accuracy with cross-entropy as coded (floor 1e-12) minus without, H = {}".format
    numbers: Record = {
        floor(H): minus("", judged[H, coded], same, "accuracy").found
        for (H, loss), same in judged.items()
        if loss == entropy and (H, coded) in judged
    }
    named = ", ".join(f"{loss} (H = {H})" for H, loss in edges)
    numbers["best rate at an end of those tried"] = named or "none"
    best = averaged(judged, ("H", "loss"), "accuracy")
    words = [
        f"H = {H}, " + ", ".join(f"{line['loss']} {line['estimate']:.3f}" for line in same)
        for H, same in group(best, lambda line: line["H"]).items()
    ]
    sentence = f"Accuracy of each loss at its best rate, on other seeds: {'; '.join(words)}."
    tables = {"accuracy at the best rate": best, "rates, on the seeds of the choice": table}
    return Finding(sentence, tuple(claims), numbers, tables)


def first_rate(row: Row) -> float:
    return float(row["schedule"].partition(" -> ")[0])


def draw_losses(rows: list[Row], _: Finding) -> figure.Figure:
    """Accuracy against the first rate, a panel for each number of heads."""
    heads = laws.by(rows, "H") or {0: []}
    labels = "Losses at several learning rates", "first learning rate", "accuracy, all facts"
    drawn, panels = figure.panels(*labels, len(heads), 5.4)
    for panel, (H, same) in zip(panels, heads.items(), strict=True):
        for i, ((loss,), mine) in enumerate(by_params(same, "loss").items()):
            figure.points(panel, *figure.series(mine, first_rate, "accuracy"), loss, i)
        if panel.has_data():
            figure.logarithmic(panel, "x")
        panel.set_title(f"H = {H}", fontsize=9)
        figure.legend(panel, most=5)
    return drawn


def grid_depth(variant: str, profile: str) -> list[Cell]:
    """24 heads in 1, 2, 3 or 4 layers: equal parameter counts; d = d_h = 7."""
    layers, how = ((1, 2, 3, 4), {}) if profile != "quick" else ((1, 2), {"epochs": 16})
    return [TRAIN.cell("depth", d=7, H=24 // n, layers=n, **how) for n in layers]


def analyse_depth(rows: list[Row]) -> Finding:
    groups = by_params(rows, "layers")
    if len(groups) < 2 or (1,) not in groups:
        return laws.too_few("one layer and more are needed")
    claims = [
        minus(f"accuracy in {n} layers minus in one", same, groups[1,], "accuracy")
        for (n,), same in groups.items()
        if n > 1
    ]
    table = averaged(groups, ("layers",), "accuracy")
    words = ", ".join(f"{line['estimate']:.3f} in {line['layers']}" for line in table)
    sentence = f"24 heads in all; accuracy over all facts by layers: {words}."
    return Finding(sentence, tuple(claims), {}, {"accuracy by depth": table})


def shown(rate: float) -> str:
    """A schedule that falls to a twentieth of its first rate.

    >>> shown(0.03)
    '0.03 -> 0.0015'
    """
    return f"{rate:g} -> {rate / 20:g}"


ZIPF = by_profile(
    PRIOR, "zipf", {"H": 6, "zipf": (0.0, 1.0)}, {"H": (6, 16), "zipf": (0.0, 0.5, 1.0, 1.5)}, d=10
)
SEVERAL = by_profile(
    ANSWERS, "multi-answer", {"H": 6, "answers": (1, 2), "epochs": 8},
    {"H": (6, 16), "answers": (1, 2, 4), "epochs": 32}, d=10,
)  # fmt: skip
QUICK: Params = {"H": 6, "loss": (LOSSES[0], "mse"), "schedule": (shown(0.01), shown(0.03)),
                 "epochs": 16}  # fmt: skip
OTHER = by_profile(
    TRAIN, "losses", QUICK, {"H": (6, 16), "loss": LOSSES, "schedule": tuple(map(shown, RATES))},
    d=10,
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
    declare(
        "dana2025/losses", OTHER, analyse_losses, BY_LOSS, draw_losses, TUNING=TUNING,
        RATES=", ".join(f"{rate:g}" for rate in RATES),
    ),
)  # fmt: skip
