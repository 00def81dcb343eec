"""Facts -> exact memory -> file -> answers, in Python and on the command line."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import byheart as bh
from byheart.certificates import exact as exact_certificate
from byheart.cli.main import app
from byheart.errors import ByheartError, CapacityError, ConflictError, FactsError, MemoryFileError
from byheart.exact.files import NAME
from byheart.facts import Facts, Vocabulary
from byheart.models.exact_memory import UNKNOWN, ExactMemory

few = settings(deadline=None, max_examples=25)  # a busy machine is slow at times


def build(facts: Facts, **options: Any) -> ExactMemory:
    memory = bh.build(facts, "sqrt", **options)
    assert isinstance(memory, ExactMemory)
    return memory


def run(*args: object, code: int = 0) -> dict:
    done = CliRunner().invoke(app, [*map(str, args), "--json"])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


@st.composite
def small_facts(draw):
    """Up to 30 facts with keys of one to three of at most eight tokens."""
    N, S = draw(st.integers(2, 8)), draw(st.integers(1, 3))
    key = st.tuples(*[st.integers(0, N - 1)] * S)
    keys = draw(st.lists(key, min_size=1, max_size=30, unique=True))
    answers = draw(st.lists(st.integers(0, N - 1), min_size=len(keys), max_size=len(keys)))
    return Facts.make(keys, answers, Vocabulary(tuple(f"t{i}" for i in range(N))))


@pytest.mark.parametrize("ff1", ["hash", "product", "paper"])
@few
@given(facts=small_facts())
def test_every_key_there_is(ff1, facts):
    """Members get their answer, all other keys `unknown`: the oracle, on every possible key."""
    memory = build(facts, ff1=ff1)
    every = np.array(list(itertools.product(range(facts.N), repeat=facts.S)))
    said = memory.literal_outputs(every)
    assert (said == memory.outputs(every)).all()
    right = dict(zip(map(tuple, facts.tokens.tolist()), facts.answers.tolist(), strict=True))
    for key, output in zip(map(tuple, every.tolist()), said.tolist(), strict=True):
        assert output == (memory.answers.index(right[key]) + 1 if key in right else 0)
    assert memory.construction.unknown.proved
    assert bh.certify(memory).certified


def test_unordered_keys_are_multisets():
    words = Vocabulary(("a", "b", "c", "x", "y"))
    facts = Facts.make([[0, 1], [1, 2]], [3, 4], words)
    memory = build(facts, ordered=False)
    assert memory.recall("b", "a").answer == "x"
    assert memory.recall("c", "b").answer == "y"
    assert memory.recall("a", "a").answer == UNKNOWN
    assert build(facts).recall("b", "a").answer == UNKNOWN
    same = Facts.make([[0, 1], [1, 0]], [3, 4], words)
    with pytest.raises(ConflictError, match="`ordered=False`"):
        build(same, ordered=False)
    assert build(same).recall("b", "a").answer == "y"


def test_padded_keys(tmp_path: Path):
    table = tmp_path / "facts.jsonl"
    rows = [(["a"], "1"), (["a", "b"], "2"), (["b"], "3"), (["c", "a", "b"], "1")]
    table.write_text("".join(json.dumps({"input": k, "output": a}) + "\n" for k, a in rows))
    memory = build(bh.read_facts(table, pad=True))
    for key, answer in rows:
        assert memory.recall(*key).answer == answer
    assert memory.recall("b", "a").answer == UNKNOWN
    with pytest.raises(FactsError, match="keys of 3 tokens"):
        memory.recall("a", "b", "c", "a")


@pytest.mark.parametrize("classes", [1, 2, 300])
def test_few_and_many_classes(classes):
    rng = np.random.default_rng(0)
    words = Vocabulary(tuple(map(str, range(1000))))
    facts = Facts.make(np.arange(600)[:, None], rng.integers(0, classes, 600), words)
    memory = build(facts)
    assert (memory.literal_outputs(facts.tokens) == memory.classes(facts.answers)).all()
    assert memory.recall("999").answer == UNKNOWN  # one token a key: every other one is proved
    assert memory.construction.unknown.proved


def test_abstaining_keeps_strangers_away():
    facts = bh.random_associations(N=1000, S=2, T=3000)
    plain, careful = build(facts), build(facts, abstain=True)
    assert careful.construction.unknown.rate < 2**-20
    assert careful.construction.unknown.answered <= 1
    assert plain.construction.unknown.rate < 0.01
    expected = plain.construction.unknown
    spread = 5 * (expected.rate * expected.asked) ** 0.5 + 5
    assert abs(expected.answered - expected.rate * expected.asked) < spread
    assert careful.spec.parameters > plain.spec.parameters


def test_fewer_parameters_than_facts_and_saved_whole(tmp_path: Path):
    facts = bh.random_associations(N=300, S=2, T=4000)
    memory = build(facts)
    assert memory.spec.parameters < facts.T
    memory.save(tmp_path / "m")
    again = bh.load(tmp_path / "m")
    assert isinstance(again, ExactMemory)
    assert again == memory and again.integers == memory.integers
    assert again.facts is not None and again.facts.digest() == facts.digest()
    for i in (0, 1999, 3999):
        assert again.recall(*facts.key(i)).answer == facts.answer(i)
        assert memory.recall(*facts.key(i), literally=True).answer == facts.answer(i)
    assert build(facts).spec == memory.spec


def test_a_certificate_beyond_the_literal_limit(monkeypatch):
    monkeypatch.setattr(exact_certificate, "LITERAL", 50)
    memory = build(bh.random_associations(N=50, S=2, T=200))
    made = bh.certify(memory)
    assert made.certified
    assert made.arithmetic.startswith("exact integers, 50 facts block by block, all 200")
    # An evaluator that errs is found by the other one.
    right = type(memory).outputs
    monkeypatch.setattr(type(memory), "outputs", lambda self, t: right(self, t) % 7)
    assert not bh.certify(memory).certified


@pytest.mark.parametrize("ff1", ["hash", "product", "paper"])
def test_a_register_is_part_of_the_memory(tmp_path: Path, monkeypatch, ff1):
    """Remark 4.5: certified, saved, described, counted; a spec without it is another network's."""
    facts = bh.random_associations(N=30, S=3, T=200)
    plain, memory = build(facts, ff1=ff1), build(facts, ff1=ff1, register=True)
    assert memory.spec.register and not plain.spec.register
    assert "register" in str(memory.spec) and "register" not in str(plain.spec)
    assert plain.spec.parameters + 2 <= memory.spec.parameters <= plain.spec.parameters + 3
    assert any("12 links" in line for line in memory.describe().why)
    assert bh.certify(memory).arithmetic == "exact integers, all 200 facts block by block"
    monkeypatch.setattr(exact_certificate, "LITERAL", 50)
    assert bh.certify(memory).certified
    again = bh.load(memory.save(tmp_path / "m"))
    assert again == memory and again.spec == memory.spec
    record = json.loads((tmp_path / "m" / "memory.json").read_text())
    del record["spec"]["register"]
    (tmp_path / "m" / "memory.json").write_text(json.dumps(record))
    with pytest.raises(MemoryFileError, match="pooling by register"):
        bh.load(tmp_path / "m")


def test_other_facts_are_not_certified():
    facts = bh.random_associations(N=50, S=2, T=200)
    memory = build(facts)
    other = Facts.make(facts.tokens, (facts.answers + 1) % 50, facts.vocabulary)
    made = bh.certify(memory, other)
    assert (made.certified, made.failed) == (False, 200)
    assert "answers" in made.failures[0].reason
    with pytest.raises(ByheartError, match="proved in integers"):
        bh.certify(memory, arithmetic="ball")


def test_bits_that_cannot_work():
    facts = bh.random_associations(N=50, S=2, T=500)
    with pytest.raises((CapacityError, ByheartError), match=r"max.bits"):
        build(facts, max_bits=12)
    small = build(facts, max_bits=70)
    assert small.spec.max_bits <= 70
    assert small.spec.parameters > build(facts).spec.parameters


def test_the_command_line(tmp_path: Path):
    folder = tmp_path / "m"
    made = run("build", "countries", "--method", "sqrt", "-o", folder, "--certify")
    assert made["recalled"] == made["facts"] == 585
    assert made["certificate"]["certified"] and made["method"] == "sqrt"
    assert made["spec"]["family"] == "sqrt" and made["unknown"]["proved"] is False
    said = run("recall", folder, "France", "capital")
    assert (said["answer"], said["known"]) == ("Paris", True)
    assert run("recall", folder, "France", "capital", "--full")["answer"] == "Paris"
    said = run("recall", folder, "Frence", "capital", code=1)
    assert (said["answer"], said["known"]) == (UNKNOWN, False)
    assert run("recall", folder, "--all")["recalled"] == 585
    proof = run("certify", folder)
    assert proof["certified"] and proof["error_bound"] == 0.0
    rows = run("precision", folder)["rows"]
    assert rows[-1] == {
        "format": "exact integers",
        "significant_bits": made["spec"]["max_bits"],
        "asked": 500,
        "recalled": 500,
    }
    assert rows[2]["recalled"] < 500
    words = CliRunner().invoke(app, ["recall", str(folder), "France", "Paris"]).output
    assert words.startswith("unknown\n") and "not stored" in words
    shown = CliRunner().invoke(app, ["certify", str(folder)]).output
    assert "equal or not" in shown


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--method", "sqrt", "--heads", "3"], "--heads"),
        (["--method", "attention", "--ff1", "paper"], "--method sqrt"),
        (["--method", "sqrt", "--ff1", "magic"], "must be one of"),
        (["--method", "sqrt", "--max-bits", "4"], "--max-bits"),
        (["--method", "sqrt", "--dtype", "float64"], "--dtype"),
    ],
)
def test_options_that_do_not_belong(tmp_path: Path, options, words):
    said = run("build", "elements", "-o", tmp_path / "m", *options, code=2)
    assert words in said["error"]
    assert not (tmp_path / "m").exists()


def test_what_other_commands_say(tmp_path: Path):
    build(bh.read_facts("elements")).save(tmp_path / "m")
    for command in (
        ["export", "-o", str(tmp_path / "x")],
        ["owner"],
        ["edit", "--set", "Fe,name=a"],
    ):
        rest = ["Fe", "name"] if command[0] == "owner" else []
        assert "error" in run(command[0], tmp_path / "m", *rest, *command[1:], code=2)
    said = run("certify", tmp_path / "m", "--interval", code=2)
    assert "integers" in said["error"]


def test_damage_is_found(tmp_path: Path):
    folder = tmp_path / "m"
    build(bh.read_facts("elements")).save(folder)
    data = bytearray((folder / NAME).read_bytes())
    data[len(data) // 2] ^= 4
    (folder / NAME).write_bytes(bytes(data))
    with pytest.raises(MemoryFileError, match="SHA-256"):
        bh.load(folder)
    assert "SHA-256" in run("certify", folder, code=1)["error"]
    (folder / NAME).unlink()
    with pytest.raises(MemoryFileError, match="missing"):
        bh.load(folder)


def test_counts_that_lie_are_found(tmp_path: Path):
    folder = tmp_path / "m"
    build(bh.read_facts("elements")).save(folder)
    record = json.loads((folder / "memory.json").read_text())
    record["spec"]["parameters"] += 1
    (folder / "memory.json").write_text(json.dumps(record))
    with pytest.raises(MemoryFileError, match="counts"):
        bh.load(folder)


@pytest.mark.parametrize("reading", [{"start_id": 0}, {"order": [1, 0]}])
def test_a_reading_that_integers_do_not_have_is_refused(tmp_path: Path, reading):
    """The facts have two tokens a key: with a start token, they do not fit the spec."""
    file = build(bh.read_facts("elements")).save(tmp_path / "m") / "memory.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | reading))
    with pytest.raises(MemoryFileError, match="the files do not belong together"):
        bh.load(file.parent)


@pytest.mark.slow
def test_airports(tmp_path: Path):
    """28,298 real airports, by code and by character: fewer parameters than facts, certified."""
    import airportsdata

    airports = sorted(airportsdata.load().items())
    table = tmp_path / "airports.csv"
    table.write_text("code,country\n" + "".join(f"{k},{a['country']}\n" for k, a in airports))
    made = run("build", table, "--method", "sqrt", "-o", tmp_path / "m", "--certify")
    assert made["parameters"] < made["facts"] == len(airports)
    assert made["certificate"]["certified"]
    for code, airport in airports[:: len(airports) // 5]:
        assert run("recall", tmp_path / "m", code)["answer"] == airport["country"]
