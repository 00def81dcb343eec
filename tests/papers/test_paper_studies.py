"""What holds for every study of Mahdavi et al., Kajitsuka and Sato, and the slides."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from made_up import tiny

from byheart.papers import find, registry
from byheart.papers.declare import words_of
from byheart.studies import Study, open_store, rows_of, run
from byheart.studies.study import PROFILES

STUDIES = [s for paper in ("mahdavi2024", "kajitsuka2025", "slides") for s in find(paper)]
ids = [study.name for study in STUDIES]


def test_every_figure_and_every_new_study_is_there():
    wanted = {
        "mahdavi2024": "fig2a fig2b fig2c heads-own-contexts context-own-contexts regression-heads "
        "regression-context regression-heads-own regression-context-own saturation assumptions "
        "capacity-vs-P partial-sharing kruskal-vs-memorized built-vs-trained depth",
        "kajitsuka2025": "fig1 fig2 fig3 length precision hardmax-vs-softmax embedding-dimension "
        "sequence-to-sequence token-dimension bits-vs-parameters",
        "slides": "associative sparse quality",
    }
    for paper, names in wanted.items():
        assert {s.name for s in find(paper)} == {f"{paper}/{name}" for name in names.split()}


@pytest.mark.parametrize("paper", registry.PAPERS)
def test_the_words_are_those_of_the_studies(paper: str):
    """Every entry of the paper's words is a study, and none has a name in braces left."""
    words = {name for name in words_of(paper) if name != "common"}
    assert {f"{paper}/{name}" for name in words} == {study.name for study in find(paper)}
    for study in find(paper):
        for text in (study.claim, study.rule, study.measurement, *study.disagreements):
            assert text and "{" not in text.replace("φ^{-1}", "")
        assert all(len(line) == 4 and all(line) for line in study.compared)
        assert study.compared or study.source.startswith(("new", "appendix F"))


@pytest.mark.parametrize("study", STUDIES, ids=ids)
def test_grids_and_hashes(study: Study, monkeypatch: pytest.MonkeyPatch):
    for name in ("BYHEART_MULTINLI", "BYHEART_IMDB"):
        monkeypatch.delenv(name, raising=False)
    for profile in PROFILES:
        for variant in study.variants:
            cells = study.cells(variant, profile)
            local = study.paper == "kajitsuka2025" and variant == "as-published"
            assert cells or (local and study.name != "kajitsuka2025/length")
            keys = [(cell.hash, cell.experiment) for cell in cells]
            assert len(set(keys)) == len(keys)
            again = [(cell.hash, cell.experiment) for cell in study.cells(variant, profile)]
            assert keys == again
            for cell in cells:
                assert 0 < cell.seconds < 1e6
                changed = dataclasses.replace(cell, params={**cell.params, "n": 3, "d": 5})
                assert changed.hash != cell.hash
    assert study.claim and study.rule and study.settings and study.measurement and study.source
    assert study.estimate("quick")[0] <= study.estimate("part")[0] <= study.estimate("paper")[0]


@pytest.mark.parametrize("study", STUDIES, ids=ids)
def test_nothing_can_be_said_of_no_rows(study: Study):
    finding = study.analyse([])
    assert finding.verdict == "undecided"
    study.draw([], finding)


SIZES = {
    "mahdavi2024": {"T": 40, "H": 2, "n": 4, "d": 8, "d_h": 8, "classes": 3},
    "kajitsuka2025": {"N": 12, "n": 4, "d": 3},
    "slides": {"N": 5},
}


LONG = ("kajitsuka2025/fig1", "kajitsuka2025/fig2", "slides/sparse")


@pytest.mark.parametrize(
    "study",
    [pytest.param(s, marks=pytest.mark.slow) if s.name in LONG else s for s in STUDIES],
    ids=ids,
)
def test_a_tiny_profile_runs_from_end_to_end(study: Study, tmp_path: Path):
    """Rows without errors, a finding and a figure; the second run computes nothing."""
    changes = dict(SIZES[study.paper])
    if study.name == "mahdavi2024/capacity-vs-P":
        changes = {"H": 1, "n": 3, "d": 4, "d_h": 4}
    elif study.name == "mahdavi2024/assumptions":
        changes = {"T": 40}
    elif study.paper == "slides":
        changes["d"] = {"associative": 8, "sparse": 2, "quality": 2}[study.name.partition("/")[2]]
    elif study.name == "mahdavi2024/depth":
        changes["heads"] = 12
    made = tiny(study, **changes)
    store = tmp_path / "tiny.db"
    report = run(made, store, seeds=1)
    assert report.failed == 0 and report.computed > 0
    assert run(made, store, seeds=1).computed == 0
    with open_store(store, create=False) as opened:
        good, bad = rows_of(made, opened, "quick", seeds=1)
    assert len(good) >= report.computed and not bad
    finding = made.analyse(good)
    assert finding.sentence
    made.draw(good, finding)
