"""Folders and files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from byheart.errors import ByheartError, MemoryFileError

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # linux/fs.h, fcntl.h


@contextlib.contextmanager
def new_folder(folder: str | Path, *, marker: str, force: bool) -> Iterator[Path]:
    """A temporary folder that becomes `folder` when the block ends without an exception. All that
    `check_target` refuses, and a folder that cannot be written, is refused before the block."""
    target = check_target(folder, marker=marker, force=force)
    missing = [p for p in target.parents if not os.path.lexists(p)]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        blocked = isinstance(error, FileExistsError)
        reason = "a file is in the way" if blocked else error.strerror
        at = f"{reason} ({target.parent})"
        raise MemoryFileError(f"{folder} cannot be written: {at}. Give another `folder`.") from None
    try:
        temporary.chmod(0o777 & ~_umask())  # mkdtemp makes it private
        yield temporary
        for file in temporary.iterdir():
            with open(file, "rb") as handle:
                os.fsync(handle.fileno())
        _put_in_place(temporary, target, marker, force)
    except OSError as error:
        raise MemoryFileError(f"{folder} cannot be written: {error.strerror}.") from error
    finally:
        # After an exchange the temporary name holds the old memory; after a failure, scraps.
        shutil.rmtree(temporary, ignore_errors=True)
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


def write_text(path: Path, text: str) -> None:
    """Write a text file so that `path` holds the old or the new text at any moment."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file so that `path` holds the old or the new bytes at any moment."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
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
    `ByheartError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, data.encode("utf-8") if isinstance(data, str) else data)
    except OSError as error:
        raise ByheartError(f"{path} cannot be written: {error.strerror}.") from None


def _put_in_place(temporary: Path, target: Path, marker: str, force: bool) -> None:
    if not os.path.lexists(target):
        os.rename(temporary, target)
        return
    # Looked at again: it may have appeared, or changed, while the memory was being made.
    if not force or not _is_ours(target / marker):
        raise MemoryFileError(f"{target} appeared meanwhile and is kept. Give another `folder`.")
    if _exchange(temporary, target):
        return
    # No atomic exchange on this system: two renames, and back again if the second one fails.
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    try:
        os.rename(target, old / "memory")
        os.rename(temporary, target)
    except BaseException:
        if not os.path.lexists(target):
            os.rename(old / "memory", target)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _is_ours(file: Path) -> bool:
    """A description of a byheart memory, or one too damaged to say what it is."""
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
