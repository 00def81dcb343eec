"""The store: one SQLite file, one row per (cell, seed), there completely or not at all.

Only the coordinator writes, under the lock of the file; anybody may read meanwhile (WAL mode). A
file that is no store of this version is refused and left as it is; a row that is not as it was
written is refused with its cell and seed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byheart._files import open_regular
from byheart._folders import locked, write_bytes
from byheart._json import Json
from byheart.errors import BusyError, ByheartError
from byheart.studies.cell import Cell, Job, canonical
from byheart.studies.study import Finding, Record, Row
from byheart.studies.work import Result

if TYPE_CHECKING:
    from byheart.studies.recorded import Recorded

APPLICATION = 0x62796874  # "byht"
SCHEMA = 2  # 1 had no checksums
HEADER = b"SQLite format 3\x00"
TABLES = """
CREATE TABLE rows (
  cell TEXT NOT NULL, seed INTEGER NOT NULL, way TEXT NOT NULL, params TEXT NOT NULL,
  measurements TEXT NOT NULL, error TEXT, seconds REAL NOT NULL, versions TEXT NOT NULL,
  device TEXT NOT NULL, threads INTEGER NOT NULL, stack INTEGER NOT NULL, checksum TEXT NOT NULL,
  PRIMARY KEY (cell, seed)
) WITHOUT ROWID;
CREATE TABLE members (
  study TEXT NOT NULL, variant TEXT NOT NULL, experiment TEXT NOT NULL, profile TEXT NOT NULL,
  cell TEXT NOT NULL, PRIMARY KEY (study, variant, experiment, profile, cell)
) WITHOUT ROWID;
CREATE TABLE runs (
  studies TEXT NOT NULL, profile TEXT NOT NULL, workers TEXT NOT NULL,
  computed INTEGER NOT NULL, failed INTEGER NOT NULL, seconds REAL NOT NULL
);
"""
# Stores of earlier versions have none.
ACCOUNTS = "CREATE TABLE IF NOT EXISTS accounts (study TEXT PRIMARY KEY, account TEXT NOT NULL)"
CURVES = "CREATE TABLE IF NOT EXISTS curves (cell TEXT, seed INTEGER, curve TEXT NOT NULL)"
KEPT_CURVES = 256  # the latest, of all studies together
LABELS = ("study", "experiment", "variant", "cell", "seed")
# What a row says of one computation: what replaces it when a failed one is computed again.
COMPUTED = ("measurements", "error", "seconds", "versions", "device", "threads", "stack")
WRITTEN = ("cell", "seed", "way", "params", *COMPUTED)  # what the checksum is of
TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys((*LABELS, *WRITTEN), str),
    **dict.fromkeys(("seed", "threads", "stack"), int),
    "seconds": float,
    "error": (str, type(None)),
}
OBJECTS = ("params", "measurements", "versions")  # as JSON
RESTORE = "It is left as it is. Take a copy back from a backup, or give another `store`."
KEEP = "It is left as it is. Give another `store`."


class StoreError(ByheartError):
    """A store that cannot be used: foreign, newer, damaged, busy, or on a full disk."""


class StoreBusy(StoreError):
    """Another coordinator is writing to this store."""


class Store(contextlib.AbstractContextManager["Store"]):
    """An open store. `write` it only inside `coordinating()`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self.connection = path, connection
        columns = self._read("SELECT name FROM pragma_table_info('rows')")
        self.signed = ("checksum",) in columns  # else of schema 1

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.connection.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def keys(self, *, failed: bool | None = None) -> set[tuple[str, int]]:
        """(cell, seed) of all rows, or of those that failed / did not."""
        where = {None: "", True: " WHERE error IS NOT NULL", False: " WHERE error IS NULL"}[failed]
        return set(self._read(f"SELECT cell, seed FROM rows{where}"))

    def add_members(self, study: str, variant: str, profile: str, cells: Iterable[Cell]) -> None:
        """Say which cells belong to a study, so that the store explains itself."""
        rows = [(study, variant, cell.experiment, profile, cell.hash) for cell in cells]
        self._write("INSERT OR IGNORE INTO members VALUES (?, ?, ?, ?, ?)", rows)

    def add(self, results: Sequence[tuple[Job, Result]]) -> None:
        """The rows of one stack, all in one transaction. A row that failed is replaced."""
        self._add([
            (*job.key, job.cell.procedure.name, canonical(dict(job.cell.params)),
             json.dumps(r.measurements, sort_keys=True), r.error, float(r.seconds),
             json.dumps(r.versions, sort_keys=True), r.device, r.threads, r.stack)
            for job, r in results
        ])  # fmt: skip
        curves = [(*job.key, json.dumps(r.curve)) for job, r in results if r.curve is not None]
        if curves:
            self._write(CURVES, [()])
            self._write("INSERT INTO curves VALUES (?, ?, ?)", curves)
            last = "(SELECT max(rowid) FROM curves)"
            self._write(f"DELETE FROM curves WHERE rowid <= {last} - {KEPT_CURVES}", [()])

    def add_recorded(self, rows: Sequence[Recorded]) -> None:
        """Rows that were computed elsewhere, all in one transaction."""
        self._add([
            (*row.key, row.way, canonical(row.params), json.dumps(row.measurements, sort_keys=True),
             None, row.seconds, json.dumps(row.versions, sort_keys=True), "cpu", 1, row.stack)
            for row in rows
        ])  # fmt: skip

    def ways(self) -> dict[str, str]:
        """The name of the procedure of every cell."""
        return dict(self._read("SELECT DISTINCT cell, way FROM rows"))

    def _add(self, rows: Sequence[tuple[object, ...]]) -> None:
        self._write(
            f"INSERT INTO rows VALUES ({', '.join('?' * (len(WRITTEN) + 1))}) "
            "ON CONFLICT DO UPDATE SET "
            + ", ".join(f"{name} = excluded.{name}" for name in (*COMPUTED, "checksum"))
            + " WHERE rows.error IS NOT NULL",
            [(*row, checksum(row)) for row in rows],
        )

    def curves(self, study: str) -> dict[tuple[str, int], Json]:
        """The latest curves of a study's rows by (cell, seed), the last one last."""
        if not self._read("SELECT 1 FROM sqlite_master WHERE name = 'curves'"):
            return {}
        own = "SELECT cell FROM members WHERE study = ?"
        found = self._read(
            f"SELECT cell, seed, curve FROM curves WHERE cell IN ({own}) ORDER BY rowid", (study,)
        )
        try:
            return {(cell, seed): json.loads(text) for cell, seed, text in found}
        except (ValueError, TypeError, RecursionError):
            raise StoreError(
                f"{self.path}: the curves of {study!r} are damaged. {RESTORE}"
            ) from None

    def sign(self) -> None:
        """Give the rows of a store of schema 1 their checksums, all of them at once. Rows that are
        damaged get none, and are refused when they are read."""
        if self.signed:
            return
        rows = self._read(f"SELECT {', '.join(WRITTEN)} FROM rows")
        good = [row for row in rows if not _fault(dict(zip(WRITTEN, row, strict=True)))]
        try:
            with self.connection as c:
                c.execute("BEGIN IMMEDIATE")
                c.execute("ALTER TABLE rows ADD COLUMN checksum TEXT NOT NULL DEFAULT ''")
                command = "UPDATE rows SET checksum = ? WHERE cell = ? AND seed = ?"
                c.executemany(command, [(checksum(row), *row[:2]) for row in good])
                c.execute(f"PRAGMA user_version = {SCHEMA}")
        except sqlite3.Error as error:
            raise self._unwritten(error) from None
        self.signed = True

    def add_run(
        self, studies: str, profile: str, workers: str, computed: int, failed: int, seconds: float
    ) -> None:
        """One run: how many rows it computed, and its wall seconds."""
        row = (studies, profile, workers, computed, failed, seconds)
        self._write("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?)", [row])

    def add_account(self, study: str, account: Record) -> None:
        """What a study says of itself and of its rows, for a reader who does not have it."""
        self._write(ACCOUNTS, [()])
        row = (study, json.dumps(account))
        self._write("INSERT OR REPLACE INTO accounts VALUES (?, ?)", [row])

    def account(self, study: str) -> Record | None:
        """What `add_account` kept of a study."""
        if not self._read("SELECT 1 FROM sqlite_master WHERE name = 'accounts'"):
            return None
        texts = self._read("SELECT account FROM accounts WHERE study = ?", (study,))
        if not texts:
            return None
        try:
            account = json.loads(texts[0][0])
            Finding.from_json(account["finding"])
            assert isinstance(account["profile"], str)
        except (ValueError, TypeError, KeyError, AttributeError, AssertionError, RecursionError):
            raise StoreError(
                f"{self.path}: the account of {study!r} is damaged. {RESTORE}"
            ) from None
        return account

    def rows(
        self, study: str | None = None, variant: str | None = None, profile: str | None = None
    ) -> list[Row]:
        """Rows with the study, experiment and variant they belong to (of two studies: once for
        each), in a fixed order."""
        wanted = {"study": study, "variant": variant, "profile": profile}
        asked = {name: value for name, value in wanted.items() if value is not None}
        where = " AND ".join(f"members.{name} = ?" for name in asked)
        written = ["rows.cell", *WRITTEN[1:], *["checksum"][: self.signed]]
        records = self._read(
            f"SELECT DISTINCT study, experiment, variant, {', '.join(written)} "
            "FROM members JOIN rows ON members.cell = rows.cell "
            f"{'WHERE' if asked else ''} {where} "
            "ORDER BY study, variant, experiment, params, seed",
            tuple(asked.values()),
        )
        return [self._row(record) for record in records]

    def _row(self, record: tuple[Any, ...]) -> Row:
        """A row as an object; refused, with its place, if it is not as it was written."""
        values: dict[str, Any] = dict(zip((*LABELS[:3], *WRITTEN), record, strict=False))
        fault = _fault(values)
        if not fault and self.signed and record[-1] != checksum(record[3:-1]):
            fault = "it differs from its checksum"
        if fault:
            place = f"the row of cell {values['cell']!r}, seed {values['seed']!r}"
            raise StoreError(f"{self.path}: {place} is damaged: {fault}. {RESTORE}")
        objects = {name: json.loads(values[name]) for name in OBJECTS}
        return Row(**{name: v for name, v in values.items() if name != "way"} | objects)

    def _read(self, command: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            return self.connection.execute(command, values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"{self.path} cannot be read: {error}.") from None

    def _write(self, command: str, rows: Sequence[tuple[object, ...]]) -> None:
        try:
            with self.connection:  # one transaction: all of it or nothing
                self.connection.executemany(command, rows)
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise self._unwritten(error) from None

    def _unwritten(self, error: Exception) -> StoreError:
        why = str(error)
        next_step = "Nothing of it was kept half; run the same command again to go on."
        if "full" in why or "disk I/O" in why:
            why = f"the disk is full or the file may not grow ({error})"
            next_step = "Rows written so far are kept. Make room, then run it again to go on."
        return StoreError(f"{self.path} cannot be written: {why}. {next_step}")


def checksum(row: Sequence[object]) -> str:
    """Names the values of `WRITTEN`, as they are stored: any change gives another."""
    return hashlib.sha256(json.dumps(list(row)).encode()).hexdigest()[:32]


def _fault(values: Mapping[str, Any]) -> str:
    """What is wrong with the values of a row, by their names; "" if nothing is."""
    for name, value in values.items():
        if not isinstance(value, TYPES[name]):
            return f"{name} is {value!r}"[:100]
    for name in OBJECTS:
        try:
            found = json.loads(values[name])
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            return f"{name} is no JSON object"
    return ""


def open_store(path: str | os.PathLike[str], *, create: bool = True) -> Store:
    """Open a store, or make an empty one; everything else at `path` is refused and kept."""
    location = Path(path)
    if not os.path.exists(location):
        if not create:
            raise StoreError(f"there is no store {path}. Run a study first, or give its `store`.")
        _create(location)
    _check_header(location)
    uri, why = _reading(location.resolve()), "SQLite's own check fails"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as c:
            sound = c.execute("PRAGMA quick_check").fetchall() == [("ok",)]
            tables = {name for (name,) in c.execute("SELECT name FROM sqlite_master")}
    except sqlite3.OperationalError as error:
        hint = f"Copy it, and {location.name}-wal if there is one, where it can be written."
        raise StoreError(f"{location} cannot be read here: {error}. {hint}") from None
    except sqlite3.Error as error:
        sound, tables, why = False, set[str](), str(error)
    if not sound or not {"rows", "members", "runs"} <= tables:
        raise StoreError(f"{location} is damaged or cut short ({why}). {RESTORE}")
    if not _writable(location):
        return Store(location, sqlite3.connect(uri, uri=True))
    connection = sqlite3.connect(location, timeout=30)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return Store(location, connection)


@contextlib.contextmanager
def coordinating(path: str | os.PathLike[str]) -> Iterator[Store]:
    """The store for writing: one coordinator at a time; a second one is told, not queued."""
    location = Path(path)
    with contextlib.ExitStack() as stack:
        try:
            location.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(location, wait=1.0))
        except OSError as error:
            raise _unwritable(path, error) from None
        except BusyError as error:
            hint = "Watch it with its status, or give another `store`."
            raise StoreBusy(f"{error} {hint}") from None
        store = stack.enter_context(open_store(location))
        if not _writable(location):
            raise StoreError(f"{path} may be read, not written. Give another `store`.")
        store.sign()
        yield store


def _unwritable(path: str | os.PathLike[str], error: OSError) -> StoreError:
    return StoreError(f"{path} cannot be written: {error.strerror}. Give another `store`.")


def _writable(location: Path) -> bool:
    """Whether SQLite can write: to the store, and its own files beside it."""
    real = location.resolve()
    return _may_write(real) and _may_write(real.parent)


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _reading(location: Path) -> str:
    """Where SQLite reads. In a folder that may not be written it can read a store in WAL mode only
    when told that nobody writes it, which also hides the rows of a file FILE-wal."""
    waiting = Path(f"{location}-wal")
    alone = not _may_write(location.parent) and not (waiting.exists() and waiting.stat().st_size)
    return f"{location.as_uri()}?mode=ro{'&immutable=1' if alone else ''}"


def _create(location: Path) -> None:
    """An empty store, never half made and never in the place of something else."""
    try:
        location.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(":memory:")) as empty, locked(location):
            empty.executescript(
                f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA};{TABLES}"
            )
            if not location.exists():
                write_bytes(location, empty.serialize())
    except OSError as error:
        raise _unwritable(location, error) from None


def _check_header(location: Path) -> None:
    """Refuse what is no store of ours before SQLite touches it."""
    with open_regular(location, StoreError) as file:
        head = file.read(100)
    if len(head) < 100 or head[:16] != HEADER:
        what = "is empty" if not head else "is no SQLite file, or its beginning is lost"
        raise StoreError(f"{location} {what}. {KEEP}")
    if int.from_bytes(head[68:72], "big") != APPLICATION:
        raise StoreError(f"{location} is an SQLite file of another program. {KEEP}")
    version = int.from_bytes(head[60:64], "big")
    if version > SCHEMA:
        raise StoreError(
            f"{location} was written by a newer byheart (schema {version}, this one knows "
            f"{SCHEMA}). Update byheart. {KEEP}"
        )
