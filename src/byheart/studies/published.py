"""Ours beside what others published: differences cell by cell, their mean, and a verdict."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from importlib import resources

import numpy as np

from byheart.studies.cell import Params
from byheart.studies.fits import combined
from byheart.studies.study import Claim, Published, Record, Row


def matched(published: Published, rows: Sequence[Row]) -> list[tuple[Params, float, list[Row]]]:
    """The published points of which there are rows: parameters, value, and the rows."""
    mine = [row for row in rows if row.variant == published.variant]
    found = []
    for params, value in published.points:
        same = [r for r in mine if all(r.params.get(k) == v for k, v in params.items())]
        if same:
            found.append((params, value, list({row.seed: row for row in same}.values())))
    return found


def agreement(
    published: Published, rows: Sequence[Row]
) -> tuple[Claim | None, Record, list[Record]]:
    """Whether ours agree: the claim on the mean difference, numbers, and a line a cell.

    The interval is over our seeds; how far the published values would move with other seeds their
    authors do not say.
    """
    pairs = matched(published, rows)
    if not pairs:
        return None, {}, []
    groups = [[row[published.measure] for row in same] for _, _, same in pairs]
    values = np.array([value for _, value, _ in pairs])
    share = np.full(len(pairs), 1 / len(pairs))
    ours = np.array([np.mean(group) for group in groups])
    mean = combined(groups, share, float((ours - values).mean()))
    table = []
    varying = [k for k in pairs[0][0] if len({str(params.get(k)) for params, _, _ in pairs}) > 1]
    for (params, value, _), group in zip(pairs, groups, strict=True):
        one = combined([group], [1.0])
        shifted = {name: end - value for name, end in one.items()}
        sizes = {name: params.get(name) for name in varying}
        table.append({**sizes, "published": value, "ours": one["estimate"], **shifted})
    largest = max(table, key=lambda line: abs(line["estimate"]))
    numbers = {
        "largest difference from the published data": {k: largest[k] for k in mean},
        "mean absolute difference from the published data": float(np.abs(ours - values).mean()),
    }
    band = published.near + published.error
    statement = f"ours minus published, mean of {len(pairs)} settings ({published.source})"
    return Claim(statement, mean, -band, band), numbers, table


def read(
    name: str, keep: Callable[[Record], Params | None], value: str
) -> list[tuple[Params, float]]:
    """The points of a table: of each line that `keep` makes the parameters of a cell of, its column
    `value`."""
    kept = [(keep(record), float(record[value])) for record in lines(name)]
    return [(params, number) for params, number in kept if params is not None]


def lines(name: str) -> list[Record]:
    """A table of `byheart.papers.published`, line by line. Numbers are read as such."""
    path = resources.files("byheart") / "papers" / "published" / f"{name}.csv"
    table = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    return [{key: _typed(text) for key, text in line.items()} for line in table]


def _typed(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
