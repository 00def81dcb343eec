"""Memory folders that are missing, incomplete or changed: `recall` refuses, `certify` says no."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RunJson = Callable[..., dict[str, Any]]
Refused = Callable[..., str]

ASK = ("France", "capital")
FILES = ["memory.json", "weights.safetensors", "facts.safetensors"]


def asks(name: str) -> tuple[str, ...]:
    """How to make `recall` read a file: one key is answered without the facts."""
    return ("--all",) if name == "facts.safetensors" else ASK


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def change(path: Path, changed: Callable[[dict[str, Any]], None]) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    changed(record)
    path.write_text(json.dumps(record, ensure_ascii=False, indent=1), encoding="utf-8")


@pytest.mark.parametrize("command", [("recall", "--all"), ("certify",)])
def test_missing_folder(refused: Refused, tmp_path: Path, command: tuple[str, ...]):
    """Nothing to check is wrong use, not a failed check."""
    name, *options = command
    message = refused(name, tmp_path / "gone", *options)
    assert str(tmp_path / "gone") in message
    assert "byheart build" in message


def test_folder_is_a_file(refused: Refused, capitals: Path):
    assert "no such memory folder" in refused("recall", capitals, *ASK)
    assert "no such memory folder" in refused("certify", capitals)


def test_empty_folder(refused: Refused, tmp_path: Path):
    folder = tmp_path / "empty"
    folder.mkdir()
    for message in (refused("recall", folder, *ASK), refused("certify", folder, code=1)):
        assert "memory.json is missing" in message
        assert "byheart build" in message


@pytest.mark.parametrize("name", FILES)
def test_missing_file(refused: Refused, memory: Path, name: str):
    (memory / name).unlink()
    for message in (refused("recall", memory, *asks(name)), refused("certify", memory, code=1)):
        assert f"{memory}: {name} is missing" in message


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kept", [0, 5, 0.5, -1])
def test_truncated_file(refused: Refused, memory: Path, name: str, kept: float):
    path = memory / name
    data = path.read_bytes()
    # Minus one: without the newline at its end, memory.json is still complete.
    cut = len(data) - 2 if kept == -1 else int(kept * len(data)) if kept == 0.5 else int(kept)
    path.write_bytes(data[:cut])
    for message in (refused("recall", memory, *asks(name)), refused("certify", memory, code=1)):
        assert str(path) in message
        assert "truncated or overwritten" in message


@pytest.mark.parametrize("name", FILES[1:])
@pytest.mark.parametrize("part", ["length", "header", "first", "last"])
def test_one_bit_of_a_tensor_file(run_json: RunJson, refused: Refused, memory: Path, name, part):
    path = memory / name
    size = len(path.read_bytes())
    header = int.from_bytes(path.read_bytes()[:8], "little")
    flip(path, {"length": 0, "header": 20, "first": 8 + header, "last": size - 1}[part])
    message = refused("recall", memory, *asks(name))
    assert name in message or "do not belong together" in message
    assert "build" in message
    made = run_json("certify", memory, code=1)
    if "error" in made:
        assert str(memory) in made["error"]
    else:
        assert made["certified"] is made["passed"] is False
        assert any(name in words for words in made["damage"])


def test_certify_says_which_facts_changed_weights_still_hold(run, memory: Path):
    """A flipped sign bit is damage even where every fact survives it."""
    path = memory / "weights.safetensors"
    flip(path, len(path.read_bytes()) - 4)  # the last bit of a float32
    said = run("certify", memory)
    assert said.exit_code == 1
    assert said.stdout.startswith("NOT CERTIFIED: 0 of 12 facts fail.")
    assert "changed: weights.safetensors differs from the SHA-256 in memory.json" in said.stdout
    assert "smallest margin" in said.stdout


def test_a_failed_certify_writes_no_certificate(run, memory: Path):
    (memory / "certificate.json").unlink()
    flip(memory / "weights.safetensors", -4)
    assert run("certify", memory).exit_code == 1
    assert not (memory / "certificate.json").exists()


WORDS = [
    '{\n "kind"',
    '"schema"',
    '"family"',
    '"spec"',
    '"qk_rank"',
    '"construction"',
    '"recalled"',
    '"pad_id"',
    '"count"',
    '"columns"',
    '"sha256"',
    '"weights.safetensors"',
    '"vocabulary"',
    "France",
]


@pytest.mark.parametrize("word", WORDS)
def test_one_bit_of_the_description(run_json: RunJson, refused: Refused, memory: Path, word: str):
    path = memory / "memory.json"
    at = path.read_bytes().rindex(word.encode())
    flip(path, at + len(word) // 2)
    message = refused("recall", memory, "Japan", "capital")
    assert "memory.json" in message or "do not belong together" in message or "missing" in message
    made = run_json("certify", memory, code=1)
    assert "error" in made or made["damage"]


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(lambda r: r["facts"].pop("digest"), id="facts without digest"),
        pytest.param(lambda r: r.update(start_id=99), id="start token outside the vocabulary"),
    ],
)
def test_description_that_does_not_fit(run, refused: Refused, make_file, tmp_path: Path, changed):
    run("build", make_file("t.csv", "key,answer\na,x\nb,y\n"), "-o", tmp_path / "m")
    change(tmp_path / "m" / "memory.json", changed)
    refused("recall", tmp_path / "m", "a")
    assert run("certify", tmp_path / "m").exit_code == 1


def test_one_bit_anywhere_in_a_sharded_memory(run, tmp_path: Path):
    folder = tmp_path / "m"
    run("build", "random:N=5,S=2,T=8", "-o", folder, "--method", "sharded")
    for path in folder.iterdir():
        whole = path.read_bytes()
        for at in range(8, len(whole), 101):
            flip(path, at)
            if path.name != "memory.json" or not same_json(path.read_bytes(), whole):
                assert run("certify", folder).exit_code == 1
            path.write_bytes(whole)


def same_json(a: bytes, b: bytes) -> bool:
    """The last digit of a number may change its text and not its value."""
    try:
        return json.loads(a) == json.loads(b)
    except ValueError:
        return False


def test_edited_by_hand(refused: Refused, run_json: RunJson, memory: Path):
    change(memory / "memory.json", lambda record: record["construction"].update(margin=9.0))
    assert "memory.json was changed by hand" in refused("recall", memory, *ASK)
    made = run_json("certify", memory, code=1)
    assert made["damage"] == ["memory.json was changed by hand"]
    assert made["failed"] == 0


def test_swapped_tokens(refused: Refused, run_json: RunJson, memory: Path):
    """A vocabulary in another order gives other answers: certify names the damage."""

    def swap(record: dict[str, Any]) -> None:
        tokens = record["vocabulary"]
        i, j = tokens.index("Paris"), tokens.index("Tokyo")
        tokens[i], tokens[j] = tokens[j], tokens[i]

    change(memory / "memory.json", swap)
    assert "changed" in refused("recall", memory, *ASK)
    assert len(run_json("certify", memory, code=1)["damage"]) == 2


def test_newer_schema(refused: Refused, memory: Path):
    change(memory / "memory.json", lambda record: record.update(schema=99))
    for message in (refused("recall", memory, *ASK), refused("certify", memory, code=1)):
        assert "schema version 99" in message
        assert "Install a newer byheart" in message


def test_another_json_file(refused: Refused, memory: Path):
    for text in ("[]", '{"kind": "shopping list"}', "null", "\x00"):
        (memory / "memory.json").write_text(text)
        assert "not the description of a byheart memory" in refused("recall", memory, *ASK)


def test_weights_that_are_not_numbers(run_json: RunJson, memory: Path):
    """NaN with a hash that fits: nothing is proved."""
    import hashlib

    from byheart.models.memory_files import _digest

    path = memory / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-4] + b"\xff\xff\xff\xff")

    def rehash(record: dict[str, Any]) -> None:
        record["sha256"][path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
        record["digest"] = _digest(record)

    change(memory / "memory.json", rehash)
    made = run_json("certify", memory, code=1)
    assert made["damage"] == []
    assert made["failed"] == 12
    assert "not finite" in made["failures"][0]["reason"]
