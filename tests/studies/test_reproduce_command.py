"""`byheart reproduce` as people call it."""

from __future__ import annotations

import csv
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet
import pytest
import tiny_study
from study_tools import LISTEN
from typer.testing import CliRunner, Result

from byheart.cli.main import app
from byheart.papers import registry
from byheart.studies import open_store
from byheart.studies.result import COLUMNS

ROOT = Path(__file__).parents[2]
Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command with the tiny study as a paper of its own, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(registry.MODULES, "tiny", "tiny_study")
    registry.studies_of.cache_clear()

    def invoke(*args: object) -> Result:
        result = CliRunner().invoke(app, ["reproduce", *map(str, args)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


def keys(command: str) -> list[str]:
    """The keys that docs/formats.md lists for a command."""
    text = (ROOT / "docs" / "formats.md").read_text()
    line = next(x for x in text.splitlines() if x.startswith(f"| `{command}` |"))
    return re.findall(r"\w+", line.split("|")[2].split("`")[1])


def test_a_study_from_start_to_end(run: Run, tmp_path: Path):
    said = run("tiny/line")
    assert said.exit_code == 0
    assert "verdict  trend, which decides nothing: slope" in said.stdout
    assert "12 rows computed" in said.stdout
    folder = tmp_path / "byheart-studies"
    names = {p.name for p in folder.iterdir()}
    assert {
        "tiny.db",
        "tiny-line-quick.png",
        "tiny-line-quick.csv",
        "tiny-line-quick.json",
    } <= names
    rows = list(csv.DictReader((folder / "tiny-line-quick.csv").read_text().splitlines()))
    assert len(rows) == 12 and list(rows[0])[: len(COLUMNS)] == list(COLUMNS)
    assert rows[0]["study"] == "tiny/line" and rows[0]["experiment"] == "exp1"
    again = run("tiny/line")
    assert "0 rows computed" in again.stdout and "12 were there" in again.stdout


def test_redraw_needs_the_store_alone(run: Run, tmp_path: Path):
    run("tiny/line")
    picture = tmp_path / "byheart-studies" / "tiny-line-quick.png"
    before = picture.read_bytes()
    picture.unlink()
    assert run("tiny/line", "--redraw").exit_code == 0
    assert picture.read_bytes() == before
    missing = run("tiny/line", "--redraw", "--store", "gone.db")
    assert missing.exit_code == 2 and "there is no store" in missing.stderr
    assert not Path("gone.db").exists()


def test_json(run: Run):
    said = run("tiny/line", "--json")
    record = json.loads(said.stdout)
    assert set(keys("reproduce")) <= record.keys()
    assert set(keys("reproduce, each study")) <= record["studies"][0].keys()
    one = record["studies"][0]
    assert one["rows"] == record["computed"] > 0 and one["csv"].endswith(".csv")
    listed = json.loads(run("--list", "--json").stdout)["studies"]
    assert set(keys("reproduce --list, each study")) <= listed[0].keys()
    status = json.loads(run("tiny", "--status", "--json").stdout)["studies"]
    assert set(keys("reproduce --status, each study")) <= status[0].keys()
    assert status[0]["missing"] == 0


def test_list_has_a_row_for_every_study(run: Run):
    said = run("--list")
    for study in registry.all_studies():
        assert study.name in said.stdout
    assert "estimated" in said.stdout or "measured" in said.stdout


def test_status(run: Run):
    assert run("tiny/line", "--status").exit_code == 2  # no store yet
    run("tiny/line", "--profile", "paper", "--only", "x<2", "--seeds", "1")
    said = run("tiny/line", "--status", "--profile", "paper")
    assert re.search(r"tiny/line +36 +4 +0 +32", said.stdout)


def test_export(run: Run, tmp_path: Path):
    run("tiny/line", "--export", "rows.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "rows.parquet")
    assert table.num_rows == 12 and set(COLUMNS) <= set(table.column_names)
    run("tiny/line", "--export", "rows.csv")
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 13
    wrong = run("tiny/line", "--export", "rows.xlsx")
    assert wrong.exit_code == 2 and ".csv or .parquet" in wrong.stderr
    wrong = run("tiny/line", "--export", "gone/rows.csv")
    assert wrong.exit_code == 2 and "no folder" in wrong.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("tiny/lin",), "Did you mean 'tiny/line"),
        ((), "which study"),
        (("tiny/line", "--profile", "slow"), "--profile must be one of"),
        (("tiny/line", "--variant", "wrong"), "--variant must be one of"),
        (("tiny/line", "--only", "x.y"), "--only takes comparisons"),
        (("tiny/line", "--workers", "none"), "--workers takes"),
        (("tiny/line", "--store", "/proc/x/y.db"), "cannot be written"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, tuple) else "",
)
def test_misuse(run: Run, args: tuple[str, ...], words: str):
    said = run(*args)
    assert said.exit_code == 2 and words in said.stderr


def test_failed_cells_change_the_exit_code(run: Run, monkeypatch: pytest.MonkeyPatch):
    study = tiny_study.tiny(faulty=True, fault="raise", mended=str(Path("mended").absolute()))
    monkeypatch.setattr(tiny_study, "STUDIES", (study,))
    registry.studies_of.cache_clear()
    said = run("tiny/line", "--variant", "as-coded")
    assert said.exit_code == 1
    assert "2 failed: --retry-failed" in said.stdout and "two is too much" in said.stdout
    Path("mended").touch()
    said = run("tiny/line", "--variant", "as-coded", "--retry-failed")
    assert said.exit_code == 0 and "2 rows computed" in said.stdout


def test_a_busy_store(run: Run):
    from byheart.studies.store import coordinating

    with coordinating("busy.db"), ThreadPoolExecutor() as another:
        said = another.submit(run, "tiny/line", "--store", "busy.db").result()
    assert said.exit_code == 2 and "is being written by process" in said.stderr
    assert "another --store" in said.stderr


PROGRAM = (
    LISTEN
    + """
import tiny_study
from byheart.papers import registry
tiny_study.STUDIES = (tiny_study.tiny(20, pause=0.05),)
registry.MODULES["tiny"] = "tiny_study"
import sys
from byheart.cli.main import main
sys.argv = ["byheart", "reproduce", "tiny/line", "--profile", "paper"]
main()
"""
)


@pytest.mark.parametrize(
    "sign", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_interrupted(tmp_path: Path, sign: signal.Signals):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert "0 of 120 rows are there" in process.stderr.readline()  # plain: this is no terminal
    assert "of 120 rows, " in process.stderr.readline()
    process.send_signal(sign)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Run the same command again to go on from there." in err and "Traceback" not in err
    with open_store(tmp_path / "byheart-studies" / "tiny.db") as opened:
        assert 0 < len(opened.rows()) < 120
