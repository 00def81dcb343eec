"""The numbers in docs/bounds.md are those that byheart gives."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from oracles.attention_features import random_features

import byheart as bh
from byheart.papers.registry import find
from byheart.specs import AssociativeSpec, AttentionOnlySpec, MultiHeadSpec
from byheart.studies.recorded import recorded, recorded_rows
from byheart.theory.candidates import crossings, facts_case
from byheart.theory.dana2025_support import on_circle, smoothed, theorem3_constant
from byheart.theory.huggingface import parse_config, read_config
from byheart.theory.related import associative_capacity, facts_in_bits
from byheart.theory.summary import spoken

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "bounds.md").read_text(encoding="utf-8")
CONFIGS = Path(__file__).parent / "configs"


def table(first: str) -> list[list[str]]:
    """The rows of the table whose header starts with `first`."""
    lines = GUIDE.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


FAMILIES = ("trained", "associative", "attention-64", "rank1-64", "sharded", "attention-2",
            "multi-head", "multi-head-64", "sqrt", "sqrt-sparse", "information")  # fmt: skip


SMALL = AttentionOnlySpec(N=10, S=6, d=4, d_h=4, H=2)
GPT2 = AttentionOnlySpec(N=50257, S=1024, d=768, d_h=64, H=12)
MATRIX = AssociativeSpec(N=124, S=2, d=32)
COROLLARY, COUNTING, TOKENS = "dana2025.corollary1", "related.information", "limits.softmax_tokens"
# A line of the table: the spec, and the bounds that its columns show.
EXCEEDED = [
    (AttentionOnlySpec(N=50, S=2, d=10, d_h=10, H=21), COROLLARY, COUNTING, TOKENS),
    (MultiHeadSpec(d=16, n=8, d_h=4, H=4, shared=True), "mahdavi2024.theorem1", None,
     "mahdavi2024.effective_parameters_shared"),
    (MATRIX, "dana2025.associative", None, "limits.associative"),
    (SMALL, COROLLARY, COUNTING, TOKENS),
    (replace(SMALL, attention="hardmax"), None, COUNTING, "limits.hardmax"),
    (GPT2, COROLLARY, COUNTING, TOKENS),
    (replace(GPT2, attention="hardmax"), None, COUNTING, "limits.hardmax"),
]  # fmt: skip


def test_the_table_of_what_is_built_and_what_no_model_exceeds():
    lines = table("layer")
    for (spec, *bounds), (_, parameters, built, _, *limits) in zip(EXCEEDED, lines, strict=True):
        rows = {answer.id: answer.capacity for answer in bh.bounds(spec) if answer.applies}
        assert parameters == f"{MATRIX.d**2 if spec is MATRIX else spec.parameters:,}"
        for bound, cell in zip(bounds, (built, *limits), strict=True):
            if bound is None:
                continue
            if cell.endswith(": all keys"):
                assert rows[bound] >= spec.N**spec.S and cell == f"{spec.N**spec.S:,}: all keys"
            else:
                assert cell == f"{rows[bound]:,}", (spec, bound)
        assert bounds[0] is not None or COROLLARY not in rows
    assert lines[2][4] == f"{facts_in_bits(32 * MATRIX.d**2, MATRIX.N):,}"


def test_the_trained_column_is_that_of_the_recorded_rows():
    """A mean of five seeds in experiment 1, and the largest T that all three seeds fitted."""
    lines = table("layer")
    (study,) = find("dana2025/fig1a")
    rows = recorded_rows(study, "paper", variant="as-coded")
    found = [row["associations"] for row in rows if (row["d"], row["H"]) == (10, 21)]
    assert len(found) == 5
    assert lines[0][3] == f"{sum(found) / 5:,.0f}"
    at = {"H": 4, "n": 8, "d": 16, "d_h": 4, "context": "shared"}
    fitted: dict[int, list[bool]] = {}
    for row in recorded("mahdavi2024"):
        if row.params.items() >= at.items() and "fitted" in row.measurements:
            fitted.setdefault(row.measurements["T"], []).append(row.measurements["fitted"])
    assert lines[1][3] == f"{max(T for T, seeds in fitted.items() if all(seeds)):,}"
    assert lines[2][3] == f"{associative_capacity(MATRIX.d) * 3 // 2}"  # as that test trains it


@pytest.mark.parametrize("line", range(6))
def test_the_table_of_the_constant_of_theorem3(line):
    """Medians to 2 %: the systems are so badly conditioned that machines differ in the rest."""
    kind, sizes, m, eps, measured, bound = table("encoders")[line]
    d, H = map(int, sizes.split(", "))
    found = []
    for seed in range(10):
        answers = np.random.default_rng(seed).integers(8, size=64)
        pi = np.eye(8)[answers]
        family = on_circle(answers, 8) if kind == "circle" else smoothed(pi)
        found.append(theorem3_constant(pi, random_features(8, d, H, seed), family, float(eps)))
    assert int(m) == (H + 1) * d
    median = np.median([one.measured for one in found])
    assert float(measured.split(" (")[0]) == pytest.approx(median, rel=0.02)
    assert float(bound) == pytest.approx(np.median([one.bound for one in found]), rel=0.02)


@pytest.mark.parametrize("power", range(2, 10))
def test_the_size_table(power):
    sizes = {row.family: row.parameters for row in bh.size(T=10**power, N=50_000, S=2)}
    for family, row in zip(FAMILIES, table("facts"), strict=True):
        assert float(row[power - 1]) == float(f"{sizes[family]:.2g}"), (family, power)


def test_the_crossings():
    found = crossings(facts_case(None, 10**9, 50_000, 2), 100, 10**9)
    at = {(c.winner, c.loser): c.T for c in found}
    for pair, words in (
        (("attention-2", "multi-head"), "attention-only d = 2 against multi-head: {:,} facts"),
        (("sqrt", "multi-head"), "sqrt(T) as published against multi-head: {:,};"),
        (("sqrt", "attention-2"), "against attention-only d = 2: {:,};"),
        (("sqrt-sparse", "information"), "information limit at {:,} facts"),
        (("sharded", "sqrt"), "above it from {:,} to"),
    ):
        assert words.format(at[pair]) in GUIDE
    assert f"to {at['sqrt', 'sharded'] - 1:,} facts" in GUIDE
    bits = bh.size(T=at["sqrt-sparse", "information"], N=50_000, S=2, families=["sqrt-sparse"])
    assert f"weights have up to {bits[0].bits} bits" in GUIDE


REAL = json.loads((CONFIGS / "real_models.json").read_text())


def test_the_table_of_families():
    lines = {cells[0]: cells for cells in table("published model")}
    assert set(lines) == set(REAL)
    for name, (_, kind, parameters, trained) in lines.items():
        config = REAL[name]["config"]
        rows = {answer.id: answer for answer in bh.bounds(parse_config(config))}
        laws = [rows[f"empirical.{law}_capacity"].capacity for law in ("knowledge", "memorization")]
        assert kind == config["model_type"] and parameters == f"{REAL[name]['parameters']:,}"
        words = " to ".join(spoken(law) for law in laws if law is not None)
        assert trained == (words or "no: reads vectors")


@pytest.mark.parametrize(
    ("name", "line"),
    [("gpt2", 0), ("gpt2-large", 1), ("bert-large", 2), ("vit-b-16", 3), ("smollm2-135m", 4)],
)
def test_the_table_of_real_models(name, line):
    spec = read_config(CONFIGS / f"{name}.json")
    rows = {answer.id: answer for answer in bh.bounds(spec)}
    cells = table("model")[line]
    assert cells[1] == f"{spec.parameters:,}"
    columns = ("dana2025.corollary1", "mahdavi2024.theorem1", "mahdavi2024.generic_rank")
    for cell, bound in zip(cells[2:5], columns, strict=True):
        capacity = rows[bound].capacity
        assert cell == f"{capacity:,}" if capacity is not None else cell.startswith("no: ")
    known = rows["empirical.knowledge_capacity"].capacity
    assert re.match(f"{known / 1e6:.1f} million" if known else "no: ", cells[5])
