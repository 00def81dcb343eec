"""Rows that come with the package: recorded from a store, taken up again, redrawn, compared."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import matplotlib.pyplot as plt
import pytest
import tiny_study
from tiny_study import tiny

from byheart.errors import ByheartError
from byheart.papers import all_studies
from byheart.papers.registry import OWN, PAPERS
from byheart.studies import Execution, Selection, open_store, recorded, results, rows_of, run
from byheart.studies.cell import Cell, Procedure
from byheart.studies.study import Study

ROOT = Path(__file__).parents[2]


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of recorded rows of one's own."""
    folder = tmp_path / "rows"
    folder.mkdir()
    monkeypatch.setattr(recorded, "PLACE", folder)
    recorded._by_key.cache_clear()
    yield folder
    recorded._by_key.cache_clear()


def record(study: Study, store: Path, folder: Path, profile: str = "paper") -> int:
    with open_store(store, create=False) as opened:
        found, _ = rows_of(study, opened, profile)
        number = recorded.record(opened, found, folder / f"{study.paper}.jsonl")
    recorded._by_key.cache_clear()
    return number


def test_a_run_goes_on_from_recorded_rows(rows: Path, tmp_path: Path):
    study, first = tiny(), tmp_path / "first.db"
    run(study, first, profile="paper", only="x<4")
    assert record(study, first, rows) == 4 * 3 * 2  # x, seeds, variants
    second = tmp_path / "second.db"
    report = run(study, second, profile="paper")
    assert (report.there, report.computed) == (24, 12)
    whole = tmp_path / "whole.db"
    assert run(study, whole, profile="paper", fresh=True).computed == 36
    found = {}
    for place in (second, whole):
        with open_store(place) as opened:
            found[place] = {(r.cell, r.seed, r.variant): r.measurements
                            for r in opened.rows() if r["size"] is not None}  # fmt: skip
    assert found[second].keys() == found[whole].keys()
    for key, measured in found[second].items():
        assert measured["y"] == found[whole][key]["y"]


def test_recorded_rows_redraw_without_computing(rows: Path, tmp_path: Path):
    study, store = tiny(), tmp_path / "tiny.db"
    run(study, store, profile="paper")
    record(study, store, rows)
    (shown,) = results([study], Selection(), Execution(rows="recorded"))
    (stored,) = results([study], Selection("paper"), Execution(rows="store"), store=store)
    assert shown.profile == "paper" and shown.store is None and shown.place == "the package"
    assert shown.finding.to_json() == stored.finding.to_json()
    assert shown.finding.setting == "own" and shown.verdict == "confirmed"
    assert recorded.compared(study, stored.rows) == {
        "compared": 36, "identical": 36, "largest_difference": {"y": 0.0, "accuracy": 0.0},
    }  # fmt: skip
    rows_with_times = [replace(row, measurements={**row.measurements, "cpu_seconds": 1.0 + i})
                       for i, row in enumerate(stored.rows)]  # fmt: skip
    assert recorded.compared(study, rows_with_times)["identical"] == 36


def test_the_most_faithful_profile_is_taken(rows: Path, tmp_path: Path):
    study, store = tiny(), tmp_path / "tiny.db"
    assert recorded.best_profile(study) == "quick"  # nothing is recorded
    run(study, store, profile="quick")
    record(study, store, rows, "quick")
    assert recorded.best_profile(study) == "quick"
    run(study, store, profile="paper", only="x<2")
    record(study, store, rows)
    assert recorded.best_profile(study) == "quick"  # of paper, a part
    run(study, store, profile="paper")
    assert record(study, store, rows) == 48
    assert recorded.best_profile(study) == "paper"
    lines = (rows / "tiny.jsonl").read_text().splitlines()
    assert record(study, store, rows) == 48
    assert (rows / "tiny.jsonl").read_text().splitlines() == lines  # the same rows, the same bytes


def test_a_study_without_recorded_rows_says_so(rows: Path):
    with pytest.raises(ByheartError, match="no rows of tiny/line come with this byheart"):
        list(results([tiny()], Selection(), Execution(rows="recorded")))


def test_what_is_recorded_of_the_papers_names_its_cells():
    """The name of a cell is the digest of its procedure and parameters: nothing was edited."""
    for paper in (*PAPERS, *OWN):
        for row in recorded.recorded(paper):
            assert Cell(Procedure(tiny_study.alone, name=row.way), row.params).hash == row.cell


@pytest.fixture
def docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs", ROOT / "tools" / "write_study_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_docs_are_written_from_recorded_rows(docs: ModuleType, rows: Path, tmp_path: Path):
    study, store = tiny(), tmp_path / "tiny.db"
    run(study, store, profile="paper")
    assert docs.record_stores([study], [store], rows) == {"tiny": 36}
    recorded._by_key.cache_clear()
    assert docs.write([study], tmp_path / "docs") == 1
    text = (tmp_path / "docs" / "tiny-line.md").read_text()
    for words in ("claimed.** y = 3 x", "setting: **own**", "| the slope is 3 | 2.8 to 3.2 |",
                  "**confirmed**", "Rule of the verdict"):  # fmt: skip
        assert words in text
    assert (tmp_path / "docs" / "images" / "tiny-line.png").exists()
    assert "[line](tiny-line.md)" in (tmp_path / "docs" / "README.md").read_text()
    assert docs.write_times([study], tmp_path / "times.json") == 1
    assert json.loads((tmp_path / "times.json").read_text())["tiny/line"]["paper"] >= 0
    run(study, store, profile="quick")  # not recorded: its time is taken from the store, and stays
    for stores in ([store], []):
        assert docs.write_times([study], tmp_path / "times.json", stores) == 2


def test_pages_that_the_rows_do_not_give_are_named(docs: ModuleType, rows: Path, tmp_path: Path):
    study, store, place = tiny(), tmp_path / "tiny.db", tmp_path / "docs"
    run(study, store, profile="paper")
    record(study, store, rows)
    docs.write([study], place)
    assert docs.not_as_the_rows_say([study], place) == []
    picture = place / "images" / "tiny-line.png"
    pixels = plt.imread(picture).copy()
    pixels[0, 0, 0] -= 1 / 255
    plt.imsave(picture, pixels)
    assert docs.not_as_the_rows_say([study], place) == []
    pixels[0, 0, 0] -= 0.1
    plt.imsave(picture, pixels)
    (place / "README.md").write_text("")
    (place / "gone.md").touch()
    wrong = ["README.md", "gone.md", "images/tiny-line.png"]
    assert docs.not_as_the_rows_say([study], place) == wrong
    assert docs.not_as_the_rows_say([study], place, pictures=False) == wrong[:2]


@pytest.mark.parametrize("pictures", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_docs_are_what_the_recorded_rows_say(docs: ModuleType, pictures: bool):
    """Words, numbers and verdicts of every study; and its picture, but for one shade of a pixel."""
    studies = [study for study in all_studies() if study.paper in (*PAPERS, *OWN)]
    place = ROOT / "docs" / "studies"
    wrong = docs.not_as_the_rows_say(studies, place, pictures)
    assert not wrong, "tools/write_study_docs.py writes them anew"


# There training over one context is three times as fast as where estimates were fitted.
ON_ANOTHER_MACHINE = ("mahdavi2024/regression-heads", "mahdavi2024/regression-context")


@pytest.mark.parametrize(
    "study", [s for s in all_studies() if s.paper in (*PAPERS, *OWN)], ids=lambda s: s.name
)
def test_estimates_are_near_what_the_recorded_rows_took(study: Study):
    """Within a factor of 1.5 over a study, whatever single rows took; of 3.5 where another machine
    recorded them."""
    known = recorded._by_key(study.paper)
    cells = {c.hash: c for v in study.variants for c in study.cells(v, "paper")}
    cells |= {c.hash: c for v in study.variants for c in study.cells(v, "part")}
    took = {key: row.seconds for key, row in known.items() if key[0] in cells}
    if sum(took.values()) < 1:
        pytest.skip("no rows are recorded")
    estimate = sum(cells[cell].seconds for cell, _ in took)
    most = 3.5 if study.name in ON_ANOTHER_MACHINE else 1.5
    assert 1 / 1.5 <= estimate / sum(took.values()) <= most
