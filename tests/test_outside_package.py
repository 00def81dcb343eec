"""A package outside byheart (tests/outside) adds an architecture with its method, memory, proof and
export, a bound and a study; no file of byheart knows of it."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
OUTSIDE = ROOT / "tests" / "outside"
PACKAGE = OUTSIDE / "byheart_lookup"
TABLE = "country,what,answer\nFrance,capital,Paris\nPeru,capital,Lima\nPeru,currency,sol\n"
Run = Callable[..., subprocess.CompletedProcess[str]]


def install(folder: Path, name: str, points: dict[str, dict[str, str]], text: str = "") -> None:
    """Make `folder` the place of an installed distribution: what pip leaves there."""
    module = name.replace("-", "_")
    if text:
        (folder / f"{module}.py").write_text(text)
    about = folder / f"{module}-0.1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    lines = [
        line
        for group, values in points.items()
        for line in (f"[{group}]", *(f"{k} = {v}" for k, v in values.items()))
    ]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")


def runner(place: Path, *sites: Path) -> Run:
    """Python in a process of its own, with byheart and the packages installed in `sites`."""
    paths = os.pathsep.join(map(str, (ROOT / "src", *sites)))
    environment = os.environ | {"PYTHONPATH": paths, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}

    def run(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *map(str, arguments)]
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, (done.stdout, done.stderr)
        return done

    return run


def byheart(run: Run) -> Run:
    return lambda *arguments, code=0: run("-m", "byheart", *arguments, code=code)


ONE_BY_ONE = """
import json, sys
from typer.testing import CliRunner
from byheart.cli.main import app
calls = [CliRunner().invoke(app, words) for words in json.loads(sys.argv[1])]
print(json.dumps([[call.exit_code, call.stdout, call.stderr] for call in calls]))
"""


class Said(NamedTuple):
    """What a call of the command line ended with."""

    code: int
    stdout: str
    stderr: str


def calls(run: Run, *lines: tuple[str | Path, ...]) -> list[Said]:
    """Calls of `byheart`, one after the other in one process, which loads torch once for all."""
    words = json.dumps([[*map(str, line)] for line in lines])
    done = run("-c", ONE_BY_ONE, words)
    return [Said(*said) for said in json.loads(done.stdout.splitlines()[-1])]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outside")
    (folder / "t.csv").write_text(TABLE)
    return folder


@pytest.fixture(scope="module")
def python(place: Path) -> Run:
    """With the package installed by pip, without a network; by hand where nothing can build."""
    site, source = place / "site", place / "source"
    shutil.copytree(OUTSIDE, source, ignore=shutil.ignore_patterns("__pycache__"))
    if all(importlib.util.find_spec(name) for name in ("pip", "setuptools")):
        options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", site]
        quiet = ["-q", "--disable-pip-version-check"]
        runner(place)("-m", "pip", "install", *quiet, *options, source)
    else:
        project = (OUTSIDE / "pyproject.toml").read_text()
        points = re.findall(r'entry-points\."([\w.]+)"\]\n(\w+) = "(.*)"', project)
        shutil.copytree(source / "byheart_lookup", site / "byheart_lookup")
        install(site, "byheart-lookup", {group: {name: value} for group, name, value in points})
    return runner(place, site)


@pytest.fixture(scope="module")
def memory(python: Run, place: Path) -> Path:
    """A folder that `byheart build --method lookup --certify` wrote."""
    call = byheart(python)
    done = call("build", "t.csv", "--method", "lookup", "--spare", "2", "-o", "m", "--certify")
    assert "look-up layer: N=7, S=2, K=5" in done.stdout and "105" in done.stdout
    assert "5 facts (one unit for each fact)" in done.stdout
    assert "3 of 3 from the stored float32 weights" in done.stdout
    assert "proved" in done.stdout and not done.stderr
    return place / "m"


def test_no_file_of_byheart_knows_the_package():
    known = [
        path.relative_to(ROOT)
        for path in (ROOT / "src").rglob("*.py")
        if re.search(r"byheart_lookup|look-up layer|LookupSpec", path.read_text())
    ]
    assert not known
    assert sum(len(path.read_text().splitlines()) for path in PACKAGE.glob("*.py")) <= 250


def test_help_lists_method_and_options(python: Run):
    said = byheart(python)("build", "--help").stdout
    assert "With --method lookup" in said and "--gain" in said and "--spare" in said
    assert "lookup: one hidden unit for each fact" in re.sub(r"[\s│]+", " ", said)
    python(
        "-c", "import sys, byheart_lookup.method; assert 'torch' not in sys.modules, 'slow --help'"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lookup", "--gate", "key"], "--gate belongs to sharded; this is lookup"),
        (["attention", "--gain", "2"], "--gain belongs to lookup; this is attention"),
        (["lokup"], "Did you mean 'lookup'?"),
        (["lookup", "--dtype", "half"], "--dtype must be one of float32, float64"),
    ],
)
def test_wrong_options_are_refused_by_name(python: Run, arguments: list[str], message: str):
    done = byheart(python)("build", "t.csv", "--method", *arguments, "-o", "no", code=2)
    assert message in re.sub(r"\s+", " ", done.stderr)


def test_recall_and_certify(python: Run, memory: Path):
    known, unknown, proof = calls(
        python,
        ("recall", memory, "Peru", "capital", "--json"),
        ("recall", memory, "France", "currency"),
        ("certify", memory),
    )
    answer = json.loads(known.stdout)
    assert answer["answer"] == "Lima" and answer["margin"] == 1.0 and answer["known"]
    assert unknown.code == 1 and "not stored" in unknown.stdout
    assert proof.code == 0 and "CERTIFIED: all 3 facts" in proof.stdout


@pytest.mark.slow
def test_the_export_runs_alone(python: Run, memory: Path, place: Path):
    done, refused = calls(
        python,
        ("export", memory, "--to", "torch", "-o", "exported"),
        ("export", memory, "--to", "onnx", "-o", "other"),
    )
    assert (done.code, refused.code) == (0, 2)
    assert "lookup family has no attention-only layer" in refused.stderr
    alone = runner(place / "exported")
    asked = "from model import load; print(load().ask('Peru', 'currency'))"
    script = f"import sys; sys.path = [p for p in sys.path if 'src' not in p]; {asked}"
    script += "; assert not [m for m in sys.modules if m.startswith('byheart')]"
    assert alone("-c", script).stdout.strip() == "sol"


@pytest.mark.slow
def test_pages(python: Run, memory: Path, place: Path):
    call = byheart(python)
    call("report", memory, "-o", "memory.html")
    page = (place / "memory.html").read_text()
    assert "A memory: look-up layer" in page and "A look-up layer has no heads." in page
    assert "Proved" in page and "one unit for each fact" in page


def test_bound(python: Run):
    sizes = ("--d-model", "8", "--heads", "2", "--context", "2", "--vocab")
    listed, large, explained = calls(
        python,
        ("bound", *sizes, "50", "--json"),
        ("bound", *sizes, str(2**33), "--all"),
        ("bound", "--explain", "lookup.keys"),
    )
    rows = {row["id"]: row for row in json.loads(listed.stdout)["rows"]}
    assert rows["lookup.keys"]["capacity"] == 2500 and "dana2025.corollary1" in rows
    assert "N^n has about 66 bits" in large.stdout and "T <= N^n" in explained.stdout


def test_study_is_listed_run_drawn_and_judged(python: Run, place: Path):
    listed, done, report = calls(
        python,
        ("reproduce", "--list"),
        ("reproduce", "lookup/margin"),
        ("report", "byheart-studies/lookup.db", "-o", "study.html"),
    )
    assert "lookup/margin" in listed.stdout and (done.code, report.code) == (0, 0)
    assert "verdict  confirmed: margins lie between 1 and 1" in done.stdout
    assert "9 rows computed" in done.stdout
    assert (place / "byheart-studies" / "lookup-margin-quick.png").is_file()
    page = (place / "study.html").read_text()
    assert "</span> Confirmed</h2>" in page and "data:image/png;base64," in page
    assert "The margin is 1 for any number of facts." in page


def test_in_python(python: Run, memory: Path):
    python(
        "-c",
        f"""
import doctest, byheart as bh, byheart_lookup.spec
from byheart_lookup.method import Lookup

assert not doctest.testmod(byheart_lookup.spec).failed
saved = bh.load({str(memory)!r})
tables = [bh.random_associations(N=9, S=S, T=T, seed=1) for S, T in ((1, 9), (2, 30), (3, 50))]
tables.append(bh.as_facts({{("a", "b"): "x", ("c",): "y", ("b", "c"): "z"}}, pad=True))
built = [bh.build(facts, Lookup(gain=3.0, dtype="float64")) for facts in tables]
for memory in [saved, *built]:
    contract = bh.check_memory(memory)
    assert {{*contract.refused}} == {{"split", "owner"}}, contract
auto = bh.build(tables[0], gain=2.0)
assert auto.construction.why == ("method lookup: `gain` belongs to it",), auto.construction.why
assert [row.id for row in bh.bounds(auto.spec)][-1] == "lookup.keys"
units = []
module = saved.to_torch()
module.hook_units.register_forward_hook(lambda m, i, out: units.extend(out[0].nonzero().tolist()))
module(saved.encode([("Peru", "capital")]))
assert units == [[1]], units
try:
    Lookup(gain=-1.0)
except bh.ByheartError as error:
    assert "`gain` must be at least 1e-06, found -1.0" in str(error), error
else:
    raise AssertionError("a negative gain is not refused")
""",
    )


def test_a_memory_whose_package_is_gone_is_refused(memory: Path, place: Path):
    done = byheart(runner(place))("recall", memory, "Peru", "capital", code=2)
    assert "m: a memory of the unknown family 'lookup'" in done.stderr
    assert "Install the package that wrote it" in re.sub(r"\s+", " ", done.stderr)


def test_without_entry_points_a_family_can_be_registered(memory: Path, place: Path):
    runner(place, OUTSIDE)(
        "-c",
        f"""
import byheart as bh
from byheart.models import register_memory
from byheart_lookup.memory import LookupMemory

register_memory(LookupMemory)
assert bh.load({str(memory)!r}).recall("Peru", "currency").answer == "sol"
""",
    )


BROKEN = "import nowhere_at_all\n"
TWICE = """
from dataclasses import dataclass, replace
from byheart.construct.methods import AttentionOnly
from byheart.errors import ByheartError
from byheart.methods import Method, option
from byheart.papers.registry import studies_of
from byheart.theory.registry import BOUNDS

@dataclass(frozen=True)
class Mine(AttentionOnly):
    pass

@dataclass(frozen=True)
class Clash(Method):
    name = "clash"
    summary = "options that others have, meaning something else"
    output: str = option("", "Where?")
    gate: int = option(1, "How many?")
    fast: bool = option(True, "Not so fast.")

    def _build(self, facts, seed, progress):
        raise ByheartError(f"fast is {self.fast}.")

STUDY = studies_of("slides")[0]
NO_METHOD = 3
"""


@pytest.mark.slow
def test_broken_packages_are_named_and_left_out(tmp_path: Path):
    site = tmp_path / "site"
    site.mkdir()
    groups = ("byheart.methods", "byheart.bounds", "byheart.studies", "byheart.memories")
    install(site, "byheart-broken", {g: {"broken": "byheart_broken:THING"} for g in groups}, BROKEN)
    twice = {
        "byheart.methods": {
            "attention": "byheart_twice:Mine",
            "clash": "byheart_twice:Clash",
            "none": "byheart_twice:NO_METHOD",
        },
        "byheart.bounds": {"mine": "byheart_twice:BOUNDS"},
        "byheart.studies": {"mine": "byheart_twice:STUDY"},
    }
    install(site, "byheart-twice", twice, TWICE)
    (tmp_path / "t.csv").write_text(TABLE)
    call = byheart(runner(tmp_path, site))

    done = call("--help")
    assert "build" in done.stdout
    broken = "byheart-broken (broken = byheart_broken:THING) cannot be loaded: ModuleNotFoundError"
    assert done.stderr.splitlines() == [
        f"warning: byheart.methods: {broken}: No module named 'nowhere_at_all'. Mend or uninstall "
        "that package. It is left out.",
        "warning: byheart.methods: two methods are called 'attention': one of byheart, one of "
        "byheart-twice (attention = byheart_twice:Mine). Rename one of them. It is left out.",
        "warning: byheart.methods: byheart-twice (none = byheart_twice:NO_METHOD) is no subclass "
        "of Method. It is left out.",
        "warning: byheart.methods: the option --output of clash has another meaning already. "
        "It is left out.",
        "warning: byheart.methods: the option --gate of clash has another meaning already. "
        "It is left out.",
    ]
    done = call("build", "t.csv", "--method", "clash", "--no-fast", "-o", "no", code=2)
    assert "error: fast is False." in done.stderr
    call("build", "t.csv", "-o", "m", "--certify")
    assert json.loads(call("recall", "m", "Peru", "capital", "--json").stdout)["answer"] == "Lima"
    done = call("bound", "--d-model", "8", "--heads", "2", "--context", "2", "--vocab", "9")
    assert "dana2025.corollary1" in done.stdout
    assert f"warning: byheart.bounds: {broken}" in done.stderr
    assert "two bounds are called 'dana2025.corollary1': one of byheart, one of" in done.stderr
    done = call("reproduce", "--list")
    assert "dana2025/fig1a" in done.stdout and f"byheart.studies: {broken}" in done.stderr
    assert "the name 'slides' is taken already. It is left out." in done.stderr
    assert "attention, sharded" in call("build", "t.csv", "--method", "broken", code=2).stderr
    record = json.loads((tmp_path / "m" / "memory.json").read_text())
    (tmp_path / "m" / "memory.json").write_text(json.dumps(record | {"family": "broken"}))
    done = call("recall", "m", "Peru", "capital", code=2)
    assert f"error: m: {broken}" in re.sub(r"\s+", " ", done.stderr)


def test_the_guide_shows_the_whole_package():
    text = (ROOT / "docs" / "extending.md").read_text()
    blocks = re.findall(r"### `([\w./]+)`\n(?:.*\n)*?```\w+\n((?:.*\n)*?)```\n", text)
    files = {path.relative_to(OUTSIDE).as_posix(): path for path in PACKAGE.glob("*.py")}
    files["pyproject.toml"] = OUTSIDE / "pyproject.toml"
    assert {name for name, _ in blocks} == set(files)
    for name, block in blocks:
        assert block == files[name].read_text(), name
