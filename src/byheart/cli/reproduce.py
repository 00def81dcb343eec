"""`byheart reproduce`: a figure or table of a paper by name; goes on where it was cut off."""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from byheart.cli._options import argument, guarded, option
from byheart.cli._show import emit, progress, say, table
from byheart.errors import ByheartError, check_choice
from byheart.training.recipe import DEVICES

if TYPE_CHECKING:
    from byheart.studies import Selection, Study, StudyResult
    from byheart.studies.study import Record

FOLDER = "byheart-studies"
TOTALS = {"computed": "computed", "before": "there", "missing": "missing", "seconds": "seconds"}
_running = partial(option, panel="Running")
_showing = partial(option, panel="Showing")


@guarded
def reproduce(
    name: str | None = argument(
        "STUDY", "A name (dana2025/fig1a), a paper (dana2025), all, or a file (mine.py).", None
    ),
    list_studies: bool = _showing(False, "All studies, with their times.", "--list"),
    calibrate: bool = _showing(
        False, "With --list: measure how fast this machine is, in two seconds.", "--calibrate"
    ),
    status: bool = _showing(False, "What is there, failed, missing.", "--status"),
    redraw: bool = _showing(False, "Figure and fit from the store; runs nothing.", "--redraw"),
    recorded: bool = _showing(
        False, "Figure, fit and verdicts from the rows that come with byheart.", "--recorded"
    ),
    profile: str | None = _running(
        None,
        "quick (default): a trend in minutes; paper: the authors' settings, with verdicts; part: "
        "a stated share of them.",
        "quick|part|paper",
    ),
    variant: str | None = _running(
        None, "One variant only. Default: all there are.", "as-coded|as-published|corrected|all"
    ),
    only: str | None = _running(None, "Only cells with, say, 'H<=16 and d==10'.", "EXPR"),
    values: list[str] | None = _running(
        None,
        "Another grid: d=12,16 or H=1:31:5 (start:stop:step). Give it once a parameter.",
        "--set",
        "NAME=VALUES",
    ),
    seeds: int | None = _running(None, "Seeds a cell. Default: the profile's.", min=1, max=1000),
    time_budget: float | None = _running(
        None, "Begin nothing new after so long; run again to go on.", "SECONDS", min=0
    ),
    workers: str = _running("1", "N processes, or a Dask scheduler, tcp://HOST:PORT.", "N|ADDRESS"),
    device: str = _running("cpu", "Where trainings run; auto: a GPU, if any.", "|".join(DEVICES)),
    retry_failed: bool = _running(False, "Compute failed cells again.", "--retry-failed"),
    fresh: bool = _running(
        False, "Take no recorded rows: compute all of them, and compare.", "--fresh"
    ),
    store: Path | None = _running(None, "The SQLite file. Default: DIR/PAPER.db.", "FILE"),
    export: Path | None = _showing(None, "All rows as .csv or .parquet.", "FILE"),
    output: Path = option(Path(FOLDER), "Where figures and tables go.", "--output", "-o", "DIR"),
) -> None:
    """Reproduce a figure or a table: run the study, fit, draw, and say what follows.

    Every (cell, seed) is one row of an SQLite file. Stop whenever you like: the same command goes
    on from there, and the rows are the same on one process, on many, and on a cluster. Rows that
    come with byheart need not be computed again; --recorded shows them in seconds. A study of your
    own is a file that defines STUDY (docs/studies.md).
    """
    from byheart.papers import all_studies, find
    from byheart.studies import Execution, Selection, results
    from byheart.studies import export as write
    from byheart.studies.expression import read_assignments
    from byheart.studies.result import check_export
    from byheart.studies.study import PROFILES

    if profile is not None:
        check_choice("profile", profile, PROFILES)
    if recorded + redraw + fresh > 1:
        raise ByheartError("--recorded, --redraw and --fresh exclude each other: give one of them.")
    if calibrate and not list_studies:
        raise ByheartError("--calibrate is for --list; a run measures this machine by itself.")
    if list_studies:
        _list(find(name) if name else all_studies(), calibrate)
        return
    if name is None:
        raise ByheartError("which study? `byheart reproduce --list` names them.")
    studies = find(name)
    selection = Selection(profile, variant, only, seeds, read_assignments(values or ()))
    if status:
        _status(studies, selection, store, output)
        return
    if export is not None:
        check_export(export)
    found: list[StudyResult] = []
    records: list[Record] = []
    known = frozenset(study.name for study in all_studies())
    with progress(name, eager=True) as tell:
        rows = "recorded" if recorded else "store" if redraw else "fresh" if fresh else "missing"
        how = Execution(workers, time_budget, retry_failed, tell, rows, device)
        for result in results(studies, selection, how, store=store, folder=output, known=known):
            files = result.save(output, "-set" if values else "")
            found.append(result)
            records.append(result.to_json() | {k: os.fspath(v) for k, v in files.items()})
            _show(result, files)
            if fresh:
                _compare(result)
    runs = [result.run for result in found if result.run is not None]
    total = {name: sum(getattr(run, field) for run in runs) for name, field in TOTALS.items()}
    if export is not None:
        number = write([row for r in found for row in r.rows + r.failed], export)
        say(f"\n{number:,} rows in {export}")
    emit({**total, "studies": records})
    _verdicts(records, total, redraw or recorded)
    if any(result.failed for result in found):
        raise typer.Exit(1)


def _show(result: StudyResult, files: dict[str, Path]) -> None:
    from byheart.studies.result import claim_lines, number_text

    study, finding = result.study, result.finding
    say(f"{study.name}: {study.title}" + (f" ({study.source})" if study.source else ""))
    if study.claim:
        say(f"  claim    {study.claim}")
    say(f"  verdict  {finding.outcome}: {finding.sentence}")
    for line in claim_lines(finding):
        say(f"           {line}")
    for name, value in finding.numbers.items():
        say(f"  {name}: {number_text(value)}")
    for row in result.failed[:3]:
        say(f"  failed: {dict(row.params)}, seed {row.seed}: {row.error}")
    if result.outdated:
        earlier = f"{len(result.outdated)} of the rows were computed by an earlier text of the file"
        say(f"  {earlier}; another --store computes them again.")
    say(f"  {len(result.rows)} rows; figure {files['figure']}, rows {files['csv']}")


def _compare(result: StudyResult) -> None:
    """Rows computed anew beside those that came with byheart."""
    from byheart.studies.recorded import compared

    found = compared(result.study, result.rows)
    largest = max(found["largest_difference"].values(), default=0.0)
    say(
        f"  {found['compared']} rows are recorded too: {found['identical']} the same, largest "
        f"difference of a measurement {largest:.3g}"
    )


def _verdicts(records: list[Record], total: Record, redraw: bool) -> None:
    from byheart.studies import duration

    if len(records) > 1:
        say()
        table(
            *((r["study"], r["verdict"], str(r["rows"]), duration(r["seconds"])) for r in records),
            header=("study", "verdict", "rows", "time of its rows"),
        )
    if redraw:
        return
    words = f"{total['computed']} rows computed in {duration(total['seconds'])}"
    words += f", {total['before']} were there" if total["before"] else ""
    if total["missing"]:
        words += f"; {total['missing']} missing: run the same command again to go on"
    failed = sum(r["failed"] for r in records)
    if failed:
        words += f"; {failed} failed: --retry-failed computes them again"
    say(f"\n{words}")


def _list(studies: list[Study], anew: bool) -> None:
    from byheart.studies import duration, speed

    factor = speed.calibrate() if anew else speed.factor()
    records = []
    for study in studies:
        record: Record = {"study": study.name, "source": study.source, "title": study.title}
        record["variants"] = list(study.variants)
        for profile in ("quick", "paper"):
            seconds, how = study.estimate(profile)
            whole = (seconds + speed.STARTING) * (factor or 1.0)
            record |= {f"{profile}_seconds": whole, profile: how}
        records.append(record)
    emit({"studies": records, "machine_factor": factor})
    lines = [("study", "quick, 1 core", "paper, 1 core", "source")]
    for r in records:
        quick, paper = (f"{duration(r[f'{p}_seconds'])} {r[p]}" for p in ("quick", "paper"))
        lines.append((r["study"], quick, paper, r["source"]))
    widths = [max(len(row[i]) for row in lines) for i in range(3)]
    for row in lines:  # names stay whole, so that they can be copied
        say("  ".join([*(cell.ljust(w) for cell, w in zip(row[:3], widths, strict=True)), row[3]]))
    say(
        "\nTimes are of one core that does nothing else: --workers N divides them by about N. Rows "
        "that studies share are computed once, and recorded rows not at all."
    )
    say(
        "They are those of the machine that measured them: `byheart reproduce --list --calibrate` "
        "measures this one, in two seconds."
        if factor is None
        else f"This machine takes {factor:.2f} times as long as the one that measured them."
    )


def _status(studies: list[Study], selection: Selection, store: Path | None, output: Path) -> None:
    from byheart.studies import open_store, status

    records = []
    for study in studies:
        path = store or output / f"{study.paper}.db"
        with open_store(path, create=False) as opened:
            found = status(study, opened, selection.profile or "quick", selection.seeds)
        records.append(asdict(found) | {"store": os.fspath(path)})
    emit({"studies": records})
    names = ("study", "rows", "done", "failed", "missing")
    table(*(tuple(str(record[name]) for name in names) for record in records), header=names)
