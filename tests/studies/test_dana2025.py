"""The studies of Dana et al.: grids, published data, claims that follow from made-up rows, real
rows."""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from byheart.errors import OptionError
from byheart.papers import all_studies, dana2025, find
from byheart.papers.dana2025 import five_layers, kl_bounds, mlp
from byheart.papers.dana2025.experiment import MLP_SCHEDULE, TRAIN, recipe_of, spec_of, train
from byheart.papers.dana2025.head_width import free_dimensions
from byheart.studies import Row, Study, figure, run
from byheart.studies.published import matched
from byheart.studies.study import PROFILES
from byheart.theory.dana2025 import phi_inverse

NAMES = {study.name for study in dana2025.STUDIES}
# Those that train; what is built has tests of its own (tests/papers/test_dana2025_kl_bounds.py).
STUDIES = [study for study in dana2025.STUDIES if study not in kl_bounds.STUDIES]
# Those whose claims are about a law of the sizes, and not about the published values.
OF_SIZES = [study for study in STUDIES if study not in five_layers.STUDIES]
Law = Callable[[dict[str, Any]], float]


def named(name: str) -> Study:
    [study] = find(f"dana2025/{name}")
    return study


def test_every_figure_and_every_new_study_is_there():
    figures = {f"fig{n}" for n in ("1a", "1b", "2a", "2b", *range(3, 11))}
    new = {"dh-law", "dof-law", "zipf-prior", "multi-answer", "depth", "losses", "demo",
           "aot-vs-mlp-longer", "kl-bounds", "five-layers"}  # fmt: skip
    assert {f"dana2025/{name}" for name in figures | new} == NAMES
    assert {find(f"dana2025/exp{n}")[0].name for n in range(1, 7)} == {
        "dana2025/fig1a", "dana2025/fig1b", "dana2025/fig2a", "dana2025/fig2b", "dana2025/fig3",
        "dana2025/fig4",
    }  # fmt: skip
    assert named("aot-vs-mlp-trained-out").name == "dana2025/aot-vs-mlp-longer"


@pytest.mark.parametrize("study", STUDIES, ids=lambda s: s.name)
def test_cells_are_models_that_exist(study: Study):
    for profile in PROFILES:
        for variant in study.variants:
            cells = study.cells(variant, profile)
            assert cells and len({(c.hash, c.experiment) for c in cells}) == len(cells)
            for cell in cells:
                assert spec_of(cell.params).parameters > 0
                assert (
                    recipe_of(cell.params).steps == cell.params["batches"] * cell.params["epochs"]
                )
                assert cell.seconds > 0
    assert study.claim and study.rule and study.settings and study.measurement
    assert study.estimate("quick")[0] <= study.estimate("part")[0]
    assert study.estimate("quick")[0] < 90
    assert study.seeds["quick"] < 3 or study.name == "dana2025/losses"  # two of them choose rates
    assert (
        study.seeds["paper"] == 20 if study.name == "dana2025/fig4" else study.seeds["paper"] >= 3
    )
    assert all(len(line) == 4 and all(line) for line in study.compared)
    assert study.compared or study.source.startswith("new")


# The authors' code: N, layers, d, d_h ("d": equal), H; batch, batches, epochs.
D13, H31 = set(range(3, 14)), {1, 6, 11, 16, 21, 26, 31}
SHORT, LARGE, DEEP = (256, 64, 64), (1024, 64, 64), (512, 128, 64)
AUTHORS = {
    "fig1a": (50, 1, D13, "d", H31, SHORT),
    "fig1b": (50, 1, {10}, set(range(1, 11)), {20}, SHORT),
    "fig2a": (50, 1, set(range(5, 16)), {10}, {20}, SHORT),
    "fig2b": (50, 1, D13, "d", H31, SHORT),
    "fig3": (70, 1, {7, 10, 13}, "d", H31, (1024, 256, 64)),
    "fig4": (10, 1, {2}, "d", {1, 5, 9, 13, 17, 21}, SHORT),
    "fig5": (200, 1, {40, 50, 60}, "d", {1, 3, 5, 7, 9, 11}, LARGE),
    "fig6": (200, 1, {50}, {1, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50}, {11}, LARGE),
    "fig7": (200, 1, {40, 50, 60}, "d", {1, 3, 5, 7, 9, 11}, LARGE),
    "fig8": (70, 3, {7, 10, 13}, "d", {1, 5, 9, 13, 17, 21}, DEEP),
    "fig9": (70, 3, {10}, set(range(1, 11)), {21}, DEEP),
    "fig10": (70, 3, {7, 10, 13}, "d", {1, 5, 9, 13, 17, 21}, DEEP),
}
MLPS = {
    "fig3": {10 * k for k in range(7)},
    "fig7": {4 * k for k in range(6)},
    "fig10": {8 * k for k in range(6)},
}
"""Widths of the MLPs in units of d."""


@pytest.mark.parametrize("name", AUTHORS)
def test_the_grid_is_the_authors(name: str):
    N, layers, widths, d_h, heads, lengths = AUTHORS[name]
    cells = [cell.params for cell in named(name).cells("as-coded", "paper")]
    assert {(p["N"], p["layers"], p["S"], p["loss"]) for p in cells} == {
        (N, layers, 2, "cross-entropy")
    }
    assert {(p["batch"], p["batches"], p["epochs"]) for p in cells} == {lengths}
    attention = [p for p in cells if p["family"] != "mlp"]
    own = {(p["d"], p["d_h"], p["H"]) for p in attention}
    every = [(d, d if d_h == "d" else w, H) for d in widths for H in heads
             for w in ([0] if d_h == "d" else d_h)]  # fmt: skip
    assert own == set(every) and len(attention) == len(own)
    shared = {p["family"] for p in attention if p["d"] != p["d_h"]}
    assert shared == ({"shared"} if d_h != "d" else set())
    assert {p["schedule"] for p in attention} == {0.0025 if layers == 3 else "as-coded"}
    others = [p for p in cells if p["family"] == "mlp"]
    assert {(p["d"], p["width"] / p["d"], p["H"]) for p in others} == {
        (d, float(w), 1) for d in widths for w in MLPS.get(name, ())
    }
    assert {p["schedule"] for p in others} <= {0.0025 if layers == 3 else MLP_SCHEDULE}


def test_rates_are_those_of_the_code():
    """lr (lr + (low - lr) e/E): .01 -> .0005, and .01 -> .0001 with low = .001."""
    coded, mlps = (
        recipe_of(TRAIN.cell(d=10, H=1, **how).params) for how in ({}, {"schedule": MLP_SCHEDULE})
    )
    for step in (0, 64, 2048, 4095):
        share = (step // 64) / 64
        assert coded.learning_rate(step) == pytest.approx(0.1 * (0.1 + (0.005 - 0.1) * share))
        assert mlps.learning_rate(step) == pytest.approx(0.1 * (0.1 + (0.001 - 0.1) * share))
    with pytest.raises(OptionError, match="schedule"):
        recipe_of(TRAIN.cell(d=10, H=1, schedule="as-codde").params)


@pytest.mark.parametrize("name", ["fig1b", "fig2a", "fig3"])
def test_as_published_is_what_the_paper_prints(name: str):
    """.1 -> .05, 64 batches of 1,024, 64 epochs, W_Q, W_K, W_V and W_O of every head, e(t_S) +
    pos_S, no scale; the sizes are those of the figure as coded."""
    study = named(name)
    cells = [cell.params for cell in study.cells("as-published", "paper")]
    coded = [cell.params for cell in study.cells("as-coded", "paper")]
    sizes = lambda p: (p["N"], p["d"], p["d_h"], p["H"], p["width"])  # noqa: E731
    assert sorted(map(sizes, cells)) == sorted(map(sizes, coded))
    for p in cells:
        assert (p["batch"], p["batches"], p["epochs"]) == (1024, 64, 64)
        assert p["family"] != "shared" and p["positions"] == "input" and not p["scale"]
        recipe = recipe_of(p)
        assert recipe.learning_rate(0) == pytest.approx(0.1)
        assert recipe.learning_rate(recipe.steps) == pytest.approx(0.05)


def test_printed_and_coded_training_are_compared_apart():
    """Attention ahead as coded and behind as printed: two claims, not their mean, and panels."""
    study = named("fig3")
    printed: Law = lambda p: p["schedule"] == "as-published"  # noqa: E731
    law: Law = lambda p: 0.5 if (p["family"] == "mlp") == printed(p) else 0.3  # noqa: E731
    rows = made_up(study, law, seeds=3)
    finding = study.find(rows)
    assert {"as printed" in c.statement: c.verdict for c in finding.claims} == {
        False: "confirmed", True: "refuted",
    }  # fmt: skip
    [off] = [v for k, v in finding.numbers.items() if k.startswith("as printed minus published")]
    assert study.published is not None
    known = np.mean([value for _, value in study.published.points])
    assert off["estimate"] == pytest.approx(0.4 * 1.05 - known, abs=0.002)
    assert len(study.draw(rows, finding).axes) == 4
    assert len(study.draw([r for r in rows if r.variant == "as-coded"], finding).axes) == 2


def test_five_layers_are_set_beside_the_published_values():
    """Rows on the published values in one depth and .1 above them in the other tell which it is."""
    study = named("five-layers")
    shifted: dict[int, dict[str, str]] = {
        5: {"three layers": "confirmed", "in five layers minus": "confirmed"},
        3: {"three layers": "refuted", "in five layers minus": "refuted"},
    }
    for off, expected in shifted.items():
        rows = beside_published(study, lambda layers: 0.1 * (layers == off), 0.004)  # noqa: B023
        finding = study.find(rows)
        assert finding.setting == "paper" and len(finding.claims) == 6
        for words, verdict in expected.items():
            mine = [c for c in finding.claims if words in c.statement]
            assert len(mine) == 3 and {c.verdict for c in mine} == {verdict}, mine
        five = [v for k, v in finding.numbers.items() if k.endswith("five layers)")]
        assert [round(v["estimate"], 3) for v in five] == [0.1 * (off == 5)] * 3
    rows = beside_published(study, lambda layers: 0.02, 0.1)
    assert {c.verdict for c in study.find(rows).claims} == {"undecided"}
    cells = {c.hash for c in study.cells("as-coded", "paper") if c.params["layers"] == 3}
    known = {c.hash for n in ("fig9", "fig10") for c in named(n).cells("as-coded", "paper")}
    assert cells <= known  # in three layers nothing is trained twice


def beside_published(study: Study, off: Callable[[int], float], spread: float) -> list[Row]:
    """Rows whose seeds lie `spread` below, on and above the published values plus `off(layers)`."""
    known = {
        five_layers.but_depth(params): value
        for figure in five_layers.PUBLISHED.values()
        for params, value in figure.points
    }
    return [
        replace(row, measurements={"train_accuracy": known[five_layers.but_depth(row.params)]
                                   + off(row["layers"]) + spread * (row.seed - 1001)})
        for row in made_up(study, lambda p: 0.4, seeds=3)
    ]  # fmt: skip


def test_figures_share_models():
    cells = {
        study.name: {
            c.hash for v in study.variants if v != "as-published" for c in study.cells(v, "paper")
        }
        for study in STUDIES
    }
    name = "dana2025/{}".format
    assert cells[name("fig2b")] <= cells[name("fig1a")]
    assert cells[name("fig1b")] <= cells[name("dh-law")] <= cells[name("dof-law")]
    assert cells[name("fig5")] <= cells[name("fig7")]
    assert cells[name("fig8")] <= cells[name("fig10")]
    quick = {c.hash for s in STUDIES for v in s.variants for c in s.cells(v, "quick")}
    assert quick & cells[name("fig1a")]


def published_lines() -> list[dict[str, str]]:
    path = resources.files("byheart.papers") / "published" / "dana2025.csv"
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_every_published_value_belongs_to_a_cell_of_its_figure():
    """Not to a cell of the right sizes only: of the same lengths, rates and architecture."""
    lines = published_lines()
    assert len(lines) == 239
    kept = {
        (line["figure"], line["architecture"] == "mlp",
         *(int(line[k]) for k in ("d", "d_h", "H", "mlp_width"))): float(line["accuracy"])
        for line in lines
    }  # fmt: skip
    assert len(kept) == len(lines)
    found: set[tuple[str | int, ...]] = set()
    for study in STUDIES:
        if study.published is None:
            continue
        cells = [dict(cell.params) for cell in study.cells("as-coded", "paper")]
        for params, value in study.published.points:
            assert cells.count(dict(params)) == 1, (study.name, params)
            sizes = tuple(params[k] for k in ("d", "d_h", "H", "width"))
            sizes = (params["family"] == "mlp", *sizes)
            keys = {(f, *sizes) for f, *_ in kept if kept.get((f, *sizes)) == value}
            assert keys
            found |= keys
    assert found == set(kept)


@pytest.mark.parametrize(("name", "points"), [
    ("fig1a", 77), ("fig1b", 10), ("fig2a", 11), ("fig2b", 77), ("fig3", 42), ("fig4", 6),
    ("fig5", 18), ("fig6", 11), ("fig7", 36), ("fig8", 18), ("fig9", 10), ("fig10", 36),
    ("dh-law", 10), ("demo", 7),
])  # fmt: skip
def test_ours_are_set_beside_the_published_values(name: str, points: int):
    """Rows a little above the published values agree with them; those of toy lengths match none."""
    study = named(name)
    assert study.published is not None and len(study.published.points) == points
    known = {str(dict(params)): value for params, value in study.published.points}
    rows = [
        replace(row, measurements={**row.measurements, "train_accuracy": known.get(
            str(dict(row.params)), 0.5) + 0.004 + 0.001 * (row.seed % 3)})
        for row in made_up(study, lambda p: 0.4, seeds=3)
    ]  # fmt: skip
    finding = study.find(rows)
    assert finding.setting == study.stands_for and finding.data is not None
    assert finding.data.verdict == "confirmed"
    assert finding.data.found["estimate"] == pytest.approx(0.005)
    table = finding.tables["ours minus published"]
    assert len(table) == points and "batch" not in table[0]
    assert any(label.startswith("published data: ") for label in finding.numbers)
    crosses = [line for panel in study.draw(rows, finding).axes for line in panel.get_lines()
               if line.get_marker() == "x"]  # fmt: skip
    drawn = sum(len(line.get_xdata()) for line in crosses)  # pyright: ignore[reportArgumentType]
    assert drawn == (11 if name == "fig2b" else points)  # slopes, of as many widths
    if name in ("fig3", "fig5", "fig6", "fig7", "fig8", "fig9", "fig10"):
        toys = made_up(study, lambda p: 0.4, seeds=3, profile="quick")
        assert study.find(toys).data is None and study.find(toys).verdict == "trend"
        assert not matched(study.published, toys)


@pytest.mark.parametrize(("name", "number", "at_k", "at_count"), [
    ("fig3", 18, (1, 14), (2, 14)), ("fig7", 15, (3, 11), (3, 11)), ("fig10", 15, (2, 12), (2, 11)),
])  # fmt: skip
def test_the_authors_data_put_the_mlp_ahead(name: str, number: int, at_k, at_count):
    """Attention ahead and behind in the published data, at equal k and at equal true counts."""
    study = named(name)
    numbers = study.analyse(made_up(study, lambda p: 0.4, seeds=3)).numbers
    for at, counts in (("k", at_k), ("true parameters", at_count)):
        label = f"published data: settings of {number} with attention {{}} by more than 0.01 at " \
            f"equal {at} (training sample)"  # fmt: skip
        assert (numbers[label.format("ahead")], numbers[label.format("behind")]) == counts
    [mean] = [v for k, v in numbers.items() if k.startswith("published data: attention minus MLP")]
    assert mean < -0.05


def made_up(
    study: Study, accuracy: Law, seeds: int = 5, scatter: float = 0.004, profile: str = "paper",
    even: float = 0.0,
) -> list[Row]:  # fmt: skip
    """Rows of a grid whose accuracy is a law plus noise (`even`: the same seeds, as far above it as
    below, in every cell), the sample's a little higher."""
    rows = []
    for variant in study.variants:
        for cell in study.cells(variant, profile):
            p = dict(cell.params)
            for seed in range(1000, 1000 + seeds):
                noise = random.Random(f"{cell.hash}:{seed}").gauss(0, scatter)
                if even:
                    noise = even * (1000 + (seeds - 1) / 2 - seed)
                value = min(1.0, max(0.0, accuracy(p) + noise))
                sample, T0 = min(1.0, value * 1.05), p["N"] ** p["S"]
                measured = {
                    "accuracy": value,
                    "train_accuracy": sample,
                    "associations": phi_inverse(value, p["N"], T0),
                    "train_associations": phi_inverse(sample, p["N"], T0),
                    "parameters": spec_of(p).parameters,
                    "known": T0 * value, "prior_accuracy": value, "promised": 0.05,
                    "pairs_known": T0 * value, "kl": 1 - value, "right": value,
                }  # fmt: skip
                rows.append(Row(study.name, cell.experiment, variant, cell.hash, seed, p, measured))
    return rows


def dof_accuracy(p: dict[str, Any]) -> float:
    """Accuracy that follows the free dimensions, as measured on real models."""
    row = Row("", "", "", "", 0, p, {})
    return 0.05 + 0.48 * free_dimensions(row) * p["layers"] / p["N"] ** 2


def quadratic(p: dict[str, Any]) -> float:
    return 0.05 + 0.7 * (p["d_h"] / p["d"]) ** 2 * p["H"] / 21


def in_heads(power: float, least: float = 0.0) -> Law:
    """Linear in H for power 1, on top of Corollary 2 at its largest, or of something else."""
    return lambda p: (least or 0.2) + 0.5 * (p["H"] / 31) ** power


def slope_at_two(times: float) -> Law:
    """Lines whose slope is so many times that of Corollary 2 (N = 10, d_h = 2: .018 a head)."""
    return lambda p: 0.25 + times * 0.018 * p["H"]


def in_widths(power: float, written: float = 0.5) -> Law:
    """As d_h^power with the shared bottleneck, d_h^written with projections of each head."""
    return lambda p: (
        0.05
        + 0.7
        * (p["d_h"] / p["d"])
        ** (power if p["family"] == "shared" or p["d"] == p["d_h"] else written)
    )


def pieces(beyond: float, written: float) -> Law:
    """Growth beyond d = 10 so many times as fast as below, as coded and as written."""

    def law(p: dict[str, Any]) -> float:
        share = beyond if p["family"] == "shared" else written
        return 0.02 + 0.06 * min(p["d"], 10) + 0.06 * share * max(0, p["d"] - 10)

    return law


def slopes(power: float) -> Law:
    return lambda p: 0.05 + 0.025 * p["H"] * (p["d"] / 13) ** power


def by_family(attention: float, other: float) -> Law:
    """Both grow with the count; one is ahead."""
    return lambda p: attention if p["family"] != "mlp" else other


def longer(mlp_gain: float, attention_gain: float, ahead: float = 0.2) -> Law:
    def law(p: dict[str, Any]) -> float:
        gain, start = (mlp_gain, 0.3 + ahead) if p["family"] == "mlp" else (attention_gain, 0.3)
        return start + gain * math.log2(p["epochs"] / 64)

    return law


# A study, a law, and what becomes of the claims whose statements have these words.
EVERY = ""


def by_loss(accuracies: dict[str, float], others: float = 0.3) -> Law:
    """Best at a rate between those tried first and last."""

    def law(p: dict[str, Any]) -> float:
        inside = p["schedule"].startswith(("0.01 ", "0.03 "))
        return accuracies.get(p["loss"].partition("-")[0], others) + 0.02 * inside

    return law


CLAIMS: list[tuple[str, Law, dict[str, str]]] = [
    ("fig1a", in_heads(1.0), {EVERY: "confirmed"}),
    ("fig1a", in_heads(0.5), {"H^p": "refuted", "Corollary 2": "confirmed"}),
    ("fig1a", in_heads(1.0, 0.001), {"H^p": "confirmed", "Corollary 2": "refuted"}),
    ("demo", in_heads(1.0), {EVERY: "confirmed"}),
    ("demo", in_heads(2.0, 0.001), {EVERY: "refuted"}),
    ("fig4", slope_at_two(1.3 / 1.025), {EVERY: "confirmed"}),
    ("fig4", slope_at_two(0.5), {"H^p": "confirmed", "over that": "refuted"}),
    ("fig4", lambda p: 0.01 + 0.02 * p["H"] ** 0.5, {EVERY: "refuted"}),
    ("fig5", in_heads(1.0), {EVERY: "confirmed"}),
    ("fig5", in_heads(0.7), {EVERY: "refuted"}),
    ("fig8", in_heads(1.0), {EVERY: "confirmed"}),
    ("fig8", in_heads(0.7), {EVERY: "refuted"}),
    ("fig1b", dof_accuracy, {"as coded": "confirmed", "as written": "refuted"}),
    ("fig1b", quadratic, {EVERY: "confirmed"}),
    ("fig1b", in_widths(1.0, 1.0), {EVERY: "refuted"}),
    ("dh-law", dof_accuracy, {"as coded": "confirmed", "as written": "refuted"}),
    ("dh-law", in_widths(1.0, 2.0), {"as coded": "refuted"}),
    ("fig6", in_widths(2.0), {"p = 2": "mixed", "p = 1": "refuted"}),
    ("fig6", in_widths(1.0, 1.0), {"p = 2": "refuted", "p = 1": "confirmed"}),
    ("fig9", in_widths(2.0), {"as coded": "confirmed", "as written": "refuted"}),
    ("fig9", in_widths(3.0, 2.0), {"as coded": "refuted"}),
    ("fig2a", pieces(0.02, 0.9),
     {"as coded": "confirmed", "as written": "refuted", "as printed": "refuted"}),
    ("fig2a", pieces(0.9, 0.02),
     {"as coded": "refuted", "as written": "confirmed", "as printed": "confirmed"}),
    ("fig2b", slopes(2.5), {EVERY: "confirmed"}),
    ("fig2b", slopes(1.2), {EVERY: "refuted"}),
    ("fig3", by_family(0.5, 0.3), {EVERY: "confirmed"}),
    ("fig3", by_family(0.3, 0.5), {EVERY: "refuted"}),
    ("fig7", by_family(0.5, 0.3), {EVERY: "confirmed"}),
    ("fig7", by_family(0.3, 0.5), {EVERY: "refuted"}),
    ("fig10", by_family(0.5, 0.3), {EVERY: "confirmed"}),
    ("fig10", by_family(0.3, 0.5), {EVERY: "refuted"}),
    ("dof-law", dof_accuracy, {EVERY: "confirmed"}),
    ("dof-law", lambda p: 0.1 + 1e-4 * (3 * p["d_h"] + p["H"]) ** 2,
     {"R² of X0 + κ dof (": "refuted", "minus": "refuted"}),
    ("dof-law", lambda p: 0.1 + 0.7 * ((dof_accuracy(p) - 0.05) / 1.2) ** 0.5,
     {"dof^p": "refuted", "minus": "confirmed"}),
    ("zipf-prior", lambda p: 0.5, {EVERY: "confirmed"}),
    ("zipf-prior", lambda p: 0.01, {EVERY: "refuted"}),
    ("multi-answer", lambda p: 0.1 * p["answers"], {EVERY: "confirmed"}),
    ("multi-answer", lambda p: 0.5 / p["answers"], {EVERY: "refuted"}),
    ("depth", lambda p: 0.2 * p["layers"], {EVERY: "confirmed"}),
    ("depth", lambda p: 0.9 - 0.2 * p["layers"], {EVERY: "refuted"}),
    ("losses", by_loss({"cross": 0.8}), {EVERY: "confirmed"}),
    ("losses", by_loss({"cross": 0.3}, 0.8), {EVERY: "refuted"}),
    ("losses", by_loss({"mse": 0.8, "cross": 0.5}, 0.1),
     {"mse": "refuted", "hinge": "confirmed", "total-variation": "confirmed"}),
    ("aot-vs-mlp-longer", longer(0.0, 0.0), {EVERY: "confirmed"}),
    ("aot-vs-mlp-longer", longer(0.05, 0.05, -0.2), {EVERY: "refuted"}),
    ("aot-vs-mlp-longer", longer(0.05, 0.0),
     {"minus": "confirmed", "an MLP": "refuted", "attention only": "confirmed"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "law", "expected"), CLAIMS, ids=[f"{c[0]}-{i}" for i, c in enumerate(CLAIMS)]
)
def test_claims_follow_from_the_rows(name: str, law: Law, expected: dict[str, str]):
    finding = named(name).analyse(made_up(named(name), law, scatter=0.001))
    for words, verdict in expected.items():
        mine = [claim for claim in finding.claims if words in claim.statement]
        assert mine
        found = replace(finding, claims=tuple(mine)).verdict
        assert found == verdict, [claim.to_json() for claim in mine]


def test_every_claim_was_confirmed_and_refuted_above():
    for study in OF_SIZES:
        statements = {c.statement for c in study.analyse(made_up(study, dof_accuracy)).claims}
        for verdict in ("confirmed", "refuted"):
            words = [w for name, _, expected in CLAIMS if study.name == f"dana2025/{name}"
                     for w, v in expected.items() if v in (verdict, "mixed")]  # fmt: skip
            missing = {s for s in statements if not any(w in s for w in words)}
            # With projections of each head nothing here is quadratic in d_h at both H.
            assert all("as written" in s for s in missing), (study.name, verdict, missing)


NEAR_THE_BAND: dict[str, Law] = {
    "fig1a": in_heads(0.86, 0.06),
    "demo": in_heads(0.86, 0.03),
    "fig4": lambda p: 0.15 + 0.0252 * p["H"],
    "fig5": in_heads(0.86),
    "fig8": in_heads(0.86),
    "fig1b": in_widths(1.86, 1.86),
    "dh-law": in_widths(1.86, 1.86),
    "fig6": lambda p: 0.3 + 0.3 * (p["d_h"] / 50) ** 1.5,
    "fig9": in_widths(1.86, 1.86),
    "fig2a": pieces(0.5, 0.5),
    "fig2b": slopes(1.85),
    "zipf-prior": lambda p: 0.06,
    "losses": lambda p: 0.4 + 0.2 * p["schedule"].startswith("0.01 "),
    "dof-law": lambda p: 0.4 * dof_accuracy(p) + 5.5e-5 * spec_of(p).parameters,
}


@pytest.mark.parametrize("study", OF_SIZES, ids=lambda s: s.name)
def test_scatter_decides_nothing_and_two_seeds_have_no_interval(study: Study):
    short = study.name.partition("/")[2]
    law = NEAR_THE_BAND.get(short, lambda p: 0.4)
    seeds, even = (3, 0.12) if short == "dof-law" else (5, 0.05)
    wide = study.analyse(made_up(study, law, seeds, even=even))
    assert wide.claims and wide.verdict == "undecided", wide.claims
    assert not any(math.isnan(claim.found["low"]) for claim in wide.claims)
    few = study.analyse(made_up(study, law, seeds=2))
    if short == "losses":  # two seeds choose the rates, none is left to judge
        assert not few.claims
        few = study.analyse(made_up(study, law, seeds=4))
    assert few.claims and few.verdict == "undecided"
    assert all(math.isnan(claim.found["low"]) for claim in few.claims)
    assert all(math.isfinite(claim.found["estimate"]) for claim in few.claims)


def test_an_estimate_at_the_end_of_its_search_has_no_interval():
    """A step between the last two widths: the largest exponent there is, which is no estimate."""
    law: Law = lambda p: 0.1 + 0.5 * (p["d_h"] == p["d"])  # noqa: E731
    finding = named("fig1b").analyse(made_up(named("fig1b"), law, scatter=1e-4))
    coded = [claim for claim in finding.claims if "as coded" in claim.statement]
    assert coded and all(claim.verdict == "undecided" for claim in coded)
    assert all(claim.found["estimate"] > 6 for claim in coded)


def test_what_the_code_does_and_what_the_paper_writes_are_told_apart():
    finding = named("fig1b").analyse(made_up(named("fig1b"), dof_accuracy))
    assert "confirmed for the model as coded" in finding.sentence
    assert "refuted for the model as written" in finding.sentence
    assert finding.verdict == "mixed"
    broken = named("fig2a").analyse(made_up(named("fig2a"), pieces(0.02, 0.9)))
    assert "as coded (training sample: confirmed, " in broken.sentence
    assert "as written (training sample: refuted, " in broken.sentence


@pytest.mark.parametrize("name", ["fig3", "fig6", "fig7", "fig9", "fig10"])
def test_a_stated_part_is_a_share_of_the_papers_grid(name: str):
    study = named(name)
    whole, part = ({c.hash for v in study.variants for c in study.cells(v, profile)}
                   for profile in ("paper", "part"))  # fmt: skip
    assert part < whole and 3 * len(part) >= len(whole)
    rows = made_up(study, in_widths(2.0), seeds=3, profile="part")
    finding = study.find(rows)
    assert finding.setting == "sub-grid" and finding.claims and finding.verdict != "trend"
    assert study.setting(rows[1:]) == "trend"
    assert study.setting(made_up(study, in_widths(2.0), seeds=3)) == "paper"


def test_mlps_are_compared_at_their_true_counts():
    """Accuracy that depends on the count alone differs by nothing, wherever the counts fall."""
    for name in ("fig3", "fig7", "fig10"):
        study = named(name)
        rows = made_up(study, lambda p: 1e-6 * spec_of(p).parameters, scatter=0)
        rows = [row for row in rows if row.variant == "as-coded"]
        table, mean = mlp.difference(rows, "accuracy")
        assert len(table) == (18 if name == "fig3" else 15)
        assert abs(mean["estimate"]) < 1e-9 and max(abs(r["difference"]) for r in table) < 1e-9
        assert all(r["difference at equal k"] < -1e-6 for r in table)  # the MLP's is larger


def test_a_loss_gets_its_best_rate_from_other_seeds():
    """The first two seeds choose; what they measured does not enter the claims."""
    study = named("losses")
    rows = [
        replace(row, measurements={**row.measurements, "accuracy": {
            "0.003 -> 0.00015": 0.5 if row.seed < 1002 else 0.2, "0.03 -> 0.0015": 0.4,
        }.get(row["schedule"], 0.1) + 0.001 * (row.seed % 3)})
        for row in made_up(study, lambda p: 0.1)
        if row.params["loss"] in ("cross-entropy", "mse")
    ]  # fmt: skip
    finding = study.analyse(rows)
    [best] = {line["estimate"] for line in finding.tables["accuracy at the best rate"]}
    assert best == pytest.approx(0.201, abs=0.002)
    # The best rate may lie beyond those that were tried: no interval, nothing is decided.
    assert "cross-entropy (H = 6)" in finding.numbers["best rate at an end of those tried"]
    assert {claim.verdict for claim in finding.claims} == {"undecided"}
    assert all(math.isnan(claim.found["low"]) for claim in finding.claims)


@pytest.mark.parametrize("study", STUDIES, ids=lambda s: s.name)
@pytest.mark.parametrize(
    "kept",
    [
        "none",
        "one",
        "half",
        *(pytest.param(k, marks=pytest.mark.slow) for k in ("first variant", "all")),
    ],
)
def test_analyses_and_figures_cope_with_part_of_the_grid(study: Study, kept: str):
    rows = made_up(study, dof_accuracy, seeds=2)
    rows = {
        "none": [],
        "one": rows[:1],
        "first variant": [r for r in rows if r.variant == study.variants[0]],
        "half": rows[::2],
        "all": rows,
    }[kept]
    finding = study.find(rows)
    assert finding.sentence.endswith(".") and finding.verdict == "trend"
    if kept in ("none", "one"):
        assert not finding.claims
    made = study.draw(rows, finding)
    assert made.axes


def test_figures_are_the_same_twice(tmp_path: Path):
    study = named("fig1b")
    rows = made_up(study, dof_accuracy, seeds=2)
    finding = study.analyse(rows)
    for name in ("a.png", "b.png"):
        figure.save(study.draw(rows, finding), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_equal_counts():
    for d, H in ((7, 6), (10, 16), (13, 31)):
        attention = TRAIN.cell(d=d, H=H)
        other = TRAIN.cell(family="mlp", d=d, H=1, width=mlp.equal_width(d, H))
        sizes = [spec_of(c.params).parameters for c in (attention, other)]
        assert abs(sizes[0] - sizes[1]) <= d + 1


def test_free_dimensions():
    def dims(**p: Any) -> int:
        return free_dimensions(Row("", "", "", "", 0, TRAIN.cell("x", **p).params, {}))

    assert dims(d=10, H=20) == 4000 == dims(family="shared", d=10, d_h=10, H=20)
    assert dims(family="shared", d=10, d_h=5, H=20) == 1000
    assert dims(d=10, d_h=5, H=20) == 3000
    assert dims(d=10, d_h=10, qk_rank=2, H=20) == dims(d=10, d_h=2, qk_rank=10, H=20) == 20 * 136


def test_experiment_1_is_reproduced_at_one_point():
    """Published .1298 at H = 1, d = 10; seeds of ours differ by .005."""
    cell = TRAIN.cell("exp1", d=10, H=1)
    rows = train([(cell.params, seed) for seed in range(2)])
    assert abs(np.mean([r["train_accuracy"] for r in rows]) - 0.1298) < 0.02
    assert all(r["accuracy"] < r["train_accuracy"] for r in rows)


def test_the_other_procedures_measure_what_they_say(tmp_path: Path):
    for name, only, measured in (
        ("zipf-prior", "zipf==1 and H==6", {"prior_accuracy", "promised", "known"}),
        ("multi-answer", "answers==2", {"right", "kl", "pairs_known"}),
    ):
        [study] = find(f"dana2025/{name}")
        short = [
            type(c)(c.procedure, {**c.params, "epochs": 2}, c.experiment)
            for c in study.cells("corrected", "paper")
            if eval(only, {}, dict(c.params))
        ][:1]
        stack = short[0].procedure.stack
        assert stack is not None
        [row] = stack([(dict(short[0].params), 1)])
        assert measured <= row.keys() and 0 <= row["accuracy"] <= 1
        [again] = stack([(dict(short[0].params), 1)])
        assert again == row
    assert row["kl"] > 0


def test_the_registry_knows_all():
    assert {s.name for s in all_studies()} >= NAMES
    assert {s.name for s in find("dana2025")} == NAMES == {s.name for s in find("dana2025/all")}
    with pytest.raises(Exception, match=r"Did you mean 'dana2025/fig1"):
        find("dana2025/fig1")
    assert run is not None
