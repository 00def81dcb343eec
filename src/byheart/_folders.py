"""Folders and files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from byheart.errors import MemoryFileError

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # linux/fs.h, fcntl.h


@contextlib.contextmanager
def new_folder(folder: str | Path, *, marker: str, force: bool) -> Iterator[Path]:
    """A temporary folder that becomes `folder` when the block ends without an exception.

    Everything that can be refused is refused before the block runs: an existing `folder` without
    `force`, a `folder` that does not hold `marker` (so `force` never deletes other people's
    files), a place that cannot be written.
    """
    target = Path(os.path.abspath(folder))
    if os.path.lexists(target):
        if not force:
            raise MemoryFileError(
                f"{folder} exists already. Give another -o DIR, or --force to replace it."
            )
        if not (target / marker).is_file():
            raise MemoryFileError(
                f"{folder} exists and is not a byheart memory (no {marker} in it): "
                "it is not replaced, not even with --force. Give another -o DIR."
            )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise MemoryFileError(
            f"{folder} cannot be written: {error.strerror} ({target.parent}). Give another -o DIR."
        ) from None
    try:
        temporary.chmod(0o777 & ~_umask())  # mkdtemp makes it private
        yield temporary
        for file in temporary.iterdir():
            _flush(file)
        _put_in_place(temporary, target)
    except OSError as error:
        raise MemoryFileError(f"{folder} cannot be written: {error.strerror}.") from error
    finally:
        # After an exchange the temporary name holds the old memory; after a failure, scraps.
        shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file so that `path` holds the old or the new text at any moment."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _put_in_place(temporary: Path, target: Path) -> None:
    if not os.path.lexists(target):
        os.rename(temporary, target)
        return
    if _exchange(temporary, target):
        return
    # No atomic exchange on this system: two renames, and back again if the second one fails.
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    os.rename(target, old / "memory")
    try:
        os.rename(temporary, target)
    except OSError:
        os.rename(old / "memory", target)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _exchange(a: Path, b: Path) -> bool:
    """Swap two paths atomically (Linux renameat2); False where that is not to be had."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    paths = os.fsencode(a), os.fsencode(b)
    return renameat2(AT_FDCWD, paths[0], AT_FDCWD, paths[1], RENAME_EXCHANGE) == 0


def _flush(file: Path) -> None:
    with open(file, "rb") as handle:
        os.fsync(handle.fileno())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
