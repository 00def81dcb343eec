"""The locks of Windows, run here: `msvcrt` as its documentation describes it, on a system whose
files can be removed while they are open. What a stand-in cannot show was not tried: no machine of
ours has Windows."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from byheart import _folders
from byheart._folders import LOCKED_BYTE, locked, new_folder, write_text
from byheart.errors import BusyError
from byheart.models.folder import MEMORY


class FakeMsvcrt:
    """Locks of bytes: one holder each, told by the file and the position; another is refused with
    EACCES. Only its holder unlocks a byte."""

    LK_NBLCK, LK_UNLCK = 2, 0

    def __init__(self) -> None:
        self.holders: dict[tuple[int, int, int], int] = {}
        self.failure: int | None = None

    def place(self, handle: int) -> tuple[int, int, int]:
        status = os.fstat(handle)
        return status.st_dev, status.st_ino, os.lseek(handle, 0, os.SEEK_CUR)

    def locking(self, handle: int, mode: int, count: int) -> None:
        assert count == 1
        if self.failure is not None:
            raise OSError(self.failure, os.strerror(self.failure))
        place = self.place(handle)
        assert place[2] == LOCKED_BYTE  # far behind the text, which others read
        if mode == self.LK_UNLCK:
            assert self.holders.pop(place) == handle
        elif place in self.holders:
            raise PermissionError(errno.EACCES, "Permission denied")
        else:
            self.holders[place] = handle


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> FakeMsvcrt:
    fake = FakeMsvcrt()
    monkeypatch.setattr(_folders, "sys", SimpleNamespace(platform="win32"))
    monkeypatch.setattr(_folders, "msvcrt", fake, raising=False)
    monkeypatch.setattr(_folders, "_exchange", lambda a, b: False)  # Windows has none
    monkeypatch.setattr(_folders, "WAIT", 0.2)
    return fake


def test_one_holder_at_a_time(windows: FakeMsvcrt, tmp_path: Path):
    """Another thread waits, is refused with the holder's name, and gets it when it is free."""
    path, refused = tmp_path / "m", []

    def other() -> None:
        try:
            with locked(path):
                refused.append(None)
        except BusyError as error:
            refused.append(str(error))

    with locked(path) as alone:
        assert alone and len(windows.holders) == 1
        with locked(path / "inside"):  # the same thread, in the folder that it holds
            assert len(windows.holders) == 1
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert windows.holders == {} and list(tmp_path.iterdir()) == []
    assert f"process {os.getpid()} on" in refused[0]
    other()
    assert refused[1] is None and windows.holders == {}


def test_files_and_folders_appear_whole(windows: FakeMsvcrt, tmp_path: Path):
    write_text(tmp_path / "a.txt", "one")
    write_text(tmp_path / "a.txt", "two")
    assert (tmp_path / "a.txt").read_text() == "two"
    for force, text in ((False, "old"), (True, "new")):
        with new_folder(tmp_path / "m", marker=MEMORY, force=force) as place:
            (place / MEMORY).write_text('{"kind": "byheart memory"}')
            (place / "x").write_text(text)
    assert (tmp_path / "m" / "x").read_text() == "new"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt", "m"]
    assert windows.holders == {}


def test_a_failure_unlocks(windows: FakeMsvcrt, tmp_path: Path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "m"):
        raise ZeroDivisionError
    assert windows.holders == {} and list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks(windows: FakeMsvcrt, tmp_path: Path):
    """Not taken for a holder, whom one would wait for."""
    windows.failure = errno.ENOSYS
    with pytest.warns(RuntimeWarning, match="has no locks"), locked(tmp_path / "m") as alone:
        assert not alone
