"""Studies of one's own: from a file, from another package, on another grid, in Python."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import tiny_study
from typer.testing import CliRunner, Result

import byheart as bh
from byheart import _plugins
from byheart.cli.main import app
from byheart.errors import ByheartError, OptionError
from byheart.papers import find, registry
from byheart.studies import Claim, Finding, open_store, run
from byheart.studies.expression import read_assignments, read_values
from byheart.studies.result import claim_lines

FILE = '''
"""How y grows with x: a study in one file."""
import beside
from byheart.studies import Claim, Finding, Procedure, Study, fit


def measure(params, seed):
    return {"y": beside.slope() * params["x"] + params["shift"] + seed % 7 * 1e-3}


def analyse(rows):
    if len({row["x"] for row in rows}) < 2:
        return Finding("Too few rows.")
    line = fit("linear", [r["x"] for r in rows], [r["y"] for r in rows], intervals=True)
    slope = line.interval("b")
    return Finding("It is a line.", (Claim("the slope is 3", slope, 2.9, 3.1),), {"slope": slope})


STUDY = Study(
    name="mine/line",
    grid=Procedure(measure).grid(x=range(4), shift=(0, 0.01)),
    analyse=analyse,
    claim="y grows three times as fast as x.",
    rule="Confirmed if the interval of the slope lies within 0.1 of 3.",
)
'''


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside.py").write_text("def slope():\n    return 3\n")
    path = tmp_path / "my_study.py"
    path.write_text(FILE)
    return path


def call(*args: object) -> Result:
    result = CliRunner().invoke(app, list(map(str, args)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_file_is_run_drawn_and_judged(file: Path):
    said = call("reproduce", file.name)
    assert said.exit_code == 0 and "verdict  confirmed: It is a line." in said.stdout
    folder = Path("byheart-studies")
    for name in ("mine-line-quick.png", "mine-line-quick.csv", "mine-line-quick.json"):
        assert (folder / name).stat().st_size > 0
    again = call("reproduce", file.name)
    assert "0 rows computed" in again.stdout and "24 were there" in again.stdout
    listed = call("reproduce", file.name, "--list")
    assert "mine/line" in listed.stdout
    assert "24" in call("reproduce", file.name, "--status").stdout


def test_a_claim_of_ones_own_is_marked_and_does_not_judge_the_figure():
    true, false = (
        {"estimate": 1.0, "low": 0.9, "high": 1.1},
        {"estimate": 3.0, "low": 2.0, "high": 4.0},
    )
    theirs, ours = Claim("p = 1", true, 0.8, 1.2), Claim("q = 1", false, 0.8, 1.2, own=True)
    finding = Finding("It is a line.", (theirs, ours), setting="paper")
    assert finding.verdict == "confirmed"
    assert claim_lines(finding)[1].startswith("refuted (own): q = 1; found 3 (95 %: 2 to 4)")
    assert Finding.from_json(finding.to_json()) == finding
    # Where there are no others, claims of one's own are what is judged; a trend judges none.
    assert replace(finding, claims=(ours,)).verdict == "refuted"
    assert claim_lines(replace(finding, setting="trend"))[1].startswith("trend only: q = 1")


def test_its_page_has_figure_and_verdict_without_the_file(file: Path):
    call("reproduce", file.name)
    file.unlink()
    assert call("report", "byheart-studies/mine.db", "-o", "page.html").exit_code == 0
    page = Path("page.html").read_text()
    assert "</span> Confirmed</h2>" in page and "It is a line." in page
    assert (
        "Rule of the verdict: Confirmed if the interval of the slope lies within 0.1 of 3." in page
    )
    assert "data:image/png;base64," in page


def test_rows_of_an_earlier_text_are_named(file: Path):
    call("reproduce", file.name)
    file.write_text(FILE.replace("* 1e-3", "* 1e-2"))
    said = call("reproduce", file.name)
    assert "24 of the rows were computed by an earlier text of the file" in said.stdout
    fresh = call("reproduce", file.name, "--store", "new.db")
    assert "24 rows computed" in fresh.stdout and "earlier text" not in fresh.stdout


@pytest.mark.slow
def test_workers_get_the_files_text(file: Path):
    pytest.importorskip("distributed")
    [study] = find(file.name)
    alone, together = Path("alone.db"), Path("together.db")
    run(study, alone)
    assert run(study, together, workers=2).failed == 0
    with open_store(alone) as a, open_store(together) as b:
        rows = [(r.cell, r.seed, r.measurements, dict(r.versions)) for r in a.rows()]
        assert rows == [(r.cell, r.seed, r.measurements, dict(r.versions)) for r in b.rows()]
    assert "my_study.py" in rows[0][3]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n", "wrong.py has no study: expected STUDY"),
        ("STUDIES = [1]\n", "wrong.py has no study"),
        ("x = 1\nx.y\n", "wrong.py, line 2: AttributeError"),
        ("def f(:\n", "wrong.py, line 1: SyntaxError"),
        ("from byheart.studies import Procedure\nProcedure(lambda p, s: {})\n", "top level"),
    ],
)
def test_a_file_that_has_no_study(file: Path, text: str, words: str):
    Path("wrong.py").write_text(text)
    said = call("reproduce", "wrong.py")
    assert said.exit_code == 2 and words in said.stderr and "Traceback" not in said.stderr
    assert "wrong.py" not in registry.MODULES
    gone = call("reproduce", "gone.py")
    assert gone.exit_code == 2 and "no such file" in gone.stderr


def test_another_grid(file: Path):
    said = call("reproduce", file.name, "--set", "x=0:20:10", "--set", "shift=5", "--json")
    record = json.loads(said.stdout)
    assert record["studies"][0]["rows"] == record["computed"] == 3 * 3
    assert record["studies"][0]["csv"].endswith("mine-line-quick-set.csv")
    wrong = call("reproduce", file.name, "--set", "shfit=5")
    assert wrong.exit_code == 2 and "Did you mean 'shift'?" in wrong.stderr
    assert "--set must be values of parameters of mine/line (shift, x)" in wrong.stderr
    for text in ("x", "x=", "=3", "x=1:2:0", "x=a:b", "x=1:2:3:4"):
        assert call("reproduce", file.name, "--set", text).exit_code == 2


def test_what_follows_from_a_parameter_follows():
    [study] = find("dana2025/fig1a")
    other = study.with_values(read_assignments(["d=12,16", "H=1:31:5"]))
    cells = other.cells("as-coded", "quick")
    assert [(c.params["d"], c.params["d_h"], c.params["H"]) for c in cells] == [
        (d, d, H) for d in (12, 16) for H in range(1, 32, 5)
    ]
    [deep] = find("kajitsuka2025/precision")
    cells = deep.with_values({"max_bits": [32]}).cells("corrected", "quick")
    assert {c.params["max_bits"] for c in cells} == {32}
    with pytest.raises(OptionError, match="`set` must be"):
        study.with_values({"h": [1]})


def test_values_as_people_write_them():
    assert read_values("0.1:0.3:0.1") == pytest.approx([0.1, 0.2, 0.3])
    assert read_values("5:1:-2") == [5, 3, 1]
    assert read_values("null,true,1e-3,as-coded") == [None, True, 1e-3, "as-coded"]


def test_studies_of_another_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
):
    request.addfinalizer(_plugins.plugins.cache_clear)  # other tests have no such package
    monkeypatch.chdir(tmp_path)
    point = EntryPoint("tiny", "tiny_study:STUDIES", "byheart.studies")
    monkeypatch.setattr(_plugins, "points", lambda group: [point])
    _plugins.plugins.cache_clear()
    assert "tiny/line" in call("reproduce", "--list").stdout
    assert "12 rows computed" in call("reproduce", "tiny/line").stdout
    assert call("report", "byheart-studies/tiny.db", "-o", "page.html").exit_code == 0
    page = Path("page.html").read_text()
    assert "</span> Trend, which decides nothing</h2>" in page
    assert "data:image/png;base64," in page
    with pytest.raises(ByheartError, match="Did you mean 'tiny/line"):
        find("tiny/lin")
    broken = EntryPoint("tiny", "no_such_module", "byheart.studies")
    monkeypatch.setattr(_plugins, "points", lambda group: [broken])
    _plugins.plugins.cache_clear()
    with (
        pytest.warns(_plugins.PluginWarning, match="cannot be loaded"),
        pytest.raises(ByheartError, match="there is no study 'tiny/line'"),
    ):
        find("tiny/line")


def test_in_python(file: Path, store: Path):
    said: list[str] = []
    result = bh.reproduce(file, seeds=3, progress=said.append, store=store)
    assert result.verdict == "confirmed" and len(result.rows) == 24 and not result.failed
    assert result.finding.numbers["slope"]["estimate"] == pytest.approx(3, abs=0.01)
    assert said and "24 of 24 rows" in said[-1]
    assert len(repr(result).splitlines()) < 10 and "confirmed" in repr(result)
    html = result._repr_html_()
    assert "data:image/png;base64," in html and "confirmed" in html and "<table>" in html
    assert result.figure.axes[0].get_xlabel() == "x"
    pandas = pytest.importorskip("pandas")
    frame = result.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == 24 and set(frame.x) == {0, 1, 2, 3}


def test_in_python_with_a_study_in_hand(store: Path):
    result = bh.reproduce(tiny_study.tiny(), only="x<2", set={"x": range(2)}, store=store)
    assert isinstance(result.study, bh.Study) and {row["x"] for row in result.rows} == {0, 1}
    assert bh.reproduce(tiny_study.tiny(), only="x<2", store=store).run.computed == 0  # type: ignore[union-attr]
    with pytest.raises(OptionError, match="`profile` must be one of quick, part, paper"):
        bh.reproduce(tiny_study.tiny(), "slow", store=store)
    with pytest.raises(ByheartError, match="name one of"):
        bh.reproduce("dana2025")


def test_default_figures(store: Path, file: Path):
    """Axes that suit the rows where a study says none; nothing to draw is no error."""
    check: Callable[..., object] = find(file.name)[0].draw
    assert check([], tiny_study.analyse([])) is not None
