"""The store: rows whole or not at all; what is no store is refused and kept."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_study import tiny

from byheart.studies import StoreError, open_store, run
from byheart.studies import store as store_module


def foreign(place: Path) -> None:
    with sqlite3.connect(place) as connection:
        connection.execute("CREATE TABLE birds (name TEXT)")


def newer(place: Path) -> None:
    open_store(place).close()
    data = bytearray(place.read_bytes())
    data[60:64] = (store_module.SCHEMA + 1).to_bytes(4, "big")
    place.write_bytes(data)


def truncated(place: Path) -> None:
    run(tiny(60), place, profile="full")
    data = place.read_bytes()
    place.write_bytes(data[: len(data) // 2 // 4096 * 4096 + 100])


def beheaded(place: Path) -> None:
    open_store(place).close()
    place.write_bytes(place.read_bytes()[:50])


def scribbled(place: Path) -> None:
    run(tiny(60), place, profile="full")
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
            run(study, store, profile="full")
    with open_store(store) as kept:
        number = len(kept.rows())
    report = run(study, store, profile="full")
    assert report.there == number and report.complete
    with open_store(store) as kept:
        assert len(kept.rows()) == 1800


def test_a_file_that_may_not_grow(store: Path):
    """The operating system refuses the write: the run stops with a message, the store is sound."""
    program = (
        "import resource, sys; from tiny_study import tiny; from byheart.studies import run\n"
        "run(tiny(), sys.argv[1], profile='full')\n"
        "import os\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (70_000, resource.RLIM_INFINITY))\n"
        "run(tiny(400), sys.argv[1], profile='full')\n"
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
    report = run(tiny(400), store, profile="full")
    assert report.complete and report.there >= 36


def test_two_stores_made_at_once(store: Path):
    """The loser of a race finds the winner's store."""
    with open_store(store) as first, open_store(store) as second:
        assert first.rows() == second.rows() == []
    assert [p.name for p in store.parent.iterdir() if p.name.startswith(".")] == []
