"""Records of CSV, TSV and (when pyarrow is installed) Parquet files."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TextIO

from byheart._search import bisect
from byheart._words import quote
from byheart.errors import FactsError
from byheart.facts._records import MAX_CELL
from byheart.facts._text import open_text

__all__ = ["csv_rows", "parquet_rows"]


def csv_rows(
    path: Path, delimiter: str, where: str
) -> Generator[tuple[int, list[str]], None, None]:
    """(row, cells) of each record, the header first; row is the line on which the record starts.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "capitals.csv"
        >>> _ = path.write_text('country,capital\\n\\n"Bonaire, Saba",Kralendijk\\n')
        >>> list(csv_rows(path, ",", path.name))
        [(1, ['country', 'capital']), (3, ['Bonaire, Saba', 'Kralendijk'])]

    Notes:
        Blank lines are skipped. Quoting is strict: text after a closing quote and a quote that
        never closes are errors, because reading on would change or swallow cells.
    """
    with open_text(path, where) as stream:
        record_lines: list[str] = []
        reader = csv.reader(_remember(stream, record_lines), delimiter=delimiter, strict=True)
        while True:
            row = reader.line_num + 1
            record_lines.clear()
            try:
                cells = next(reader, None)
            except csv.Error as error:
                raise _explain(
                    error, "".join(record_lines), delimiter, f"{where}, row {row}"
                ) from None
            if cells is None:
                return
            if cells:
                yield row, cells


def _remember(stream: TextIO, record_lines: list[str]) -> Iterator[str]:
    """The lines of `stream`, noted in `record_lines` for a possible error message."""
    for line in stream:
        record_lines.append(line)
        yield line


def _explain(error: csv.Error, text: str, delimiter: str, place: str) -> FactsError:
    """The csv module gives neither row nor column: find them from the record's text."""
    reason = str(error)
    if "field limit" in reason:
        column, cell = _overlong_cell(text, delimiter)
        return FactsError(
            f"{place}, column {column}: expected at most {MAX_CELL:,} characters in a cell, found "
            f"more than {len(cell):,} that begin {quote(cell, 30)}. Is there an unclosed quote?"
        )
    if "unexpected end of data" in reason:
        column, cell = _overlong_cell(text, delimiter)
        return FactsError(
            f"{place}, column {column}: expected a closing quote, found the end of the file. The "
            f"cell begins {quote(cell, 30)}. Close the quote, or double it if it is part of the "
            "text."
        )
    return FactsError(
        f"{place}: expected quotes around a whole cell, found text after a closing quote in "
        f"{quote(text)}. Double each quote that is part of the text, and quote the whole cell."
    )


def _overlong_cell(text: str, delimiter: str) -> tuple[int, str]:
    """Number (from 1) and readable beginning of the last cell that the csv module gets to.

    The longest prefix of `text` that parses is found by bisection: a prefix fails exactly when a
    cell in it is over the limit. No global limit is raised, which other threads would notice.
    """

    def fails(length: int) -> bool:
        try:
            next(csv.reader([text[:length]], delimiter=delimiter))
        except csv.Error:
            return True
        return length > len(text)

    longest = bisect(fails, 0, len(text) + 1) - 1
    cells = next(csv.reader([text[:longest]], delimiter=delimiter))
    return len(cells), cells[-1]


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
