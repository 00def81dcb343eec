"""Rows of Parquet files, when pyarrow is installed."""

from __future__ import annotations

import importlib
from collections.abc import Generator
from pathlib import Path

from byheart.errors import FactsError

__all__ = ["parquet_rows"]


def parquet_rows(path: Path, where: str) -> Generator[tuple[int, list[object]], None, None]:
    """(row, cells) of each record, the column names first as row 1, the first record as row 2.

    Notes:
        Numbers with a point, dates and truth values are taken as Python writes them. Batches are
        read one at a time.
    """
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise FactsError(
            f"{where}: expected pyarrow, which reads Parquet files, found that it is not installed."
            " Install it (pip install pyarrow) or save the table as CSV."
        ) from error
    # pyarrow's own errors derive from ValueError or OSError.
    try:
        with parquet.ParquetFile(path) as file:
            names = list(file.schema_arrow.names)
            yield 1, [*names]
            row = 1
            for batch in file.iter_batches():
                columns = [batch.column(i).to_pylist() for i in range(len(names))]
                for values in zip(*columns, strict=True):
                    row += 1
                    yield row, [_written(value) for value in values]
    except (ValueError, OSError) as error:
        raise FactsError(f"{where}: expected a Parquet file, found: {error}.") from error


def _written(value: object) -> object:
    """What is no text, number or gap as the text of it; containers and bytes are refused later."""
    kept = value is None or value != value or isinstance(value, (str, bytes, list, tuple, dict))
    return value if kept or type(value) is int else str(value)
