"""Theorems 1 and 2 of Dana et al. on built memories; claims that follow from made-up rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up import Law, finding, rows_of_law

from byheart.papers import find
from byheart.papers.dana2025 import kl_bounds
from byheart.papers.dana2025.kl_bounds import LIKELY, NOTHING, RANKED
from byheart.studies import Row, Study, open_store, rows_of, run
from byheart.studies.study import PROFILES

[STUDY] = find("dana2025/kl-bounds")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_theorem_1_on_built_memories(seed: int):
    """|own| <= sharper <= sqrt 2 C ε |W E|, and no read-out loses less than the convex one."""
    row = kl_bounds.likely(LIKELY.cell("ε", N=6, d=3, H=4).params, seed)
    assert row["best"] <= row["own"] <= row["sharper"] + NOTHING <= row["bound"] + 2 * NOTHING
    assert row["bound"] == pytest.approx(math.sqrt(2) * row["C"] * row["eps"] * row["norm"])
    assert row["printed"] * math.sqrt(2) == pytest.approx(row["bound"])
    assert row["promise"] == pytest.approx(row["kl_encoder"] + row["bound"])
    mass = [i**-1.5 for i in range(1, 37)]  # of 36 sequences m = H d_h + d = 15 are solved for
    assert row["eps"] == pytest.approx(sum(mass[15:]) / sum(mass))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_theorem_2_on_built_memories(seed: int):
    """best <= own <= bound; at d = N - 1 nothing is lost, the simplex has C < 1/2, and the encoder
    of the proof attains the bound: for a simplex λ (1 + 1/(N-1)) = log((N-1)/(e^H-1))."""
    row = kl_bounds.ranked(RANKED.cell("d", N=6, d=3).params, seed)
    assert NOTHING < row["best"] <= row["own"] <= row["bound"]
    whole = kl_bounds.ranked(RANKED.cell("d", N=6, d=5).params, seed)
    assert whole["best"] < NOTHING and whole["C"] == pytest.approx(0.2)
    assert whole["own"] == pytest.approx(whole["bound"]) and whole["own"] < whole["printed"]


def law(
    own: float = 0.5, best: float = 0.1, promise: float = 0.1, more: float = 0.0, power: float = 1.0
) -> Law:
    """Bounds ε, η and 1/d; `own`, `best` and `promise` are shares of the bound, `more` the exponent
    by which memories depart from it, `power` that of the best memories in ε."""

    def measured(q: dict[str, Any]) -> dict[str, Any]:
        x = 1 / q["H"] if "H" in q else q["eta"] / q["d"]
        row = {"bound": x, "promise": promise, "uniform": 1.0, "printed": None, "own": own * x}
        if "H" in q:
            row |= {"eps": x, "own": own * x ** (1 + more), "best": best * x**power}
        else:
            off = (q["eta"] * q["d"]) ** more  # the same departure along both axes
            row |= {"entropy": q["eta"], "own": own * x * off, "best": best * x * off}
        return row

    return measured


COUNTED, POWER, TIGHT, SAYS = "memories above", "^p", "over d_KL with", "uniform answer"


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (law(), dict.fromkeys((COUNTED, POWER, TIGHT, SAYS), "confirmed")),
        (law(own=1e-4, best=1e-5, promise=5.0, more=0.5, power=1.5),
         {COUNTED: "confirmed", POWER: "refuted", TIGHT: "refuted", SAYS: "refuted"}),
        (law(own=2.0), {COUNTED: "refuted", POWER: "confirmed"}),
    ],
)  # fmt: skip
def test_verdicts_follow_from_the_rows(made: Law, expected: dict[str, str]):
    found = finding(STUDY, made)
    assert len(found.claims) == 15
    for words, verdict in expected.items():
        mine = [claim for claim in found.claims if words in claim.statement]
        assert {claim.verdict for claim in mine} == {verdict}, mine
    few = finding(STUDY, made, seeds=2)
    assert few.verdict == finding(STUDY, made, profile="quick").verdict == "trend"
    assert all(c.verdict == "undecided" for c in few.claims if COUNTED not in c.statement)


def measuring(row: Row, **changes: float) -> Row:
    return replace(row, measurements={**row.measurements, **changes})


@pytest.mark.parametrize(
    ("edge", "words"),
    [
        (law(own=1 / kl_bounds.TIGHT, promise=1.0), (TIGHT, SAYS)),
        (law(own=0.2, more=0.15, power=1.15), (POWER,)),
    ],
)
def test_scatter_at_the_end_of_a_band_decides_nothing_but_what_is_counted(
    edge: Law, words: tuple[str, ...]
):
    """In every cell seeds lie as far above the law as below it, on a logarithmic scale."""
    rows = []
    for row in rows_of_law(STUDY, edge, scatter=0.0):
        off = 2.0 if row.seed % 2 else 0.5
        rows.append(measuring(row, **{m: row[m] * off for m in ("own", "best", "promise")}))
    found = STUDY.find(rows)
    mine = [claim for claim in found.claims if any(word in claim.statement for word in words)]
    assert mine and {claim.verdict for claim in mine} == {"undecided"}, mine
    assert {c.verdict for c in found.claims if COUNTED in c.statement} == {"confirmed"}


def test_nothing_lost_has_no_exponent():
    """At d = N - 1 the best memory loses nothing: its line ends before."""
    rows = [
        measuring(row, best=1e-17) if row["d"] == 19 else row for row in rows_of_law(STUDY, law())
    ]
    found = STUDY.find(rows)
    [claim] = [c for c in found.claims if "d^p with the best encoder" in c.statement]
    assert claim.verdict == "confirmed"
    STUDY.draw(rows, found)


def test_the_grid_speaks_of_the_theorems():
    for profile in PROFILES:
        for cell in STUDY.cells("corrected", profile):
            p = cell.params
            assert 0 < cell.seconds < 10
            if cell.procedure is LIKELY:  # the square solve: m = H d_h + d < T, d last tokens
                assert (p["H"] + 1) * p["d"] < p["N"] ** 2 and p["d"] <= p["N"]
    assert STUDY.estimate("quick")[0] < 60 and STUDY.estimate("paper")[0] < 600


@pytest.mark.parametrize("keep", [lambda rows: [], lambda rows: rows[:1], lambda rows: rows[::5]])
def test_part_of_the_grid(keep: Callable[[list[Row]], list[Row]]):
    rows = keep(rows_of_law(STUDY, law(), seeds=2))
    found = STUDY.find(rows)
    assert found.sentence.endswith(".")
    assert found.claims or len(rows) < 2
    STUDY.draw(rows, found)


@pytest.mark.slow
def test_a_tiny_grid_runs_from_end_to_end(tmp_path: Path):
    tiny: Study = STUDY.with_values({"N": [6], "d": [2, 3, 4], "H": [1, 2, 3]})
    store = tmp_path / "tiny.db"
    report = run(tiny, store, seeds=1)
    assert report.failed == 0 and report.computed > 0
    assert run(tiny, store, seeds=1).computed == 0
    with open_store(store, create=False) as opened:
        good, bad = rows_of(tiny, opened, "quick", seeds=1)
    assert not bad
    found = tiny.analyse(good)
    counted = [c for c in found.claims if COUNTED in c.statement]
    assert len(counted) == 3 and all(c.verdict == "confirmed" for c in counted)
    assert tiny.draw(good, found).axes
