"""Records of CSV, TSV, JSON lines and (when pyarrow is installed) Parquet files."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from byheart._files import open_regular, parse_json, read_regular
from byheart._install import install
from byheart._search import bisect
from byheart._words import quote
from byheart.errors import FactsError
from byheart.facts._records import MAX_CELL
from byheart.facts._sources import OBJECT

DELIMITERS = {".csv": ",", ".tsv": "\t"}
JSON_LINES = (".jsonl", ".ndjson")
# What pyarrow raises for files that are cut off, and for values that Python has no form for: dates
# beyond the year 9999, time zones that nobody knows.
DAMAGED = (ArithmeticError, LookupError, NotImplementedError, OSError, TypeError, ValueError)


@contextmanager
def open_text(path: Path, where: str) -> Iterator[TextIO]:
    """The file as UTF-8 text, a byte order mark removed, line ends as they are."""
    try:
        with open_regular(path, FactsError) as file:
            yield TextIOWrapper(file, encoding="utf-8-sig", newline="")
    except UnicodeDecodeError as error:
        raise _not_utf8(path, where) from error


def _not_utf8(path: Path, where: str) -> FactsError:
    """Read again to find the byte: the error knows its place in a buffer, not in the file."""
    data = read_regular(path, error=FactsError)
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        at, line = error.start, data[: error.start].count(b"\n") + 1
        # Bytes 0xff and 0xfe at the very start are the byte order marks of UTF-16.
        encoding = "UTF-16" if at == 0 and data[at] in (0xFE, 0xFF) else "WINDOWS-1252"
        cut_off = "a character cut off after " if "unexpected end" in error.reason else ""
        found = f"{cut_off}byte 0x{data[at]:02x} at byte offset {at:,}"
        advice = f"Save the file as UTF-8, for instance: iconv -f {encoding} -t UTF-8 OLD > NEW"
        return FactsError(f"{where}, line {line}: expected UTF-8 text, found {found}. {advice}")
    return FactsError(f"{where}: the file changed while it was read. Read it again.")


def csv_rows(
    path: Path, delimiter: str, where: str
) -> Generator[tuple[int, list[str]], None, None]:
    """(row, cells) of each record, the header first; row is the line on which the record starts.

    Blank lines are skipped. Quoting is strict: text after a closing quote and a quote that never
    closes are errors, because reading on would change or swallow cells.
    """
    with open_text(path, where) as stream:
        lines: list[str] = []  # of one record, for a possible error message
        reader = csv.reader(_remember(stream, lines), delimiter=delimiter, strict=True)
        while True:
            row = reader.line_num + 1
            lines.clear()
            try:
                cells = next(reader, None)
            except csv.Error as error:
                raise _explain(error, "".join(lines), delimiter, f"{where}, row {row}") from None
            if cells is None:
                return
            if cells:
                yield row, cells


def _remember(stream: TextIO, lines: list[str]) -> Iterator[str]:
    for line in stream:
        lines.append(line)
        yield line


def _explain(error: csv.Error, text: str, delimiter: str, place: str) -> FactsError:
    """The csv module gives neither row nor column: find them from the record's text."""
    too_long = "field limit" in str(error)
    if not too_long and "unexpected end of data" not in str(error):
        return FactsError(
            f"{place}: expected quotes around a whole cell, found text after a closing quote in "
            f"{quote(text)}. Double each quote that is part of the text, and quote the whole cell."
        )
    column, cell = _last_cell(text, delimiter)
    found = f"the end of the file. Close the quote of the cell that begins {quote(cell, 30)}."
    problem = f"expected a closing quote, found {found}"
    if too_long:
        found = f"more than {len(cell):,} that begin {quote(cell, 30)}. Is there an unclosed quote?"
        problem = f"expected at most {MAX_CELL:,} characters in a cell, found {found}"
    return FactsError(f"{place}, column {column}: {problem}")


def _last_cell(text: str, delimiter: str) -> tuple[int, str]:
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
    Numbers with a point, dates and truth values are taken as Python writes them."""
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        advice = f"Install it ({install('parquet')}) or save the table as CSV"
        raise FactsError(f"{where}: Parquet files need pyarrow, found none. {advice}.") from error
    try:
        with open_regular(path, FactsError) as opened, parquet.ParquetFile(opened) as file:
            names = list(file.schema_arrow.names)
            yield 1, [*names]
            row = 1
            for batch in file.iter_batches():
                columns = [batch.column(i).to_pylist() for i in range(len(names))]
                for values in zip(*columns, strict=True):
                    row += 1
                    yield row, [_cell(value) for value in values]
    except DAMAGED as error:
        found = f"{error}. A value that Python does not have goes in as text"
        raise FactsError(f"{where}: expected a Parquet file, found: {found}.") from error


def _cell(value: object) -> object:
    """What is no text, number or gap as the text of it; containers and bytes are refused later."""
    kept = value is None or value != value or isinstance(value, (str, bytes, list, tuple, dict))
    return value if kept or type(value) is int else str(value)


def json_lines(path: Path, where: str) -> Generator[tuple[int, dict[str, object]], None, None]:
    """The objects of a file with one a line. A number with a point that is used as a token becomes
    text, as Python writes it: [1.5, "+", 2] is ["1.5", "+", 2]."""
    with open_text(path, where) as stream:
        for row, line in enumerate(stream, start=1):
            if line.strip():
                record = _parse(line, f"{where}, line {row}")
                for key in ("input", "output"):
                    if key in record:
                        record[key] = _written(record[key])
                yield row, record


def _parse(line: str, place: str) -> dict[str, object]:
    try:
        record: object = parse_json(line, place, FactsError)
    except FactsError as error:
        advice = f"Every line is an object of its own, such as {OBJECT}"
        raise FactsError(f"{error} {advice}.") from None
    if not isinstance(record, dict):
        found = quote(line.strip())
        raise FactsError(f"{place}: expected an object such as {OBJECT}, found {found}.")
    return dict(record)


def _written(value: object) -> object:
    if isinstance(value, list):
        return [_written(part) for part in value]
    return str(value) if isinstance(value, float) else value
