"""Folders and files that appear whole or not at all, however many write them.

Whoever writes a path holds its lock, `.NAME.byheart-lock` beside it: the lock of a file, as the
operating system has it, so that it ends with its process. What is not finished lies beside the
path too, as `.NAME.RANDOM.byheart-part`; the next holder of the lock knows that nobody else is at
work, and removes what a killed one left.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import re
import shutil
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from byheart._progress import Report, quiet
from byheart._words import written
from byheart.errors import BusyError, ByheartError, MemoryFileError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # linux/fs.h, fcntl.h
LOCK, PART, OLD = ".byheart-lock", ".byheart-part", ".byheart-old"
WAIT = 60.0  # seconds for another writer to end, or for a folder to hold still
READS = 3  # of a folder at least, however long one takes
PAUSE = 0.02
LOCKED_BYTE = 2**30  # Windows locks bytes, which nobody can read then: one far behind the text
NO_PLACE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR}
NO_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK}
Result = TypeVar("Result")

# What a thread of a process (forks copy this) holds: locked paths, and new folders, which nobody
# else knows yet.
_held: dict[Path, tuple[int, int]] = {}


@contextlib.contextmanager
def locked(
    path: str | Path, *, wait: float | None = None, progress: Report = quiet
) -> Iterator[bool]:
    """Keep other writers from `path`, a file or a folder and all in it, until the block ends.

    Another holder is waited for, `wait` seconds (`WAIT`), then it is a `BusyError` that names it.
    One thread may lock a path again, or a file in a folder that it holds. False where there is no
    lock to be had: in a folder that may not be written, as the writing itself will say, and, with a
    warning, on a file system that has none.

    >>> import byheart as bh, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp()) / "elements"
    >>> _ = bh.build("elements", "sharded").save(folder)
    >>> with bh.locked(folder):  # no edit of another process comes between
    ...     edited = bh.edit(bh.load(folder), set={("Fe", "name"): "ferrum"})
    ...     _ = edited.save(folder, force=True)
    >>> bh.load(folder).recall("Fe", "name").answer
    'ferrum'
    """
    target, me = Path(os.path.realpath(path)), _me()
    if any(_held.get(place) == me for place in (target, *target.parents)):
        yield True
        return
    lock = _lock_of(target)
    handle = _wait_for(lock, path, WAIT if wait is None else wait, progress)
    if handle is None:
        yield False
        return
    try:
        _held[target] = me
        _tidy(target)
        yield True
    finally:
        _held.pop(target, None)
        _release(lock, handle)


@contextlib.contextmanager
def new_folder(
    folder: str | Path, *, marker: str, force: bool, progress: Report = quiet
) -> Iterator[Path]:
    """A temporary folder that becomes `folder` when the block ends without an exception. All that
    `check_target` refuses, and a folder that cannot be written, is refused before the block; nobody
    else writes `folder` until it has ended."""
    target = check_target(folder, marker=marker, force=force)
    missing = [p for p in target.parents if not os.path.lexists(p)]
    try:
        with contextlib.ExitStack() as stack:
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(target, progress=progress))
                check_target(folder, marker=marker, force=force)  # it may be there by now
                temporary = stack.enter_context(_part(target))
            except OSError as error:
                blocked = isinstance(error, FileExistsError)
                reason = "a file is in the way" if blocked else error.strerror
                at = f"{reason} ({target.parent})"
                raise MemoryFileError(
                    f"{folder} cannot be written: {at}. Give another `folder`."
                ) from None
            try:
                yield temporary
                _flush(temporary)
                _put_in_place(temporary, target, marker, force)
            except OSError as error:
                raise MemoryFileError(f"{folder} cannot be written: {error.strerror}.") from error
    finally:
        if not os.path.lexists(target):
            for parent in missing:  # folders made for a memory that did not come about
                with contextlib.suppress(OSError):
                    parent.rmdir()


def check_target(folder: str | Path, *, marker: str, force: bool) -> Path:
    """The path of a folder that may be written: one that is not there or, with `force`, one that
    holds `marker` (so `force` never deletes other people's files)."""
    if not os.fspath(folder):
        raise MemoryFileError("the output folder has no name: give `folder`.")
    target = Path(os.path.realpath(folder))  # a link is kept, what it leads to is replaced
    if os.path.lexists(target):
        if not force:
            what = "Give another `folder`, or `force` to replace it."
            raise MemoryFileError(f"{folder} exists already. {what}")
        if not _is_ours(target / marker):
            raise MemoryFileError(
                f"{folder} exists and is not a byheart memory (no {marker} of byheart in it): "
                "it is not replaced, not even with `force`. Give another `folder`."
            )
    return target


def read_whole(folder: str | Path, read: Callable[[], Result]) -> Result:
    """What `read` reads in `folder`, everything from the same folder: `read` is called again where
    another one was put in its place meanwhile."""
    target, deadline, reads = Path(os.path.realpath(folder)), time.monotonic() + WAIT, 0
    while reads < READS or time.monotonic() < deadline:
        before, reads = _stamp(target), reads + 1
        try:
            result = read()
        except (ByheartError, OSError):
            if _is_still(target, before):
                raise
        else:
            if _is_still(target, before):
                return result
    raise BusyError(f"{folder} is replaced again and again while it is read. Try again later.")


def write_text(path: Path, text: str) -> None:
    """Write a text file so that `path` holds the old or the new text at any moment."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file so that `path` holds the old or the new bytes at any moment."""
    path = Path(os.path.realpath(path))  # a link is kept, what it leads to is replaced
    if path.exists() and not path.is_file() and not path.is_dir():
        raise FileExistsError(errno.EEXIST, "a device or a pipe is in the way", str(path))
    with locked(path) as alone:
        if alone:
            _sweep(path)
        handle, temporary = tempfile.mkstemp(PART, f".{path.name}.", path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise


def save_file(path: Path, data: str | bytes) -> None:
    """Write a file whole, in a folder that is made where it is missing; a disk that refuses is a
    `ByheartError`. Text is `written` with escapes for what UTF-8 has not."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, written(data).encode() if isinstance(data, str) else data)
    except OSError as error:
        raise ByheartError(f"{path} cannot be written: {error.strerror}.") from None


def is_scrap(name: str) -> bool:
    """Whether a file of this name is a lock, or something unfinished."""
    return name.endswith((LOCK, PART, OLD))


@contextlib.contextmanager
def _part(target: Path) -> Iterator[Path]:
    """A new folder beside `target`, which is gone after the block, whatever its name holds then:
    after an exchange the old memory, after a failure scraps."""
    temporary = Path(tempfile.mkdtemp(PART, f".{target.name}.", target.parent))
    _held[temporary] = _me()
    try:
        temporary.chmod(0o777 & ~_umask())  # mkdtemp makes it private
        yield temporary
    finally:
        del _held[temporary]
        shutil.rmtree(temporary, ignore_errors=True)


def _flush(folder: Path) -> None:
    for file in folder.iterdir():
        with open(file, "r+b" if sys.platform == "win32" else "rb") as handle:  # to be flushed
            os.fsync(handle.fileno())


def _put_in_place(temporary: Path, target: Path, marker: str, force: bool) -> None:
    if not os.path.lexists(target):
        os.rename(temporary, target)
        return
    # Looked at again: other programs do not ask for the lock.
    if not force or not _is_ours(target / marker):
        raise MemoryFileError(f"{target} appeared meanwhile and is kept. Give another `folder`.")
    if _exchange(temporary, target):
        return
    # No atomic exchange on this system: two renames, and back again if the second one fails. Where
    # the process is killed between them, `_sweep` does it.
    old = temporary.with_name(temporary.name.removesuffix(PART) + OLD)
    try:
        os.rename(target, old)
        os.rename(temporary, target)
    except BaseException:
        if not os.path.lexists(target):
            os.rename(old, target)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _is_ours(file: Path) -> bool:
    """A description of a byheart memory, or one too damaged to say what it is."""
    if not file.is_file():  # a pipe would be waited for
        return False
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return True
    except OSError:
        return False
    return isinstance(record, dict) and str(record.get("kind", "")).startswith("byheart")


def _exchange(a: Path, b: Path) -> bool:
    """Swap two paths atomically (Linux renameat2); False where that is not to be had."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    paths = os.fsencode(a), os.fsencode(b)
    return renameat2(AT_FDCWD, paths[0], AT_FDCWD, paths[1], RENAME_EXCHANGE) == 0


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# What killed writers left


Stamp = tuple[int, int, int]


def _stamp(folder: Path) -> Stamp | None:
    """Tells a folder from the one that was at its place before; None where there is none."""
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _is_still(target: Path, before: Stamp | None) -> bool:
    """Whether `target` is what it was before. It is not where a writer is, or was killed, between
    the two renames that replace it; what was killed is mended."""
    if before is None and any(path.name.endswith(OLD) for path in _scraps(target)):
        with contextlib.suppress(BusyError), locked(target, wait=0.0):
            pass
        time.sleep(PAUSE)
        return False
    return _stamp(target) == before


def _scraps(target: Path) -> list[Path]:
    """What is unfinished of `target`."""
    name = re.compile(rf"\.{re.escape(target.name)}\.\w{{8}}({PART}|{OLD})")
    try:
        return [path for path in target.parent.iterdir() if name.fullmatch(path.name)]
    except OSError:
        return []


def _sweep(target: Path) -> None:
    """Remove what is unfinished of `target`, whose lock is held; a folder that was moved aside by a
    writer that was killed before the new one was in place goes back."""
    for path in _scraps(target):
        with contextlib.suppress(OSError):  # another user's: it stays
            if path.name.endswith(OLD) and not os.path.lexists(target):
                os.rename(path, target)
            elif path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _tidy(target: Path) -> None:
    """Sweep up after writers of `target`, whose lock is held, and after others in its folder whose
    lock nobody holds any more."""
    _sweep(target)
    for lock in target.parent.glob(f".*{LOCK}"):
        other, handle = lock.with_name(lock.name[1 : -len(LOCK)]), None
        with contextlib.suppress(OSError):
            handle = None if other in _held else _acquire(lock, create=False)
        if handle is not None:
            try:
                _sweep(other)
            finally:
                _release(lock, handle)


# Locks


def _me() -> tuple[int, int]:
    return os.getpid(), threading.get_ident()


def _lock_of(target: Path) -> Path:
    return target.with_name(f".{target.name}{LOCK}")


def _wait_for(lock: Path, path: str | Path, wait: float, progress: Report) -> int | None:
    """The handle of a held lock; None where there is no lock to be had."""
    deadline = time.monotonic() + wait
    while True:
        try:
            handle = _acquire(lock)
        except OSError as error:
            if error.errno in NO_LOCKS:
                with contextlib.suppress(OSError):
                    os.unlink(lock)
                told = f"{path}: its file system has no locks: let only one program write there."
                warnings.warn(told, RuntimeWarning, stacklevel=4)
            elif error.errno not in NO_PLACE:
                raise MemoryFileError(f"{path} cannot be written: {error.strerror}.") from None
            return None
        if handle is not None:
            return handle
        holder = _holder(lock)
        if time.monotonic() >= deadline:
            raise BusyError(f"{path} is being written by {holder}. Try again when it has ended.")
        progress(f"waiting for {holder}, which writes {path}")
        time.sleep(PAUSE)


def _acquire(lock: Path, *, create: bool = True) -> int | None:
    """A handle that holds the lock; None while somebody else does."""
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    while True:
        try:
            handle = os.open(lock, flags | os.O_RDWR | (os.O_CREAT if create else 0), 0o666)
        except PermissionError:  # another user's, or a folder that may not be written
            try:
                handle = os.open(lock, flags | os.O_RDONLY)
            except FileNotFoundError:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None
        held = False
        try:
            _lock_handle(handle)
            # Whoever had it removes it: then this is the lock of nothing, and there is a new one.
            held = os.path.samestat(os.fstat(handle), os.lstat(lock))
            if held:
                with contextlib.suppress(OSError):  # for people: a full disk is no reason
                    os.truncate(handle, 0)
                    os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
                return handle
        except BlockingIOError:
            return None
        except FileNotFoundError:
            if not create:
                raise
        finally:
            if not held:
                os.close(handle)


def _lock_handle(handle: int) -> None:
    """Lock an open file until it is closed; a BlockingIOError if another process has done it."""
    if sys.platform != "win32":
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    try:
        _lock_byte(handle, msvcrt.LK_NBLCK)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EDEADLK):
            raise
        raise BlockingIOError(errno.EWOULDBLOCK, error.strerror) from None


def _lock_byte(handle: int, mode: int) -> None:
    """Windows locks, and unlocks, bytes from where the file is being read."""
    if sys.platform == "win32":
        os.lseek(handle, LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(handle, mode, 1)
        finally:
            os.lseek(handle, 0, os.SEEK_SET)


def _release(lock: Path, handle: int) -> None:
    """Remove the lock while it is held, so that nobody takes it for his own. Windows removes only
    what is closed, and nothing that somebody else has opened; it unlocks what is closed at some
    later time, unless it is told to."""
    with contextlib.suppress(OSError):
        if sys.platform == "win32":
            _lock_byte(handle, msvcrt.LK_UNLCK)
        else:
            os.unlink(lock)
    os.close(handle)
    if sys.platform == "win32":
        with contextlib.suppress(OSError):
            os.unlink(lock)


def _holder(lock: Path) -> str:
    with contextlib.suppress(OSError):
        return lock.read_text(encoding="utf-8", errors="replace")[:200].strip() or "another process"
    return "another process"
