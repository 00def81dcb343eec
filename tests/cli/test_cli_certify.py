"""`byheart certify`: proofs, checks, and facts that are not held."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

Run = Callable[..., Result]
RunJson = Callable[..., dict[str, Any]]
Refused = Callable[..., str]


@pytest.mark.parametrize("options", [(), ("--interval",), ("--interval", "--precision", 200)])
def test_proofs(run_json: RunJson, memory: Path, options: tuple[object, ...]):
    (memory / "certificate.json").unlink()
    made = run_json("certify", memory, *options)
    assert made["certified"] is made["passed"] is True
    assert made["facts"] == 12
    assert made["failed"] == 0
    assert made["failures"] == made["damage"] == []
    assert made["margin"] > made["error_bound"] > 0
    assert isinstance(made["seconds"], float)
    arithmetic = f"ball arithmetic (Arb), {options[-1] if len(options) > 1 else 128} bits"
    assert made["arithmetic"] == arithmetic if options else "float64" in made["arithmetic"]
    written = json.loads((memory / "certificate.json").read_text(encoding="utf-8"))
    assert written == made


def test_plain_float_is_a_check_and_no_proof(run: Run, run_json: RunJson, memory: Path):
    (memory / "certificate.json").unlink()
    made = run_json("certify", memory, "--float")
    assert made["certified"] is False
    assert made["passed"] is True
    assert made["statement"].startswith("NOT proved")
    said = run("certify", memory, "--float")
    assert said.exit_code == 0
    assert said.stdout.startswith("CHECKED, NOT PROVED: all 12 facts")
    assert not (memory / "certificate.json").exists()


def test_human_output(run: Run, memory: Path):
    said = run("certify", memory)
    assert said.exit_code == 0
    assert said.stdout.startswith("CERTIFIED: all 12 facts are recalled by the stored weights.")
    for words in ("smallest margin", "largest error bound", "sha256", f"byheart certify {memory}"):
        assert words in said.stdout


def test_no_write(run_json: RunJson, memory: Path):
    (memory / "certificate.json").unlink()
    assert run_json("certify", memory, "--no-write")["certified"] is True
    assert not (memory / "certificate.json").exists()


def test_two_arithmetics(refused: Refused, memory: Path):
    message = refused("certify", memory, "--interval", "--float")
    assert "--interval" in message
    assert "--float" in message


def test_precision_too_small(misused: Refused, memory: Path):
    assert "--precision" in misused("certify", memory, "--interval", "--precision", 10)


@pytest.mark.parametrize("options", [(), ("--interval",), ("--float",)])
def test_a_changed_answer_is_found(
    run: Run, run_json: RunJson, capitals: Path, memory: Path, options: tuple[str, ...]
):
    before = (memory / "certificate.json").read_bytes()
    other = capitals.with_name("other.csv")
    other.write_text(capitals.read_text().replace("Nairobi", "Tokyo"))
    made = run_json("certify", memory, "--facts", other, *options, code=1)
    assert made["certified"] is made["passed"] is False
    assert made["failed"] == 1
    (failure,) = made["failures"]
    assert failure["row"] == 6
    assert failure["key"] == ["Kenya", "capital"]
    assert failure["answer"] == "Tokyo"
    assert "answers 'Nairobi'" in failure["reason"]
    assert failure["margin"] < 0
    said = run("certify", memory, "--facts", other, *options)
    assert said.exit_code == 1
    assert said.stdout.startswith("NOT CERTIFIED: 1 of 12 facts fail.")
    assert "Kenya · capital" in said.stdout
    assert (memory / "certificate.json").read_bytes() == before


def test_tokens_the_memory_does_not_know(run_json: RunJson, make_file, memory: Path):
    path = make_file(
        "t.csv", "country,relation,answer\nFrance,capital,Paris\nFrance,capitol,Paris\n"
    )
    made = run_json("certify", memory, "--facts", path, code=1)
    assert (made["facts"], made["failed"]) == (2, 1)
    (failure,) = made["failures"]
    assert failure["row"] == 3
    assert failure["margin"] is None
    assert failure["reason"] == "lost: unknown to the memory: 'capitol'"


def test_margin_of_facts_that_could_not_be_asked(run: Run, make_file, memory: Path):
    path = make_file("t.csv", "country,relation,answer\nOz,ruler,Wizard\n")
    said = run("certify", memory, "--facts", path)
    assert said.exit_code == 1
    assert "no competitor" not in said.stdout


def test_many_failures_are_counted(run: Run, capitals: Path, tmp_path: Path):
    other = tmp_path / "other.csv"
    assert run("facts", "random:N=20,S=2,T=50,seed=1", "-o", tmp_path / "a.csv").exit_code == 0
    assert run("facts", "random:N=20,S=2,T=50,seed=2", "-o", other).exit_code == 0
    assert run("build", tmp_path / "a.csv", "-o", tmp_path / "m").exit_code == 0
    said = run("certify", tmp_path / "m", "--facts", other)
    assert said.exit_code == 1
    assert "more (--json lists up to 1,000)" in said.stdout


def test_wrong_key_length(refused: Refused, make_file, memory: Path):
    path = make_file("t.csv", "country,answer\nFrance,Paris\n")
    message = refused("certify", memory, "--facts", path)
    assert "keys of 1 token" in message
    assert "the memory takes 2" in message
    assert "--keys" in message


def test_facts_that_cannot_be_read(refused: Refused, make_file, memory: Path):
    assert "row 2" in refused("certify", memory, "--facts", make_file("t.csv", "a,b\nx\n"))
    assert "gone.csv" in refused("certify", memory, "--facts", "gone.csv")


def test_table_options_belong_to_the_facts(run_json: RunJson, make_file, memory: Path):
    path = make_file("t.csv", "answer,relation,weight,country\nLima,capital,2,Peru\n")
    chosen = ("--keys", "country,relation", "--answer", "answer", "--weights", "weight")
    made = run_json("certify", memory, "--facts", path, *chosen)
    assert (made["certified"], made["facts"]) == (True, 1)


def test_memory_without_facts(
    run_json: RunJson, refused: Refused, capitals: Path, memory_without_facts: Path
):
    message = refused("certify", memory_without_facts)
    assert "without its facts" in message
    assert "give the table with --facts." in message
    made = run_json("certify", memory_without_facts, "--facts", capitals)
    assert (made["certified"], made["facts"]) == (True, 12)


def test_certificate_that_cannot_be_written(
    refused: Refused, memory: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("byheart.certificates.statement.write_text", full)
    message = refused("certify", memory)
    assert "certificate.json" in message
    assert "No space left" in message


@pytest.mark.parametrize("options", [("--keys", "nonsense"), ("--precision", 256)])
def test_options_without_effect_are_refused(run: Run, memory: Path, options: tuple[object, ...]):
    assert run("certify", memory, *options).exit_code == 2
