"""`byheart build --gate, --shard-size, --untied`: from the command line to the folder."""

import json

import pytest
from typer.testing import CliRunner

import byheart as bh
from byheart.cli.main import app

TABLE = "subject,relation,answer\n" + "".join(
    f"s{i},r{j},a{(3 * i + j) % 7}\n" for i in range(40) for j in range(3)
)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    return path


@pytest.mark.parametrize(
    "options",
    [
        ["--gate", "query"],
        ["--gate", "key"],
        ["--gate", "subject-sink"],
        ["--untied"],
        ["--shard-size", "20"],
        ["--method", "sharded", "--shard-size", "20", "--gate", "key", "--untied"],
    ],
    ids=" ".join,
)
def test_the_folder_has_what_was_asked_for(table, tmp_path, options):
    folder = tmp_path / "memory"
    arguments = ["build", str(table), "-o", str(folder), "--certify", "--json", *options]
    said = CliRunner().invoke(app, arguments)
    assert said.exit_code == 0, said.output
    record = json.loads(said.stdout)
    assert record["method"] == "sharded" and record["certificate"]["certified"]
    spec = bh.load(folder).spec.to_json()
    assert spec["untied"] == ("--untied" in options)
    if "--gate" in options:
        assert spec["gate"] == options[options.index("--gate") + 1]
    if "--shard-size" in options:
        assert spec["shards"] == 6
    asked = CliRunner().invoke(app, ["recall", str(folder), "s7", "r2"])
    assert asked.stdout.startswith("a2\n")
    owner = CliRunner().invoke(app, ["owner", "--json", str(folder), "s7", "r2"])
    assert json.loads(owner.stdout)["answer"] == "a2"
    proof = CliRunner().invoke(app, ["certify", str(folder)])
    assert proof.exit_code == 0, proof.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--gate", "door"], "--gate must be one of query, key, subject-sink"),
        (
            ["--gate", "key", "--method", "attention"],
            "--gate belongs to sharded; this is attention. Leave it out, or use --method sharded.",
        ),
        (["--shard-size", "5000"], "--shard-size must lie between 1 and 4,000"),
        (["--gate", "key", "--shard-size", "2"], "the key gate cannot split them"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused_and_nothing_written(table, tmp_path, options, said):
    folder = tmp_path / "memory"
    found = CliRunner().invoke(app, ["build", str(table), "-o", str(folder), *options])
    assert found.exit_code == 2
    assert said in " ".join(found.output.split())
    assert not folder.exists()
