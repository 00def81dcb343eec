"""Folders that others made, changed at random or by design: no false certificate, no exception but
the project's own, no more memory than an honest folder takes."""

import hashlib
import json
import os
import shutil
import zlib
from collections import Counter
from pathlib import Path

import pytest
from oracles.folder_mutations import FAMILIES, KEPT, MEMORY, mutated, outcome, resign

import byheart as bh
from byheart.certificates import Certificate, certify_folder
from byheart.errors import ByheartError, MemoryFileError
from byheart.exact.files import load_network

HONEST = 16 << 20  # bytes: where a folder of some kilobytes takes less, that is the allocator's
STATUS = Path("/proc/self/status")


def memory_now(name: str) -> int:
    """VmRSS, or VmHWM, the highest of it, of this process."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])


def measured(folder: Path) -> tuple[str, int]:
    """What becomes of a folder, and how many bytes that took at most."""
    if not STATUS.exists() or not os.access("/proc/self/clear_refs", os.W_OK):
        return outcome(folder), 0
    Path("/proc/self/clear_refs").write_text("5")  # the highest is from now on
    before = memory_now("VmRSS")
    found = outcome(folder)
    return found, memory_now("VmHWM") - before


def judge(place: Path, cases: range) -> Counter[str]:
    honest = {family: max(HONEST, measured(KEPT / family)[1]) for family in FAMILIES}
    seen: Counter[str] = Counter()
    for case in cases:
        family, changes, folder = mutated(place, case)
        try:
            found, peak = measured(folder)
        except Exception as error:
            raise AssertionError(f"case {case}: {family}, {changes}") from error
        assert peak < 4 * honest[family], f"case {case}: {family}, {changes}: {peak:,} bytes"
        seen[found] += 1
        shutil.rmtree(folder)
    return seen


def test_kept_folders_are_certified():
    assert {outcome(KEPT / family) for family in FAMILIES} == {"certified"}


def test_mutated_folders_are_refused_or_judged_rightly(tmp_path):
    seen = judge(tmp_path, range(300))
    assert min(seen["refused"], seen["not proved"], seen["certified"]) > 10


def test_a_negative_row_number_is_refused(tmp_path):
    """Case 6,656 of the ten thousand: an example that could be shown, but not asked for."""
    assert judge(tmp_path, range(6656, 6657)) == {"refused": 1}


@pytest.mark.slow
def test_ten_thousand_mutated_folders(tmp_path):
    seen = judge(tmp_path, range(1_000, 11_000))
    assert min(seen.values()) > 500 and sum(seen.values()) == 10_000


@pytest.fixture
def folder(tmp_path) -> Path:
    return Path(shutil.copytree(KEPT / "attention", tmp_path / "m"))


def change(folder: Path, **changes: object) -> None:
    record = json.loads((folder / MEMORY).read_text())
    (folder / MEMORY).write_text(json.dumps(record | changes))
    resign(folder)


def refused(folder: Path, match: str) -> None:
    for read in (bh.load, certify_folder):
        with pytest.raises(MemoryFileError, match=match):
            read(folder)


@pytest.mark.parametrize("name", ["memory.json", "weights.safetensors", "facts.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_pipes_and_devices_are_refused_at_once(folder, name, kind):
    (folder / name).unlink()
    if kind == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to("/dev/zero")
    refused(folder, "cannot be read: expected a file, found")


@pytest.mark.parametrize(
    "name", ["/dev/zero", "../m/weights.safetensors", "memory.json", "certificate.json", "x.bin"]
)
def test_only_files_of_the_family_are_opened(folder, name):
    sums = json.loads((folder / MEMORY).read_text())["sha256"]
    change(folder, sha256={**sums, name: "0" * 64})
    refused(folder, "sha256|SHA-256")


def test_a_file_of_another_length_is_not_read(folder):
    os.truncate(folder / "weights.safetensors", 1 << 40)  # sparse: it takes no room on disk
    refused(folder, "bytes of tensors expected")


def test_a_header_that_lies_is_refused(folder):
    for length in (1 << 40, 1 << 63):
        (folder / "weights.safetensors").write_bytes(length.to_bytes(8, "little") + b"{}")
        refused(folder, "not a complete safetensors file")


@pytest.mark.parametrize("text", ["[" * 10**6, '{"kind": ' + "9" * 10**6 + "}", '{"a":' * 10**5])
def test_deep_and_long_descriptions_are_refused(folder, text):
    (folder / MEMORY).write_text(text)
    refused(folder, "not the description of a byheart memory")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"order": ["0", 1]}, "order"),
        ({"start_id": 1.0}, "start_id"),
        ({"pad_id": "x"}, "pad_id"),
        ({"pad_id": 10**6}, "pad_id"),
        ({"vocabulary": [1, 2]}, "vocabulary"),
        ({"family": ["attention-only"]}, "family"),
        ({"facts": {"count": 10**15}}, "facts"),
        ({"construction": {"method": "attention", "margin": "wide"}}, "construction.margin"),
        ({"construction": {"method": "attention", "why": [1]}}, "construction.why"),
        ({"spec": {"N": 2**62, "S": 2, "d": 2**40, "d_h": 1, "H": 1}}, "do not belong together"),
    ],
)
def test_fields_of_another_type_or_size_are_refused(folder, changes, match):
    change(folder, **changes)
    refused(folder, match)


@pytest.mark.parametrize(
    ("name", "value"), [("group", 99), ("level", 40), ("first", -1), ("head_start", 7)]
)
def test_shards_that_are_not_there_are_refused_on_reading(tmp_path, name, value):
    """Before a key is asked for, not only before a proof."""
    from safetensors.torch import load_file, save_file

    folder = Path(shutil.copytree(KEPT / "sharded", tmp_path / "m"))
    tensors = load_file(folder / "index.safetensors")
    tensors[name][0] = value
    save_file(tensors, folder / "index.safetensors")
    resign(folder)
    refused(folder, f"do not belong together.*({name}|shard)")


@pytest.mark.parametrize("facts", [None, "24", 2.5, [24]])
def test_a_certificate_with_fields_of_another_type_is_none(folder, facts):
    assert Certificate.read(folder) is not None
    record = json.loads((folder / "certificate.json").read_text())
    (folder / "certificate.json").write_text(json.dumps(record | {"facts": facts}))
    assert Certificate.read(folder) is None
    (folder / "certificate.json").unlink()
    os.mkfifo(folder / "certificate.json")
    assert Certificate.read(folder) is None  # and at once


def sealed(payload: bytes) -> bytes:
    body = b"BYHEXACT\x01" + len(payload).to_bytes(8, "little") + zlib.compress(payload)
    return body + hashlib.sha256(body).digest()


@pytest.mark.parametrize(
    "pool",
    [b"\x01" + b"\xff" * 4 + b"\x0f\x01\x01", b"\x32" + b"\x80\x80\x80\x02\x01\x01" * 50],
    ids=["one power of two", "many"],
)
def test_a_small_network_allocates_little(pool):
    import tracemalloc

    header = b'{"dims": ["l"], "d": 1, "source": 0, "target": 0, "out": 0, "pooling": "sum"}'
    data = sealed(bytes([len(header)]) + header + pool + b"\0" * 20)
    assert len(data) < 500
    tracemalloc.start()
    try:
        with pytest.raises(ByheartError, match="far more bits"):
            load_network(data)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
