"""What only a process of its own shows: start-up, signals, pipes, exit codes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from byheart import __version__
from byheart.cli.main import COMMANDS

Script = Callable[..., subprocess.CompletedProcess[str]]
Started = Callable[..., Any]
Contents = Callable[[Path], dict[str, str]]

# A shell without job control starts background jobs with SIGINT ignored, and children inherit it.
LISTEN = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


HEAVY = {"torch", "scipy", "pandas", "numpy", "flint", "safetensors", "matplotlib", "sympy"}


@pytest.mark.parametrize("args", [(), ("--help",), ("--version",), ("bogus",)], ids=" ".join)
def test_help_is_quick(started: Started, args: tuple[str, ...]):
    """Nothing that takes long to load is loaded; seconds depend on the machine."""
    assert not started(*args).libraries & HEAVY


@pytest.mark.parametrize(
    "command",
    [pytest.param(c, marks=pytest.mark.slow) if i % 3 else c for i, c in enumerate(COMMANDS)],
)
def test_help_of_a_command_is_quick(started: Started, command: str):
    """Nor the modules of other commands, which may need what this one does not."""
    done = started(command, "--help")
    assert done.code == 0
    assert not done.libraries & HEAVY
    commands = {f"byheart.cli.{module}" for module in COMMANDS.values()} - {
        f"byheart.cli.{COMMANDS[name]}" for name in (command, "recall", "owner")
    }
    if command == "size":  # its sizes and sweeps are those of `bound`
        commands.discard("byheart.cli.bound")
    if command == "disguise":  # it writes a memory as `build` does
        commands.discard("byheart.cli.build")
    assert not done.modules & commands


@pytest.mark.parametrize(
    "args",
    [
        ("size", "--facts", "1000", "--vocab", "500", "--length", "2"),
        ("size", "--facts", "random:N=100,S=2,T=2500"),  # what `build` would shard
        ("facts", "countries"),
    ],
    ids=["sizes", "a table", "facts"],
)
def test_questions_about_sizes_do_without_torch(started: Started, args: tuple[str, ...]):
    """The preview of what `build` would make, too: two seconds of one core saved."""
    done = started(*args)
    assert done.code == 0
    assert "torch" not in done.libraries


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
@pytest.mark.parametrize(
    "args", [("--help",), ("--version",), ("facts", "--help"), ("facts", "gone.csv", "--json")]
)
def test_words_that_a_full_disk_refuses(args: tuple[str, ...]):
    byheart = [sys.executable, "-m", "byheart", *args]
    with open("/dev/full", "w") as full:
        done = subprocess.run(byheart, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_the_whole_command_line_is_light(started: Started):
    """As programs import it, with every command."""
    code = "import sys; from byheart.cli.main import app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {name.partition(".")[0] for name in done.stdout.split()} & HEAVY


def test_asking_loads_torch_and_little_else(started: Started, memory: Path):
    done = started("recall", memory, "France", "capital")
    assert done.code == 0 and done.stdout.startswith("Paris\n")
    assert done.libraries & HEAVY == {"torch", "numpy", "safetensors"}
    unneeded = {"byheart.construct", "byheart.certificates", "byheart.exports", "byheart.training"}
    assert not done.modules & unneeded


@pytest.mark.slow
def test_exit_codes_of_the_script(script: Script, memory: Path):
    good = script("recall", memory, "France", "capital")
    assert (good.returncode, good.stdout.splitlines()[0], good.stderr) == (0, "Paris", "")
    assert script("recall", "--bogus").returncode == 2
    (memory / "weights.safetensors").write_bytes(b"")
    assert script("certify", memory).returncode == 1


def test_version(script: Script):
    assert script("--version").stdout == f"byheart {__version__}\n"
    as_module = [sys.executable, "-m", "byheart", "--version"]
    done = subprocess.run(as_module, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"byheart {__version__}\n"


def interrupted(
    script_path: Path, target: Path, *options: str, sign: signal.Signals = signal.SIGINT
) -> subprocess.CompletedProcess[str]:
    """Start a build of some seconds (one dense solve), press Ctrl-C once it has begun."""
    facts = ["random:N=100,S=3,T=4000", "--method", "attention"]
    args = ["build", *facts, "-o", str(target), *options]
    process = subprocess.Popen(
        [sys.executable, "-c", LISTEN, str(script_path), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    with process:
        try:
            deadline = time.monotonic() + 300
            while not any(target.parent.glob(f".{target.name}.*.byheart-part")):
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.01)
            time.sleep(0.2)
            process.send_signal(sign)
            stdout, stderr = process.communicate(timeout=300)
        finally:
            process.kill()
    return subprocess.CompletedProcess(args, process.returncode, stdout, stderr)


@pytest.mark.parametrize(
    "sign",
    [
        signal.SIGINT,
        *(pytest.param(s, marks=pytest.mark.slow) for s in (signal.SIGTERM, signal.SIGHUP)),
    ],
    ids=lambda sign: sign.name,
)
def test_interrupt_leaves_nothing(installed_script: Path, tmp_path: Path, sign: signal.Signals):
    done = interrupted(installed_script, tmp_path / "m", sign=sign)
    assert done.returncode == 128 + sign
    assert done.stderr.strip() == "error: interrupted: nothing is half-written."
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_interrupt_keeps_the_old_memory(
    installed_script: Path, script: Script, memory: Path, tmp_path: Path, contents: Contents
):
    before = contents(tmp_path)
    done = interrupted(installed_script, memory, "--force", "--json")
    assert done.returncode == 130
    assert "interrupted" in json.loads(done.stdout)["error"]
    assert "Traceback" not in done.stderr
    assert contents(tmp_path) == before
    assert script("certify", memory, "--no-write").returncode == 0


SLOW_STUDY = """
import time
from byheart.studies import Finding, Procedure, Study

def measure(params, seed):
    time.sleep(0.3)
    return {"y": params["x"]}

STUDY = Study(name="slow/line", grid=Procedure(measure).grid(x=range(400)),
              analyse=lambda rows: Finding("a line"))
"""
WORDS = {
    "reproduce": (["slow.py", "--workers", "2", "--seeds", "1"], "400 rows, ", "error: stopped: "),
    "train": (["countries", "--steps", "10000000", "--d-model", "2"], "step ", "error: interrupt"),
}


@pytest.mark.slow  # where the signal falls depends on the machine
@pytest.mark.parametrize("command", WORDS)
def test_ctrl_c_leaves_one_sentence(installed_script: Path, tmp_path: Path, command: str):
    """A terminal sends it to every process of the group, workers too, and people press it twice.
    No other program has a word, and nothing is left running."""
    (tmp_path / "slow.py").write_text(SLOW_STUDY)
    args, begun, said = WORDS[command]
    process = subprocess.Popen(
        [sys.executable, "-c", LISTEN, str(installed_script), command, *args],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    with process:
        assert process.stderr is not None
        lines: list[str] = []
        try:
            while begun not in (lines or [""])[-1]:
                lines.append(process.stderr.readline())
                assert lines[-1], lines  # it has not ended
            for _ in range(2):
                os.killpg(process.pid, signal.SIGINT)
                time.sleep(0.2)
            _, rest = process.communicate(timeout=300)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    ours = [line for line in rest.splitlines() if begun not in line]
    assert process.returncode == 130
    assert len(ours) == 1 and ours[0].startswith(said), rest
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_ctrl_c_before_the_command_begins(installed_script: Path, tmp_path: Path):
    """While modules are loaded."""
    code = (
        "import sys, byheart.cli.main as m\n"
        "def stop(*names): raise KeyboardInterrupt\n"
        "m.make_app = stop\n"
        "m.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 130
    assert done.stderr == "error: interrupted: nothing is half-written.\n"


def closed_pipe(script_path: Path, *args: object) -> subprocess.CompletedProcess[str]:
    """Run with a reader that has gone before the first line, as `| true` does."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            [script_path, *map(str, args)],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    finally:
        os.close(writer)


@pytest.mark.parametrize(
    "args",
    [
        ("--help",),
        pytest.param(("facts", "countries"), marks=pytest.mark.slow),
        ("recall", "MEMORY", "Frence", "capital", "--json"),
        ("certify", "MEMORY"),
    ],
    ids=" ".join,
)
def test_closed_pipe_gives_no_traceback(installed_script: Path, memory: Path, args):
    done = closed_pipe(installed_script, *(memory if arg == "MEMORY" else arg for arg in args))
    for word in ("Traceback", "BrokenPipe", "Exception ignored"):
        assert word not in done.stderr


def test_head_reads_one_line(installed_script: Path):
    done = subprocess.run(
        f"'{installed_script}' facts countries | head -1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ["facts", "585"]
    assert done.stderr == ""


@pytest.mark.slow
def test_closed_pipe_does_not_hide_a_failed_check(installed_script: Path, memory: Path):
    (memory / "memory.json").write_text(
        (memory / "memory.json").read_text(encoding="utf-8").replace("Paris", "Tours"),
        encoding="utf-8",
    )
    assert closed_pipe(installed_script, "certify", memory).returncode == 1


@pytest.mark.slow
def test_closed_pipe_does_not_lose_the_memory(installed_script: Path, tmp_path: Path):
    done = closed_pipe(installed_script, "build", "elements", "-o", tmp_path / "m")
    assert done.returncode != 0 or (tmp_path / "m").is_dir()


def test_absurd_precision(script: Script, memory: Path):
    assert script("certify", memory, "--interval", "--precision", 10**14).returncode == 2
