"""The same rows on one process, on local workers and on a scheduler that others started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from study_tools import Cluster, content, start
from tiny_study import tiny

from byheart.papers import find
from byheart.papers.dana2025.experiment import TRAIN
from byheart.studies import Cell, Progress, open_store, rows_of, run

pytest.importorskip("distributed")


@pytest.mark.slow
def test_engines_agree(store: Path, cluster: Cluster):
    run(tiny(), store, profile="paper")
    for name, workers in (("two", 2), ("cluster", cluster.address)):
        other = store.with_name(f"{name}.db")
        run(tiny(), other, profile="paper", workers=workers)
        assert content(other) == content(store)


@pytest.mark.slow
def test_trained_models_are_bit_identical(store: Path, cluster: Cluster):
    [whole] = find("dana2025/fig1a")

    def grid(variant: str, profile: str) -> list[Cell]:
        return TRAIN.grid("exp1", d=6, H=(4, 8), epochs=1)

    study = replace(whole, grid=grid, variants=("as-coded",))
    run(study, store, seeds=6)
    other = store.with_name("cluster.db")
    run(study, other, workers=cluster.address, seeds=6)
    rows = content(store)
    assert len(rows) == 12 and content(other) == rows
    assert {row[8] for row in rows} == {5, 1}  # stacks of five, and what is left
    assert all(0 < row[6]["accuracy"] < 1 for row in rows)


@pytest.mark.slow
def test_killed_workers_lose_nothing(store: Path, cluster: Cluster):
    """Workers are killed with their stacks; their nannies or a new one carry on."""
    killed: list[int] = []

    def kill(p: str) -> None:
        assert isinstance(p, Progress)
        if len(killed) < 3 and p.done >= 8 * (len(killed) + 1):
            nanny = cluster.workers[len(killed) % 2]
            for child in psutil.Process(nanny.pid).children(recursive=True):
                if "spawn_main" in " ".join(child.cmdline()):
                    killed.append(child.pid)
                    os.kill(child.pid, signal.SIGKILL)

    report = run(
        tiny(10, pause=0.05), store, profile="paper", workers=cluster.address, progress=kill
    )
    assert killed and report.complete
    whole = store.with_name("whole.db")
    run(tiny(10, pause=0.05), whole, profile="paper")
    assert content(store) == content(whole)


@pytest.mark.slow
def test_a_cell_that_kills_its_worker_is_recorded(store: Path):
    """Dask gives up on a task after so many lost workers (3 unless configured)."""
    study = tiny(4, faulty=True, fault="exit", largest=1)
    from dask import config

    with config.set({"distributed.scheduler.allowed-failures": 0}):
        report = run(study, store, profile="paper", variant="as-coded", seeds=1, workers=2)
    assert (report.computed, report.failed) == (4, 1)
    with open_store(store) as opened:
        good, bad = rows_of(study, opened, "paper", variant="as-coded", seeds=1)
    assert len(good) == 3
    assert [row["x"] for row in bad] == [2] and "worker lost" in str(bad[0].error)


@pytest.mark.slow  # a cluster of its own
def test_a_lost_scheduler_is_an_error_that_keeps_the_rows(store: Path, cluster: Cluster):
    process = start(store, workers=cluster.address, pause=0.1, points=30)
    assert process.stdout is not None
    assert process.stdout.readline() == "row\n"
    cluster.scheduler.kill()
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "go on" in err
    with open_store(store) as opened:
        rows = opened.rows()
    assert rows
    assert all(row.error is None for row in rows)


@pytest.mark.slow
def test_interrupt_with_workers(store: Path):
    process = start(store, workers=2, pause=0.1)
    assert process.stdout is not None
    assert process.stdout.readline() == "row\n"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers get it too
    out, err = process.communicate(timeout=60)
    assert process.returncode != 0, out
    assert "again to go on" in err
    with open_store(store) as opened:
        assert 0 < len(opened.rows()) < 60


@pytest.mark.slow
def test_nothing_is_left_running(store: Path):
    program = (
        "import sys\nfrom tiny_study import tiny\nfrom byheart.studies import run\n"
        "if __name__ == '__main__':\n    run(tiny(), sys.argv[1], profile='paper', workers=2)\n"
    )
    script = store.with_suffix(".py")
    script.write_text(program)
    said = subprocess.run(
        [sys.executable, str(script), str(store)], capture_output=True, text=True, timeout=60
    )
    assert said.returncode == 0, said.stderr
    mine = [p for p in psutil.process_iter(["cmdline"]) if str(script) in (p.info["cmdline"] or [])]
    assert not mine
