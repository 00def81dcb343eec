"""What only a process of its own shows: start-up, signals, pipes, exit codes."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from byheart import __version__

Script = Callable[..., subprocess.CompletedProcess[str]]
Contents = Callable[[Path], dict[str, str]]

# A shell without job control starts background jobs with SIGINT ignored, and children inherit it.
LISTEN = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


def test_help_is_quick(script: Script):
    """Seconds of processor time: what a clock shows on an idle machine, and on a busy one too."""

    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    def seconds() -> float:
        before = used()
        assert script("--help").returncode == 0
        return used() - before

    assert min(seconds() for _ in range(5)) < 0.5


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["build", "--help"], ["bogus"]])
def test_help_does_not_import_the_heavy_libraries(args: list[str]):
    code = (
        "import sys\nfrom byheart.cli.main import app\n"
        f"try:\n    app({args!r})\nexcept SystemExit:\n    pass\n"
        "print('LOADED', *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "typer" in loaded
    assert not loaded & {"torch", "scipy", "pandas", "numpy", "flint", "safetensors", "matplotlib"}


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


def interrupted(script_path: Path, target: Path, *options: str) -> subprocess.CompletedProcess[str]:
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
            deadline = time.monotonic() + 30
            while not any(target.parent.glob(f".{target.name}.*")):
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.01)
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    return subprocess.CompletedProcess(args, process.returncode, stdout, stderr)


def test_interrupt_leaves_nothing(installed_script: Path, tmp_path: Path):
    done = interrupted(installed_script, tmp_path / "m")
    assert done.returncode == 130
    assert done.stderr.strip() == "error: interrupted: nothing is half-written."
    assert list(tmp_path.iterdir()) == []


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
        ("facts", "countries"),
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


def test_closed_pipe_does_not_hide_a_failed_check(installed_script: Path, memory: Path):
    (memory / "memory.json").write_text(
        (memory / "memory.json").read_text(encoding="utf-8").replace("Paris", "Tours"),
        encoding="utf-8",
    )
    assert closed_pipe(installed_script, "certify", memory).returncode == 1


def test_closed_pipe_does_not_lose_the_memory(installed_script: Path, tmp_path: Path):
    done = closed_pipe(installed_script, "build", "elements", "-o", tmp_path / "m")
    assert done.returncode != 0 or (tmp_path / "m").is_dir()


def test_absurd_precision(script: Script, memory: Path):
    assert script("certify", memory, "--interval", "--precision", 10**14).returncode == 2
