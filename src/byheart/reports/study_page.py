"""The page of a study: claim, verdict by rule, figure, fit with intervals, every row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from byheart._json import Json, plain, typed
from byheart.errors import ByheartError
from byheart.models.construction import Curve
from byheart.reports.page import Page, render
from byheart.studies.result import claim_lines, number_text, table_text
from byheart.studies.study import PROFILES, Axes, Finding, Record, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from byheart.studies import Store, Study, StudyResult

DIGITS = 3  # of a number in the page's tables
TABLE = 1_200_000  # bytes of rows in the page
FIGURES = 900_000  # bytes of all static pictures
CURVES = 150_000  # of those, of training curves
SKIPPED = {"study", "cell", "device", "threads", "stack", "versions", "error"}
MARKS = {"confirmed": "proved", "refuted": "damaged"}
UNKNOWN = "This byheart does not know the study: only its rows are shown."


def study_page(source: str | Path) -> Page:
    """The page of a store of `byheart reproduce`: one part for each study in it."""
    from byheart.studies import open_store

    with open_store(source, create=False) as store:
        names = sorted({row.study for row in store.rows()})
        if not names:
            hint = f"`byheart reproduce NAME --store {source}` fills it."
            raise ByheartError(f"{source}: a store without rows. {hint}")
        parts = [_part(store, name, FIGURES // len(names)) for name in names]
    data = [_data(part, TABLE // len(parts)) for part in parts]
    first, several = parts[0], f"{Path(source).name}: {len(parts)} studies"
    title = first["title"] if len(parts) == 1 else several
    verdict = (first["verdict"] or "no verdict").capitalize()
    line = f"{verdict}. {first['name']}, {len(first['rows']):,} rows."
    return render(
        "study.html", ("core.js", "chart.js", "study.js"), {"kind": "study", "studies": data},
        title=title, line=line, studies=parts, data_studies=data,
    )  # fmt: skip


def study_figure(source: Path, name: str) -> Figure:
    """The figure that the study `name` draws of its rows in the store."""
    from byheart.studies import open_store

    with open_store(source, create=False) as store:
        names = sorted({row.study for row in store.rows()})
        if name not in names:
            raise ByheartError(f"{source} has no study {name!r}; it has {', '.join(names)}.")
        study = _known(name)
        if study is None:
            raise ByheartError(f"{source}: this byheart does not know how to draw {name}.")
        return _result(study, store).figure


def _known(name: str) -> Study | None:
    from byheart.papers import registry

    return {study.name: study for study in registry.all_studies()}.get(name)


def _result(study: Study, store: Store) -> StudyResult:
    """What the study finds in the rows of the profile that has most of them."""
    from byheart.studies import StudyResult, rows_of

    seeds = sorted({row.seed for row in store.rows(study.name)})
    rows = {p: rows_of(study, store, p, seeds=seeds) for p in reversed(PROFILES)}
    profile = max(rows, key=lambda p: len(rows[p][0]))
    good, bad = rows[profile]
    return StudyResult(study, profile, good, bad, study.find(good), store.path)


def _part(store: Store, name: str, room: int) -> Record:
    """What the template reads of one study. A study that is not installed here gave an account of
    itself when it ran; without one, its rows are shown alone."""
    every = store.rows(name)
    rows = [row for row in every if row.error is None]
    failed = [row for row in every if row.error is not None]
    study, account = _known(name), store.account(name)
    if study is not None:
        result = _result(study, store)
        if result.rows or account is None:
            rows, failed = result.rows, result.failed
            account = result.account(room)
    elif account is not None:
        rows = [row for row in store.rows(name, profile=account["profile"]) if row.error is None]
    words = ("source", "claim", "rule", "measurement", "settings", "profile")
    part: Record = {**dict.fromkeys(words, ""), "name": name, "title": name, "disagreements": ()}
    part |= {"axes": [], "picture": None, "lines": [], "rows": rows, "failed": failed}
    part |= account or {}
    finding = Finding.from_json(account["finding"]) if account else Finding(UNKNOWN)
    numbers = [(key, number_text(value, DIGITS)) for key, value in finding.numbers.items()]
    tables = [(key, *table_text(table, DIGITS)) for key, table in finding.tables.items() if table]
    fits = part["picture"] is not None and len(part["picture"]) <= room
    return part | _curves(store, name, part["rows"], room) | {
        "verdict": finding.outcome if account else "", "sentence": finding.sentence,
        "claims": claim_lines(finding),
        "numbers": numbers, "tables": tables, "figure": part["picture"] if fits else None,
        "state": MARKS.get(finding.verdict, "unproved"),
    }  # fmt: skip


def _curves(store: Store, name: str, rows: Sequence[Row], room: int) -> Record:
    """The latest curves of the study's trainings as one small picture, if it has any."""
    from byheart.studies import figure
    from byheart.training.curves import NAMED, curves_figure

    kept = store.curves(name)
    last = [row for row in rows if (row.cell, row.seed) in kept][-NAMED:]
    if not last:
        return {"curves": None}
    varying = [k for k in last[0].params if len({str(row.params.get(k)) for row in last}) > 1]
    drawn: list[tuple[str, Curve]] = []
    for row in last:
        words = [*(f"{k} = {row.params.get(k)}" for k in varying), f"seed {row.seed}"]
        try:
            drawn.append((", ".join(words), typed(kept[row.cell, row.seed], Curve, "curve")))
        except ValueError as error:
            raise ByheartError(f"{store.path}: a curve of {name} is damaged: {error}.") from None
    made = curves_figure(drawn, "Each point is a batch before its update")
    return {"curves": figure.picture(made, min(room, CURVES)), "curve_count": len(drawn)}


def _data(part: Record, room: int) -> Record:
    """Rows as columns, constants apart; and what the chart begins with."""
    records = [_flat(row) for row in part["rows"]]
    names = dict.fromkeys(key for record in records for key in record)
    constants: Record = {}
    for name in names if len(records) > 1 else ():
        same = len({json.dumps(record.get(name)) for record in records}) == 1
        if same and name not in ("seed", "variant"):
            constants[name] = records[0].get(name)
    columns = [name for name in names if name not in constants]
    rows = [[record.get(name) for name in columns] for record in records]
    size = len(json.dumps(rows))
    kept = rows if size <= room else rows[: max(1, int(len(rows) * room / size))]
    measured = {key for row in part["rows"] for key in row.measurements}
    parameters = {key for row in part["rows"] for key in row.params} - measured - {"seed"}
    return {
        "name": part["name"], "columns": columns, "rows": kept, "all": len(rows),
        "constants": constants, "parameters": [c for c in columns if c in parameters],
        **_chart(part, columns, rows),
    }  # fmt: skip


def _flat(row: Row) -> dict[str, Json]:
    """A row as the chart reads it: numbers in eight digits, lists as text."""
    values = {name: getattr(row, name) for name in ("experiment", "variant", "seed", "seconds")}
    values |= {k: v for k, v in {**row.params, **row.measurements}.items() if k not in SKIPPED}
    flat: dict[str, Json] = {}
    for name, value in values.items():
        found = plain(value)
        if isinstance(found, float):
            found = float(f"{found:.8g}")
        flat[name] = json.dumps(found) if isinstance(found, (list, dict)) else found
    return flat


def _chart(part: Record, columns: list[str], rows: list[list[Json]]) -> Record:
    """What the chart begins with: the axes that the study says, or those that suit its rows; its
    dashed lines."""
    from byheart.studies.figure import suitable

    numeric = [
        c for i, c in enumerate(columns)
        if all(isinstance(r[i], (int, float, type(None))) for r in rows)
        and any(isinstance(r[i], (int, float)) and not isinstance(r[i], bool) for r in rows)
    ]  # fmt: skip
    axes = Axes(**part["axes"][0]) if part["axes"] else suitable(part["rows"])
    first = {name: name for name in (axes.x, axes.y) if name in numeric}
    others = [name for name in numeric if name not in first] or [""]
    return {
        "numeric": numeric,
        "x": first.get(axes.x, others[0]),
        "y": first.get(axes.y, others[-1]),
        "x_label": axes.x_label or axes.x,
        "y_label": axes.y_label or axes.y,
        "logs": ["x" in axes.log, "y" in axes.log],
        "lines": part["lines"],
    }
