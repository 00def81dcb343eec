"""Rows as tables: flat records for CSV, Parquet and figures."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from byheart._folders import save_file
from byheart.errors import ByheartError, OptionError
from byheart.studies.study import Record, Row

# First columns of every export; what a row does not have is empty.
COLUMNS = ("study", "experiment", "variant", "N", "S", "d", "d_h", "H", "layers", "width", "seed",
           "train_accuracy", "accuracy", "seconds")  # fmt: skip
LAST = ("error", "cell", "device", "threads", "stack", "versions")


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
    data = _csv(columns, table) if target.suffix.lower() == ".csv" else _parquet(columns, table)
    save_file(target, data)
    return len(table)


def check_export(path: str | os.PathLike[str]) -> None:
    """Refuse a file that could not be written, before any work."""
    target = Path(path)
    if target.suffix.lower() not in (".csv", ".parquet"):
        raise OptionError("export", "a file that ends in .csv or .parquet", str(path))
    if not target.parent.is_dir():
        raise ByheartError(f"{path} cannot be written: there is no folder {target.parent}.")
    if target.suffix.lower() == ".parquet":
        _pyarrow()


def _csv(columns: list[str], table: list[Record]) -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return out.getvalue().encode()


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
        raise ByheartError("Parquet needs pyarrow: pip install 'byheart[parquet]'") from None
    return pyarrow, pyarrow.parquet
