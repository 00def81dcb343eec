"""What this machine can hold, what it says when it cannot, and how it hands memory back."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from byheart.errors import ByheartError, CapacityError

if sys.platform != "win32":
    import resource

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
LARGEST_KEPT = 2**25  # bytes; mallopt takes no larger threshold for mmap


CACHE = "BYHEART_CACHE"
LARGEST_SHARE = 0.9  # of the memory; the rest is for Python, torch and the system
SPEED = 3e10  # additions and multiplications a second, large products of matrices on one core
LONGEST_DAYS = 365
# How torch, the dynamic loader and the system say it where Python has no MemoryError.
_OUT_OF_MEMORY = re.compile(
    "not enough memory|out of memory|allocate memory|bad_alloc|failed to map segment", re.IGNORECASE
)


def cache_folder() -> Path:
    """Where what can be made again is kept for this user: BYHEART_CACHE, or the system's place."""
    root = os.environ.get(CACHE) or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "byheart"


def memory_bytes() -> int:
    """Memory that this process may use, in bytes: the machine's, or less where the shell
    (`ulimit -v`) or a container (cgroups) says so. On Windows, which has neither: no limit."""
    if sys.platform == "win32":
        return 2**63
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_group_limits()]
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft = resource.getrlimit(kind)[0]
        if soft != resource.RLIM_INFINITY:
            limits.append(soft)
    return min(limits)


def _group_limits(
    own: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> Iterator[int]:
    """Limits of this process's control groups and of the groups around them, in bytes. A container
    may see itself as the root, whatever `own` says, so the root is looked at in any case."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if "memory" in controllers.split(","):
            base, file = root / "memory", "memory.limit_in_bytes"  # version 1
        elif not controllers:
            base, file = root, "memory.max"
        else:
            continue
        group = base / name.strip("/")
        for folder in (group, *group.parents):
            try:
                text = (folder / file).read_text(encoding="ascii").strip()
            except OSError:
                text = "max"
            if text.isdecimal():
                yield int(text)
            if folder == base:
                break


def check_room(
    needed: float, what: str, advice: str, error: type[ByheartError] = CapacityError
) -> None:
    """Refuse, before any work, what needs more bytes than this process may use. The message has
    all numbers of that: what is asked, what there is, what is kept back of it, what that leaves."""
    present = memory_bytes()
    room = LARGEST_SHARE * present
    if needed > room:
        raise error(
            f"{what} needs about {_gigabytes(needed)} of memory. This process may use "
            f"{_gigabytes(present)}, of which {_gigabytes(present - room)} are kept for Python, "
            f"torch and the system: {_gigabytes(room)} are free for it. {advice}"
        )


def _gigabytes(number: float) -> str:
    """Bytes as gigabytes, with decimals where they are few.

    >>> _gigabytes(1.44e10), _gigabytes(1.6e9), _gigabytes(2.5e12)
    ('14.4 GB', '1.6 GB', '2,500 GB')
    """
    gigabytes = number / 1e9
    return f"{gigabytes:,.0f} GB" if gigabytes >= 100 else f"{gigabytes:.3g} GB"


def check_time(operations: float, what: str, advice: str) -> None:
    """Refuse, before any work, what would not end: more than `LONGEST_DAYS` at `SPEED`.

    >>> check_time(1e19, "it", "Give fewer `steps`.")
    Traceback (most recent call last):
    ...
    byheart.errors.CapacityError: it takes about 3,858 days of one core. Give fewer `steps`.
    """
    days = operations / SPEED / 86400
    if days > LONGEST_DAYS:
        raise CapacityError(f"{what} takes about {days:,.0f} days of one core. {advice}")


def out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python, numpy, torch or the system says that there is no more memory.

    >>> out_of_memory(MemoryError()), out_of_memory(RuntimeError("shapes differ"))
    (True, False)
    """
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    said = isinstance(error, (RuntimeError, ImportError)) and _OUT_OF_MEMORY.search(str(error))
    return isinstance(error, MemoryError) or bool(said)


def keep_freed_memory() -> bool:
    """In a Dask worker: let malloc keep freed memory for the next tensor. True if it was changed.

    Dask starts its workers with MALLOC_TRIM_THRESHOLD_=65536, which hands every freed tensor back
    to the system and takes it again, zeroed page by page, a moment later. A step of three layers
    with MLPs took 9.2 ms a model that way, 40 % of it page faults, and 5.0 ms without.
    """
    if "MALLOC_TRIM_THRESHOLD_" not in os.environ:
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return False
    kept = mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    return bool(kept and mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT))
