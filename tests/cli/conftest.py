"""Ways to run `byheart`, small tables and small memories."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from byheart.cli.main import app

CAPITALS = "country,relation,answer\n" + "".join(
    f"{country},capital,{capital}\n{country},continent,{continent}\n"
    for country, capital, continent in (
        ("France", "Paris", "Europe"),
        ("Japan", "Tokyo", "Asia"),
        ("Kenya", "Nairobi", "Africa"),
        ("Peru", "Lima", "South America"),
        ("Canada", "Ottawa", "North America"),
        ("Fiji", "Suva", "Oceania"),
    )
)

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
BOX = re.compile(r"[\s│╭╮╰╯─|+]+")


@pytest.fixture
def run() -> Callable[..., Result]:
    """`run("build", path, ...)` in this process; an exception that escapes fails the test."""

    def invoke(*args: object) -> Result:
        result = CliRunner().invoke(app, [str(arg) for arg in args])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise AssertionError(f"{args}: a traceback for the user") from result.exception
        assert "Traceback" not in result.output
        return result

    return invoke


@pytest.fixture
def run_json(run: Callable[..., Result]) -> Callable[..., dict[str, Any]]:
    """The JSON object that a command with `--json` prints; `code` is the expected exit code."""

    def invoke(command: str, *args: object, code: int = 0) -> dict[str, Any]:
        result = run(command, "--json", *args)
        assert result.exit_code == code, result.output
        record = json.loads(result.stdout)  # fails on anything before or after the one object
        assert isinstance(record, dict)
        return record

    return invoke


@pytest.fixture
def refused(
    run: Callable[..., Result], contents: Callable[[Path], dict[str, str]], tmp_path: Path
) -> Callable[..., str]:
    """Run a command that must fail; its message, as one line.

    Checks the exit code, that the message is on stderr (and in `{"error": ...}` with --json),
    and that every file and folder in `tmp_path` is as it was.
    """

    def invoke(*args: object, code: int = 2) -> str:
        before = contents(tmp_path)
        said = run(*args)
        assert said.exit_code == code, said.output
        assert said.stderr.startswith("error: ")
        assert said.stderr.count("error: ") == 1
        again = run(*args, "--json")
        assert again.exit_code == code
        record = json.loads(again.stdout)
        assert f"error: {record['error']}\n" == again.stderr == said.stderr
        assert contents(tmp_path) == before
        return " ".join(said.stderr.removeprefix("error: ").split())

    return invoke


@pytest.fixture
def misused(
    run: Callable[..., Result],
    contents: Callable[[Path], dict[str, str]],
    plain: Callable[[str], str],
    tmp_path: Path,
) -> Callable[..., str]:
    """Like `refused`, for options that the parser itself refuses: it prints the usage too."""

    def invoke(*args: object) -> str:
        before = contents(tmp_path)
        said = run(*args)
        assert said.exit_code == 2, said.output
        assert said.stdout == ""
        assert contents(tmp_path) == before
        return plain(said.stderr)

    return invoke


@pytest.fixture
def script() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the installed `byheart` in a process of its own."""

    def call(*args: object, **options: Any) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [installed(), *map(str, args)], capture_output=True, text=True, timeout=60, **options
        )
        assert "Traceback" not in done.stderr
        return done

    return call


@dataclass(frozen=True)
class Start:
    """A process of `byheart` that has ended: its exit code, what it said, what it had loaded."""

    code: int
    stdout: str
    stderr: str
    modules: frozenset[str]

    @property
    def libraries(self) -> set[str]:
        return {name.partition(".")[0] for name in self.modules}


@pytest.fixture(scope="session")
def start_server() -> Iterator[subprocess.Popen[str]]:
    server = [sys.executable, str(Path(__file__).with_name("start_server.py"))]
    pipe = subprocess.PIPE
    with subprocess.Popen(server, text=True, stdin=pipe, stdout=pipe) as process:
        yield process
        process.communicate(timeout=60)


@pytest.fixture
def started(start_server: subprocess.Popen[str], tmp_path: Path) -> Callable[..., Start]:
    """Run `byheart` in a process of its own that tells which modules it loaded."""

    def start(*args: object) -> Start:
        files = {name: str(tmp_path / f".started.{name}") for name in ("stdout", "stderr")}
        where = {"folder": str(tmp_path), "environment": dict(os.environ)}
        request = {"args": [*map(str, args)], **where, **files}
        assert start_server.stdin is not None and start_server.stdout is not None
        print(json.dumps(request), file=start_server.stdin, flush=True)
        status = int(start_server.stdout.readline())
        said = {name: Path(file).read_text(encoding="utf-8") for name, file in files.items()}
        for file in files.values():
            os.remove(file)
        assert status == 0 and "Traceback" not in said["stderr"], said["stderr"]
        stdout, _, loaded = said["stdout"].rpartition("\nLOADED ")
        code, *modules = loaded.split()
        return Start(int(code), stdout, said["stderr"], frozenset(modules))

    return start


@pytest.fixture
def installed_script() -> Path:
    return installed()


def installed() -> Path:
    """The script beside the interpreter that runs the tests."""
    found = Path(sys.executable).with_name("byheart")
    if not found.exists():
        pytest.skip("byheart is not installed as a script beside this interpreter")
    return found


@pytest.fixture
def plain() -> Callable[[str], str]:
    """Text without colours, boxes and line breaks, so that words can be looked for."""
    return lambda text: BOX.sub(" ", ESCAPES.sub("", text)).strip()


@pytest.fixture
def contents() -> Callable[[Path], dict[str, str]]:
    """Every path below a folder, hidden ones too, with the hash of its bytes."""

    def look(folder: Path) -> dict[str, str]:
        return {
            str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            if path.is_file()
            else f"-> {os.readlink(path)}"
            if path.is_symlink()
            else "folder"
            for path in sorted(folder.rglob("*"))
        }

    return look


@pytest.fixture
def make_file(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    """`make_file(name, content)` writes a file, text as UTF-8, and returns its path."""

    def make(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


@pytest.fixture
def capitals(make_file: Callable[[str, str], Path]) -> Path:
    """Twelve facts with keys of two tokens."""
    return make_file("capitals.csv", CAPITALS)


@pytest.fixture(scope="session")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Memory folders of the capitals: `with` (certified) and `without` their facts."""
    place = tmp_path_factory.mktemp("built")
    table = place / "capitals.csv"
    table.write_text(CAPITALS, encoding="utf-8")
    for name, option in (("with", "--certify"), ("without", "--no-facts")):
        made = CliRunner().invoke(app, ["build", str(table), "-o", str(place / name), option])
        assert made.exit_code == 0, made.output
    return place


@pytest.fixture
def memory(built_once: Path, tmp_path: Path) -> Path:
    """A certified memory of the capitals, for this test to damage."""
    return Path(shutil.copytree(built_once / "with", tmp_path / "capitals.memory"))


@pytest.fixture
def memory_without_facts(built_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built_once / "without", tmp_path / "bare.memory"))
