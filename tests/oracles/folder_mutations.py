"""Folders of kept memories, changed at random by someone who recomputes every hash."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import torch
from safetensors import SafetensorError

from byheart.certificates import Certificate, certify, certify_folder
from byheart.certificates.statement import DistributionCertificate
from byheart.errors import ByheartError
from byheart.exact.files import HEAD, TAIL
from byheart.models import Memory
from byheart.models.exact_memory import ExactMemory
from byheart.models.memory_files import _digest, inspect
from byheart.models.token_memory import DistributionMemory, TokenMemory
from byheart.models.vector_memory import VectorMemory
from byheart.specs import AttentionOnlySpec

KEPT = Path(__file__).parents[1] / "kept"
FAMILIES = (
    "associative", "attention", "attention-boundary", "distribution", "multihead-classes",
    "multihead-numbers", "sharded", "sharded-abstain", "sqrt", "trained-as-coded",
    "trained-attention", "trained-mlp", "trained-two-layers",
)  # fmt: skip
MEMORY = "memory.json"
HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 31, 33, 255, 10**6, 2**31, 2**62, 2**63, -(2**63)),
    *(10**30, 0.5, -0.0, 1e-300, 1e300, -1e9, "", "x", "query", "key", "\x00", "../x", "/dev/zero"),
    *([], {}, [[]], [0], ["a", "a"], {"a": 1}, float("nan"), float("inf")),
)
NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.0**-149, 2.0**60, 1e30, -3e38, float("inf"), float("nan"))

Change = Callable[[random.Random, Path], None]


def data_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix in (".safetensors", ".bin"))


def flip_bits(rng: random.Random, folder: Path) -> None:
    file = rng.choice(sorted(folder.iterdir()))
    data = bytearray(file.read_bytes())
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


def overwrite(rng: random.Random, folder: Path) -> None:
    file = rng.choice(data_files(folder))
    data = bytearray(file.read_bytes())
    at, size = rng.randrange(len(data)), rng.choice((1, 4, 8, 64))
    filler = rng.choice((b"\0", b"\xff", rng.randbytes(1), b"\x7f\x80"))
    data[at : at + size] = (filler * size)[: len(data[at : at + size])]
    file.write_bytes(data)


def change_length(rng: random.Random, folder: Path) -> None:
    file = rng.choice(sorted(folder.iterdir()))
    data = file.read_bytes()
    cut = data[: rng.randrange(len(data))]
    longer = data + rng.choice((b"\0", b"}", rng.randbytes(100), data))
    file.write_bytes(rng.choice((cut, longer)))


def change_json(rng: random.Random, folder: Path) -> None:
    file = folder / rng.choice((MEMORY, MEMORY, MEMORY, "certificate.json"))
    record = json.loads(file.read_text())
    for _ in range(rng.choice((1, 1, 2, 3))):
        mutate_value(rng, record)
    file.write_text(json.dumps(record))


def mutate_value(rng: random.Random, value: Any) -> None:
    """Another value, or none, somewhere in a JSON object."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = rng.choice(keys)
        if not isinstance(value[key], (dict, list)) or not value[key] or rng.random() < 0.15:
            break
        value = value[key]
    kind = rng.random()
    if kind < 0.15:
        del value[key]
    elif kind < 0.3 and type(value[key]) in (int, float):
        value[key] = value[key] * rng.choice((2, -1, 0.5)) + rng.choice((0, 1, -1))
    elif kind < 0.4:
        value[key] = value[rng.choice(keys)]
    else:
        value[key] = rng.choice(HOSTILE)


def swap_files(rng: random.Random, folder: Path) -> None:
    other = KEPT / rng.choice(FAMILIES)
    name = rng.choice(data_files(folder)).name
    source = rng.choice([*data_files(other), *data_files(folder), other / MEMORY])
    shutil.copy(source, folder / "swapped")
    (folder / "swapped").replace(folder / name)


def remove_file(rng: random.Random, folder: Path) -> None:
    rng.choice(sorted(folder.iterdir())).unlink()


def change_tensor(rng: random.Random, folder: Path) -> None:
    """Well-formed files with other numbers: what only a proof can tell."""
    from safetensors.torch import load_file, save_file

    files = [file for file in data_files(folder) if file.suffix == ".safetensors"]
    file = rng.choice(files)
    tensors = load_file(file)
    name = rng.choice(sorted(tensors))
    t = tensors[name].clone()
    flat, kind = t.view(-1), rng.randrange(6)
    at = rng.randrange(len(flat)) if len(flat) else 0
    if kind == 0 and t.is_floating_point():
        flat[at] = rng.choice(NUMBERS)
    elif kind == 1:
        flat[at] = flat[rng.randrange(len(flat))]
    elif kind == 2 and t.is_floating_point():
        flat *= rng.choice((-1.0, 0.0, 1 + 2**-12, 2.0, 2.0**40))
    elif kind == 3:
        t = t[torch.tensor(rng.sample(range(len(t)), len(t)))]
    elif kind == 4 and t.is_floating_point():
        flat[at] *= 1 + 2.0 ** -rng.randrange(1, 24)
    else:
        flat[at] += rng.choice((1, -1, 2, 100))
    tensors[name] = t.contiguous()
    if rng.random() < 0.05:
        tensors[rng.choice(("deciding", "W_X", "bits", "context"))] = torch.zeros(1)
    save_file(tensors, file)


def change_header(rng: random.Random, folder: Path) -> None:
    file = rng.choice([file for file in data_files(folder) if file.suffix == ".safetensors"])
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    mutate_value(rng, header)
    text = json.dumps(header).encode()
    size = rng.choice((len(text), len(text), len(text), 2**40, 2**63, 0))
    file.write_bytes(size.to_bytes(8, "little") + text + data[8 + length :])


def change_network(rng: random.Random, folder: Path) -> None:
    """Another payload of network.bin, sealed again."""
    file = folder / "network.bin"
    if not file.exists():
        change_tensor(rng, folder)
        return
    data = file.read_bytes()
    payload = bytearray(zlib.decompress(data[HEAD:-TAIL]))
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(payload))
        payload[at] = rng.choice((payload[at] ^ (1 << rng.randrange(8)), 0, 127, 255))
    size = rng.choice((len(payload),) * 6 + (2**33, 0))
    body = data[: HEAD - 8] + size.to_bytes(8, "little") + zlib.compress(bytes(payload))
    file.write_bytes(body + hashlib.sha256(body).digest())


CHANGES: tuple[Change, ...] = (
    *(flip_bits, overwrite, change_length, change_json, change_json, swap_files, remove_file),
    *(change_tensor, change_tensor, change_tensor, change_header, change_network),
)


def resign(folder: Path) -> None:
    """Every hash in memory.json recomputed, so that the folder is consistent in itself."""
    try:
        record = json.loads((folder / MEMORY).read_text(encoding="utf-8"))
        sums = record["sha256"]
        for name in sums:
            if (folder / name).is_file() and (folder / name).parent == folder:
                sums[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        record["digest"] = _digest(record)
        (folder / MEMORY).write_text(json.dumps(record), encoding="utf-8")
        loaded = inspect(folder)
        if loaded.damage and loaded.memory.facts is not None:
            record["facts"]["digest"] = loaded.memory.facts.digest()
            if record.get("distribution") and loaded.memory.table is not None:
                record["distribution"]["digest"] = loaded.memory.table.digest()
            record["digest"] = _digest(record)
            (folder / MEMORY).write_text(json.dumps(record), encoding="utf-8")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ByheartError, RecursionError):
        pass  # no description any more, or one that is refused


def outcome(folder: Path) -> str:
    """What becomes of a folder: "refused", "not proved" or "certified"; a certificate is checked
    fact by fact against the literal model. What a user would do with the memory is done, too."""
    try:
        loaded = inspect(folder)
    except ByheartError:
        return "refused"
    use(loaded.memory)
    try:
        made = certify_folder(folder, write=False) if loaded.damage else certify(loaded.memory)
    except ByheartError:
        return "refused"
    if not made.certified:
        return "not proved"
    assert holds(loaded.memory, made), f"a false certificate: {made!r}"
    return "certified"


def use(memory: Memory) -> None:
    """Ask a memory, whatever it is, as its commands do."""
    actions: list[Callable[[], object]] = [
        lambda: memory.describe().text(), memory.margins, memory.weights_sha256
    ]  # fmt: skip
    if memory.example():
        key = memory.key_of(memory.example())
        actions += [partial(ask, *key) for ask in (memory.recall, memory.split, memory.owner)]
    for action in actions:
        with suppress(ByheartError):
            action()


def holds(memory: Memory, made: Certificate) -> bool:
    """Whether a certificate is true, by the literal model in float64, or in 60 digits where that
    is too coarse."""
    table: Any = memory.table
    if isinstance(memory, ExactMemory):
        right = memory.classes(table.answers)
        return bool((memory.literal_outputs(table.tokens) == right).all())
    if isinstance(memory, VectorMemory):
        tolerance = getattr(made, "tolerance", None)
        if tolerance is not None:
            return bool((memory.errors(dtype=torch.float64) <= tolerance * (1 + 1e-9)).all())
        return bool((memory.margins(dtype=torch.float64) > 0).all())
    assert isinstance(memory, TokenMemory)
    if isinstance(made, DistributionCertificate):
        assert isinstance(memory, DistributionMemory)
        q = torch.log_softmax(torch.tensor(memory.answer_logits()), 1).numpy()
        pi, prior = table.probabilities, table.prior
        terms = np.where(pi > 0, pi * (np.log(np.where(pi > 0, pi, 1)) - q), 0).sum(1)
        return made.distribution.kl_lower - 1e-9 <= prior @ terms <= made.distribution.kl + 1e-9
    dense: Any = memory.to_dense()
    tokens = memory.in_order(table.tokens) if dense is not memory else table.tokens
    if dense is not memory:
        dense = TokenMemory(**{**vars(dense), "order": None})
    inputs, right = dense.with_start(tokens), torch.tensor(table.answers)
    logits = dense.outputs(inputs, torch.float64)
    others = logits.scatter(1, right[:, None], -torch.inf).amax(1)
    lead = logits.gather(1, right[:, None])[:, 0] - others
    if bool((lead > 0).all()):
        return True
    return all(exact_lead(dense, inputs[i], int(right[i])) > 0 for i in np.flatnonzero(lead <= 0))


def exact_lead(memory: TokenMemory, key: torch.Tensor, right: int) -> Any:
    """The margin of one fact of an attention-only layer in 60 digits, by its formula."""
    spec = memory.spec
    assert isinstance(spec, AttentionOnlySpec) and spec.layers == 1
    assert spec.positions != "attention" and spec.attention == "softmax"
    with mpmath.workdps(60):
        W = {name: w.double().numpy() for name, w in memory.weights.items()}
        rows = [W["W_E"][int(t)] for t in key]
        x = mpmath.matrix([row.tolist() for row in rows])
        if "W_pos" in W:
            x += mpmath.matrix(W["W_pos"].tolist())
        out = x[x.rows - 1, :] if spec.skip else mpmath.zeros(1, spec.d)
        for h in range(spec.H):
            head = {n: mpmath.matrix(W[n][0, h].tolist()) for n in ("W_Q", "W_K", "W_V", "W_O")}
            scores = (x[x.rows - 1, :] * head["W_Q"]) * (x * head["W_K"]).T
            scale = mpmath.sqrt(spec.qk_rank) if spec.scale else 1
            top = max(scores)
            e = [mpmath.exp((s - top) / scale) for s in scores]
            a = mpmath.matrix([[v / mpmath.fsum(e) for v in e]])
            out += a * x * head["W_V"] * head["W_O"]
        logits = list(out * mpmath.matrix(W["W_U"].tolist()))
        return logits[right] - max(v for i, v in enumerate(logits) if i != right)


NOTHING_LEFT = (  # what a change raises where an earlier one left nothing to change
    *(OSError, ValueError, IndexError, KeyError, RuntimeError),
    *(SafetensorError, zlib.error),
)


def mutated(place: Path, case: int) -> tuple[str, str, Path]:
    """Case number `case`: its family, what was done to it, and the folder."""
    rng = random.Random(case)
    family, changes = rng.choice(FAMILIES), rng.choices(CHANGES, k=rng.choice((1, 1, 1, 2)))
    folder = place / f"case-{case}"
    shutil.copytree(KEPT / family, folder)
    for change in changes:
        with suppress(*NOTHING_LEFT):
            change(rng, folder)
    resign(folder)
    return family, " + ".join(change.__name__ for change in changes), folder
