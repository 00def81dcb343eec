"""The page of a study: claim, verdict by rule, figure, fit with intervals, every row."""

from __future__ import annotations

import base64
import io
import json
import math
import re
from pathlib import Path
from typing import Any

from byheart.errors import ByheartError
from byheart.reports.page import render, short

TABLE = 1_200_000  # bytes of rows in the page
FIGURES = 900_000  # bytes of all static pictures
SHARPNESS = (110, 80, 60)  # dots an inch, as many as there is room for
PROFILES = ("paper", "full", "quick")
SKIPPED = {"study", "cell", "device", "threads", "stack", "versions", "error"}
# What a reader looks for on the x axis first, and on the y axis.
FIRST_X = ("H", "d", "d_h", "T", "facts", "n", "N", "layers", "width", "rank")
FIRST_Y = ("train_accuracy", "accuracy", "kl", "facts", "parameters")
MARKS = {"confirmed": "proved", "not confirmed": "damaged", "artefact": "damaged"}


def study_page(source: str | Path) -> str:
    """The HTML of a store of `byheart reproduce`: one part for each study in it."""
    from byheart.studies import open_store

    with open_store(source, create=False) as store:
        every = store.rows()
        names = sorted({row.study for row in every})
        seeds = 1 + max((row.seed for row in every), default=0)
        parts = [_part(store, name, seeds) for name in names]
    if not parts:
        raise ByheartError(
            f"{source}: a store without rows. `byheart reproduce NAME --store {source}` fills it."
        )
    room = TABLE // len(parts)
    for part in parts:
        if part["drawn"] is not None:
            part["figure"] = _picture(part["drawn"], FIGURES // len(parts))
    data = {"kind": "study", "studies": [_data(part, room) for part in parts]}
    titles = [part["title"] for part in parts]
    title = titles[0] if len(titles) == 1 else f"{Path(source).name}: {len(parts)} studies"
    return render(
        "study.html", ("core.js", "chart.js", "study.js"), data, title=title, studies=parts,
        data_studies=data["studies"],
    )  # fmt: skip


def study_figure(source: Path, name: str) -> Any:
    """The figure that the study `name` draws of its rows in the store."""
    from byheart.studies import open_store

    with open_store(source, create=False) as store:
        every = store.rows()
        names = sorted({row.study for row in every})
        if name not in names:
            raise ByheartError(f"{source} has no study {name!r}; it has {', '.join(names)}.")
        drawn = _part(store, name, 1 + max(row.seed for row in every))["drawn"]
    if drawn is None:
        raise ByheartError(f"{source}: this byheart does not know how to draw {name}.")
    return drawn


def _part(store: Any, name: str, seeds: int) -> dict[str, Any]:
    study = _known(name)
    if study is None:  # a study of somebody else: its rows, without a verdict
        rows = [row for row in store.rows(name) if row.error is None]
        return _words(name) | {"rows": rows, "failed": [], "figure": None, "drawn": None}
    from byheart.studies import rows_of

    found = {p: rows_of(study, store, p, seeds=seeds) for p in PROFILES}
    profile = max(PROFILES, key=lambda p: len(found[p][0]))
    good, bad = found[profile]
    finding = study.analyse(good)
    drawn = study.draw(good, finding) if good else None
    return _words(name, study) | {
        "profile": profile,
        "verdict": finding.verdict,
        "state": MARKS.get(finding.verdict, "unproved"),
        "sentence": finding.sentence,
        "numbers": [(key, _number(value)) for key, value in finding.numbers.items()],
        "tables": [(key, *_table(rows)) for key, rows in finding.tables.items() if rows],
        "rows": good,
        "failed": bad,
        "figure": None,
        "drawn": drawn,
    }


def _known(name: str) -> Any:
    from byheart.papers import all_studies

    return {study.name: study for study in all_studies()}.get(name)


def _words(name: str, study: Any = None) -> dict[str, Any]:
    empty = {
        "profile": "", "verdict": "", "state": "unproved", "sentence": "", "numbers": [],
        "tables": [], "name": name,
    }  # fmt: skip
    if study is None:
        said = "This byheart does not know the study: only its rows are shown."
        return empty | {
            "title": name, "source": "", "claim": "", "rule": "", "measurement": "",
            "settings": "", "disagreements": (), "sentence": said,
        }  # fmt: skip
    return empty | {
        key: getattr(study, key)
        for key in ("title", "source", "claim", "rule", "measurement", "settings", "disagreements")
    }


def _number(value: Any) -> str:
    """A number, with its interval if it has one.

    >>> _number({"estimate": 1.0234, "low": 0.98, "high": 1.07})
    '1.02 (95 %: 0.98 to 1.07)'
    """
    if isinstance(value, dict) and "estimate" in value:
        low, high = value.get("low"), value.get("high")
        if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
            return short(value["estimate"])
        return f"{short(value['estimate'])} (95 %: {short(low)} to {short(high)})"
    return short(value) if isinstance(value, float) else str(value)


def _table(rows: Any) -> tuple[list[str], list[list[str]]]:
    names = list(dict.fromkeys(key for row in rows for key in row))
    return names, [[_cell(row.get(name)) for name in names] for row in rows]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return ", ".join(f"{k} {_cell(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return " to ".join(_cell(v) for v in value)
    return _number(value)


def _picture(figure: Any, room: int) -> str | None:
    """The study's own figure as a data address; None where it would be too large."""
    for dpi in SHARPNESS:
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=dpi, metadata={"Software": None})
        text = base64.b64encode(out.getvalue()).decode()
        if len(text) <= room:
            return f"data:image/png;base64,{text}"
    return None


def _data(part: dict[str, Any], room: int) -> dict[str, Any]:
    """Rows as columns, constants apart; and what the chart begins with."""
    records = [_flat(row) for row in part["rows"]]
    names = list(dict.fromkeys(key for record in records for key in record))
    constants = {}
    columns = []
    for name in names:
        values = {json.dumps(record.get(name)) for record in records}
        if len(values) == 1 and len(records) > 1 and name not in ("seed", "variant"):
            constants[name] = records[0].get(name)
        else:
            columns.append(name)
    rows = [[_plain(record.get(name)) for name in columns] for record in records]
    kept = rows
    size = len(json.dumps(rows))
    if size > room:
        kept = rows[: max(1, int(len(rows) * room / size))]
    measured = {key for row in part["rows"] for key in row.measurements}
    parameters = {key for row in part["rows"] for key in row.params} - measured
    return {
        "name": part["name"],
        "columns": columns,
        "rows": kept,
        "all": len(rows),
        "constants": {key: _plain(value) for key, value in constants.items()},
        "parameters": [c for c in columns if c in parameters and c != "seed"],
        **_axes(part["drawn"], columns, rows),
    }


def _flat(row: Any) -> dict[str, Any]:
    own = {name: getattr(row, name) for name in ("experiment", "variant", "seed", "seconds")}
    inside = {k: v for k, v in {**row.params, **row.measurements}.items() if k not in SKIPPED}
    return own | inside


def _plain(value: Any) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, float):
        return float(f"{value:.8g}") if math.isfinite(value) else None
    return json.dumps(value)


def _axes(figure: Any, columns: list[str], rows: list[list[Any]]) -> dict[str, Any]:
    """x and y of the study's own figure, where its labels name columns; its dashed lines."""
    numeric = [
        c for i, c in enumerate(columns)
        if rows and all(isinstance(r[i], (int, float, type(None))) for r in rows)
        and any(isinstance(r[i], (int, float)) and not isinstance(r[i], bool) for r in rows)
    ]  # fmt: skip
    axes = figure.axes[0] if figure is not None and figure.axes else None
    labels = ("", "") if axes is None else (axes.get_xlabel(), axes.get_ylabel())

    def named(label: str, first: tuple[str, ...]) -> str:
        words = set(re.findall(r"\w+", label))
        for name in (*(c for c in numeric if c in words), *first, *numeric):
            if name in numeric:
                return name
        return ""

    drawn = None if axes is None else _drawn(axes, numeric, columns, rows)
    x, y = drawn or (named(labels[0], FIRST_X), named(labels[1], FIRST_Y))
    return {
        "numeric": numeric,
        "x": x,
        "y": y,
        "x_label": labels[0],
        "y_label": labels[1],
        "logs": [axes is not None and axes.get_xscale() == "log",
                 axes is not None and axes.get_yscale() == "log"],
        "lines": [] if figure is None else _lines(figure),
    }  # fmt: skip


def _drawn(
    axes: Any, numeric: list[str], columns: list[str], rows: list[list[Any]]
) -> tuple[str, str] | None:
    """The two columns whose pairs are the dots of the figure, if there are such."""
    dots = {
        (float(f"{a:.6g}"), float(f"{b:.6g}"))
        for line in axes.get_lines()
        if line.get_marker() == "." and line.get_linestyle() == "None"
        for a, b in zip(*line.get_data(), strict=True)
    }
    if not dots:
        return None
    at = {name: columns.index(name) for name in numeric}

    def seen(x: str, y: str) -> int:
        pairs = {
            (float(f"{r[at[x]]:.6g}"), float(f"{r[at[y]]:.6g}"))
            for r in rows
            if r[at[x]] is not None and r[at[y]] is not None
        }
        return len(dots & pairs)

    best = max(((x, y) for x in numeric for y in numeric if x != y), key=lambda p: seen(*p))
    return best if seen(*best) >= 0.9 * len(dots) else None


def _lines(figure: Any) -> list[dict[str, Any]]:
    """Dashed and dotted lines of the figure, bounds and fits, once each."""
    found: dict[str, dict[str, Any]] = {}
    for axes in figure.axes:
        for line in axes.get_lines():
            x, y = ([float(v) for v in values] for values in line.get_data())
            if line.get_linestyle() in ("--", ":", "-.") and 1 < len(x) <= 400:
                label = line.get_label()
                points = [
                    [float(f"{a:.5g}"), float(f"{b:.5g}")]
                    for a, b in zip(x, y, strict=True)
                    if math.isfinite(a) and math.isfinite(b)
                ]
                name = axes.get_title() if label.startswith("_") else label
                found.setdefault(json.dumps(points), {"name": name, "points": points})
    return list(found.values())[:40]
