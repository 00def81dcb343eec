"""Commands of `byheart` in forks of one warm process: many a second, killed where one likes.

Run as a script, so that the process that forks has one thread and nothing of pytest's.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import unwrap
from itertools import count
from pathlib import Path

import torch

from byheart import _folders
from byheart.certificates import Certificate
from byheart.cli.main import main
from byheart.models.memory_files import LoadedMemory, inspect
from byheart.training.trainer import train_stack

KILLED = 137
NEXT = ["facts", "t.csv", "-o", "next.csv", "--force"]
RELATIONS = ("capital", "river", "tongue", "anthem")
TABLE = "country,relation,answer\n" + "".join(
    f"c{i},{relation},{relation[:2]}{(i * 7) % 11}\n" for i in range(30) for relation in RELATIONS
)
STUDY = """
from byheart.studies import Axes, Finding, Procedure, Study

def measure(params, seed):
    return {"y": 2.0 * params["x"]}

def analyse(rows):
    return Finding("none")

STUDY = Study(name="mine/line", grid=Procedure(measure).grid(x=(1, 2)), claim="y = 2x",
              rule="none", analyse=analyse, axes=Axes("x", "y"))
"""
# Events of `sys.addaudithook` before something on the disk changes; `open` where it may.
CHANGES = {
    "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod",
    "os.truncate", "os.utime", "shutil.rmtree", "shutil.copyfile", "shutil.move",
    "tempfile.mkstemp", "tempfile.mkdtemp", "sqlite3.connect", "ctypes.dlsym", "os.fsync",
    "os.close",
}  # fmt: skip
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def kill_before(operation: int) -> None:
    """End this process, as SIGKILL does, before the given change of the disk."""
    seen = 0

    def hook(event: str, args: tuple[object, ...]) -> None:
        nonlocal seen
        opened = event == "open" and isinstance(args[2], int) and args[2] & WRITING
        if not opened and event not in CHANGES:
            return
        if isinstance(args[0], str) and args[0].startswith(("/dev", "/proc", sys.prefix)):
            return
        seen += 1
        if seen == operation:
            os._exit(KILLED)

    fsync, close = os.fsync, os.close
    os.fsync = lambda handle: (sys.audit("os.fsync", handle), fsync(handle))[1]
    os.close = lambda handle: (sys.audit("os.close", handle), close(handle))[1]
    sys.addaudithook(hook)


def in_a_fork(work: Callable[[], object], output: Path) -> int:
    """The process that does `work`; what it says goes to a file."""
    pid = os.fork()
    if pid:
        return pid
    handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    try:
        code = exit_code(work)
    except BaseException:
        traceback.print_exc()
        code = 99
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def exit_code(work: Callable[[], object]) -> int:
    try:
        work()
    except SystemExit as error:
        return int(error.code or 0)
    return 0


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def command(args: list[str]) -> None:
    """`byheart ARGS` in this process."""
    sys.argv = ["byheart", *args]
    main()


def in_place(args: list[str], place: Path, *, kill_at: int = 0) -> int:
    """The exit code of a command in the folder `place`."""

    def work() -> None:
        os.chdir(place)
        if kill_at:
            kill_before(kill_at)
        command(args)

    return ended(in_a_fork(work, place.with_name("output.txt")))


def warm(args: list[str], place: Path) -> None:
    """A command in this process, so that forks find its modules loaded."""
    torch.set_num_threads(1)  # threads do not survive a fork
    here, said = os.getcwd(), io.StringIO()
    os.chdir(place)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = exit_code(lambda: command(args))
    finally:
        os.chdir(here)
    assert code == 0, said.getvalue()


def whole(folder: Path) -> tuple[LoadedMemory, Certificate | None]:
    """A memory and the certificate beside it, as readers see them."""
    return _folders.read_whole(folder, lambda: (inspect(folder), Certificate.read(folder)))


def state(path: Path) -> str:
    """What a path holds: the same for the same memory, whatever the seconds that it took."""
    with contextlib.suppress(OSError):  # a reader puts back what a killed writer moved away
        _folders.read_whole(path, lambda: os.stat(path))
    if (path / "memory.json").exists() or (path.suffix == ".memory" and not path.exists()):
        try:
            found, proof = _folders.read_whole(
                path, lambda: (inspect(path), Certificate.read(path))
            )
        except Exception as error:
            return "nothing" if "no such memory" in str(error) else f"broken: {error}"
        proved = proof is not None and (proof.about(found.memory) or "of another memory")
        return f"{hash_of(repr(found.memory.identity()))} {found.damage} {proved}"
    if path.is_dir():
        return hash_of(repr({p.name: state(p) for p in sorted(path.iterdir())}))
    return hash_of(_timeless(path.read_bytes())) if path.exists() else "nothing"


def _timeless(data: bytes) -> str:
    return re.sub(r'"(\w*seconds|digest)": ?("\w*"|[\d.e+-]*)', "", data.decode("latin-1"))


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def unexpected(place: Path, names: set[str]) -> list[str]:
    """What is left of something unfinished, anywhere below a folder."""
    return sorted(
        str(path.relative_to(place))
        for path in place.rglob("*")
        if _folders.is_scrap(path.name) or (path.parent == place and path.name not in names)
    )


def fresh(place: Path, template: Path | None = None) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    if template is None:
        place.mkdir(parents=True)
        (place / "t.csv").write_text(TABLE)
        (place / "mine.py").write_text(STUDY)
    else:
        shutil.copytree(template, place)
    return place


@dataclass(frozen=True)
class Case:
    """A command that writes `targets`, after some others; `codes`: of the same command again."""

    before: list[list[str]]
    command: list[str]
    targets: list[str]
    codes: Sequence[int] = (0,)
    stride: int = 1
    two_renames: bool = False


def kills(place: Path, case: Case) -> dict[str, object]:
    """Run the command again and again, killed `stride` changes later each time; what became
    of its targets, and what was left after the next commands that write there."""
    if case.two_renames:
        _folders._exchange = lambda a, b: False
    trainer = unwrap(train_stack)
    assert trainer.__kwdefaults__ is not None
    trainer.__kwdefaults__["checkpoint_seconds"] = 0.0  # after every block of batches
    args, targets = case.command, case.targets
    begin = fresh(place / "begin")
    for before in case.before:
        warm(before, begin)
    old = {name: state(begin / name) for name in targets}
    done = fresh(place / "done", begin)
    warm(args, done)
    new = {name: state(done / name) for name in targets}
    warm(NEXT, done)
    names = {path.name for path in done.iterdir()}
    made: dict[str, object] = {"old": 0, "new": 0, "wrong": [], "left": []}
    wrong, left, code = [], [], 0
    for operation in count(1, case.stride):
        work = fresh(place / "work", begin)
        code = in_place(args, work, kill_at=operation)
        if code != KILLED:
            break
        found = {name: state(work / name) for name in targets}
        wrong += [
            (operation, name, found[name])
            for name in targets
            if found[name] not in (old[name], new[name])
        ]
        last = targets[-1]
        made["new" if found[last] == new[last] else "old"] += 1  # type: ignore[operator]
        code = in_place(args, work)
        again = {name: state(work / name) for name in targets}
        if code not in case.codes or again != new:
            wrong.append((operation, code, again))
        in_place(NEXT, work)
        left += [(operation, name) for name in unexpected(work, names)]
    return made | {"wrong": wrong, "left": left, "last": code}


if __name__ == "__main__":
    where, tasks = Path(sys.argv[1]), json.loads(sys.argv[2])
    print(json.dumps([kills(where, Case(**task)) for task in tasks]))
