"""What a study found: its rows, fit, figure and verdict, in hand or as files."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from byheart._folders import save_file
from byheart._install import install
from byheart._json import plain
from byheart._progress import Report as Tell
from byheart._progress import quiet
from byheart._tables import data_frame
from byheart.errors import ByheartError, OptionError, check_choice
from byheart.studies import figure
from byheart.studies.cell import group
from byheart.studies.recorded import best_profile, recorded_rows
from byheart.studies.run import Report, Seeds, rows_of, run
from byheart.studies.store import coordinating, open_store
from byheart.studies.study import PROFILES, Finding, Record, Row, Study, Verdict
from byheart.studies.work import FileFunction, shipped

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

FOLDER = "byheart-studies"
PICTURE = 900_000  # bytes of a figure inside a page or a store
WORDS = ("title", "source", "claim", "measurement", "rule", "settings", "disagreements")
# First columns of every export; what a row does not have is empty.
COLUMNS = ("study", "experiment", "variant", "N", "S", "d", "d_h", "H", "layers", "width", "seed",
           "train_accuracy", "accuracy", "seconds")  # fmt: skip
SYMBOL = 4  # characters of a column's name that is a symbol, d_h or d_KL, rather than words
LAST = ("error", "cell", "device", "threads", "stack", "versions")


@dataclass(frozen=True)
class Selection:
    """Which rows of a study: a profile (quick; of recorded rows the most faithful there is), one
    variant or all, cells for which an expression holds, seeds; `values` replaces parts of the grid
    (see `Study.with_values`)."""

    profile: str | None = None
    variant: str | None = None
    only: str | None = None
    seeds: Seeds = None
    values: Mapping[str, Sequence[object]] | None = None

    def __post_init__(self) -> None:
        check_choice("profile", self.profile or PROFILES[0], PROFILES)


@dataclass(frozen=True)
class Execution:
    """How missing rows are computed. `rows`: "missing" ones only, those of the package taken as
    they are; all of them "fresh"; none, but what is in the "store", or what was "recorded" with the
    package.
    """

    workers: int | str = 1
    time_budget: float | None = None
    retry_failed: bool = False
    progress: Tell = quiet
    rows: Literal["missing", "fresh", "store", "recorded"] = "missing"
    device: str = "cpu"

    @property
    def compute(self) -> bool:
        return self.rows in ("missing", "fresh")


def number_text(value: object, digits: int = 4) -> str:
    """A number, with its interval if it has one. What is known from below only has no upper end;
    an estimate from too few seeds, or at the edge of its search, has none at all.

    >>> number_text({"estimate": 1.0234, "low": 0.98, "high": 1.07})
    '1.023 (95 %: 0.98 to 1.07)'
    >>> number_text({"estimate": 11.0, "low": 11.0, "high": math.inf}), number_text(math.nan)
    ('at least 11', 'no number')
    >>> number_text({"estimate": 0.0, "low": 0.0, "high": 0.0})  # counted
    '0'
    >>> number_text({"estimate": 6.05, "low": math.nan, "high": math.nan})
    '6.05 (no interval)'
    """
    if isinstance(value, Mapping) and "estimate" in value:
        ends = [value.get(name) for name in ("low", "high")]
        low, high = (math.nan if end is None else end for end in ends)
        estimate, least, most = (f"{v:.{digits}g}" for v in (value["estimate"], low, high))
        if math.isfinite(low) and math.isfinite(high) and low < high:
            return f"{estimate} (95 %: {least} to {most})"
        if math.isfinite(low) and high == math.inf:
            return f"at least {least}" if least == estimate else f"{estimate} (95 %: {least} up)"
        known = math.isfinite(low) or math.isnan(value["estimate"])
        return number_text(value["estimate"], digits) + ("" if known else " (no interval)")
    if isinstance(value, float):
        return "no number" if math.isnan(value) else f"{value:.{digits}g}"
    return str(value)


def cell_text(value: object, digits: int = 4) -> str:
    """What a table shows of a value.

    >>> cell_text({"estimate": 1.0234, "low": 0.98, "high": 1.07}), cell_text(math.nan)
    ('1.023 (0.98 to 1.07)', '-')
    >>> cell_text({"a": 1.5, "b": True}), cell_text((1, 2))
    ('a 1.5, b yes', '1 to 2')
    """
    if isinstance(value, Mapping):
        if "estimate" in value:
            return number_text(value, digits).replace("(95 %: ", "(").replace("no number", "-")
        return ", ".join(f"{name} {cell_text(v, digits)}" for name, v in value.items())
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return " to ".join(cell_text(v, digits) for v in value)
    return number_text(value, digits)


def table_text(
    rows: Sequence[Mapping[str, object]], digits: int = 4
) -> tuple[list[str], list[list[str]]]:
    """Titles and lines of a table as text: `laws.columns` of a number are one column again, with
    the interval in brackets, and titles are words, but for short symbols like d_h.

    >>> table_text([{"d_h": 8, "p_of_H": 1.0, "p_of_H_low": 0.9, "p_of_H_high": 1.1}])
    (['d_h', 'p of H'], [['8', '1 (0.9 to 1.1)']])
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    ends = {name: (f"{name}_low", f"{name}_high") for name in names}
    ends = {name: both for name, both in ends.items() if all(end in names for end in both)}
    hidden = {end for both in ends.values() for end in both}
    shown = [name for name in names if name not in hidden]

    def text(row: Mapping[str, object], name: str) -> str:
        value = row.get(name)
        if name in ends and value is not None:
            low, high = (row.get(end) for end in ends[name])
            value = {"estimate": value, "low": low, "high": high}
        return cell_text(value, digits)

    titles = [name if len(name) <= SYMBOL else name.replace("_", " ") for name in shown]
    return titles, [[text(row, name) for name in shown] for row in rows]


def claim_lines(finding: Finding) -> list[str]:
    """Every claim in one line: verdict (none of a trend), statement, what was found, and the band;
    how near the published data are comes first."""
    claims = ([] if finding.data is None else [finding.data]) + list(finding.claims)
    return [
        f"{finding.outcome_of(claim)}: {claim.statement}; found {number_text(claim.found)}, "
        f"claimed {claim.band}"
        for claim in claims
    ]


@dataclass(frozen=True, repr=False)
class StudyResult:
    """A study's rows that are there and what follows from them.

    `rows`: one for each (cell, seed), `failed` those that have an error instead; `finding`: claims
    with their verdicts, sentence, numbers with intervals, tables of fits; `figure`: matplotlib's;
    `store`: where the rows are, None for those of the package; `run`: what was computed just now,
    together with the other studies of the same store.
    """

    study: Study
    profile: str
    rows: list[Row]
    failed: list[Row]
    finding: Finding
    store: Path | None
    run: Report | None = None

    @property
    def place(self) -> str:
        """Where the rows are."""
        return "the package" if self.store is None else os.fspath(self.store)

    @property
    def verdict(self) -> Verdict:
        return self.finding.verdict

    @property
    def fit(self) -> Mapping[str, Sequence[Mapping[str, object]]]:
        """The tables of the fits by name."""
        return self.finding.tables

    @cached_property
    def figure(self) -> Figure:
        return self.study.draw(self.rows, self.finding)

    @property
    def outdated(self) -> list[Row]:
        """Rows that an earlier text of the study's file computed."""
        cells = [c for v in self.study.variants for c in self.study.cells(v, self.profile)]
        work = {shipped(cell.procedure.work) for cell in cells}
        now = [f.version.items() for f in work if isinstance(f, FileFunction)]
        return [r for r in self.rows if now and not any(v <= r.versions.items() for v in now)]

    def to_pandas(self) -> DataFrame:
        """All rows, failed ones too, with the columns of the CSV export."""
        columns, table = records(self.rows + self.failed)
        return data_frame(table, columns)

    def to_json(self) -> Record:
        return {
            "study": self.study.name, "profile": self.profile, "rows": len(self.rows),
            "failed": len(self.failed), "seconds": sum(row.seconds for row in self.rows),
            **self.finding.to_json(), "store": self.place,
        }  # fmt: skip

    def save(self, folder: str | os.PathLike[str], mark: str = "") -> dict[str, Path]:
        """Write figure, rows and finding as files; `mark` becomes part of their names."""
        stem = Path(folder) / f"{self.study.name.replace('/', '-')}-{self.profile}{mark}"
        kinds = {"figure": "png", "csv": "csv", "finding": "json"}
        files = {what: Path(f"{stem}.{suffix}") for what, suffix in kinds.items()}
        figure.save(self.figure, files["figure"])
        export(self.rows + self.failed, files["csv"])
        text = json.dumps(plain(self.finding.to_json()), indent=1)
        save_file(files["finding"], text + "\n")
        return files

    def account(self, room: int = PICTURE) -> Record:
        """What a reader needs who does not have the study: its words, finding, axes, figure (in
        at most `room` bytes)."""
        record: Record = {name: getattr(self.study, name) for name in WORDS}
        record |= {"profile": self.profile, "finding": plain(self.finding.to_json())}
        record["axes"] = [asdict(axes) for axes in self.study.panels(self.rows)]
        record["lines"] = figure.dashed_lines(self.figure)
        return record | {"picture": figure.picture(self.figure, room)}

    def __repr__(self) -> str:
        failed = f", {len(self.failed)} failed" if self.failed else ""
        numbers = [f"  {k}: {number_text(v)}" for k, v in self.finding.numbers.items()]
        more = [] if len(numbers) <= 4 else [f"  ... {len(numbers) - 4} more in .finding.numbers"]
        return "\n".join([
            f"{self.study.name} ({self.profile}): {len(self.rows)} rows{failed} in {self.place}",
            f"  {self.verdict}: {self.finding.sentence}",
            *(f"  {line}" for line in claim_lines(self.finding)), *numbers[:4], *more,
        ])  # fmt: skip

    def _repr_html_(self) -> str:
        picture = figure.picture(self.figure, PICTURE)
        image = f'<img src="{picture}" style="max-width:100%">' if picture else ""
        claims = "".join(f"<p>{escape(line)}</p>" for line in claim_lines(self.finding))
        lines = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(number_text(value))}</td></tr>"
            for name, value in self.finding.numbers.items()
        )
        return (
            f"<h4>{escape(self.study.title)}</h4>{image}<p><b>{self.verdict}</b>: "
            f"{escape(self.finding.sentence)}</p>{claims}"
            f"<p><small>{escape(self.study.rule)}</small></p>"
            f"<table>{lines}</table><p>{len(self.rows)} rows in {escape(self.place)}</p>"
        )


def results(
    studies: Sequence[Study], selection: Selection, execution: Execution, *,
    store: str | os.PathLike[str] | None = None, folder: str | os.PathLike[str] = FOLDER,
    known: frozenset[str] = frozenset(),
) -> Iterator[StudyResult]:  # fmt: skip
    """Run studies, those of one store at once, and give what each found.

    Rows are kept in `store`, or in PAPER.db in the `folder`. The store keeps an account of studies
    that are not `known` by name, and of those on another grid, so that their pages can be written.
    """
    if selection.values:
        studies = [study.with_values(selection.values) for study in studies]
    rows = {"variant": selection.variant, "only": selection.only, "seeds": selection.seeds}
    e, profile, began = execution, selection.profile or PROFILES[0], time.monotonic()
    if e.rows == "recorded":
        yield from _recorded(studies, selection, rows)
        return
    by_store = group(studies, lambda study: Path(store or Path(folder) / f"{study.paper}.db"))
    for path, together in by_store.items():
        report = None
        if e.compute:
            gone = time.monotonic() - began
            report = run(
                together, path, profile=profile, workers=e.workers, progress=e.progress,
                time_budget=None if e.time_budget is None else max(0.0, e.time_budget - gone),
                retry_failed=e.retry_failed, fresh=e.rows == "fresh", device=e.device, **rows,
            )  # fmt: skip
        for study in together:
            with open_store(path, create=False) as opened:
                good, bad = rows_of(study, opened, profile, **rows)
            result = StudyResult(study, profile, good, bad, study.find(good), path, report)
            if e.compute and (study.name not in known or selection.values):
                with coordinating(path) as opened:
                    opened.add_account(study.name, result.account())
            yield result
            report = None  # said once


def _recorded(
    studies: Sequence[Study], selection: Selection, rows: Mapping[str, Any]
) -> Iterator[StudyResult]:
    """What the rows say that come with the package; a study without any is left out."""
    found = False
    for study in studies:
        profile = selection.profile or best_profile(study)
        good = recorded_rows(study, profile, **rows)
        if good:
            found = True
            yield StudyResult(study, profile, good, [], study.find(good), None)
    if not found:
        names = ", ".join(study.name for study in studies[:3])
        raise ByheartError(
            f"no rows of {names} come with this byheart. Leave out `recorded` to compute them."
        )


def flat(row: Row) -> Record:
    """One record: names, parameters, measurements, seconds, where it was made."""
    inside = {k: v for k, v in {**row.params, **row.measurements}.items() if k != "seed"}
    labels = {name: getattr(row, name) for name in ("study", "experiment", "variant", "seed")}
    versions = " ".join(f"{name}={value}" for name, value in sorted(row.versions.items()))
    rest = {name: getattr(row, name) for name in ("seconds", *LAST[:-1])}
    return {**inside, **labels, **rest, "versions": versions}


def records(rows: Sequence[Row]) -> tuple[list[str], list[Record]]:
    """Columns and records: the fixed columns first, then what the rows have besides."""
    table = [flat(row) for row in rows]
    others = sorted({name for record in table for name in record} - {*COLUMNS, *LAST})
    return [*COLUMNS, *others, *LAST], table


def export(rows: Sequence[Row], path: str | os.PathLike[str]) -> int:
    """Write rows to a .csv or .parquet file, whole or not at all; the number written."""
    target = Path(path)
    check_export(target)
    columns, table = records(rows)
    if target.suffix.lower() == ".csv":
        out = io.StringIO()
        writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
        save_file(target, out.getvalue())
    else:
        save_file(target, _parquet(columns, table))
    return len(table)


def check_export(path: str | os.PathLike[str]) -> None:
    """Refuse a file that could not be written, before any work."""
    target = Path(path)
    if target.suffix.lower() not in (".csv", ".parquet"):
        raise OptionError("export", "a file that ends in .csv or .parquet", str(path))
    if not os.path.isdir(target.parent):
        raise ByheartError(f"{path} cannot be written: there is no folder {target.parent}.")
    if target.suffix.lower() == ".parquet":
        _pyarrow()


def _parquet(columns: list[str], table: list[Record]) -> bytes:
    pa, pq = _pyarrow()
    arrays = {}
    for name in columns:
        values = [record.get(name) for record in table]
        try:
            arrays[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # text in one cell, a number in another
            arrays[name] = pa.array([None if v is None else str(v) for v in values])
    out = io.BytesIO()
    pq.write_table(pa.table(arrays), out)
    return out.getvalue()


def _pyarrow() -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ByheartError(f"Parquet needs pyarrow: {install('parquet')}") from None
    return pyarrow, pyarrow.parquet
