"""The store: rows whole or not at all; what is no store is refused and kept."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tiny_study import tiny

from byheart.studies import StoreError, open_store, run
from byheart.studies import store as store_module


def foreign(place: Path) -> None:
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("CREATE TABLE birds (name TEXT)")


def newer(place: Path) -> None:
    open_store(place).close()
    data = bytearray(place.read_bytes())
    data[60:64] = (store_module.SCHEMA + 1).to_bytes(4, "big")
    place.write_bytes(data)


def truncated(place: Path) -> None:
    run(tiny(60), place, profile="paper")
    data = place.read_bytes()
    place.write_bytes(data[: len(data) // 2 // 4096 * 4096 + 100])


def beheaded(place: Path) -> None:
    open_store(place).close()
    place.write_bytes(place.read_bytes()[:50])


def scribbled(place: Path) -> None:
    run(tiny(60), place, profile="paper")
    data = bytearray(place.read_bytes())
    data[4096:12288] = b"\xff" * 8192
    place.write_bytes(data)


def empty(place: Path) -> None:
    place.touch()


def text(place: Path) -> None:
    place.write_text("not a database\n" * 20)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (foreign, "another program"),
        (newer, "newer byheart"),
        (truncated, "damaged or cut short"),
        (beheaded, "beginning is lost"),
        (scribbled, "damaged or cut short"),
        (empty, "is empty"),
        (text, "no SQLite file"),
    ],
)
def test_what_is_no_store_is_refused_and_kept(store: Path, make, words: str):
    make(store)
    before = store.read_bytes()
    with pytest.raises(StoreError, match=words):
        run(tiny(), store)
    with pytest.raises(StoreError, match=words):
        open_store(store, create=False)
    assert store.read_bytes() == before


def test_a_pipe_is_refused_without_waiting(store: Path):
    os.mkfifo(store)
    with pytest.raises(StoreError, match="found a named pipe"):
        open_store(store)


def test_there_is_no_store(store: Path):
    with pytest.raises(StoreError, match="there is no store"):
        open_store(store, create=False)
    assert not store.exists()


def test_a_place_that_cannot_be_written():
    with pytest.raises(StoreError, match="cannot be written"):
        run(tiny(), Path("/proc/none/tiny.db"))


def test_a_full_disk(store: Path, monkeypatch: pytest.MonkeyPatch):
    """SQLite's own limit on pages gives the error of a full disk."""
    opened = store_module.open_store

    def small(*args, **options):
        made = opened(*args, **options)
        made.connection.execute("PRAGMA max_page_count = 12")
        return made

    study = tiny(300)
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "open_store", small)
        with pytest.raises(StoreError, match=r"disk is full.*Make room"):
            run(study, store, profile="paper")
    with open_store(store) as kept:
        number = len(kept.rows())
    report = run(study, store, profile="paper")
    assert report.there == number and report.complete
    with open_store(store) as kept:
        assert len(kept.rows()) == 1800


@pytest.mark.slow
def test_a_file_that_may_not_grow(store: Path):
    """The operating system refuses the write: the run stops with a message, the store is sound."""
    program = (
        "import resource, sys; from tiny_study import tiny; from byheart.studies import run\n"
        "run(tiny(), sys.argv[1], profile='paper')\n"
        "import os\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (70_000, resource.RLIM_INFINITY))\n"
        "run(tiny(400), sys.argv[1], profile='paper')\n"
    )
    assert resource.RLIMIT_FSIZE >= 0
    said = subprocess.run(
        [sys.executable, "-c", program, str(store)], capture_output=True, text=True, check=False
    )
    assert said.returncode != 0
    assert "cannot be written" in said.stderr and "Traceback" in said.stderr
    with open_store(store) as kept:
        there = len(kept.rows())
    assert there >= 36
    report = run(tiny(400), store, profile="paper")
    assert report.complete and report.there >= 36


def test_two_stores_made_at_once(store: Path):
    """The loser of a race finds the winner's store."""
    with open_store(store) as first, open_store(store) as second:
        assert first.rows() == second.rows() == []
    assert [p.name for p in store.parent.iterdir() if p.name.startswith(".")] == []


# --- rows that are not as they were written ---

DAMAGE = {
    "a number": "measurements = replace(measurements, '0.', '1.')",
    "no JSON": "measurements = '{'",
    "a list": "measurements = '[]'",
    "deep JSON": f"versions = '{'[' * 20_000}'",
    "other params": "params = replace(params, ':', ': ')",
    "text for a number": "seconds = 'long'",
    "a blob": "device = x'ff00'",
    "an error that was none": "error = 'oh'",
    "other seconds": "seconds = seconds + 1",
    "another checksum": "checksum = 'x'",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_row_is_refused_with_its_place(store: Path, damage: str):
    run(tiny(), store)
    with closing(sqlite3.connect(store)) as connection, connection:
        ((cell, seed),) = connection.execute("SELECT cell, seed FROM rows LIMIT 1").fetchall()
        connection.execute(
            f"UPDATE rows SET {DAMAGE[damage]} WHERE cell = ? AND seed = ?", (cell, seed)
        )
    connection.close()
    with open_store(store) as opened, pytest.raises(StoreError) as refusal:
        opened.rows()
    assert f"the row of cell {cell!r}, seed {seed} is damaged" in str(refusal.value)


def old_store(store: Path) -> list:
    """A store of schema 1: no checksums. Its rows."""
    run(tiny(), store)
    with open_store(store) as opened:
        rows = opened.rows()
        opened.connection.execute("ALTER TABLE rows DROP COLUMN checksum")
        opened.connection.execute("PRAGMA user_version = 1")
    return rows


def test_a_store_without_checksums_is_read_and_gets_them_when_it_is_written(store: Path):
    rows = old_store(store)
    before = store.read_bytes()
    with open_store(store, create=False) as opened:
        assert opened.rows() == rows and not opened.signed
    assert store.read_bytes() == before
    assert run(tiny(), store).computed == 0
    with open_store(store) as opened:
        assert opened.rows() == rows and opened.signed
        assert opened.connection.execute("PRAGMA user_version").fetchone() == (2,)


def test_a_damaged_row_of_an_old_store_gets_no_checksum(store: Path):
    old_store(store)
    with open_store(store) as opened:
        opened.connection.execute("UPDATE rows SET measurements = '[]' WHERE seed = 0")
        opened.connection.commit()
    run(tiny(), store)
    with open_store(store) as opened, pytest.raises(StoreError, match="measurements is no JSON"):
        opened.rows()


@pytest.mark.parametrize("account", ["", "[]", "{}", '{"finding": 5, "profile": "x"}', "[" * 10**5])
def test_a_damaged_account_is_refused(store: Path, account: str):
    run(tiny(), store)
    with open_store(store) as opened:
        opened.add_account("tiny", {})
        opened.connection.execute("UPDATE accounts SET account = ?", (account,))
        with pytest.raises(StoreError, match="the account of 'tiny' is damaged"):
            opened.account("tiny")


def test_a_store_where_nothing_can_be_written_is_read(store: Path, monkeypatch):
    """A read-only mount: SQLite would make files beside one in WAL mode, and fail."""
    run(tiny(), store)
    with open_store(store) as opened:
        rows = opened.rows()
    monkeypatch.setattr(store_module.os, "access", lambda *_, **__: False)
    with open_store(store, create=False) as opened:
        assert opened.rows() == rows
        assert not Path(f"{store}-shm").exists() and not Path(f"{store}-wal").exists()
