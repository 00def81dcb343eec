"""The store: one SQLite file, one row per (cell, seed), there completely or not at all.

Only the coordinator writes, under a lock that dies with its process; anybody may read meanwhile
(WAL mode). A file that is no store of this version is refused and left as it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from byheart.errors import ByheartError
from byheart.studies.cell import Cell, Job, Measurements, canonical
from byheart.studies.study import Record, Row

APPLICATION = 0x62796874  # "byht"
SCHEMA = 1
HEADER = b"SQLite format 3\x00"
TABLES = """
CREATE TABLE rows (
  cell TEXT NOT NULL, seed INTEGER NOT NULL, way TEXT NOT NULL, params TEXT NOT NULL,
  measurements TEXT NOT NULL, error TEXT, seconds REAL NOT NULL, versions TEXT NOT NULL,
  device TEXT NOT NULL, threads INTEGER NOT NULL, stack INTEGER NOT NULL,
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
Columns = tuple[Any, ...]


class StoreError(ByheartError):
    """A store that cannot be used: foreign, newer, damaged, busy, or on a full disk."""


class StoreBusy(StoreError):
    """Another coordinator is writing to this store."""


@dataclass(frozen=True)
class Result:
    """What a worker hands back for one job; `seconds` is its share of the CPU time."""

    measurements: Measurements
    error: str | None
    seconds: float
    versions: dict[str, str]
    device: str
    threads: int
    stack: int


class Store:
    """An open store. `write` it only inside `coordinating()`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.connection.close()

    def __enter__(self) -> Store:
        return self

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
        rows = [
            (
                job.cell.hash,
                job.seed,
                job.cell.procedure.name,
                canonical(dict(job.cell.params)),
                json.dumps(r.measurements, sort_keys=True),
                r.error,
                r.seconds,
                json.dumps(r.versions, sort_keys=True),
                r.device,
                r.threads,
                r.stack,
            )
            for job, r in results
        ]
        self._write(
            "INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
            "measurements = excluded.measurements, error = excluded.error, "
            "seconds = excluded.seconds, versions = excluded.versions, device = excluded.device, "
            "threads = excluded.threads, stack = excluded.stack WHERE rows.error IS NOT NULL",
            rows,
        )

    def add_run(
        self, studies: str, profile: str, workers: str, computed: int, failed: int, seconds: float
    ) -> None:
        """One run: how many rows it computed, and its wall seconds."""
        row = (studies, profile, workers, computed, failed, seconds)
        self._write("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?)", [row])

    def runs(self) -> list[Record]:
        """The runs that computed something, in order."""
        names = ("studies", "profile", "workers", "computed", "failed", "seconds")
        records = self._read(f"SELECT {', '.join(names)} FROM runs ORDER BY rowid")
        return [dict(zip(names, row, strict=True)) for row in records]

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
        return json.loads(texts[0][0]) if texts else None

    def rows(
        self, study: str | None = None, variant: str | None = None, profile: str | None = None
    ) -> list[Row]:
        """Rows with the study, experiment and variant they belong to, in a fixed order.

        A cell of two studies is there once for each.
        """
        clauses, values = [], []
        for name, value in (("study", study), ("variant", variant), ("profile", profile)):
            if value is not None:
                clauses.append(f"members.{name} = ?")
                values.append(value)
        where = f"WHERE {' AND '.join(clauses)} " if clauses else ""
        records = self._read(
            "SELECT DISTINCT study, experiment, variant, rows.cell, seed, params, measurements, "
            "error, seconds, versions, device, threads, stack FROM members JOIN rows "
            f"ON members.cell = rows.cell {where}"
            "ORDER BY study, variant, experiment, params, seed",
            tuple(values),
        )
        return [_row(*row) for row in records]

    def _read(self, command: str, values: tuple[object, ...] = ()) -> list[Columns]:
        try:
            return self.connection.execute(command, values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"{self.path} cannot be read: {error}.") from None

    def _write(self, command: str, rows: Sequence[tuple[object, ...]]) -> None:
        try:
            with self.connection:  # one transaction: all of it or nothing
                self.connection.executemany(command, rows)
        except sqlite3.Error as error:
            why = str(error)
            next_step = "Nothing of it was kept half; run the same command again to go on."
            if "full" in why or "disk I/O" in why:
                why = f"the disk is full or the file may not grow ({error})"
                next_step = "Rows written so far are kept. Make room, then run it again to go on."
            raise StoreError(f"{self.path} cannot be written: {why}. {next_step}") from None


def _row(
    study: str, experiment: str, variant: str, cell: str, seed: int, params: str,
    measurements: str, error: str | None, seconds: float, versions: str, device: str,
    threads: int, stack: int,
) -> Row:  # fmt: skip
    texts = json.loads(params), json.loads(measurements), error, seconds, json.loads(versions)
    return Row(study, experiment, variant, cell, seed, *texts, device, threads, stack)


def open_store(path: str | os.PathLike[str], *, create: bool = True) -> Store:
    """Open a store, or make an empty one; everything else at `path` is refused and kept."""
    location = Path(path)
    if not location.exists():
        if not create:
            raise StoreError(f"there is no store {path}. Run a study first, or give its `store`.")
        _create(location)
    _check_header(location)
    try:
        with contextlib.closing(
            sqlite3.connect(f"{location.resolve().as_uri()}?mode=ro", uri=True)
        ) as c:
            sound = c.execute("PRAGMA quick_check").fetchall() == [("ok",)]
            tables = {name for (name,) in c.execute("SELECT name FROM sqlite_master")}
    except sqlite3.Error as error:
        raise _damaged(location, str(error)) from None
    if not sound or not {"rows", "members", "runs"} <= tables:
        raise _damaged(location, "SQLite's own check fails")
    connection = sqlite3.connect(location, timeout=30)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return Store(location, connection)


@contextlib.contextmanager
def coordinating(path: str | os.PathLike[str]) -> Iterator[Store]:
    """The store for writing: one coordinator at a time; a second one is told, not queued."""
    location = Path(path)
    try:
        location.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(f"{location}.lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror}. Give another `store`."
        ) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(handle, 64).decode(errors="replace").strip() or "unknown"
            raise StoreBusy(
                f"{path} is being written by another run (process {holder}). Wait for it, watch it "
                "with its status, or give another `store`."
            ) from None
        with open_store(location) as store:
            with contextlib.suppress(OSError):  # the number is for people; a full disk is no reason
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
            yield store
    finally:
        os.close(handle)  # releases the lock; so does a kill


def _create(location: Path) -> None:
    """An empty store under a temporary name, then the right one: never half made."""
    try:
        location.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{location.name}.", dir=location.parent)
        os.close(handle)
    except OSError as error:
        raise StoreError(
            f"{location} cannot be written: {error.strerror}. Give another `store`."
        ) from None
    try:
        with contextlib.closing(sqlite3.connect(temporary)) as connection:
            connection.executescript(
                f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA};{TABLES}"
            )
        os.chmod(temporary, 0o644)
        os.link(temporary, location)  # unlike a rename, never in the place of something else
    except FileExistsError:
        pass
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{location} cannot be written: {error}.") from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _check_header(location: Path) -> None:
    """Refuse what is no store of ours before SQLite touches it."""
    try:
        with open(location, "rb") as file:
            head = file.read(100)
    except OSError as error:
        raise StoreError(f"{location} cannot be read: {error.strerror}.") from None
    keep = "It is left as it is. Give another `store`."
    if len(head) < 100 or head[:16] != HEADER:
        what = "is empty" if not head else "is no SQLite file, or its beginning is lost"
        raise StoreError(f"{location} {what}. {keep}")
    if int.from_bytes(head[68:72], "big") != APPLICATION:
        raise StoreError(f"{location} is an SQLite file of another program. {keep}")
    version = int.from_bytes(head[60:64], "big")
    if version > SCHEMA:
        raise StoreError(
            f"{location} was written by a newer byheart (schema {version}, this one knows "
            f"{SCHEMA}). Update byheart. {keep}"
        )


def _damaged(location: Path, why: str) -> StoreError:
    return StoreError(
        f"{location} is damaged or cut short ({why}). It is left as it is. Take a copy back from a "
        "backup, or give another `store`."
    )
