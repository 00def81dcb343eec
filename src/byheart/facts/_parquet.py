"""Records of Parquet files, when pyarrow is installed."""

from __future__ import annotations

import importlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

from byheart.errors import FactsError
from byheart.facts._words import quote

__all__ = ["parquet_records"]


def parquet_records(path: Path, where: str) -> Generator[tuple[int, list[str]], None, None]:
    """(row, cells) of each record, the column names first as row 1, the first record as row 2.

    Notes:
        Values are written out as text: 3 becomes "3" and null an empty cell. Batches are read one
        at a time.
    """
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise FactsError(
            f"{where}: expected pyarrow, which reads Parquet files, found that it is not installed."
            " Install it (pip install pyarrow) or save the table as CSV."
        ) from error
    # pyarrow's own errors derive from ValueError or OSError.
    try:
        with parquet.ParquetFile(path) as file:
            names = list(file.schema_arrow.names)
            yield 1, names
            row = 1
            for batch in file.iter_batches():
                columns = [batch.column(i).to_pylist() for i in range(len(names))]
                for values in zip(*columns, strict=True):
                    row += 1
                    yield (
                        row,
                        [
                            _as_text(value, f"{where}, row {row}, column {quote(name)}")
                            for value, name in zip(values, names, strict=True)
                        ],
                    )
    except (ValueError, OSError) as error:
        raise FactsError(f"{where}: expected a Parquet file, found: {error}.") from error


def _as_text(value: Any, place: str) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bytes | list | tuple | dict):
        raise FactsError(
            f"{place}: expected text or a number, found a {type(value).__name__}. "
            "Turn it into text, or choose other columns."
        )
    return str(value)
