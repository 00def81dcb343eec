"""Text files as UTF-8, with errors that say where."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from byheart.errors import FactsError

__all__ = ["open_text"]

CHUNK = 1 << 20


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
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset = 0
    lines = 0
    with path.open("rb") as stream:
        while True:
            chunk = stream.read(CHUNK)
            held_back = decoder.getstate()[0]
            try:
                decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                data = held_back + chunk
                lines += data[: error.start].count(b"\n")
                at = offset - len(held_back) + error.start
                return _not_utf8_message(where, lines + 1, at, data[error.start], error.reason)
            if not chunk:
                break
            offset += len(chunk)
            lines += chunk.count(b"\n")
    return FactsError(f"{where}: the file changed while it was read. Read it again.")


def _not_utf8_message(where: str, line: int, offset: int, byte: int, reason: str) -> FactsError:
    cut_off = "unexpected end" in reason
    # Bytes 0xff and 0xfe at the very start are the byte order marks of UTF-16.
    encoding = "UTF-16" if offset == 0 and byte in (0xFE, 0xFF) else "WINDOWS-1252"
    found = f"byte 0x{byte:02x} at byte offset {offset:,}"
    return FactsError(
        f"{where}, line {line}: expected UTF-8 text, found "
        f"{'a character cut off after ' + found if cut_off else found}. Save the file as UTF-8, "
        f"for instance: iconv -f {encoding} -t UTF-8 OLD > NEW"
    )
