"""Pages of studies and audits, the index of several, and what is refused."""

import csv
import io
import json
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import numpy as np
import pytest

import byheart as bh
from byheart._json import typed
from byheart.errors import ByheartError
from byheart.models.construction import Curve
from byheart.reports.page import LIMIT
from byheart.studies import (
    Axes,
    Cell,
    Claim,
    Finding,
    Procedure,
    Row,
    Study,
    figure,
    open_store,
    run,
)
from byheart.studies.fits import fit
from byheart.studies.work import compute

HOSTILE = "</script><img src=x onerror=alert(1)>"


def measure(params: Any, seed: int) -> dict[str, Any]:
    """A law with noise, computed at once."""
    noise = np.random.default_rng(seed).normal() * 0.02
    return {
        "accuracy": 0.1 + 0.03 * params["H"] * params["d"] + noise,
        "note": f"{HOSTILE} {params['H']}",
    }


PROCEDURE = Procedure(measure)


def analyse(rows: list[Row]) -> Finding:
    x, y = figure.series(rows, "H", "accuracy")
    slope = fit("linear", x, y, intervals=True).interval("b")
    table = [{"law": "linear", "slope": slope["estimate"], "low": slope["low"]}]
    claim = Claim(f"it grows {HOSTILE}", slope, 0.0)
    return Finding(f"It grows. {HOSTILE}", (claim,), {"slope": slope}, {"fits": table})


def draw(rows: list[Row], finding: Finding) -> Any:
    made, axes = figure.axes("Accuracy", "heads H", "accuracy")
    x, y = figure.series(rows, "H", "accuracy")
    figure.points(axes, x, y, "found", 0)
    figure.curve(axes, np.array([1.0, 8.0]), np.array([0.1, 0.4]), "the bound", 1, "--")
    return made


TINY = Study(
    name="tiny/law",
    title="A law",
    source="nowhere",
    claim="Accuracy is linear in H.",
    measurement="accuracy",
    rule="none",
    grid=lambda variant, profile: [
        Cell(PROCEDURE, {"H": H, "d": d, "variant": variant}) for d in (1, 2) for H in (1, 2, 4, 8)
    ],
    analyse=analyse,
    axes=Axes("H", "accuracy", "d", "heads H", "accuracy"),
    figure=draw,
    seeds={"quick": 2, "paper": 5},
    variants=("as-coded", "corrected"),
    settings="Two widths.",
    disagreements=("The paper says otherwise.",),
)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr("byheart.papers.registry.all_studies", lambda: [TINY])
    path = tmp_path / "tiny.db"
    assert run(TINY, path, profile="paper").complete
    return path


def test_a_study_page(store, tmp_path, visit):
    (page,) = bh.report(store, tmp_path / "study.html")
    assert page.kind == "study" and page.bytes < LIMIT
    seen = visit(tmp_path / "study.html").page
    text = seen.inner_text("main")
    for words in (TINY.claim, "Confirmed", "95 %", "Two widths.", "The paper says otherwise."):
        assert words in text
    assert HOSTILE in text  # as text
    assert seen.locator(".dot").count() == 4 * 2 * 5  # one variant, two widths, five seeds
    assert seen.locator(".said").count() == 1
    assert seen.get_attribute("img", "alt").startswith("A law")


def test_the_chart_of_rows(store, tmp_path, visit):
    bh.report(store, tmp_path / "study.html")
    page = visit(tmp_path / "study.html").page
    page.locator(".dot").last.hover()
    told = page.inner_text("#tip")
    assert "H = 8" in told and "seed = " in told and f"note = {HOSTILE} 8" in told
    page.uncheck("label:has-text('seeds') input")
    assert page.locator(".dot").count() == 0
    page.check("label:has-text('seeds') input")
    page.check("label:has-text('log x') input")
    page.check("label:has-text('log y') input")
    assert page.locator(".dot").count() == 40
    page.click(".legend-items button:has-text('d = 1')")
    assert page.locator(".dot").count() == 20
    page.select_option("select[aria-label=variant]", "")
    assert page.locator(".dot").count() > 20
    page.select_option("select[aria-label=y]", "seconds")
    page.focus("[aria-label^='Chart of rows']")
    page.keyboard.press("ArrowRight")
    assert page.locator(".hot").count() == 1


def test_rows_can_be_downloaded(store, tmp_path, visit):
    bh.report(store, tmp_path / "study.html")
    seen = visit(tmp_path / "study.html")
    with seen.page.expect_download() as waiting:
        seen.page.click("#download-0")
    rows = list(csv.DictReader(io.StringIO(Path(waiting.value.path()).read_text())))
    assert len(rows) == 80
    assert {row["variant"] for row in rows} == {"as-coded", "corrected"}
    assert rows[0]["note"].startswith(HOSTILE) and rows[0]["study"] == "tiny/law"
    seen.requests = [r for r in seen.requests if not r.startswith("blob:")]


def test_a_study_that_nobody_knows_still_has_rows(store, tmp_path, visit, monkeypatch):
    monkeypatch.setattr("byheart.papers.registry.all_studies", list)
    bh.report(store, tmp_path / "study.html")
    page = visit(tmp_path / "study.html").page
    assert "does not know the study" in page.inner_text("main")
    assert page.locator(".dot").count() > 0


def audit_record() -> dict[str, Any]:
    """An audit as `byheart audit` writes it, two layers, trained and random."""

    def layer(i: int, weights: str) -> dict[str, Any]:
        query = {
            "Q": 1 if i == 0 else 8,
            "settings": [{"dtype": "float64", "centred": False, "rank": 9, "independent": 0.5}],
        }
        first = "fails" if i == 0 else "not refuted"
        return {
            "weights": weights, "layer": i, "name": "embeddings" if i == 0 else f"block {i}",
            "checks": {
                "assumption2": {"verdict": "holds", "share": 1.0, "seen": 50},
                "assumption1.first": {"verdict": first, "Q": query["Q"], "independent": {}},
                "separation": {"verdict": "measured", "spread": 12.5},
            },
            "contexts": [{"dtype": "float64", "centred": False, "full": 50, "contexts": 50}],
            "queries": {"first": query, "e+mean": query},
            "separation": {"spread": 12.5},
            "heads": None if i else [{"head": 0, "saturated": 0.25, "entropy": 1.0}],
            "promises": [{"id": "mahdavi2024.theorem1", "applies": i > 0, "reason": "rank",
                          "capacity": 85 if i else None, "bare": None}],
        }  # fmt: skip

    return {
        "kind": "byheart audit", "schema": 1,
        "model": {"name": HOSTILE, "type": "bert", "weights": "safetensors", "parameters": 1000,
                  "d": 16, "H": 2, "layers": 1},
        "data": {"source": "text", "contexts": 50, "n": 8},
        "settings": {"queries": ["first"]},
        "layers": [layer(i, w) for w in ("trained", "random") for i in range(2)],
        "cpu_seconds": 1.0,
    }  # fmt: skip


def test_an_audit_page(tmp_path, visit):
    source = tmp_path / "audit.json"
    source.write_text(json.dumps(audit_record()))
    (page,) = bh.report(source, tmp_path / "audit.html")
    assert page.kind == "audit"
    seen = visit(tmp_path / "audit.html", scheme="dark").page
    assert seen.inner_text("h1") == f"Audit of {HOSTILE}"
    assert "Fail in layer 0: Assumption 1 (first)." in seen.inner_text("main")
    assert seen.locator("td.bad").count() == 2 and seen.locator("td.good").count() == 6
    seen.locator("td.bad").first.hover()
    assert "layer 0, Assumption 1, first: fails (Q = 1)" in seen.inner_text("#tip")
    assert seen.locator(".dot").count() == 2  # layers with heads
    seen.select_option("select[aria-label=y]", "Q")
    assert seen.locator(".dot").count() == 4


def test_several_inputs_give_an_index(memories, tmp_path, visit):
    source = tmp_path / "audit.json"
    source.write_text(json.dumps(audit_record()))
    pages = bh.report([memories["attention"], memories["sqrt"], source], tmp_path / "all.html")
    assert [page.kind for page in pages] == ["memory", "memory", "audit", "index"]
    seen = visit(tmp_path / "all.html")
    assert seen.page.locator(".card").count() == 3
    assert "Proved" in seen.page.inner_text(".card:first-child")
    seen.page.click(".card:nth-child(2) a")
    assert seen.page.inner_text("h1") == "elements"
    seen.requests.clear()  # the page that was clicked


def test_an_index_links_to_names_that_addresses_cannot_have(memories, tmp_path):
    pages = bh.report([memories["sqrt"]] * 2, tmp_path / "a #1?\udce9.html")
    links = re.findall(r'class="text" href="([^"]*)"', pages[-1].path.read_text())
    assert [os.fsencode(page.path.name) for page in pages[:-1]] == [*map(unquote_to_bytes, links)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON that can be read"),
        ("[]", 'expected an audit ("kind": "byheart audit")'),
        ('{"kind": "byheart audit", "schema": 9}', "schema 9"),
        ('{"kind": "byheart audit", "schema": 1, "layers": [{}]}', "part missing"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_is_no_audit_is_refused(content, said, tmp_path):
    source = tmp_path / "audit.json"
    source.write_text(content)
    with pytest.raises(ByheartError, match=said.replace("(", r"\(").replace(")", r"\)")):
        bh.report(source, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_what_is_no_source_is_refused(tmp_path, memories):
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    for source, said in (
        ("gone", "no such file"),
        ("empty", "without memory.json"),
        ("notes.txt", "neither a study nor an audit"),
    ):
        with pytest.raises(ByheartError, match=said):
            bh.report(tmp_path / source, tmp_path / "page.html")
    with pytest.raises(ByheartError, match="needs a memory folder"):
        bh.report([], tmp_path / "page.html")
    # One bad source among several: nothing is written.
    with pytest.raises(ByheartError):
        bh.report([memories["attention"], tmp_path / "gone"], tmp_path / "page.html")
    assert not list(tmp_path.glob("*.html"))


def test_other_peoples_files_are_kept(tmp_path, memories):
    mine = tmp_path / "thesis.html"
    mine.write_text("<h1>My thesis</h1>")
    with pytest.raises(ByheartError, match="no page of byheart"):
        bh.report(memories["sqrt"], mine)
    assert mine.read_text() == "<h1>My thesis</h1>"
    bh.report(memories["sqrt"], mine, force=True)
    bh.report(memories["sqrt"], mine)  # ours now
    for wrong in ("page.txt", "nowhere/page.html"):
        with pytest.raises(ByheartError):
            bh.report(memories["sqrt"], tmp_path / wrong)
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(ByheartError, match="it is a folder"):
        bh.explore(tmp_path / "folder.html")


def test_a_store_of_another_program_is_refused(tmp_path):
    import sqlite3

    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(ByheartError, match="another program"):
        bh.report(path, tmp_path / "page.html")


def test_pages_are_the_same_twice(memories, tmp_path):
    for name in ("a.html", "b.html"):
        bh.report(memories["classes"], tmp_path / name)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def trained(params: Any, seed: int) -> dict[str, Any]:
    """A row with its training curve, as procedures that train hand it over."""
    steps = list(range(0, 100, 5))
    curve = {"steps": steps, "loss": [1 / (1 + s) for s in steps], "accuracy": [None, *steps[1:]]}
    return {**measure(params, seed), "curve": curve}


def test_curves_are_drawn_folded_and_are_no_part_of_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("byheart.papers.registry.all_studies", list)
    cells = [Cell(Procedure(trained), {"H": H, "d": 1}) for H in (1, 2, 4, 8)]
    study = Study(
        name="tiny/trained", title="Trained", source="", claim="", measurement="", rule="",
        grid=lambda variant, profile: cells, analyse=analyse, axes=Axes("H", "accuracy"),
    )  # fmt: skip
    monkeypatch.setattr("byheart.studies.store.KEPT_CURVES", 5)
    path = tmp_path / "trained.db"
    assert run(study, path, profile="paper", seeds=3).complete
    with open_store(path) as store:
        assert all(row.measurements.keys() == {"accuracy", "note"} for row in store.rows())
        kept = store.curves("tiny/trained")
        whole = [typed(curve, Curve, "curve") for curve in kept.values()]
        assert len(whole) == 5 and all(len(curve.steps) == 20 for curve in whole)
        assert store.curves("tiny/other") == {}
    (page,) = bh.report(path, tmp_path / "study.html")
    text = page.path.read_text()
    assert "<summary>Training curves of the last 5 rows</summary>" in text
    for wrong in ('{"steps": [1]}', "no JSON"):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE curves SET curve = ?", (wrong,))
        with pytest.raises(ByheartError, match="damaged"):
            bh.report(path, tmp_path / "study.html", force=True)


def test_another_thing_of_the_name_is_a_measurement():
    (result,) = compute(lambda params, seed: {"curve": 2.5}, False, [({"H": 1}, 0)])
    assert result.measurements == {"curve": 2.5} and result.curve is None


def test_a_part_of_an_audit_that_only_the_page_reads_is_checked_too(tmp_path: Path):
    record = audit_record() | {"cpu_seconds": [1.0]}
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(record))
    with pytest.raises(ByheartError, match="an audit with a part missing or changed"):
        bh.report(path, tmp_path / "page.html")
