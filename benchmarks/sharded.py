"""The sharded memory: scale, real tables, and side by side with one dense layer."""

from __future__ import annotations

import csv
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import byheart as bh
from byheart.models.sharded_memory import ShardedMemory
from byheart.specs import ShardedSpec

Row = dict[str, Any]


def through_all_heads(memory: ShardedMemory, facts: bh.Facts, sample: int) -> float:
    """Share of a random sample that the literal layer, all heads, float32, recalls."""
    dense = memory.to_dense()
    chosen = np.random.default_rng(0).choice(facts.T, min(sample, facts.T), replace=False)
    tokens = memory.with_start(facts.tokens[chosen])
    right = torch.from_numpy(facts.answers[chosen].copy())
    hits = 0
    for i in range(0, len(tokens), 10):
        logits = dense.outputs(tokens[i : i + 10])
        hits += int((logits.argmax(1) == right[i : i + 10]).sum())
    return hits / len(tokens)


def stored_numbers(spec: ShardedSpec) -> int:
    """Distinct numbers: tied heads count once, gates are k + 1 integers a group."""
    drawn = 2 * spec.d_g + spec.d_g * spec.d_h
    per_head = spec.d_h * (spec.d_g + spec.check)
    heads = spec.H if spec.untied else -(-spec.H // spec.shards)
    tokens = spec.N * (2 * spec.d_g + 1 + spec.bits)
    cancel = 2 * spec.d_g * (spec.d_g + spec.check) if spec.cancelling_heads else 0
    return spec.H * per_head + heads * drawn + tokens + spec.groups * (spec.k + 2) + cancel


def nonzero(spec: ShardedSpec) -> int:
    """Parameters of the literal layer that are not zero by construction."""
    head = 2 * spec.d_g + spec.k + 3 + 2 * spec.d_g * spec.d_h
    return spec.H * head + spec.N * (2 * spec.d_g + spec.k + 2) + spec.S * spec.d_g


def one_scale(T: int, N: int, sample: int) -> Row:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "facts.csv"
        bh.random_associations(N=N, S=2, T=T).write(path)
        started = time.perf_counter()
        facts = bh.read_facts(path)
        read = time.perf_counter() - started
        memory = bh.build(facts, "sharded")
        memory.save(Path(place) / "memory")
        started = time.perf_counter()
        lazy = bh.load(Path(place) / "memory", lazy=True)
        first = lazy.recall(*facts.key(T // 2)).answer == facts.answer(T // 2)
        opened = time.perf_counter() - started
        assert first
    peak = _peak()
    spec = memory.spec
    assert isinstance(spec, ShardedSpec)
    proof = bh.certify(memory)
    assert proof.certified
    tokens = memory.with_start(facts.tokens[: min(T, 10_000)])
    return {
        "facts": T,
        "d, H, shards": f"{spec.d}, {spec.H}, {spec.shards}",
        "read s": read,
        "build s": memory.construction.seconds,
        "peak GB (read+build)": peak,
        "certify s": proof.seconds,
        "proved as it runs": proof.evaluation and proof.evaluation.proved,
        "condition": memory.construction.to_json()["condition"],
        "margin": proof.margin,
        "error bound": proof.error_bound,
        "parameters/fact": spec.parameters / T,
        "nonzero/fact": nonzero(spec) / T,
        "distinct/fact": stored_numbers(spec) / T,
        "open + 1 recall s": opened,
        "recalls/s single": 1 / _seconds(lambda: memory.answers(tokens[:1]), 30),
        "recalls/s batched": len(tokens) / _seconds(lambda: memory.answers(tokens), 2),
        "own heads, all": memory.construction.recalled / T,
        f"all heads, {min(sample, T)}": through_all_heads(memory, facts, sample),
    }


def _peak() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _seconds(action: Callable[[], object], times: int) -> float:
    action()
    started = time.perf_counter()
    for _ in range(times):
        action()
    return (time.perf_counter() - started) / times


SCALES = ((10**3, 1000, 1000), (10**4, 1000, 1000), (10**5, 10_000, 300), (10**6, 50_000, 50))


def airport_rows() -> Iterable[tuple[str, str, str]]:
    import airportsdata

    for code, airport in sorted(airportsdata.load().items()):
        for relation in ("name", "city", "country", "tz"):
            yield code, relation, airport[relation] or "(none)"


def unicode_rows() -> Iterable[tuple[str, str, str]]:
    for point in range(sys.maxunicode + 1):
        name = unicodedata.name(chr(point), "")
        if name:
            yield f"U+{point:04X}", "name", name


def zipf_rows(both: bool, T: int = 100_000, N: int = 20_000) -> Iterable[tuple[str, str, str]]:
    """The last token, or both, with frequency 1/rank: no column without hot tokens if both."""
    rng = np.random.default_rng(0)
    prior = 1 / np.arange(1, N + 1)
    prior /= prior.sum()
    last = rng.choice(N, T, p=prior)
    first = rng.choice(N, T, p=prior) if both else rng.integers(0, N, T)
    keys = np.unique(np.stack([first, last], 1), axis=0)
    for (a, b), answer in zip(
        keys.tolist(), rng.integers(0, 1000, len(keys)).tolist(), strict=True
    ):
        yield f"a{a}", f"b{b}", f"c{answer}"


def relation_rows(R: int, T: int = 10_000) -> Iterable[tuple[str, str, str]]:
    rng = np.random.default_rng(R)
    for i in range(T):
        yield f"s{i // R}", f"r{i % R}", f"c{rng.integers(1000)}"


TABLES: dict[str, Callable[[], Iterable[tuple[str, str, str]]]] = {
    "airports x 4 relations": airport_rows,
    "Unicode names": unicode_rows,
    "Zipf last token": lambda: zipf_rows(both=False),
    "Zipf both tokens": lambda: zipf_rows(both=True),
    "1 relation": lambda: relation_rows(1),
    "2 relations": lambda: relation_rows(2),
    "10 relations": lambda: relation_rows(10),
    "50 relations": lambda: relation_rows(50),
}


def one_table(name: str) -> Row:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "facts.csv"
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(("subject", "relation", "answer"))
            writer.writerows(TABLES[name]())
        started = time.perf_counter()
        facts = bh.read_facts(path)
        memory = bh.build(facts, "sharded")
        proof = bh.certify(memory)
        total = time.perf_counter() - started
    assert proof.certified
    made, spec = memory.construction, memory.spec
    assert isinstance(spec, ShardedSpec)
    return {
        "table": name,
        "facts": facts.T,
        "answers": len(facts.answer_ids),
        "planner": "; ".join(made.why),
        "shards": spec.shards,
        "build s": made.seconds,
        "certify s": proof.seconds,
        "proved as it runs": proof.evaluation and proof.evaluation.proved,
        "total s": total,
        "recalled": made.recalled,
        "condition": made.to_json()["condition"],
        "margin": proof.margin,
        "error bound": proof.error_bound,
    }


def one_side(T: int, method: str) -> Row:
    facts = bh.random_associations(N=200, S=2, T=T)
    memory = bh.build(facts, method)
    made = memory.construction
    proof = bh.certify(memory)
    assert proof.certified
    return {
        "facts": T,
        "method": method,
        "build s": made.seconds,
        "certify s": proof.seconds,
        "proved as it runs": proof.evaluation and proof.evaluation.proved,
        "condition": made.to_json()["condition"],
        "margin": proof.margin,
        "parameters/fact": memory.spec.parameters / T,
    }


def gate_table(subjects: int, relations: int, each: int, length: int) -> bh.Facts:
    """`each` of `relations` for every subject; keys (subject, [middle,] relation)."""
    rng = np.random.default_rng(0)
    subject = np.repeat(np.arange(subjects), each)
    relation = np.concatenate([rng.permutation(relations)[:each] for _ in range(subjects)])
    columns = [subject, subjects + relation]
    if length == 3:
        columns.insert(1, subjects + relations + rng.integers(0, 1000, len(subject)))
    tokens = np.stack(columns, axis=1)
    first_answer = int(tokens.max()) + 1
    vocabulary = bh.Vocabulary(tuple(map(str, range(first_answer + 1000))))
    answers = first_answer + rng.integers(0, 1000, len(subject))
    return bh.Facts.make(tokens, answers, vocabulary, name="gates")


GATE_TABLES = {
    "10,000 = 1,000 x 10 relations": (1000, 10, 10, 2),
    "10,000 x 1 relation": (10_000, 1, 1, 2),
    "10,000 = 200 x 50 relations": (200, 50, 50, 2),
    "100,000 = 20,000 x 5 of 50": (20_000, 50, 5, 2),
    "100,000, keys of three": (20_000, 50, 5, 3),
    "1,500 = 300 x 5 of 50": (300, 50, 5, 2),
}
GATES: list[tuple[str, dict[str, Any]]] = [
    *((name, {"gate": gate}) for name in list(GATE_TABLES)[:4] for gate in ("query", "key")),
    *((name, {"gate": "subject-sink"}) for name in list(GATE_TABLES)[:5]),
    ("100,000, keys of three", {"gate": "query"}),
    ("100,000 = 20,000 x 5 of 50", {"untied": True}),
    ("100,000 = 20,000 x 5 of 50", {"shard_size": 100}),
    ("100,000 = 20,000 x 5 of 50", {"shard_size": 1000}),
    ("1,500 = 300 x 5 of 50", {"gate": "subject-sink", "untied": True, "shard_size": 20}),
]
GATES.sort(key=lambda case: list(GATE_TABLES).index(case[0]))


def one_gate(name: str, options: dict[str, Any]) -> Row:
    """One gate: cost, and how far the literal layer is from exact own heads on 100 facts."""
    torch.set_num_threads(1)
    facts = gate_table(*GATE_TABLES[name])
    memory = bh.build(facts, "sharded", **options)
    proof = bh.certify(memory)
    assert proof.certified
    spec = memory.spec
    assert isinstance(spec, ShardedSpec)
    chosen = np.random.default_rng(0).choice(facts.T, 100, replace=False)
    tokens = memory.with_start(facts.tokens[chosen])
    own, literal = memory.outputs(tokens, torch.float64), memory.to_dense()
    off = {}
    for dtype in (torch.float64, torch.float32):
        parts = [literal.outputs(tokens[i : i + 10], dtype).double() for i in range(0, 100, 10)]
        off[dtype] = float((torch.cat(parts) - own).abs().max())
    return {
        "facts": name,
        "options": ", ".join(f"{k}={v}" for k, v in options.items()),
        "build s": memory.construction.seconds,
        "certify s": proof.seconds,
        "proved as it runs": proof.evaluation and proof.evaluation.proved,
        "condition": memory.construction.to_json()["condition"],
        "λ": int(spec.lam),
        "d, d_h, H": f"{spec.d}, {spec.d_h}, {spec.H}",
        "margin": proof.margin,
        "full, float64": off[torch.float64],
        "full, float32": off[torch.float32],
    }
