"""`bh.bounds` and `bh.size`: answers for every spec, results that print themselves, plug-ins."""

import dataclasses
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest

import byheart as bh
from byheart import _plugins
from byheart.errors import ByheartError
from byheart.specs import AttentionOnlySpec, DeepMultiHeadSpec, MLPTransformerSpec, MultiHeadSpec
from byheart.theory import (
    BOUNDS,
    CANDIDATES,
    Bound,
    Capacity,
    Claim,
    Statement,
    architecture,
    registry,
)
from byheart.theory.bound import Exactness, Kind, statements

SPEC = AttentionOnlySpec(N=50, S=2, d=10, d_h=10, H=20)
MINE = Bound(
    "mine.rule",
    Statement("two", "Two facts a head.", "T = 2 H", "an example"),
    Claim("lower bound", "exact count"),
    reads=("H",),
    capacity=Capacity(lambda case: 2 * case["H"]),
)


@pytest.mark.parametrize("facts", [None, 5])
def test_every_spec_gets_a_number_or_a_reason_from_every_theorem(spec, facts):
    answers = bh.bounds(spec, facts)
    assert [a.id for a in answers] == [bound.id for bound in BOUNDS]
    for answer in answers:
        assert (answer.capacity is not None) == (answer.applies is True) == (not answer.reason)
    assert any(answer.applies for answer in answers)


def test_so_does_a_spec_of_another_package(LookUp):
    assert {a.id for a in bh.bounds(LookUp(N=7), 5) if a.applies} >= {"related.information"}


def test_the_bits_of_an_exact_memory_are_those_of_its_integers(every_spec):
    """W (max_bits + 1) / log2 A: a limit of 32 bits would forbid what the network holds."""
    exact = next(spec for spec in every_spec if spec.family == "sqrt")
    rows = {a.id: a for a in bh.bounds(exact)}
    assert rows["related.information"].capacity == int(200 * 31 / 1.584962500721156)
    assert rows["kajitsuka2025.theorem41"].reason == "needs width >= 14: 3 < 14"
    assert "bits" in rows["related.information"].note
    asked = {a.id: a for a in bh.bounds(exact, bits=32)}
    assert asked["related.information"].capacity == int(200 * 32 / 1.584962500721156)


def test_a_limit_of_one_layer_is_none_of_several():
    one = MultiHeadSpec(d=16, n=8, d_h=16, H=4)
    deep = DeepMultiHeadSpec(d=16, n=8, d_h=16, H=4, layers=2)
    limit = "mahdavi2024.effective_parameters"
    assert {a.id: a for a in bh.bounds(one)}[limit].applies is True
    assert {a.id: a for a in bh.bounds(deep)}[limit].reason == "counts one layer: this one has 2"
    tokens = MLPTransformerSpec(N=50, S=8, d=16, d_h=16, H=4, w=8)  # embeddings are trained too
    assert "given vectors" in {a.id: a for a in bh.bounds(tokens)}[limit].reason


def test_another_package_says_what_theorems_read_from_its_spec(LookUp):
    @dataclasses.dataclass(frozen=True)
    class Wide(LookUp):
        H: int = 3

    assert architecture(Wide(N=7)).H == 3
    architecture.register(Wide)(lambda spec: dataclasses.replace(architecture(LookUp(spec.N)), H=9))
    assert architecture(Wide(N=7)).H == 9


@pytest.mark.parametrize("rows", [bh.bounds(SPEC), bh.size(T=1000, N=50, S=2)])
def test_results_print_themselves_in_under_ten_lines(rows):
    assert len(repr(rows).splitlines()) < 10
    assert rows.rows == tuple(rows) and rows[0] == next(iter(rows))
    page = rows._repr_html_()
    assert page.count("<tr>") == len(rows.chosen()) + 1 and page.count("<table>") == 1


def test_results_say_what_matters():
    text = repr(bh.bounds(SPEC))
    assert "theorems apply" in text and ">= 210 facts" in text
    assert "Fewest parameters for 1,000 facts" in repr(bh.size(T=1000, N=50, S=2))


def test_the_guide_prints_what_python_prints():
    guide = (Path(__file__).parents[2] / "docs" / "bounds.md").read_text(encoding="utf-8")
    assert f"H=20))\n{bh.bounds(SPEC)!r}\n" in guide


def test_results_become_a_data_frame(monkeypatch):
    pandas = pytest.importorskip("pandas")
    frame = bh.bounds(SPEC).to_pandas()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == len(BOUNDS)
    assert list(bh.size(T=9, N=9, S=1).to_pandas()["T"]) == [9] * len(CANDIDATES)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ByheartError, match=r"pip install .*\[pandas\]"):
        bh.bounds(SPEC).to_pandas()


@pytest.fixture
def install(monkeypatch):
    """Make the registry see an entry point `mine` that names this value."""

    def one(value: object, name: str = "mine") -> None:
        monkeypatch.setitem(sys.modules, "my_bounds", SimpleNamespace(VALUE=value))
        point = metadata.EntryPoint(name, "my_bounds:VALUE", "byheart.bounds")
        monkeypatch.setattr(_plugins, "points", lambda group: [point])
        clear()

    def clear() -> None:
        _plugins.plugins.cache_clear()
        registry.all_bounds.cache_clear()

    yield one
    clear()


@pytest.mark.parametrize("value", [MINE, (MINE,), [MINE]])
def test_a_package_adds_bounds(install, value):
    install(value)
    assert bh.bounds(SPEC)[-1].capacity == 40
    assert registry.find("mine.rule") is MINE


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (dataclasses.replace(MINE, id="dana2025.corollary1"),
         "called 'dana2025.corollary1': one of byheart, one of a package .mine = my_bounds:VALUE"),
        ((MINE, MINE), "two bounds are called 'mine.rule': one of a package .mine"),
        (3, "must name a Bound or a sequence of them, found int"),
        ([3, MINE], "must name a Bound or a sequence"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_package_is_named_and_left_out(install, value, message):
    install(value)
    with pytest.warns(_plugins.PluginWarning, match=message):
        ids = [answer.id for answer in bh.bounds(SPEC)]
    assert ids[: len(BOUNDS)] == [bound.id for bound in BOUNDS]
    assert ids[len(BOUNDS) :] == (["mine.rule"] if isinstance(value, Sequence) else [])


def test_statements_are_those_of_the_bounds_and_use_known_words():
    assert list(statements()) == [bound.id for bound in BOUNDS]
    for bound in BOUNDS:
        assert bound.claim.kind in get_args(Kind)
        assert bound.claim.exactness in get_args(Exactness)
