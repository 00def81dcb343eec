"""The independent checker against `bh.certify`: good folders, bad folders, hand-made attacks."""

import ast
import hashlib
import importlib.util
import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import byheart as bh
from byheart.certificates import certify_folder
from byheart.errors import ByheartError
from byheart.exact import files as exact_files
from byheart.facts import Facts, Vocabulary
from byheart.specs import AssociativeSpec, AttentionOnlySpec, MLPTransformerSpec

ROOT = Path(__file__).parents[2]
FILE = ROOT / "src" / "byheart" / "certificates" / "independent.py"
KEPT = ROOT / "tests" / "kept"
COVERED = (
    *("associative", "attention", "attention-boundary", "sharded", "sharded-abstain", "sqrt"),
    *("trained-as-coded", "trained-attention", "trained-mlp", "trained-two-layers"),
)
Table = bh.Facts | str


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("independent", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


checker = _load()


def hot() -> Facts:
    """Every token of both columns has more facts than a shard: only bits can split them."""
    rows = [(f"a{i}", f"b{j}", f"c{(i * 7 + j) % 9}") for i in range(16) for j in range(16)]
    return Facts.from_rows(rows)


def single() -> Facts:
    return Facts.from_rows([(f"s{i}", f"a{i % 7}") for i in range(40)])


RANDOM = "random:N=40,S=2,T=60,seed=1"
BUILT: dict[str, tuple[Callable[[], Table] | str, str, dict[str, Any]]] = {
    "query": (RANDOM, "sharded", {"shard_size": 15}),
    "bits": (hot, "sharded", {"shard_size": 8}),
    "float64": (RANDOM, "sharded", {"shard_size": 15, "dtype": "float64"}),
    "key": (RANDOM, "sharded", {"shard_size": 15, "gate": "key"}),
    "sink": ("elements", "sharded", {"shard_size": 60, "gate": "subject-sink"}),
    "sink untied": ("elements", "sharded", {"gate": "subject-sink", "untied": True}),
    "untied": (RANDOM, "sharded", {"shard_size": 15, "untied": True}),
    "abstain": (RANDOM, "sharded", {"shard_size": 15, "abstain": True}),
    "lat1": (RANDOM, "sharded", {"shard_size": 15, "code": "lat1"}),
    "three": ("random:N=20,S=3,T=60,seed=2", "sharded", {"shard_size": 20}),
    "one token": (single, "sharded", {"shard_size": 20}),
    "dense": (RANDOM, "attention", {}),
    "start token": (single, "attention", {}),
    "associative": (RANDOM, "associative", {}),
    "hash": (RANDOM, "sqrt", {}),
    "product": (RANDOM, "sqrt", {"ff1": "product"}),
    "paper": (RANDOM, "sqrt", {"ff1": "paper"}),
    "register": (RANDOM, "sqrt", {"register": True}),
    "register product": (RANDOM, "sqrt", {"register": True, "ff1": "product"}),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Callable[[str], Path]:
    """A folder of each kind, built once."""
    root, made = tmp_path_factory.mktemp("built"), {}

    def get(name: str) -> Path:
        if name not in made:
            facts, method, options = BUILT[name]
            table = facts if isinstance(facts, str) else facts()
            made[name] = bh.build(table, method, **options).save(root / name.replace(" ", "-"))
        return made[name]

    return get


def resign(folder: Path, **changes: Any) -> None:
    """Change the description of a memory and recompute every hash in it, as a forger would."""
    record = json.loads((folder / "memory.json").read_text(encoding="utf-8"))
    if (folder / "index.safetensors").exists():
        index = load_file(folder / "index.safetensors")
        W_O, start = load_file(folder / "weights.safetensors")["W_O"], index["head_start"]
        parts = [W_O[a:b].tobytes() for a, b in pairwise(start)]
        sums = b"".join(hashlib.sha256(part).digest() for part in parts)
        if len(sums) == index["shard_sha256"].size:
            index["shard_sha256"] = np.frombuffer(sums, np.uint8).reshape(-1, 32)
            save_file(index, folder / "index.safetensors")
    for name in record["sha256"]:
        record["sha256"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    for key, value in changes.items():
        record[key] = {**record[key], **value} if isinstance(value, dict) else value
    facts = load_file(folder / "facts.safetensors")
    words = json.dumps(
        record["vocabulary"][: record["facts"]["vocabulary"]],
        ensure_ascii=False,
        separators=(",", ":"),
    )
    T, S = facts["tokens"].shape
    head = f"byheart facts 1 {hashlib.sha256(words.encode()).hexdigest()} {T} {S}\n"
    body = [facts[n].astype("<i8").tobytes() for n in ("tokens", "answers")]
    body.append(facts["prior"].astype("<f8").tobytes())
    digest = hashlib.sha256(b"".join([head.encode(), *body])).hexdigest()
    record["facts"]["digest"] = digest
    record.pop("digest")
    text = json.dumps(record, sort_keys=True)
    record["digest"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "memory.json").write_text(json.dumps(record), encoding="utf-8")


def verdict(folder: Path) -> str:
    """What `bh.certify` says: proved, undecided (nothing is lost, the bound is too coarse), not."""
    try:
        made = certify_folder(folder, write=False)
    except ByheartError:
        return "not"
    open_ = all(f.reason.startswith("undecided") for f in made.failures) and not made.damage
    return "proved" if made.certified else "undecided" if open_ else "not"


def verdicts(folder: Path) -> tuple[bool, int, dict[str, Any]]:
    code, found = checker.check(folder)
    return verdict(folder) == "proved", code, found


# The file.


def test_it_imports_nothing_of_byheart_and_is_short():
    text = FILE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add(node.module)
    others = {name for name in found if name.split(".")[0] not in sys.stdlib_module_names}
    assert others == {"numpy", "flint", "safetensors.numpy"}
    assert "__import__" not in text and "importlib" not in found


def test_it_runs_alone():
    script = f"import runpy, sys; sys.argv = ['x', {str(KEPT / 'sharded')!r}, '--json']\n"
    script += f"try: runpy.run_path({str(FILE)!r}, run_name='__main__')\n"
    script += "finally: assert not {'torch', 'byheart'} & sys.modules.keys()"
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["certified"], found["family"], found["proved"]) == (True, "sharded", 24)


# Good folders.


@pytest.mark.parametrize("name", COVERED)
def test_a_kept_memory_is_proved(name: str):
    code, found = checker.check(KEPT / name)
    assert code == 0 and found["proved"] == found["facts"] == (16 if "boundary" in name else 24)
    before = json.loads((KEPT / name / "certificate.json").read_text(encoding="utf-8"))
    if before["margin"] is None:
        assert found["margin"] is None
    else:
        assert found["margin"] == pytest.approx(before["margin"], rel=1e-3)


@pytest.mark.parametrize("name", ["distribution", "multihead-classes", "multihead-numbers"])
def test_what_is_not_covered_says_so(name: str):
    code, found = checker.check(KEPT / name)
    assert code == 2 and "not covered" in found["problem"] and not found["certified"]


@pytest.mark.parametrize("name", BUILT)
def test_a_built_memory_is_proved(name: str, built):
    folder = built(name)
    sure, code, found = verdicts(folder)
    assert sure and code == 0, found
    assert found["proved"] == found["facts"] and found["lost"] == found["undecided"] == 0
    if name == "bits":
        assert json.loads((folder / "memory.json").read_text())["spec"]["bits"] > 0


@pytest.mark.parametrize("positions", ["input", "attention", "none"])
@pytest.mark.parametrize(("scale", "skip"), [(True, True), (False, False)])
def test_options_of_stacks(make_memory, random_weights, tmp_path, positions, scale, skip):
    """Random weights, the answers that they give: proved; another answer: lost."""
    options = {"positions": positions, "scale": scale, "skip": skip, "layers": 2, "qk_rank": 2}
    spec = AttentionOnlySpec(N=6, S=3, d=5, d_h=3, H=2, **options)
    weights = random_weights(spec, 3)
    words = Vocabulary(tuple(f"t{i}" for i in range(6)))
    tokens = [[i, (i + 1) % 6, (2 * i) % 6] for i in range(6)]
    empty = make_memory(spec, weights, words, Facts.make(tokens, [0] * 6, words))
    answers = empty.answers(empty.inputs_of(empty.facts)).tolist()
    wrong = [answers[0] ^ 1, *answers[1:]]
    for name, right in (("good", answers), ("bad", wrong)):
        memory = make_memory(spec, weights, words, Facts.make(tokens, right, words))
        sure, code, found = verdicts(memory.save(tmp_path / name))
        assert (sure, code) == ((True, 0) if name == "good" else (False, 1)), found
        assert found["lost"] == (name == "bad")


# Bad folders.


def test_a_changed_byte_is_found(tmp_path):
    for name in ("memory.json", "weights.safetensors", "facts.safetensors"):
        folder = shutil.copytree(KEPT / "attention", tmp_path / name)
        data = bytearray((folder / name).read_bytes())
        data[-3] ^= 1
        (folder / name).write_bytes(data)
        sure, code, _ = verdicts(folder)
        assert not sure and code in (1, 2)


@pytest.mark.parametrize("name", ["deciding", "subject", "cancel", "bits", "W_X"])
def test_a_stray_tensor_is_refused(tmp_path, name):
    folder = shutil.copytree(KEPT / "sharded", tmp_path / "m")
    file = folder / "index.safetensors"
    save_file(load_file(file) | {name: np.zeros(1, np.int32)}, file)
    resign(folder)
    code, found = checker.check(folder)
    assert code == 2 and name in found["problem"]


@pytest.mark.parametrize(
    "spec",
    [
        {"lam": 2.0**126},
        {"s1": 2.0**-80, "s2": 2.0**-160},
        {"lam": 2.0**-120, "s1": 2.0**20},
        {"s2": 2.0**127},
        {"lam": 48.0},
        {"lam": 1.0},
    ],
)
def test_gates_that_do_not_hold_are_not_proved(tmp_path, spec):
    folder = shutil.copytree(KEPT / "sharded", tmp_path / "m")
    resign(folder, spec=spec)
    sure, code, found = verdicts(folder)
    assert not sure and code in (1, 2), found


def test_a_key_with_the_start_token_is_refused(tmp_path):
    folder = shutil.copytree(KEPT / "sharded", tmp_path / "m")
    facts = load_file(folder / "facts.safetensors")
    facts["tokens"][0, 0] = 32
    save_file(facts, folder / "facts.safetensors")
    record = json.loads((folder / "memory.json").read_text(encoding="utf-8"))
    resign(folder, facts=record["facts"] | {"vocabulary": 33})
    sure, code, found = verdicts(folder)
    assert not sure and code == 2 and "start token" in found["problem"]


@pytest.mark.parametrize("family", ["attention-only", "mlp"])
def test_a_logit_that_overflows_is_lost(make_memory, tmp_path, family):
    """Eight layers that each multiply by 2^118 do not harm balls: the rival has twice as much."""
    sizes = {"N": 2, "S": 1, "d": 1, "layers": 8, "positions": "none"}
    spec = (
        MLPTransformerSpec(**sizes, d_h=1, H=1, w=1, activation="relu")
        if family == "mlp"
        else AttentionOnlySpec(**sizes, d_h=1, H=1, skip=False)
    )
    weights = {n: torch.zeros(s, dtype=torch.float64) for n, s in spec.weight_shapes().items()}
    for name in {"W_E", "W_V", "W_O", "W_in", "W_out"} & weights.keys():
        weights[name][:] = 2.0**59
    weights["W_U"][0] = torch.tensor([1.0, 2.0])
    words = Vocabulary(("t0", "t1"))
    memory = make_memory(spec, weights, words, Facts.make([[0]], [0], words))
    sure, code, found = verdicts(memory.save(tmp_path / "m"))
    assert (sure, code, found["lost"]) == (False, 1, 1)


def test_a_product_that_underflows_is_lost(make_memory, tmp_path):
    spec = AssociativeSpec(N=2, S=32, d=1)
    weights = {n: torch.zeros(s, dtype=torch.float64) for n, s in spec.weight_shapes().items()}
    weights["W_E"][:8], weights["W_E"][8:] = 2.0**-136, 2.0**59
    weights["W"][:] = -1.0
    weights["W_U"][0, 0], weights["W_U"][0, 1] = 1.0, 2.0**-1000
    words = Vocabulary(("t0", "t1"))
    memory = make_memory(spec, weights, words, Facts.make([[0] * 32], [0], words))
    sure, code, found = verdicts(memory.save(tmp_path / "m"))
    assert (sure, code, found["lost"]) == (False, 1, 1)


@pytest.mark.parametrize("change", ["deep", "huge", "path", "empty"])
def test_files_that_hurt_are_refused(tmp_path, change):
    folder = shutil.copytree(KEPT / "attention", tmp_path / "m")
    if change == "deep":
        (folder / "memory.json").write_text('{"a":' * 100_000 + "1" + "}" * 100_000)
    elif change == "huge":
        with (folder / "memory.json").open("wb") as file:
            file.truncate(2**28 + 1)
    elif change == "path":
        record = json.loads((folder / "memory.json").read_text(encoding="utf-8"))
        resign(folder, sha256=record["sha256"])
        record["sha256"]["../places.csv"] = "0" * 64
        (folder / "memory.json").write_text(json.dumps(record))
    else:
        (folder / "weights.safetensors").write_bytes(b"")
        resign(folder)
    code, found = checker.check(folder)
    assert code in (1, 2) and not found["certified"]


def other_values(value: Any) -> list[Any]:
    """What a hand could write in place of a value of a layout."""
    if isinstance(value, dict):
        return [{**value, k: other} for k, v in value.items() for other in other_values(v)]
    if isinstance(value, list):
        return [[other, *value[1:]] for other in other_values(value[0])]
    if isinstance(value, str) and value.startswith("0x"):
        n = int(value, 16)
        return [hex(n + 1), hex(n // 2), hex(n << 70), "-0x1", None]
    if isinstance(value, bool) or value is None:
        return [not value, hex(1 << 40)]
    return [value + 1, 0] if isinstance(value, int) else ["interp", "product"]


def test_a_layout_by_hand_proves_nothing_that_the_weights_do_not(tmp_path):
    """The layout in network.bin helps byheart to read fast, and means nothing to the checker: a
    wrong one is refused, or what is recalled fast is what the blocks say."""
    source = KEPT / "sqrt"
    network, layout = exact_files.load_network((source / "network.bin").read_bytes())
    said = Counter()
    for i, change in enumerate(other_values(dict(layout or {}))[::2]):
        folder = shutil.copytree(source, tmp_path / f"{i}")
        (folder / "network.bin").write_bytes(exact_files.dump_network(network, change))
        resign(folder)
        code, found = checker.check(folder)
        assert code == 0, found
        try:
            memory = bh.load(folder)
        except ByheartError:
            assert verdict(folder) == "not"
            said["refused"] += 1
            continue
        assert verdict(folder) == "proved" and memory.facts is not None
        assert bool((memory.margins() > 0).all())
        said["proved"] += 1
    assert said["refused"] > 10 and said["proved"] > 2


# The command.


def test_the_command_shows_it(tmp_path):
    command = [sys.executable, "-m", "byheart", "certify"]
    run = lambda *a: subprocess.run([*command, *map(str, a)], capture_output=True, text=True)  # noqa: E731
    done = run(KEPT / "attention", "--independent")
    assert done.returncode == 0 and "24 of 24" in done.stdout
    done = run(KEPT / "distribution", "--independent", "--json")
    assert done.returncode == 2 and "not covered" in json.loads(done.stdout)["problem"]


# Many folders.


def mutate(folder: Path, rng: random.Random) -> str:
    """One change, signed again so that no hash gives it away."""
    record = json.loads((folder / "memory.json").read_text(encoding="utf-8"))
    exact = record["family"] == "sqrt"
    kinds = ["nothing", "answer", "spec", "spec", "stale", "token"]
    kinds += [] if exact else ["bit", "bit", "bit", "zero", "order"]
    kind = rng.choice(kinds)
    changes: dict[str, Any] = {}
    if kind in ("answer", "token"):
        facts = load_file(folder / "facts.safetensors")
        array = facts["answers" if kind == "answer" else "tokens"]
        at = tuple(rng.randrange(n) for n in array.shape)
        array[at] = rng.randrange(record["facts"]["vocabulary"])
        save_file(facts, folder / "facts.safetensors")
    elif kind == "spec":
        name = rng.choice(sorted(record["spec"]))
        value = record["spec"][name]
        if isinstance(value, bool):
            value = not value
        elif isinstance(value, (int, float)):
            value = rng.choice([value + 1, value * 2, value // 2, -value])
        else:
            words = ["input", "attention", "none", "query", "key", "gelu", "relu", "odd"]
            value = rng.choice(words)
        # A word about how the integers were made; a scale of 0 says that it is the usual one.
        if name == "ff1" or (name, value) == ("s2", 0):
            value = record["spec"][name]
        changes["spec"] = {name: value}
    elif kind == "order" and len(record["order"] or [0]) > 1:
        changes["order"] = record["order"][::-1]
    elif kind in ("bit", "zero"):
        files = [f for f in record["sha256"] if f not in ("facts.safetensors", "network.bin")]
        file = folder / rng.choice(sorted(files))
        arrays = load_file(file)
        name = rng.choice(sorted(arrays.keys() - {"shard_sha256"}))
        flat = arrays[name].reshape(-1)
        if kind == "zero":
            flat[: max(1, len(flat) // 4)] = 0
        else:
            raw = flat[(i := rng.randrange(len(flat))) : i + 1].view(np.uint8)
            raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        save_file(arrays, file)
    if kind == "stale":
        with (folder / "facts.safetensors").open("ab") as file:
            file.write(b" ")
    else:
        resign(folder, **changes)
    return kind


def disagreement(source: Path, target: Path, rng: random.Random) -> str | None:
    """How checker and certificate differ about a copy of `source` with one change, if they do;
    one may prove what the other leaves undecided."""
    shutil.copytree(source, target)
    kind = mutate(target, rng)
    said, (code, found) = verdict(target), checker.check(target)
    shutil.rmtree(target)
    if "undecided" in (said, "undecided" if found.get("undecided") else ""):
        return None
    return None if (said == "proved") == (code == 0) else f"{source.name}, {kind}: {said}, {found}"


def test_a_few_changed_folders_are_judged_alike(tmp_path):
    rng = random.Random(5)
    sources = [KEPT / name for name in COVERED] * 2
    found = [disagreement(s, tmp_path / f"{i}", rng) for i, s in enumerate(sources)]
    assert [text for text in found if text] == []


@pytest.mark.slow
def test_many_changed_folders_are_judged_alike(tmp_path, built):
    rng = random.Random(7)
    sources = [KEPT / name for name in COVERED] + [built(name) for name in BUILT]
    sources = (sources * 20)[:500]
    found = [disagreement(s, tmp_path / f"{i}", rng) for i, s in enumerate(sources)]
    assert [text for text in found if text] == []
