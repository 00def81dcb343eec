"""`byheart edit` and `byheart recall --abstain`: what they change, print and refuse."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from byheart.cli.certify import parse_key, parse_set
from byheart.cli.main import app

TABLE = "country,relation,answer\n" + "".join(
    f"c{i},{relation},{relation[:2]}{(i * 7) % 11}\n"
    for i in range(40)
    for relation in ("capital", "currency", "anthem")
)
TABLE += '"Bonaire, Saba",a=b,K\n'


@pytest.fixture(scope="session")
def sharded_once(tmp_path_factory):
    """Memory folders of 121 facts: `proved` with certificate and fingerprints, `plain`, `bare`."""
    place = tmp_path_factory.mktemp("sharded")
    (place / "table.csv").write_text(TABLE, encoding="utf-8")
    for name, options in (
        ("proved", ["--abstain", "--certify"]),
        ("plain", []),
        ("bare", ["--no-facts"]),
    ):
        command = ["build", str(place / "table.csv"), "-o", str(place / name), *options]
        said = CliRunner().invoke(app, [*command, "--shard-size", "30"])
        assert said.exit_code == 0, said.output
    return place


@pytest.fixture
def sharded(sharded_once, tmp_path):
    return Path(shutil.copytree(sharded_once / "proved", tmp_path / "facts.memory"))


def test_set_add_and_delete(run_json, run, sharded, make_file):
    more = make_file("more.csv", "country,relation,answer\nc1,motto,unity\nc2,capital,ca3\n")
    made = run_json(
        "edit", sharded, "--set", "c1,capital=Lyon", "--delete", "c3,anthem", "--add", more
    )
    assert (made["set"], made["added"], made["deleted"], made["unchanged"]) == (1, 1, 1, 1)
    assert made["facts"] == 121 and made["certificate"]["certified"]
    assert made["shards_solved"] == len(made["shards"]) >= 1
    for key, answer in ((("c1", "capital"), "Lyon"), (("c1", "motto"), "unity")):
        assert run_json("recall", sharded, *key)["answer"] == answer
    assert run_json("recall", sharded, "--all", "--abstain")["recalled"] == 121
    gone = run_json("recall", sharded, "c3", "anthem", "--abstain")
    assert gone["answer"] == "unknown" and gone["known"] is False
    again = run("certify", sharded)
    assert again.exit_code == 0 and "CERTIFIED" in again.output


def test_the_updated_certificate_is_what_certify_says(run_json, sharded):
    assert run_json("edit", sharded, "--set", "c1,capital=Lyon")["certificate"]["certified"]
    updated = json.loads((sharded / "certificate.json").read_text(encoding="utf-8"))
    full = run_json("certify", sharded)
    for name in ("certified", "facts", "failed", "margin", "weights_sha256", "facts_digest"):
        assert updated[name] == full[name]
    # The same bounds from other batches: they differ by roundings.
    assert updated["error_bound"] == pytest.approx(full["error_bound"], rel=1e-8)
    assert updated["shard_errors"] == pytest.approx(full["shard_errors"], rel=1e-8)


def test_no_certificate_is_made_unasked(run_json, sharded_once, tmp_path):
    place = Path(shutil.copytree(sharded_once / "plain", tmp_path / "plain"))
    assert run_json("edit", place, "--set", "c1,capital=Lyon")["certificate"] is None
    assert not (place / "certificate.json").exists()
    assert run_json("edit", place, "--set", "c1,capital=Nice", "--certify")["certificate"]
    assert (place / "certificate.json").exists()


def test_a_stale_certificate_is_not_carried_over(run_json, sharded):
    record = json.loads((sharded / "certificate.json").read_text(encoding="utf-8"))
    (sharded / "certificate.json").write_text(json.dumps(record | {"facts_digest": "0"}))
    assert run_json("edit", sharded, "--delete", "c1,capital")["certificate"] is None
    assert not (sharded / "certificate.json").exists()


def test_a_certificate_without_shards_is_proved_in_full(run_json, sharded):
    record = json.loads((sharded / "certificate.json").read_text(encoding="utf-8"))
    del record["shard_errors"]
    (sharded / "certificate.json").write_text(json.dumps(record))
    assert run_json("edit", sharded, "--delete", "c1,capital")["certificate"]["certified"]


def test_other_files_come_along(run, sharded, refused):
    (sharded / "notes.txt").write_text("mine")
    assert run("edit", sharded, "--delete", "c1,capital").exit_code == 0
    assert (sharded / "notes.txt").read_text() == "mine"
    (sharded / "sub").mkdir()
    assert "'sub'" in refused("edit", sharded, "--delete", "c2,capital")


def test_what_a_person_reads(run, sharded):
    said = run("edit", sharded, "--set", "c1,capital=Lyon", "--delete", '"Bonaire, Saba","a=b"')
    assert said.exit_code == 0, said.output
    assert "1 set, 1 deleted; 120 facts" in said.output
    assert "the others keep every bit" in said.output and "proved in" in said.output
    assert "Nothing to change" in run("edit", sharded, "--set", "c1,capital=Lyon").output


def test_cells_are_quoted_as_in_csv():
    assert parse_set('"a,b","c=d"="e""f"') == (("a,b", "c=d"), 'e"f')
    assert parse_set(" a,b= c") == ((" a", "b"), " c")
    assert parse_set("a,=") == (("a", ""), "")
    assert parse_key('x,"y=z"') == ("x", "y=z")


@pytest.mark.parametrize("text", ["c1,capital", "a=b=c", 'a,"b=c', 'a,"b"x=c', "a=b,c", ""])
def test_unclear_sets(refused, sharded, text):
    assert "KEY=ANSWER" in refused("edit", sharded, "--set", text)


def test_bad_input_changes_nothing(refused, misused, sharded, make_file):
    assert "Did you mean 'capital'" in refused("edit", sharded, "--set", "c1,captial=x")
    assert "expected a stored fact to delete" in refused("edit", sharded, "--delete", "capital,c1")
    assert "KEY, such as" in refused("edit", sharded, "--delete", "c1,capital=x")
    assert "keys of 2 tokens" in refused("edit", sharded, "--delete", "c1")
    twice = refused("edit", sharded, "--set", "c1,capital=x", "--delete", "c1,capital")
    assert "one edit changes a key once" in twice
    clash = make_file("clash.csv", "a,b,c\nc1,capital,nowhere\n")
    assert "'nowhere'" in refused("edit", sharded, "--add", clash)
    wide = make_file("wide.csv", "a,b,c,d\n1,2,3,4\n")
    assert "expected keys of 2 tokens" in refused("edit", sharded, "--add", wide)
    assert "nothing to do" in refused("edit", sharded)
    assert "read the table of --add" in refused("edit", sharded, "--delete", "c1,capital", "--melt")
    assert "no such memory folder" in refused("edit", sharded.parent / "none", "--delete", "a")
    assert "missing" in misused("edit").lower()


def test_every_fact_cannot_be_deleted(refused, run, make_file, tmp_path):
    one = make_file("one.csv", "a,b\nx,y\n")
    assert run("build", one, "--method", "sharded", "-o", tmp_path / "m").exit_code == 0
    assert "holds at least one" in refused("edit", tmp_path / "m", "--delete", "x")


def test_memories_that_cannot_be_edited(refused, sharded_once, tmp_path, memory):
    bare = Path(shutil.copytree(sharded_once / "bare", tmp_path / "bare"))
    assert "--no-facts" in refused("edit", bare, "--delete", "c1,capital")
    assert "--method sharded" in refused("edit", memory, "--delete", "France,capital")


def test_a_damaged_memory_is_not_edited(refused, sharded):
    with open(sharded / "weights.safetensors", "r+b") as file:
        file.seek(-4, 2)
        file.write(b"\1\2\3\4")
    assert "SHA-256" in refused("edit", sharded, "--delete", "c1,capital")


@pytest.mark.parametrize(
    ("failure", "code"), [(OSError(28, "No space left on device"), 2), (KeyboardInterrupt(), 130)]
)
def test_a_failing_write_leaves_the_old_memory(refused, sharded, monkeypatch, failure, code):
    def fail(*_):
        raise failure

    monkeypatch.setattr("byheart.models.memory_files.write_text", fail)
    refused("edit", sharded, "--set", "c1,capital=Lyon", code=code)


KILLED = """
import os, signal, sys
from byheart import _folders
from byheart.cli.main import app

when, put_in_place = sys.argv[1], _folders._put_in_place

def die(*paths):
    if when == "after":
        put_in_place(*paths)
    os.kill(os.getpid(), signal.SIGKILL)

_folders._put_in_place = die
app(sys.argv[2:])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.slow)])
def test_a_killed_edit_leaves_one_whole_memory(sharded, contents, run_json, when):
    old = contents(sharded)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, when, "edit", str(sharded), "--set", "c1,capital=Lyon"],
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (contents(sharded) == old) == (when == "before")
    answer = run_json("recall", sharded, "c1", "capital")["answer"]
    assert answer == ("ca7" if when == "before" else "Lyon")
    assert run_json("certify", sharded)["certified"]


def test_abstaining(run, run_json, sharded):
    known = run_json("recall", sharded, "c1", "capital", "--abstain")
    assert known["known"] is True and known["answer"] == "ca7"
    assert 0 < known["false_positive_rate"] < 1e-4
    for key in (("c1", "a=b"), ("c1", "c1"), ("capital", "c1"), ("c1", "captial")):
        said = run("recall", sharded, *key, "--abstain")
        assert said.exit_code == 0 and said.stdout.splitlines()[0] == "unknown"
        record = run_json("recall", sharded, *key, "--abstain")
        assert record["known"] is False and record["answer"] == "unknown"
    assert "Did you mean 'capital'" in run("recall", sharded, "c1", "captial", "--abstain").stdout
    plain = run_json("recall", sharded, "c1", "a=b", code=1)
    assert plain["known"] is False and plain["answer"] is None
    assert run("recall", sharded, "c1", "a=b").stdout.startswith("not stored: c1 · a=b\n")
    raw = run_json("recall", sharded, "c1", "a=b", "--raw", code=1)
    assert raw["known"] is False and raw["answer"] not in (None, "unknown")
    said = run("recall", sharded, "c1", "a=b", "--raw").stdout
    assert said.splitlines()[0] == raw["answer"] and "not stored" in said


def test_abstaining_without_fingerprints(refused, run_json, sharded_once, tmp_path, memory):
    place = Path(shutil.copytree(sharded_once / "plain", tmp_path / "plain"))
    assert "--abstain" in refused("recall", place, "c1", "capital", "--abstain")
    assert "--abstain" in refused("recall", place, "c1", "captial", "--abstain")
    assert "--method sharded --abstain" in refused(
        "recall", memory, "France", "capital", "--abstain"
    )
    assert run_json("recall", place, "c1", "capital")["known"] is True  # by the facts
    # Without them, a token that decides for no shard is unknown all the same; others cannot be
    # told.
    bare = Path(shutil.copytree(sharded_once / "bare", tmp_path / "bare"))
    assert run_json("recall", bare, "c1", "capital")["known"] is None
    for folder in (place, bare):
        gone = run_json("recall", folder, "capital", "capital", code=1)
        assert gone["known"] is False and gone["answer"] is None


def test_a_build_states_the_rate(run_json, make_file, tmp_path):
    table = make_file("t.csv", TABLE)
    made = run_json("build", table, "--abstain", "-o", tmp_path / "m")
    assert made["method"] == "sharded" and made["abstain"]["coordinates"] == 2
    assert made["abstain"]["false_positive_rate"] <= made["abstain"]["false_positive_bound"] < 1e-4


def test_a_damaged_shard_is_not_taken_for_an_unknown_key(refused, sharded):
    import torch
    from safetensors.torch import load_file, save_file

    W_O = load_file(sharded / "weights.safetensors")["W_O"]
    save_file({"W_O": torch.zeros_like(W_O)}, sharded / "weights.safetensors")
    assert "differs from its SHA-256" in refused("recall", sharded, "c1", "capital", "--abstain")
