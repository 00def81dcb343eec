"""A memory on disk is whole, unchanged and its own, or it is refused."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import byheart as bh
from byheart import _folders
from byheart.errors import MemoryFileError
from byheart.facts import Facts
from byheart.models import memory_files
from byheart.models.folder import FACTS, MEMORY, WEIGHTS
from byheart.models.memory_files import load
from byheart.models.token_memory import TokenMemory

FILES = (MEMORY, WEIGHTS, FACTS)
DISK_FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, tiny_memory) -> Path:
    """A saved memory that tests may damage through `damaged`, which puts it right again."""
    return tiny_memory.save(tmp_path_factory.mktemp("files") / "saved")


@pytest.fixture
def other_memory():
    return bh.build(bh.random_associations(N=5, S=2, T=7, seed=9))


def same(a: bh.Memory, b: bh.Memory) -> bool:
    return a == b and a.construction == b.construction


def edit(folder: Path, change: Callable[[dict[str, Any]], Any], *, sign: bool = False) -> None:
    """Change memory.json as a person with an editor (or, signed, as a program) would."""
    record = json.loads((folder / MEMORY).read_text())
    change(record)
    if sign:
        record["digest"] = memory_files._digest(record)
    (folder / MEMORY).write_text(json.dumps(record))


def test_round_trip_is_bit_exact(any_memory, tmp_path):
    place = any_memory.save(tmp_path / "memory")
    again = load(place)
    assert isinstance(again, TokenMemory)
    assert again.spec == any_memory.spec
    assert again.weights.keys() == any_memory.weights.keys()
    for name, w in any_memory.weights.items():
        assert again.weights[name].dtype == w.dtype
        assert again.weights[name].numpy().tobytes() == w.contiguous().numpy().tobytes()
    assert again.vocabulary == any_memory.vocabulary
    assert (again.start_id, again.pad_id) == (any_memory.start_id, any_memory.pad_id)
    assert again.construction == any_memory.construction
    facts, found = any_memory.facts, again.facts
    assert found is not None
    assert found.digest() == facts.digest()
    assert found.rows.tolist() == facts.rows.tolist()
    for field in ("name", "columns", "answer_column", "merged", "skipped", "pad_id"):
        assert getattr(found, field) == getattr(facts, field)
    assert np.array_equal(again.margins(found), any_memory.margins(facts))


def test_saving_what_was_loaded_gives_the_same_bytes(any_memory, tmp_path):
    first = any_memory.save(tmp_path / "first")
    second = load(first).save(tmp_path / "second")
    for name in FILES:
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_names_and_rows_of_a_table_survive(tmp_path):
    elements = bh.read_facts("elements").subset(range(10))
    place = bh.build(elements).save(tmp_path / "elements")
    facts = load(place).facts
    assert isinstance(facts, Facts)
    assert (facts.name, facts.columns) == (elements.name, elements.columns)
    assert facts.rows.tolist() == elements.rows.tolist()


def test_sha256_of_the_weights_is_that_of_the_file(saved, tiny_memory):
    record = json.loads((saved / MEMORY).read_text())
    assert record["sha256"][WEIGHTS] == tiny_memory.weights_sha256()


def test_without_facts(tiny_memory, tmp_path):
    place = tiny_memory.save(tmp_path / "memory", with_facts=False)
    assert sorted(p.name for p in place.iterdir()) == [MEMORY, WEIGHTS]
    again = load(place)
    assert again.facts is None
    assert again.recall(*tiny_memory.facts.key(0)).answer == tiny_memory.facts.answer(0)


def test_parents_are_made_and_the_path_is_returned(tiny_memory, tmp_path):
    assert tiny_memory.save(str(tmp_path / "a" / "b")) == tmp_path / "a" / "b"
    assert same(load(tmp_path / "a" / "b"), tiny_memory)


def test_the_folder_has_ordinary_permissions(tiny_memory, tmp_path):
    plain = tmp_path / "plain"
    plain.mkdir()
    place = tiny_memory.save(tmp_path / "memory")
    assert place.stat().st_mode == plain.stat().st_mode


def test_existing_folder_is_refused_without_force(tiny_memory, other_memory, tmp_path):
    place = tiny_memory.save(tmp_path / "memory")
    with pytest.raises(MemoryFileError, match=r"exists already.*`force`"):
        other_memory.save(place)
    assert same(load(place), tiny_memory)
    assert os.listdir(tmp_path) == ["memory"]


@pytest.fixture(params=["exchange", "two renames"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the atomic exchange of Linux, and where the system has none."""
    if request.param == "two renames":
        monkeypatch.setattr(_folders, "_exchange", lambda a, b: False)
    return request.param


def test_force_replaces_a_memory(tiny_memory, other_memory, tmp_path, way):
    place = tiny_memory.save(tmp_path / "memory")
    (place / "certificate.json").write_text("{}")
    other_memory.save(place, force=True)
    assert same(load(place), other_memory)
    assert sorted(p.name for p in place.iterdir()) == sorted(FILES)  # nothing of the old one
    assert os.listdir(tmp_path) == ["memory"]


def test_force_makes_what_is_not_there(tiny_memory, tmp_path, way):
    assert same(load(tiny_memory.save(tmp_path / "memory", force=True)), tiny_memory)


def test_force_does_not_wait_for_a_pipe(tiny_memory, tmp_path):
    (tmp_path / "m").mkdir()
    os.mkfifo(tmp_path / "m" / MEMORY)
    with pytest.raises(MemoryFileError, match="is not a byheart memory"):
        tiny_memory.save(tmp_path / "m", force=True)


def test_force_through_a_link_leaves_no_scraps(tiny_memory, other_memory, tmp_path, way):
    tiny_memory.save(tmp_path / "elsewhere" / "memory")
    home = tmp_path / "home"
    home.mkdir()
    (home / "link").symlink_to(tmp_path / "elsewhere" / "memory")
    other_memory.save(home / "link", force=True)
    assert same(load(home / "link"), other_memory)
    assert os.listdir(home) == ["link"]
    assert os.listdir(tmp_path / "elsewhere") == ["memory"]


@pytest.mark.parametrize("error", [DISK_FULL, KeyboardInterrupt()], ids=["full", "ctrl-c"])
@pytest.mark.parametrize("moment", ["weights", "facts", "memory.json", "flush", "rename"])
def test_failing_halfway_keeps_the_old_memory(
    tiny_memory, other_memory, tmp_path, monkeypatch, way, error, moment
):
    place = tiny_memory.save(tmp_path / "memory")

    def fail(*_: Any) -> None:
        raise error

    if moment in ("weights", "facts"):
        write_bytes, name = Path.write_bytes, {"weights": WEIGHTS, "facts": FACTS}[moment]
        monkeypatch.setattr(
            Path, "write_bytes", lambda p, data: fail() if p.name == name else write_bytes(p, data)
        )
    elif moment == "memory.json":
        monkeypatch.setattr(memory_files, "write_text", fail)
    elif moment == "flush":
        monkeypatch.setattr(os, "fsync", fail)
    else:
        monkeypatch.setattr(_folders, "_put_in_place", fail)
    expected = MemoryFileError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as caught:
        other_memory.save(place, force=True)
    if expected is MemoryFileError:
        assert "No space left on device" in str(caught.value)
    monkeypatch.undo()
    assert same(load(place), tiny_memory)
    assert os.listdir(tmp_path) == ["memory"]


@pytest.mark.parametrize("error", [DISK_FULL, KeyboardInterrupt()], ids=["full", "ctrl-c"])
@pytest.mark.parametrize("failing", [1, 2])
def test_failing_rename_keeps_the_old_memory(
    tiny_memory, other_memory, tmp_path, monkeypatch, error, failing
):
    """Without the exchange there are two renames; whichever fails, the old memory is back."""
    place = tiny_memory.save(tmp_path / "memory")
    rename, calls = os.rename, iter(range(1, 10))

    def fail_once(a: Any, b: Any) -> None:
        if next(calls) == failing:
            raise error
        rename(a, b)

    monkeypatch.setattr(_folders, "_exchange", lambda a, b: False)
    monkeypatch.setattr(os, "rename", fail_once)
    with pytest.raises((MemoryFileError, KeyboardInterrupt)):
        other_memory.save(place, force=True)
    monkeypatch.undo()
    assert same(load(place), tiny_memory)
    assert os.listdir(tmp_path) == ["memory"]


def test_failing_first_save_leaves_nothing(tiny_memory, tmp_path, monkeypatch):
    def fail(*_: Any) -> None:
        raise DISK_FULL

    monkeypatch.setattr(memory_files, "write_text", fail)
    with pytest.raises(MemoryFileError, match="cannot be written"):
        tiny_memory.save(tmp_path / "memory")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("content", ["nothing", "other files", "other memory.json", "a file"])
def test_force_never_replaces_what_is_not_a_memory(tiny_memory, tmp_path, content):
    place = tmp_path / "thesis"
    if content == "a file":
        place.write_text("chapter 1")
    else:
        place.mkdir()
    if content == "other files":
        (place / "chapter1.txt").write_text("chapter 1")
    if content == "other memory.json":  # of a program that is not byheart
        (place / MEMORY).write_text('{"kind": "diary", "entries": []}')
    before = sorted(p.name for p in place.iterdir()) if place.is_dir() else place.read_text()
    with pytest.raises(MemoryFileError, match="not a byheart memory"):
        tiny_memory.save(place, force=True)
    after = sorted(p.name for p in place.iterdir()) if place.is_dir() else place.read_text()
    assert after == before
    assert os.listdir(tmp_path) == ["thesis"]


def test_force_replaces_a_damaged_memory(tiny_memory, tmp_path):
    place = tiny_memory.save(tmp_path / "memory")
    (place / WEIGHTS).write_bytes(b"")
    tiny_memory.save(place, force=True)
    assert same(load(place), tiny_memory)


@pytest.mark.parametrize("force", [False, True])
def test_places_that_cannot_be_written(tiny_memory, tmp_path, force):
    (tmp_path / "file").write_text("")
    for place in (
        tmp_path / "file" / "memory",
        tmp_path / "file" / "a" / "b",
        tmp_path / ("x" * 300),
    ):
        with pytest.raises(MemoryFileError, match="cannot be written"):
            tiny_memory.save(place, force=force)
    assert os.listdir(tmp_path) == ["file"]


@pytest.fixture
def damaged(saved: Path) -> Iterator[Path]:
    """The saved memory, put right again after the test."""
    before = {name: (saved / name).read_bytes() for name in FILES}
    yield saved
    for name, data in before.items():
        (saved / name).write_bytes(data)


def test_no_folder_or_not_a_folder(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "nothing", tmp_path / "file"):
        with pytest.raises(MemoryFileError, match="no such memory folder"):
            load(place)


@pytest.mark.parametrize("name", FILES)
def test_missing_file(damaged, name):
    (damaged / name).unlink()
    with pytest.raises(MemoryFileError, match=f"{name} is missing"):
        load(damaged)


@pytest.mark.parametrize("name", FILES)
def test_a_folder_in_place_of_a_file(damaged, name, tmp_path):
    place = tmp_path / "copy"
    shutil.copytree(damaged, place)
    (place / name).unlink()
    (place / name).mkdir()
    with pytest.raises(MemoryFileError, match=f"{name}: cannot be read"):
        load(place)


@pytest.mark.parametrize("name", FILES)
def test_truncated_file(damaged, name):
    data = (damaged / name).read_bytes()
    header = 200 if name == MEMORY else 8 + int.from_bytes(data[:8], "little")
    lengths = {0, 1, 7, 8, 9, header // 2, header - 1, header, header + 1}
    lengths |= {len(data) // 2, len(data) - 2}
    if name != MEMORY:  # the last byte of memory.json is the end of its last line
        lengths.add(len(data) - 1)
    for length in sorted(lengths):
        assert length < len(data)
        (damaged / name).write_bytes(data[:length])
        with pytest.raises(MemoryFileError):
            load(damaged)


@pytest.mark.parametrize("name", [WEIGHTS, FACTS])
def test_longer_file(damaged, name):
    (damaged / name).write_bytes((damaged / name).read_bytes() + b"\0")
    with pytest.raises(MemoryFileError):
        load(damaged)


@pytest.mark.parametrize("name", [WEIGHTS, FACTS])
@settings(max_examples=300, deadline=None, derandomize=True)
@given(draw=st.data())
def test_any_flipped_bit_is_found(saved, name, draw):
    data = bytearray((saved / name).read_bytes())
    offset = draw.draw(st.integers(0, len(data) - 1), label="byte")
    bit = draw.draw(st.integers(0, 7), label="bit")
    _load_flipped(saved, name, data, offset, bit)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [WEIGHTS, FACTS])
def test_every_flipped_bit_of_the_header_is_found(saved, name, every):
    """The header says how the bytes are read: each of its bits, because each fails differently. By
    default every bit of its length, and of each byte of its text one, all eight in turn."""
    data = bytearray((saved / name).read_bytes())
    for offset in range(8 + int.from_bytes(data[:8], "little")):
        for bit in range(8):
            if every or offset < 8 or bit == offset % 8:
                _load_flipped(saved, name, data, offset, bit)


def _load_flipped(saved: Path, name: str, data: bytearray, offset: int, bit: int) -> None:
    data[offset] ^= 1 << bit
    (saved / name).write_bytes(data)
    data[offset] ^= 1 << bit
    try:
        with pytest.raises(MemoryFileError):
            load(saved)
    finally:
        (saved / name).write_bytes(data)


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", "3", "\0", '{"kind": "other"}', '{"schema": 1}', "[" * 100_000],
    ids=lambda text: repr(text[:20]),
)
def test_memory_json_that_is_none(damaged, text):
    (damaged / MEMORY).write_text(text)
    with pytest.raises(MemoryFileError, match="not the description of a byheart memory"):
        load(damaged)


def test_memory_json_that_is_no_text(damaged):
    (damaged / MEMORY).write_bytes(b"\xff\xfe{}")
    with pytest.raises(MemoryFileError, match="not the description of a byheart memory"):
        load(damaged)


def test_another_kind_is_refused(damaged):
    edit(damaged, lambda record: record.update(kind="byheart study"), sign=True)
    with pytest.raises(MemoryFileError, match="not the description of a byheart memory"):
        load(damaged)


def test_newer_schema_says_what_to_install(damaged):
    edit(damaged, lambda record: record.update(schema=99), sign=True)
    with pytest.raises(MemoryFileError, match=r"schema version 99.*[Ii]nstall a newer byheart"):
        load(damaged)


@pytest.mark.parametrize("schema", [None, "1", [1]])
def test_schema_that_is_no_number(damaged, schema):
    edit(damaged, lambda record: record.update(schema=schema), sign=True)
    with pytest.raises(MemoryFileError, match="schema"):
        load(damaged)


def set_spec(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda record: record["spec"].update({name: value})


EDITS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "width": set_spec("d", 3),
    "heads as text": set_spec("H", "3"),
    "unknown option": set_spec("dropout", 0.1),
    "scale": set_spec("scale", True),
    "skip": set_spec("skip", False),
    "positions": set_spec("positions", "attention"),
    "no spec": lambda r: r.update(spec=None),
    "family": lambda r: r.update(family="associative"),
    "unknown family": lambda r: r.update(family="recurrent"),
    "family of another type": lambda r: r.update(family=[]),
    "vocabulary shorter": lambda r: r["vocabulary"].pop(),
    "vocabulary twice": lambda r: r["vocabulary"].__setitem__(0, r["vocabulary"][1]),
    "vocabulary of another type": lambda r: r.update(vocabulary=4),
    "token renamed": lambda r: r["vocabulary"].__setitem__(0, "zero"),
    "start token": lambda r: r.update(start_id=0),
    "start token outside": lambda r: r.update(start_id=10**6),
    "no start_id": lambda r: r.pop("start_id"),
    "no construction": lambda r: r.pop("construction"),
    "construction": lambda r: r["construction"].update(margin=9.0),
    "no sums": lambda r: r.pop("sha256"),
    "sums of another type": lambda r: r.update(sha256=[]),
    "no sum of the weights": lambda r: r["sha256"].pop(WEIGHTS),
    "wrong sum": lambda r: r["sha256"].update({WEIGHTS: "0" * 64}),
    "other file": lambda r: r["sha256"].update({"nothing.safetensors": "0" * 64}),
    "no facts record": lambda r: r.update(facts=None),
    "facts record of another type": lambda r: r.update(facts=[]),
    "no facts digest": lambda r: r["facts"].pop("digest"),
    "facts digest": lambda r: r["facts"].update(digest="0" * 64),
    "no digest": lambda r: r.pop("digest"),
}


@pytest.mark.parametrize("change", EDITS.values(), ids=EDITS.keys())
def test_edited_memory_json_is_refused(damaged, change):
    edit(damaged, change)
    with pytest.raises(MemoryFileError):
        load(damaged)


# Signed edits come from a program that writes our format wrongly. Only what contradicts the other
# files can be found then.
CONTRADICTIONS = [
    *("width", "heads as text", "unknown option", "no spec", "family", "unknown family"),
    *("family of another type", "vocabulary shorter", "vocabulary twice", "token renamed"),
    *("vocabulary of another type", "no start_id", "no construction", "no sums", "wrong sum"),
    *("sums of another type", "no sum of the weights", "other file", "no facts record"),
    *("facts record of another type", "no facts digest", "facts digest", "start token outside"),
]


@pytest.mark.parametrize("change", CONTRADICTIONS)
def test_files_that_contradict_each_other_are_refused(damaged, change):
    edit(damaged, EDITS[change], sign=True)
    with pytest.raises(MemoryFileError):
        load(damaged)


def test_reformatted_memory_json_is_the_same(damaged, tiny_memory):
    """The digest is of the content: another indentation or order of fields is no damage."""
    record = json.loads((damaged / MEMORY).read_text())
    (damaged / MEMORY).write_text(json.dumps(dict(reversed(record.items())), indent=4))
    assert same(load(damaged), tiny_memory)


def test_weights_of_another_memory_are_refused(damaged, other_memory, tmp_path):
    other = other_memory.save(tmp_path / "other")
    for name in (WEIGHTS, FACTS):
        before = (damaged / name).read_bytes()
        shutil.copy(other / name, damaged / name)
        with pytest.raises(MemoryFileError):
            load(damaged)
        (damaged / name).write_bytes(before)


def test_inspect_reads_what_load_refuses(damaged):
    data = bytearray((damaged / WEIGHTS).read_bytes())
    data[-1] ^= 1
    (damaged / WEIGHTS).write_bytes(data)
    found = memory_files.inspect(damaged)
    assert found.damage == (f"{WEIGHTS} differs from the SHA-256 in {MEMORY}",)
