"""`byheart reproduce`: a figure or table of a paper by name; goes on where it was cut off."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from byheart.cli import _options as opt
from byheart.cli._show import emit, guarded, say, table
from byheart.cli._study_progress import duration, shown
from byheart.errors import ByheartError

if TYPE_CHECKING:
    from byheart.studies import Finding, Report, Study

RUNNING, SHOWING = "Running", "Showing"
FOLDER = "byheart-studies"


@guarded
def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="A study (dana2025/fig1a), a paper (dana2025), or all."
        ),
    ] = None,
    list_studies: Annotated[
        bool, typer.Option("--list", help="All studies, with their times.", rich_help_panel=SHOWING)
    ] = False,
    status: Annotated[
        bool,
        typer.Option("--status", help="What is there, failed, missing.", rich_help_panel=SHOWING),
    ] = False,
    redraw: Annotated[
        bool,
        typer.Option(
            "--redraw", help="Figure and fit from the store alone; runs nothing.",
            rich_help_panel=SHOWING,
        ),
    ] = False,
    profile: Annotated[
        str,
        typer.Option(
            metavar="quick|full|paper",
            help="quick: minutes; full: every point, 5 seeds; paper: the authors' lengths too.",
            rich_help_panel=RUNNING,
        ),
    ] = "quick",
    variant: Annotated[
        str | None,
        typer.Option(
            metavar="as-coded|as-published|corrected|all",
            help="One variant only. Default: all that the study has.",
            rich_help_panel=RUNNING,
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="EXPR", help="Only cells with, say, 'H<=16 and d==10'.", rich_help_panel=RUNNING
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="Seeds a cell. Default: the profile's.",
                     rich_help_panel=RUNNING),
    ] = None,
    time_budget: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="Begin nothing new after so long; run again to go on.",
            rich_help_panel=RUNNING,
        ),
    ] = None,
    workers: Annotated[
        str,
        typer.Option(
            metavar="N|ADDRESS",
            help="N local processes, or the Dask scheduler at tcp://HOST:PORT.",
            rich_help_panel=RUNNING,
        ),
    ] = "1",
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Compute failed cells again.",
                           rich_help_panel=RUNNING)
    ] = False,
    store: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The SQLite file. Default: DIR/PAPER.db.",
                     rich_help_panel=RUNNING),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="All rows as .csv or .parquet.", rich_help_panel=SHOWING),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where figures and tables go.")
    ] = Path(FOLDER),
    as_json: opt.Json = False,
) -> None:  # fmt: skip
    """Reproduce a figure or a table: run the study, fit, draw, and say what follows.

    Every (cell, seed) is one row of an SQLite file. Stop whenever you like: the same command goes
    on from there, and the rows are the same on one process, on many, and on a cluster.
    """
    from byheart.papers import all_studies, find
    from byheart.studies.study import PROFILES

    if profile not in PROFILES:
        raise ByheartError(f"--profile must be one of {', '.join(PROFILES)}, found {profile!r}")
    if list_studies:
        _list(find(name) if name else all_studies(), as_json)
        return
    if name is None:
        raise ByheartError("which study? `byheart reproduce --list` names them.")
    found = find(name)
    if status:
        _status(found, profile, seeds, store, output, as_json)
        return
    if export is not None:
        from byheart.studies.table import check_export

        check_export(export)
    deadline = None if time_budget is None else time.monotonic() + time_budget
    places: dict[Path, list[Study]] = {}
    for study in found:
        places.setdefault(store or output / f"{study.paper}.db", []).append(study)
    records, rows, reports = [], [], []
    for place, studies in places.items():
        if not redraw:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            reports.append(
                _run(studies, place, profile, variant, only, seeds, left, workers, retry_failed)
            )
        for study in studies:
            finding, good, bad = _finish(study, place, profile, variant, only, seeds, output)
            rows += good + bad
            files = _files(study, profile, output)
            records.append(_record(study, profile, finding, good, bad, files, place))
            if not as_json:
                _show(study, finding, good, bad, files)
    total = _total(reports)
    if export is not None:
        from byheart.studies.table import export as write

        number = write(rows, export)
        if not as_json:
            say(f"\n{number:,} rows in {export}")
    if as_json:
        emit({**total, "studies": records})
    else:
        _verdicts(records, total, redraw)
    if any(record["failed"] for record in records):
        raise typer.Exit(1)


def _run(
    studies: list[Study], place: Path, profile: str, variant: str | None, only: str | None,
    seeds: int | None, left: float | None, workers: str, retry_failed: bool,
) -> Report:  # fmt: skip
    from byheart.studies import run

    name = studies[0].name if len(studies) == 1 else studies[0].paper
    with _terminated_is_interrupted(), shown(name) as tell:
        return run(
            studies,
            place,
            variant=variant,
            profile=profile,
            seeds=seeds,
            only=only,
            workers=workers,
            time_budget=left,
            retry_failed=retry_failed,
            progress=tell,
        )


@contextmanager
def _terminated_is_interrupted() -> Iterator[None]:
    """SIGTERM, by which batch systems stop a job, is a clean stop like Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _finish(
    study: Study, place: Path, profile: str, variant: str | None, only: str | None,
    seeds: int | None, output: Path,
) -> tuple[Finding, list[Any], list[Any]]:  # fmt: skip
    """Rows from the store, then fit, figure, CSV and finding as files."""
    import json

    from byheart._folders import write_text
    from byheart.studies import figure, open_store, rows_of
    from byheart.studies.table import export

    with open_store(place, create=False) as opened:
        good, bad = rows_of(study, opened, profile, variant=variant, only=only, seeds=seeds)
    finding = study.analyse(good)
    files = _files(study, profile, output)
    figure.save(study.draw(good, finding), files["figure"])
    export(good + bad, files["csv"])
    try:
        write_text(files["finding"], json.dumps(_plain(finding.to_json()), indent=1) + "\n")
    except OSError as error:
        raise ByheartError(f"{files['finding']} cannot be written: {error.strerror}.") from None
    return finding, good, bad


def _plain(value: Any) -> Any:
    from byheart.cli._show import _plain as plain

    return plain(value)


def _files(study: Study, profile: str, output: Path) -> dict[str, Path]:
    stem = study.name.replace("/", "-") + ("" if profile == "full" else f"-{profile}")
    return {
        "figure": output / f"{stem}.png",
        "csv": output / f"{stem}.csv",
        "finding": output / f"{stem}.json",
    }


def _record(
    study: Study, profile: str, finding: Finding, good: list[Any], bad: list[Any],
    files: dict[str, Path], place: Path,
) -> dict[str, Any]:  # fmt: skip
    return {
        "study": study.name,
        "profile": profile,
        "rows": len(good),
        "failed": len(bad),
        "seconds": sum(row.seconds for row in good),
        **finding.to_json(),
        **{what: os.fspath(path) for what, path in files.items()},
        "store": os.fspath(place),
    }


def _total(reports: list[Report]) -> dict[str, Any]:
    return {
        "computed": sum(r.computed for r in reports),
        "before": sum(r.there for r in reports),
        "missing": sum(r.missing for r in reports),
        "seconds": sum(r.seconds for r in reports),
    }


def _show(
    study: Study, finding: Finding, good: list[Any], bad: list[Any], files: dict[str, Path]
) -> None:
    say(f"{study.name}: {study.title} ({study.source})")
    say(f"  claim    {study.claim}")
    say(f"  verdict  {finding.verdict}: {finding.sentence}")
    for name, value in finding.numbers.items():
        say(f"  {name}: {_number(value)}")
    for row in bad[:3]:
        say(f"  failed: {dict(row.params)}, seed {row.seed}: {row.error}")
    say(f"  {len(good)} rows; figure {files['figure']}, rows {files['csv']}")


def _verdicts(records: list[dict[str, Any]], total: dict[str, Any], redraw: bool) -> None:
    if len(records) > 1:
        say()
        table(
            [(r["study"], r["verdict"], str(r["rows"]), duration(r["seconds"])) for r in records],
            ("study", "verdict", "rows", "time of its rows"),
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


def _number(value: Any) -> str:
    if isinstance(value, dict) and "estimate" in value:
        return f"{value['estimate']:.4g} (95 %: {value['low']:.4g} to {value['high']:.4g})"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _list(found: list[Study], as_json: bool) -> None:
    records = []
    for study in found:
        quick, quick_how = study.estimate("quick")
        full, full_how = study.estimate("full")
        records.append(
            {
                "study": study.name,
                "source": study.source,
                "title": study.title,
                "variants": list(study.variants),
                "quick_seconds": quick / 2,
                "quick": quick_how,
                "full_seconds": full / 2,
                "full": full_how,
            }
        )
    if as_json:
        emit({"studies": records})
        return
    lines = [("study", "quick, 2 cores", "full, 2 cores", "source")]
    for r in records:
        quick, full = (f"{duration(r[f'{p}_seconds'])} {r[p]}" for p in ("quick", "full"))
        lines.append((r["study"], quick, full, r["source"]))
    widths = [max(len(row[i]) for row in lines) for i in range(3)]
    for row in lines:  # names stay whole, so that they can be copied
        say("  ".join([*(cell.ljust(w) for cell, w in zip(row[:3], widths, strict=True)), row[3]]))
    say("\nTimes are CPU time halved; rows that studies share are computed once.")


def _status(
    found: list[Study], profile: str, seeds: int | None, store: Path | None, output: Path,
    as_json: bool,
) -> None:  # fmt: skip
    from byheart.studies import open_store, status

    records = []
    for study in found:
        place = store or output / f"{study.paper}.db"
        with open_store(place, create=False) as opened:
            records.append({**status(study, opened, profile, seeds), "store": os.fspath(place)})
    if as_json:
        emit({"studies": records})
        return
    table(
        [
            (r["study"], *(str(r[k]) for k in ("rows", "done", "failed", "missing")))
            for r in records
        ],
        ("study", "rows", "done", "failed", "missing"),
    )
