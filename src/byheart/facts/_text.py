"""Text files as UTF-8, with errors that say where."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from byheart.errors import FactsError

__all__ = ["open_text"]


@contextmanager
def open_text(path: Path, where: str) -> Iterator[TextIO]:
    """The file as UTF-8 text, a byte order mark removed, line ends as they are.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "latin.csv"
        >>> _ = path.write_bytes("city\\nZürich\\n".encode("latin-1"))
        >>> with open_text(path, path.name) as stream:
        ...     stream.read()
        Traceback (most recent call last):
        ...
        byheart.errors.FactsError: latin.csv, line 2: expected UTF-8 text, found byte 0xfc at \
byte offset 6. Save the file as UTF-8, for instance: iconv -f WINDOWS-1252 -t UTF-8 OLD > NEW
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            yield stream
    except UnicodeDecodeError as error:
        raise _not_utf8(path, where) from error
    except OSError as error:
        raise FactsError(
            f"{where}: expected a file that can be read, found: {error.strerror or error}. "
            "Check the path and its permissions."
        ) from error


def _not_utf8(path: Path, where: str) -> FactsError:
    """Read again to find the byte: the error knows its place in a buffer, not in the file."""
    data = path.read_bytes()
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        at, line = error.start, data[: error.start].count(b"\n") + 1
        # Bytes 0xff and 0xfe at the very start are the byte order marks of UTF-16.
        encoding = "UTF-16" if at == 0 and data[at] in (0xFE, 0xFF) else "WINDOWS-1252"
        cut_off = "a character cut off after " if "unexpected end" in error.reason else ""
        return FactsError(
            f"{where}, line {line}: expected UTF-8 text, found {cut_off}byte 0x{data[at]:02x} at "
            f"byte offset {at:,}. Save the file as UTF-8, for instance: iconv -f {encoding} -t "
            "UTF-8 OLD > NEW"
        )
    return FactsError(f"{where}: the file changed while it was read. Read it again.")
