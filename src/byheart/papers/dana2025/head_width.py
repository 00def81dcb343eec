"""What the width of the heads is worth: experiments 2 and 3, and one law for all one-layer models.

Figures 1b, 2a, 6 and 9, the dh-law and the dof-law: the quadratic growth and the break come from
the bottleneck that all heads share in the authors' code.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from byheart.papers.dana2025 import experiment
from byheart.papers.dana2025.experiment import HEADS, SHOWN, TRAIN, beside, grid_of, published
from byheart.papers.declare import declare
from byheart.studies import Axes, Cell, Claim, Finding, Published, Record, Row, figure, laws
from byheart.studies.fits import choose, fit, of_means

# The variants: the code's model, and the paper's, trained as coded and as printed.
SHARED, OWN, PRINTED = experiment.CODED, experiment.CORRECTED, experiment.AS_PUBLISHED
NAMES = {
    SHARED: "one bottleneck for all heads",
    OWN: "projections of each head",
    PRINTED: "projections of each head, printed training",
}
HOW = {SHARED: "as coded", OWN: "as written", PRINTED: "as printed"}
MEASURES = {"train_accuracy": "train_associations", "accuracy": "associations"}
BELOW = 0.9  # accuracies at which saturation does not yet bend the law
BREAK = 10  # d_h of experiment 3, where the two pieces meet
SLOWER = 0.5  # a second slope below this share of the first is a break
VAGUE = 4.0  # an interval wider than this says nothing of an exponent
GOOD = 0.97  # R² of the law in free dimensions

FEW, ALL = {"d": 10, "d_h": (1, 2, 4, 5, 7, 10)}, {"d": 10, "d_h": range(1, 11)}
grid_1b = grid_of("exp2", {**FEW, "H": 20}, {**ALL, "H": 20}, shared=True)
grid_8 = grid_of("dh-law", {**FEW, "H": 8}, {**ALL, "H": 8}, shared=True)


def grid_large(variant: str, profile: str) -> list[Cell]:
    widths = (1, *range(5, 51, 5)) if profile != "quick" else (1, 5, 10, 20)
    family = "shared" if variant == SHARED else "attention"
    how = experiment.training("N = 200", profile)
    return TRAIN.grid("exp2 dim", family=family, d=50, d_h=widths, H=11, **how)


def grid_law(variant: str, profile: str) -> list[Cell]:
    """Experiment 2 at H = 20 and, further from saturation, at H = 8."""
    return [*grid_1b(variant, profile), *grid_8(variant, profile)]


def exponents(rows: list[Row]) -> list[Record]:
    """p of a + b d_h^p for every variant, number of heads and accuracy, below 0.9, with intervals:
    over all widths, and over d_h <= d/2, where heads do not yet span everything."""
    table = []
    chosen = [
        (variant, H, measure, half, [r for r in same if not half or 2 * r["d_h"] <= r["d"]])
        for measure in MEASURES
        for variant, H, same in laws.lines(rows, "H")
        for half in (False, True)
    ]
    for variant, H, measure, half, same in chosen:
        x, y = laws.below_ceiling(*figure.series(same, "d_h", measure), BELOW)
        if len(np.unique(x)) >= 4:
            power, compared = laws.fitted("power", x, y), choose(x, y)
            table.append({
                "variant": variant, "H": H, "widths": "d_h <= d/2" if half else "all",
                "accuracy": measure, **laws.columns("p", power.interval("p")), "R2": power.r2,
                "R2_quadratic": next(f.r2 for f in compared.fits if f.law == "quadratic"),
                "law": compared.best or "cannot tell",
            })  # fmt: skip
    return table


def analyse(rows: list[Row], powers: tuple[float, ...] = (2.0,)) -> Finding:
    """Whether d_h enters with one of these powers, as coded and as the paper writes the model: a
    claim for each of them, number of heads and accuracy, over all widths."""
    table = exponents(rows)
    if not any(line["variant"] == SHARED for line in table):
        return laws.too_few("four head widths of the shared bottleneck are needed")
    claims: dict[tuple[float, str], list[Claim]] = {}
    numbers = {}
    for line in table:
        variant, found = line["variant"], laws.column(line, "p")
        sizes = f"H = {line['H']}, {SHOWN[line['accuracy']]}"
        what = f"accuracy {HOW[variant]} as a + b d_h^p ({sizes})"
        if line["widths"] == "all":
            for power in powers:
                claim = laws.exponent_claim(what, found, power)
                claims.setdefault((power, variant), []).append(claim)
        else:
            numbers[f"p of {what}, {line['widths']}"] = found
    words: dict[float, list[str]] = {power: [] for power in powers}
    for (power, variant), mine in claims.items():
        p = "p = " + laws.extent([claim.found["estimate"] for claim in mine])
        if all(claim.found["high"] - claim.found["low"] > VAGUE for claim in mine):
            p = "no exponent can be told"
        verdict = Finding("", tuple(mine)).verdict
        words[power].append(f"{verdict} for the model {HOW[variant]} ({NAMES[variant]}: {p})")
    named = {1.0: "linear (p = 1)", 2.0: "quadratic (p = 2)"}
    said = "; that it is ".join(f"{named[q]} is {', '.join(words[q])}" for q in powers)
    together = tuple(claim for mine in claims.values() for claim in mine)
    sentence = f"Accuracy follows a + b d_h^p (p <= 0: it levels off); that this is {said}."
    return Finding(sentence, together, numbers, {"a + b d_h^p": table})


def add_widths(known: Published, panel: figure.Panel, rows: list[Row]) -> None:
    """Accuracy against d_h for both models, fits and the bound φ(H d_h + d)."""
    experiment.draw_published(panel, known, "d_h")
    for i, (variant, H, same) in enumerate(laws.lines(rows, "H")):
        x, y = figure.series(same, "d_h", "train_accuracy")
        figure.points(panel, x, y, f"{NAMES[variant]}, H = {H}", i, line=False)
        kept = laws.below_ceiling(x, y, BELOW)
        if len(np.unique(kept[0])) >= 4:
            power = fit("power", *kept, validate=False)
            at = np.linspace(kept[0].min(), kept[0].max(), 60)
            figure.curve(panel, at, power(at), f"p = {power.values['p']:.2f}", i, "-")
        if same[0]["layers"] == 1 and variant == OWN:
            at = np.linspace(x.min(), x.max(), 50)
            bound = np.array([experiment.lower_bound(same[0], d_h=v) for v in at])
            figure.curve(panel, at, bound, f"Corollary 2, H = {H}", i, "--")


def pieces(rows: list[Row], measure: str) -> Record | None:
    """Slopes below and above d = d_h, and the second over the first; above, up to the first
    accuracy over 0.95."""
    x, y = figure.series(rows, "d", measure)
    reached, _ = laws.below_ceiling(x, y)
    at = np.unique(x)
    left, right = at <= BREAK, (at >= BREAK) & np.isin(at, reached)
    if left.sum() < 3 or right.sum() < 2:
        return None

    def slopes(means: np.ndarray) -> list[float]:
        return [float(np.polyfit(at[side], means[side], 1)[0]) for side in (left, right)]

    def ratio(means: np.ndarray) -> float:
        below, above = slopes(means)
        return above / below

    groups = [y[x == value] for value in at]
    below, above = slopes(np.array([group.mean() for group in groups]))
    found = laws.columns("ratio", of_means(groups, ratio))
    return {"accuracy": measure, "slope below d_h": below, "slope above d_h": above, **found}


def analyse_2a(rows: list[Row]) -> Finding:
    """The slope beyond d = d_h over that below, a claim for each model and accuracy."""
    table, claims = [], []
    words: dict[str, list[str]] = {}
    for variant, mine in laws.by_variant(rows).items():
        for measure in MEASURES:
            line = pieces(mine, measure)
            if line is not None:
                table.append({"variant": variant, **line})
                name = f"slope above d = d_h over that below, {HOW[variant]} ({SHOWN[measure]})"
                claim = Claim(name, laws.column(line, "ratio"), most=SLOWER)
                claims.append(claim)
                found = f"{claim.verdict}, {line['ratio']:.2f} times as fast"
                words.setdefault(HOW[variant], []).append(f"{SHOWN[measure]}: {found}")
    if not claims:
        return laws.too_few("three d below and two above d_h are needed")
    said = "; ".join(f"{how} ({'; '.join(mine)})" for how, mine in words.items())
    sentence = (
        "That accuracy grows at most half as fast beyond d = d_h (our reading of 'more slowly'), "
        f"for each model: {said}."
    )
    return Finding(sentence, tuple(claims), {}, {"two pieces": table})


@figure.one_panel("Accuracy against the embedding dimension", "embedding dimension d", "accuracy",
                  top=1.03)  # fmt: skip
def draw_2a(panel: figure.Panel, rows: list[Row]) -> None:
    experiment.draw_published(panel, FIGURE_2A, "d")
    for i, (variant, mine) in enumerate(laws.by_variant(rows).items()):
        x, y = figure.series(mine, "d", "train_accuracy")
        figure.points(panel, x, y, NAMES[variant], i)
        bound = {row["d"]: experiment.lower_bound(row) for row in mine}
        at = np.unique(x)
        label = "Corollary 2" if i == 0 else None
        figure.curve(panel, at, np.array([bound[int(v)] for v in at]), label, 7, "--")
    panel.axvline(BREAK, color="#999999", lw=0.8)


def grid_dof(variant: str, profile: str) -> list[Cell]:
    """Experiments 1 (d = 10) and 2 with both architectures, H = 8, and one narrow rank alone."""
    return [
        *TRAIN.grid("dof-law, H", d=10, H=HEADS if profile != "quick" else HEADS[:5:2]),
        *grid_law(SHARED, profile),
        *grid_law(OWN, profile),
        TRAIN.cell("dof-law, rank 2 in W_QK", d=10, d_h=10, qk_rank=2, H=20),
        TRAIN.cell("dof-law, rank 2 in W_OV", d=10, d_h=2, qk_rank=10, H=20),
    ]


def free_dimensions(row: Row) -> int:
    """Free numbers of all W_QK and W_OV: 2dr - r² for a d x d matrix of rank r, for each head;
    with a shared bottleneck the heads' products are d_h x d_h.

    Source: a law written down after the fact (docs/studies/dana2025-dof-law.md).
    """
    d, d_h, H = row["d"], row["d_h"], row["H"]
    if row["family"] == "shared":
        return 2 * d_h**2 * H
    rank, value = min(row["qk_rank"] or d_h, d), min(d_h, d)
    return H * (2 * d * rank - rank**2 + 2 * d * value - value**2)


def below(rows: list[Row], measure: str) -> list[list[Row]]:
    """The rows of every setting below the ceiling."""
    cells = laws.by_cell(rows).values()
    return [same for same in cells if np.mean([row[measure] for row in same]) < BELOW]


def explained(x: np.ndarray, y: np.ndarray) -> float:
    """R² of a straight line."""
    return float(np.corrcoef(x, y)[0, 1] ** 2)


def analyse_dof(rows: list[Row]) -> Finding:
    """One straight line in the free dimensions: how much it explains, more than the count of
    parameters does, and that it is straight."""
    claims, numbers, tables, words = [], {}, {}, []
    for measure, associations in MEASURES.items():
        cells = below(rows, measure)
        x = np.array([float(free_dimensions(same[0])) for same in cells])
        raw = np.array([float(same[0]["parameters"]) for same in cells])
        if len(np.unique(x)) < 4:
            continue
        groups = [[row[associations] for row in same] for same in cells]
        r2 = of_means(groups, lambda y: explained(x, y))  # noqa: B023
        more = of_means(groups, lambda y: explained(x, y) - explained(raw, y))  # noqa: B023
        at = np.repeat(x, [len(group) for group in groups])
        y = np.concatenate(groups)
        line, bent = laws.fitted("linear", at, y), laws.fitted("power", at, y)
        by = SHOWN[measure]
        claims += [
            Claim(f"R² of X0 + κ dof ({by})", r2, GOOD),
            Claim(f"R² of X0 + κ dof minus that of the parameter count ({by})", more, 0.0),
            laws.exponent_claim(f"associations ({by}) as a + b dof^p", bent.interval("p"), 1.0),
        ]
        numbers |= {f"κ, {by}": line.interval("b"), f"X0, {by}": line.interval("a")}
        numbers[f"largest residual, {by}"] = float(np.abs(figure.means(at, y - line(at))[1]).max())
        laws_of = choose(at, y, ("linear", "power", "saturating"))
        tables[f"laws in dof, {measure}: {laws_of.best or 'cannot tell'}"] = laws_of.table()
        law = f"{line.values['a']:.0f} + {line.values['b']:.3f} dof"
        share = f"{r2['estimate']:.3f} of the variance of {len(cells)} settings"
        words.append(f"{law} explains {share} ({by})")
    if not claims:
        return laws.too_few("four settings below accuracy 0.9 are needed")
    sentence = f"Post hoc, at N = 50 and d = 10 alone: {'; '.join(words)}."
    return Finding(sentence, tuple(claims), numbers, tables)


def draw_dof(rows: list[Row], finding: Finding) -> figure.Figure:
    title = "Associations against free dimensions of W_QK and W_OV"
    drawn, panels = figure.panels(title, "dof", "associations", 2)
    for panel, (measure, name) in zip(panels, MEASURES.items(), strict=True):
        for i, (family, same) in enumerate(laws.by(rows, "family").items()):
            x, y = figure.series(same, lambda r: float(free_dimensions(r)), name)
            label = NAMES[SHARED if family == "shared" else OWN]
            figure.points(panel, x, y, label, i, line=False)
        kept = [row for same in below(rows, measure) for row in same]
        x, y = figure.series(kept, lambda r: float(free_dimensions(r)), name)
        if len(np.unique(x)) >= 2:
            line = fit("linear", x, y, validate=False)
            at = np.array([0, x.max()])
            figure.curve(panel, at, line(at), "X0 + κ dof, below accuracy 0.9", 7, "-")
        panel.set_title(measure, fontsize=9)
        figure.legend(panel)
    return drawn


AXES = Axes("d_h", "train_accuracy", "variant", "head width d_h", "accuracy")
AXES_2A = Axes("d", "train_accuracy", "variant", "embedding dimension d", "accuracy")
AXES_DOF = Axes("parameters", "associations", "family")
GRIDS = {
    "fig1b": grid_1b,
    "fig6": grid_large,
    "fig9": grid_of("exp2 depth", {"d": 10, "d_h": (1, 3, 6, 10), "H": 21},
                    {"d": 10, "d_h": range(1, 11), "H": 21}, "three layers", shared=True),
    "dh-law": grid_law,
}  # fmt: skip
GRID_2A = grid_of("exp3", {"d": (5, 8, 10, 11, 12, 15), "d_h": BREAK, "H": 20},
                  {"d": range(5, 16), "d_h": BREAK, "H": 20}, shared=True)  # fmt: skip
FIGURE_2A = published("2a")
PUBLISHED = {
    "fig1b": published("1b"), "dh-law": published("1b"), "fig6": published("6"),
    "fig9": published("9"),
}  # fmt: skip
POWERS = {"fig6": (2.0, 1.0)}  # drawn, and in the text
LABELS = "Accuracy against the width of the heads", "head width d_h", "accuracy (training sample)"
STUDIES = (
    *(
        declare(
            f"dana2025/{name}", grid,
            beside(PUBLISHED[name], partial(analyse, powers=POWERS.get(name, (2.0,)))), AXES,
            figure.one_panel(*LABELS, top=1.03)(partial(add_widths, PUBLISHED[name])),
            published=PUBLISHED[name], CEILING=BELOW,
        )
        for name, grid in GRIDS.items()
    ),
    declare(
        "dana2025/fig2a", GRID_2A, beside(FIGURE_2A, analyse_2a), AXES_2A, draw_2a,
        published=FIGURE_2A, SLOWER=SLOWER,
    ),
    declare(
        "dana2025/dof-law", grid_dof, analyse_dof, AXES_DOF, draw_dof, GOOD=GOOD, CEILING=BELOW
    ),
)  # fmt: skip
