"""Locks, whole reads and what is left behind, one by one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

import byheart as bh
from byheart import _folders
from byheart._folders import locked, new_folder, read_whole, write_bytes
from byheart.certificates import certify
from byheart.cli.main import app
from byheart.errors import BusyError, ByheartError, MemoryFileError
from byheart.models.folder import MEMORY
from byheart.studies import StoreError, open_store
from byheart.studies.store import coordinating

HOLD = """
import sys
from byheart._folders import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""
FACTS = {("France", "capital"): "Paris", ("Peru", "capital"): "Lima", ("Fiji", "capital"): "Suva"}
NOBODY = 65534


@contextmanager
def held_elsewhere(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process holds the lock of `path`."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_folders, "WAIT", 0.2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return bh.build(FACTS, "sharded").save(tmp_path / "m.memory")


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def test_a_second_writer_waits_and_is_told_who_writes(tmp_path: Path):
    said: list[str] = []
    with held_elsewhere(tmp_path / "f") as other:
        who = rf"process {other.pid} on "
        with pytest.raises(BusyError, match=who), locked(tmp_path / "f", progress=said.append):
            pass
        assert said and all(who in text for text in said)
        with pytest.raises(BusyError, match=who):
            write_bytes(tmp_path / "f", b"new")
        write_bytes(tmp_path / "g", b"another file")
    assert names(tmp_path)[-1:] == ["g"]


def test_a_lock_ends_with_its_process(tmp_path: Path):
    with held_elsewhere(tmp_path / "f") as other:
        other.kill()
        other.wait()
        assert names(tmp_path) == [".f.byheart-lock"]
        write_bytes(tmp_path / "f", b"new")
    assert names(tmp_path) == ["f"]


def test_a_thread_may_lock_again_and_another_may_not(tmp_path: Path):
    def write() -> None:
        write_bytes(tmp_path / "m" / "file", b"")

    (tmp_path / "m").mkdir()
    with locked(tmp_path / "m"), locked(tmp_path / "m" / "file"), ThreadPoolExecutor() as another:
        write()
        with pytest.raises(BusyError):
            another.submit(lambda: locked(tmp_path / "m").__enter__()).result()
    assert names(tmp_path) == ["m"] and names(tmp_path / "m") == ["file"]


def test_one_writer_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Read, add one, write: with a lock nothing is lost."""
    monkeypatch.setattr(_folders, "WAIT", 60.0)
    number = tmp_path / "number"
    write_bytes(number, b"0")

    def count(_: int) -> None:
        with locked(number):
            write_bytes(number, str(int(number.read_bytes()) + 1).encode())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(40)))
    assert number.read_bytes() == b"40" and names(tmp_path) == ["number"]


def test_what_the_dead_left_goes_and_what_the_living_make_stays(tmp_path: Path):
    def leave(name: str) -> None:
        (tmp_path / f".{name}.abcdefgh.byheart-part").mkdir()
        (tmp_path / f".{name}.abcdefgh.byheart-part" / "x").touch()

    for name in ("dead", "alive"):
        leave(name)
    (tmp_path / ".dead.byheart-lock").touch()
    (tmp_path / ".dead.part").touch()  # not ours
    with held_elsewhere(tmp_path / "alive"):
        leave("alive")  # holding it, the other process has removed the first one
        write_bytes(tmp_path / "f", b"")
        left = {".alive.abcdefgh.byheart-part", ".alive.byheart-lock"}
        assert set(names(tmp_path)) == {"f", ".dead.part", *left}
    write_bytes(tmp_path / "g", b"")
    assert names(tmp_path) == [".dead.part", "f", "g"]


def test_a_writer_that_was_killed_between_two_renames(folder: Path):
    """The old memory is back, for a reader or for the next writer."""
    memory, old = bh.load(folder), folder.with_name(f".{folder.name}.abcdefgh.byheart-old")
    for mend in (lambda: bh.load(folder), lambda: memory.save(folder, force=True)):
        os.rename(folder, old)
        shutil.copytree(old, old.with_suffix(".byheart-part"))
        mend()
        assert bh.load(folder) == memory and names(folder.parent) == [folder.name]


def test_a_reader_reads_again_when_the_folder_was_replaced(folder: Path):
    other = bh.build(FACTS | {("Peru", "capital"): "Cusco"}, "sharded")
    seen: list[bytes] = []

    def read() -> tuple[bytes, bytes]:
        first = (folder / MEMORY).read_bytes()
        if not seen:
            other.save(folder, force=True)
        seen.append(first)
        return first, (folder / "weights.safetensors").read_bytes()

    first, weights = read_whole(folder, read)
    assert len(seen) == 2 and seen[0] != first == (folder / MEMORY).read_bytes()
    assert weights == other.weight_files()["weights.safetensors"]


def test_a_certificate_is_of_the_weights_beside_it(folder: Path, monkeypatch: pytest.MonkeyPatch):
    from byheart.certificates import certificate

    prove, other = certificate.prove, bh.build(FACTS | {("Peru", "capital"): "Cusco"}, "sharded")

    def slowly(*args: object) -> object:
        other.save(folder, force=True)
        return prove(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(certificate, "prove", slowly)
    with pytest.raises(MemoryFileError, match="was replaced while it was proved"):
        certify(folder)
    assert "certificate.json" not in names(folder)
    monkeypatch.undo()
    assert certify(folder).certified and "certificate.json" in names(folder)


@pytest.mark.parametrize(
    "args",
    [("edit", "M", "--set", "France,capital=Lyon"), ("build", "elements", "-o", "M", "--force"),
     ("certify", "M")],
    ids=lambda args: args[0],
)  # fmt: skip
def test_commands_say_who_is_writing(folder: Path, args: tuple[str, ...]):
    before = (folder / MEMORY).read_bytes()
    with held_elsewhere(folder) as other:
        said = CliRunner().invoke(app, [str(folder) if a == "M" else a for a in args])
    assert said.exit_code == 2
    assert f"is being written by process {other.pid} on " in said.stderr
    assert (folder / MEMORY).read_bytes() == before and MEMORY in names(folder)


def test_two_runs_of_one_checkpoint(tmp_path: Path):
    from byheart.training import Recipe, token_data, train_stack

    facts = bh.Facts.from_dict(FACTS)
    spec = bh.AttentionOnlySpec(N=facts.N, S=2, d=4, d_h=4, H=2)
    with held_elsewhere(tmp_path / "run"), pytest.raises(BusyError, match="run is being written"):
        train_stack(
            spec, token_data(facts), Recipe(steps=2), seeds=[0], checkpoint=tmp_path / "run"
        )


def test_links_are_kept_and_what_they_lead_to_is_written(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "link").symlink_to(tmp_path / "file")
    for text in (b"new", b"newer"):
        write_bytes(home / "link", text)
        assert (home / "link").is_symlink() and (tmp_path / "file").read_bytes() == text
    assert names(home) == ["link"] and names(tmp_path) == ["file", "home"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on this system")
def test_pipes_and_devices_are_not_replaced(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="a device or a pipe"):
        write_bytes(tmp_path / "pipe", b"")
    assert (tmp_path / "pipe").is_fifo() and names(tmp_path) == ["pipe"]


def test_a_store_that_is_a_folder_leaves_no_scraps(tmp_path: Path):
    place = tmp_path / "place"
    place.mkdir()
    with pytest.raises(StoreError), coordinating(place):
        pass
    assert names(tmp_path) == ["place"] and names(place) == []


@contextmanager
def read_only(make: Callable[[Path], None]) -> Iterator[Path]:
    """A folder that may not be written, not even by root, who is nobody meanwhile."""
    with tempfile.TemporaryDirectory() as place:
        make(Path(place))
        os.chmod(place, 0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(NOBODY)
        try:
            yield Path(place)
        finally:
            if root:
                os.seteuid(0)
            os.chmod(place, 0o755)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="no user ids on this system")
def test_a_store_that_may_only_be_read_is_not_damaged():
    def make(place: Path) -> None:
        with coordinating(place / "s.db") as store:
            store.add_run("a study", "quick", "1", 1, 0, 1.0)

    with read_only(make) as place:
        with open_store(place / "s.db", create=False) as store:
            assert store.rows() == []
        with (
            pytest.raises(StoreError, match="may be read, not written"),
            coordinating(place / "s.db"),
        ):
            pass
        assert names(place) == ["s.db"]


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="no user ids on this system")
def test_a_memory_that_may_only_be_read():
    """Reading needs no lock; writing says why not."""
    with read_only(lambda place: [bh.build(FACTS).save(place / "m"), None][1]) as place:
        memory = bh.load(place / "m")
        assert memory.recall("Peru", "capital").answer == "Lima"
        with pytest.raises(MemoryFileError, match="Permission denied"):
            memory.save(place / "m", force=True)
        with pytest.raises(ByheartError, match="Permission denied"):
            certify(place / "m")


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(_: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(_folders, "_lock_handle", refuse)
    with (
        pytest.warns(RuntimeWarning, match="has no locks"),
        new_folder(tmp_path / "m", marker=MEMORY, force=False) as place,
    ):
        (place / "x").touch()
    assert (tmp_path / "m" / "x").exists() and names(tmp_path) == ["m"]
