"""The coordinator: what is computed, in which stacks, and what happens when something fails."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from study_tools import content, kill_in_a_loop, start
from tiny_study import alone, alone_faulty, noisy_many, tiny

from byheart.errors import ByheartError
from byheart.studies import (
    Cell,
    Procedure,
    Progress,
    Stopped,
    StoreBusy,
    open_store,
    rows_of,
    run,
    status,
)
from byheart.studies import work as work_module
from byheart.studies.cell import derived_seed, stacks
from byheart.studies.expression import Expression
from byheart.studies.store import coordinating

PACKAGE = Path(work_module.__file__).parent


def test_every_cell_and_seed_is_one_row(store: Path):
    report = run(tiny(), store, profile="paper")
    assert (report.total, report.computed, report.failed, report.missing) == (36, 36, 0, 0)
    assert report.complete
    rows = content(store)
    assert len(rows) == 36 == len({(r[3], r[4]) for r in rows})
    assert {r[2] for r in rows} == {"as-coded", "corrected"}


def test_a_second_run_computes_nothing(store: Path):
    run(tiny(), store, profile="paper")
    before = content(store)
    again = run(tiny(), store, profile="paper")
    assert (again.there, again.computed) == (36, 0)
    assert content(store) == before


def test_studies_share_cells(store: Path):
    run(tiny(), store, profile="paper")
    other = tiny(4, name="tiny/other")
    report = run(other, store, profile="paper")
    assert (report.total, report.computed) == (24, 0)
    with open_store(store) as opened:
        rows, failed = rows_of(other, opened, "paper")
    assert {row.study for row in rows} == {"tiny/other"} and len(rows) == 24 and not failed


def test_equal_shapes_are_stacked(store: Path):
    run(tiny(largest=4), store, profile="paper", variant="as-coded")
    sizes = [row[6]["size"] for row in content(store)]
    assert sorted(sizes) == [2, 2] + [4] * 16  # 18 jobs of one shape, at most 4 at once
    assert all(r[6]["size"] == r[8] for r in content(store))


def test_stacks_follow_from_the_study_alone():
    procedure = Procedure(stack=noisy_many, largest=3, differ=("x",))
    cells = [Cell(procedure, {"x": x, "shape": s}) for s in (0, 1) for x in range(2)]
    made = stacks(cells, range(2))
    assert [[(j.cell.params["shape"], j.cell.params["x"], j.seed) for j in s] for s in made] == [
        [(0, 0, 0), (0, 0, 1), (0, 1, 0)],
        [(0, 1, 1)],
        [(1, 0, 0), (1, 0, 1), (1, 1, 0)],
        [(1, 1, 1)],
    ]
    assert stacks([*cells, cells[0]], range(2)) == made  # a repeated cell is one cell


def test_seeds_come_from_the_cell_and_the_number_only():
    assert derived_seed("a", 0) == 781592791  # rows of old stores must stay what they are
    assert len({derived_seed(c, s) for c in "abc" for s in range(50)}) == 150


def test_hashes_are_content():
    a = Procedure(alone, name="m:f")
    b = Procedure(stack=noisy_many, largest=9, seconds=lambda p: 1.0, name="m:f")
    assert Cell(a, {"x": 1}).hash == Cell(b, {"x": 1}, "exp9").hash
    other = Procedure(alone, name="m:h")
    assert Cell(a, {"x": 1}).hash != Cell(a, {"x": 2}).hash != Cell(other, {"x": 2}).hash
    with pytest.raises(ByheartError, match="parameters must be numbers"):
        Cell(a, {"x": object()})
    with pytest.raises(ByheartError, match="parameters must be numbers"):
        Cell(a, {"x": float("nan")})


def test_a_procedure_is_a_function_that_workers_find_by_its_name():
    assert Procedure(alone).name == "tiny_study:alone"
    with pytest.raises(ByheartError, match="top level of a module"):
        Procedure(lambda params, seed: {})
    with pytest.raises(TypeError, match="either"):
        Procedure(alone, stack=noisy_many)
    assert Procedure(alone_faulty).cell(x=1).with_settings({"x": 2}).params == {"x": 2}


def test_seeds_may_be_named(store: Path):
    assert run(tiny(), store, seeds=[1, 5]).total == 12
    with open_store(store) as opened:
        rows, _ = rows_of(tiny(), opened, "quick", seeds=[5])
    assert {row.seed for row in rows} == {5} and len(rows) == 6


def test_only_and_seeds(store: Path):
    report = run(tiny(), store, profile="paper", only="x<2", seeds=2, variant="corrected")
    assert report.total == 4
    with pytest.raises(ByheartError, match="leaves no cell"):
        run(tiny(), store, only="x>99")
    with pytest.raises(ByheartError, match="no parameter 'H'"):
        run(tiny(), store, only="H<3")
    with pytest.raises(ByheartError, match="`variant` must be one of as-coded, corrected, all"):
        run(tiny(), store, variant="best")


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "x.real", "[x for x in y]", "lambda: 1", "x[0]", "f'{x}'", "x if x else 1",
     "x := 1", "x ** 99", "(yield)", "x <", "", "{1}", "print", "x << 60", "a" * 501],
)  # fmt: skip
def test_only_runs_no_code(text: str):
    if text == "print":  # a name that is no parameter
        with pytest.raises(ByheartError, match="no parameter"):
            Expression(text)({"x": 1})
        return
    with pytest.raises(ByheartError, match="`only"):
        Expression(text)


def test_only_compares():
    values = {"H": 6, "d": 10, "family": "mlp", "flag": None}
    for text, truth in {
        "H<=6": True,
        "1 < H < 6": False,
        "H*d == 60 and not d<10": True,
        "family in ('mlp', 'shared') or 1/0 > 1": True,
        "family != 'mlp'": False,
        "d - H >= -4 + 8": True,
        "flag == None": True,
    }.items():
        assert Expression(text)(values) is truth, text
    for text in ("flag < 3", "d / (H - 6) > 1"):
        with pytest.raises(ByheartError, match="`only"):
            Expression(text)(values)


def test_progress_counts_up(store: Path):
    seen: list[Any] = []
    run(tiny(), store, profile="paper", progress=seen.append)
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    assert seen[-1].done == seen[-1].total == 36 and seen[-1].left == 0
    assert seen[-1].last is not None and "y" in seen[-1].last.measurements
    assert all(isinstance(p, Progress) and isinstance(p, str) for p in seen)
    assert seen[0] == "tiny/line: 0 of 36 rows are there; computing the others"
    assert seen[-1].startswith("tiny/line: 36 of 36 rows, ")


def test_progress_can_be_printed(store: Path, capsys: pytest.CaptureFixture[str]):
    run(tiny(), store, progress=print)
    assert "12 of 12 rows" in capsys.readouterr().out


def test_a_time_budget_begins_nothing_new(store: Path):
    report = run(tiny(pause=0.05), store, profile="paper", time_budget=0.3)
    assert 0 < report.computed < 36 and report.missing == 36 - report.computed
    rest = run(tiny(pause=0.05), store, profile="paper")
    assert rest.computed == report.missing and rest.missing == 0
    whole = store.with_name("whole.db")
    run(tiny(pause=0.05), whole, profile="paper")
    assert content(whole) == content(store)


def test_status(store: Path):
    run(tiny(), store, profile="paper", only="x<2", variant="corrected")
    with open_store(store) as opened:
        found = status(tiny(), opened, "paper")
    assert (found.rows, found.done, found.failed, found.missing) == (36, 6, 0, 30)


@pytest.mark.parametrize("fault", ["raise", "memory", "text"])
def test_a_cell_that_fails_is_recorded_and_the_others_go_on(
    store: Path, fault: str, tmp_path: Path
):
    mended = tmp_path / "mended"
    study = tiny(faulty=True, fault=fault, mended=str(mended))
    report = run(study, store, profile="paper", variant="as-coded")
    assert (report.computed, report.failed, report.complete) == (18, 3, False)
    with open_store(store) as opened:
        good, bad = rows_of(study, opened, "paper", variant="as-coded")
    assert len(good) == 15 and {row["x"] for row in bad} == {2}
    kind = {"raise": "ZeroDivisionError: two is too much", "memory": "MemoryError", "text": "TypeE"}
    assert all(kind[fault] in str(row.error) for row in bad)
    again = run(study, store, profile="paper", variant="as-coded")
    assert (again.computed, again.failed) == (0, 3)  # not computed again unless asked for
    mended.touch()
    retried = run(study, store, profile="paper", variant="as-coded", retry_failed=True)
    assert (retried.computed, retried.failed) == (3, 0)
    with open_store(store) as opened:
        good, bad = rows_of(study, opened, "paper", variant="as-coded")
    assert len(good) == 18 and not bad


def test_a_good_row_is_never_replaced(store: Path):
    from byheart.studies.cell import Job
    from byheart.studies.store import Result

    run(tiny(), store, profile="paper")
    before = content(store)
    job = Job(tiny().cells("as-coded", "paper")[0], 1000)
    with coordinating(store) as opened:
        opened.add([(job, Result({"y": -1.0}, None, 0.0, {}, "cpu", 1, 1))])
    assert content(store) == before


def test_a_second_coordinator_is_told(store: Path):
    said = rf"process {os.getpid()} on .*another `store`"
    with coordinating(store), ThreadPoolExecutor() as another, pytest.raises(StoreBusy, match=said):
        another.submit(run, tiny(), store).result()
    run(tiny(), store)  # the lock went with its holder


def test_reading_needs_no_lock(store: Path):
    run(tiny(), store)
    with coordinating(store), open_store(store, create=False) as reader:
        assert status(tiny(), reader, "quick").missing == 0


def test_clock_changes_do_not_matter(store: Path, monkeypatch: pytest.MonkeyPatch):
    """Wall-clock time is asked for nowhere, so it may jump."""
    for file in PACKAGE.glob("*.py"):
        assert not re.search(r"time\.time\(|datetime|time\.localtime", file.read_text()), file
    clock = iter(range(10**9, 0, -86400))
    monkeypatch.setattr(time, "time", lambda: float(next(clock)))
    seen: list[Any] = []
    report = run(tiny(), store, profile="paper", progress=seen.append, time_budget=60.0)
    assert report.complete and all(p.seconds >= 0 for p in seen)
    with open_store(store) as opened:
        assert all(0 <= row.seconds < 60 for row in opened.rows())


def same_as_uninterrupted(store: Path, points: int) -> None:
    whole = store.with_name("whole.db")
    run(tiny(points, pause=0.01), whole, profile="paper")
    assert content(store) == content(whole)
    assert len(content(store)) == 6 * points


@pytest.mark.slow
def test_killed_coordinators_lose_nothing(store: Path):
    left = kill_in_a_loop(store, 2, points=20)
    assert left == sorted(left) and left[-1] > 0
    same_as_uninterrupted(store, 20)


@pytest.mark.slow
def test_twenty_killed_coordinators_lose_nothing(store: Path):
    left = kill_in_a_loop(store, 20, points=120)
    assert len(left) == 20 and left == sorted(left) and left[-1] > 0
    same_as_uninterrupted(store, 120)


def test_interrupt_is_a_clean_stop(store: Path):
    process = start(store, pause=0.05)
    assert process.stdout is not None
    assert process.stdout.readline() == "row\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode != 0
    assert "Stopped: stopped: " in err and "again to go on" in err
    with open_store(store) as opened:
        assert 0 < len(opened.rows()) < 60
    report = run(tiny(10, pause=0.05), store, profile="paper")
    assert report.missing == 0 and 0 < report.there < 60


def test_stopped_exits_as_shells_expect():
    assert Stopped.exit_code == 130


def test_measurements_must_be_plain():
    [made] = work_module.compute(lambda params, seed: [1], False, [({}, 0)])
    assert made.error is not None and "TypeError" in made.error
    [made] = work_module.compute(lambda jobs: [{}, {}], True, [({}, 0)])
    assert "2 results were returned for 1 jobs" in str(made.error)
    assert json.dumps(made.measurements) == "{}"
