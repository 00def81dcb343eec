"""`--help`, `--version` and `--json` are the same everywhere."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from byheart import __version__

Run = Callable[..., Result]
Script = Callable[..., subprocess.CompletedProcess[str]]

OPTIONS = {
    "build": "FACTS --output -o --method --readout --d-model --heads --d-head --qk-rank --slack "
    "--ff1 --grouping --max-bits --unordered "
    "--dtype --seed --certify --force --no-facts --keys --answer --weights --melt --empty --pad "
    "--distribution --on-conflict --normalise --smooth --ngram --contexts --encoder "
    "--proof --tolerance --steps --starts",
    "recall": "DIR TOKEN --all --top",
    "certify": "DIR --facts --interval --float --precision --no-write --keys --answer --weights "
    "--tolerance",
    "facts": "FACTS --output -o --force --keys --answer --weights --melt --empty --pad",
    "owner": "DIR TOKEN",
    "precision": "DIR FACTS --method --most --keys --answer --weights --melt --empty --pad",
    "kruskal": "FILE --size --array --draws --search --exact --seed",
    "audit": "MODEL --text --tokens --images --length --contexts --queries --formats --random "
    "--ranked --draws --search --batch --device --seed --output -o --plot",
    "export": "DIR --output -o --to --force",
    "import": "FOLDER --output -o --weights --facts --force",
    "heads": "DIR --fresh --threshold --facts --plot --seed",
    "encoder": "FACTS --rank --seed --on-conflict --normalise --smooth --ngram --contexts --keys",
    "bound": "--d-model --heads --d-head --context --vocab --layers --hf --facts --kruskal --bits "
    "--explain --sweep --output -o --plot",
    "size": "--facts --vocab --length --answers --bits --family --sweep --output -o --plot",
    "train": "FACTS --output -o --model --d-model --heads --d-head --layers --width --seeds "
    "--steps --lr --loss --optimizer --schedule --batch --device --threads --checkpoint --dtype "
    "--seed --certify --force --no-facts --keys --answer --weights --melt --empty --pad",
    "capacity": "--model --vocab --length --d-model --heads --d-head --layers --width --facts "
    "--vary --seeds --restarts --threshold --resolution --steps --lr --optimizer --schedule "
    "--batch --device --workers --seed --keys --answer",
    "report": "DIR STUDY.db AUDIT.json --output -o --figure --open --force",
    "explore": "--output -o --open --no-open --force",
    "localise": "--methods --method --disguises --list --facts --seeds --profile --workers --fresh "
    "--store --memory --seed --output -o",
    "reproduce": "STUDY --list --status --redraw --profile --variant --only --seeds --time-budget "
    "--workers --retry-failed --store --export --output -o",
}


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("command", OPTIONS)
def test_help_mentions_the_options(run: Run, plain, command: str, flag: str):
    said = run(command, flag)
    assert said.exit_code == 0
    words = plain(said.stdout).split()
    for option in (*OPTIONS[command].split(), "--json"):
        assert any(option in word for word in words), option


def test_help_lists_the_commands_and_a_first_walk(run: Run, plain):
    said = run("--help")
    assert said.exit_code == 0
    text = plain(said.stdout)
    for command in OPTIONS:
        assert f" {command} " in text
    assert "byheart build countries -o countries.memory --certify" in text
    assert "Exit codes: 0 good, 1 a check failed, 2 wrong use or input" in text


def test_the_first_walk_works(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    lines = [line.strip() for line in run("--help").stdout.splitlines()]
    walk = [line.split()[1:] for line in lines if line.startswith("byheart ")]
    assert [words[0] for words in walk] == ["facts", "build", "recall", "certify"]
    for words in walk:
        assert run(*words).exit_code == 0
    assert run(*walk[2]).stdout.splitlines()[0] == "Paris"


def test_no_command_shows_three_things_to_try(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    said = run()
    assert said.exit_code == 0 and len(said.stdout.splitlines()) < 12
    lines = [line.split("   ")[0].split() for line in said.stdout.split("\n  byheart ")[1:]]
    assert [words[0] for words in lines] == ["build", "recall", "reproduce"]
    for words in lines:
        assert run(*words).exit_code == 0


def test_version(run: Run):
    assert run("--version").stdout == f"byheart {__version__}\n"


@pytest.mark.parametrize(
    "args",
    [
        ("build", "gone.csv"),
        ("build", "elements", "-o", "MEMORY"),
        ("build", "elements", "-o", "NEW", "--heads", "1"),
        ("build", "elements", "-o", "NEW", "--method", "magic"),
        ("recall", "NEW", "a"),
        ("recall", "MEMORY", "a"),
        ("recall", "MEMORY"),
        ("certify", "NEW"),
        ("certify", "MEMORY", "--float", "--interval"),
        ("facts", "gone.csv"),
    ],
    ids=" ".join,
)
def test_errors_are_json_too(run: Run, memory: Path, tmp_path: Path, args: tuple[str, ...]):
    places = {"MEMORY": memory, "NEW": tmp_path / "new"}
    said = run(*(places.get(arg, arg) for arg in args), "--json")
    assert said.exit_code == 2
    record = json.loads(said.stdout)
    assert record.keys() == {"error"}
    assert said.stderr == f"error: {record['error']}\n"


@pytest.mark.parametrize("args", [("build", "elements", "--heads", "0"), ("recall",)])
def test_misuse_is_json_too(script: Script, args: tuple[str, ...]):
    said = script(*args, "--json")
    assert said.returncode == 2
    assert "error" in json.loads(said.stdout)


@pytest.mark.parametrize(
    "args",
    [("facts", "countries"), ("recall", "MEMORY", "--all"), ("certify", "MEMORY", "--no-write")],
    ids=" ".join,
)
def test_json_is_the_only_output(run: Run, memory: Path, args: tuple[str, ...]):
    said = run(*(memory if arg == "MEMORY" else arg for arg in args), "--json")
    assert said.exit_code == 0
    assert isinstance(json.loads(said.stdout), dict)
    assert said.stderr == ""
    # JSON proper: no NaN or Infinity, which Python would read
    json.loads(said.stdout, parse_constant=pytest.fail)
