"""The contract of memories: every family keeps it, and every broken clause is caught."""

import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import byheart as bh
from byheart.certificates import prove
from byheart.certificates.contract import CLAUSES, LINES, ContractBroken
from byheart.errors import ByheartError, FactsError
from byheart.models import ShardedMemory, TokenMemory
from byheart.models.description import Part
from byheart.models.memory_files import FAMILIES

KEPT = Path(__file__).parent / "kept"
Make = Callable[[], bh.Memory]
FACTS = bh.random_associations(N=12, S=2, T=40, seed=1)
ONE_TOKEN = bh.random_associations(N=12, S=1, T=9, seed=1)
RELATIONS = bh.as_facts(
    {(f"s{i}", f"r{j}"): f"a{(3 * i + j) % 7}" for i in range(10) for j in range(4)}
)
SETS = bh.as_facts({("a", "b"): "x", ("a", "c"): "y", ("b", "c"): "x", ("d", "a"): "z"})
PADDED = bh.as_facts({("a", "b"): "x", ("c",): "y", ("b", "c"): "z"}, pad=True)


def vectors(**options: Any) -> bh.VectorFacts:
    return bh.random_vectors(T=16, n=4, d=6, **options)


def trained(model: str, layers: int) -> bh.Memory:
    facts = bh.random_associations(N=8, S=2, T=16, seed=1)
    return bh.build(facts, "train", model=model, d=6, H=3, layers=layers, steps=60, seeds=2)


def imported(tmp_path: Path) -> bh.Memory:
    bh.export(bh.build(FACTS), tmp_path / "torch", to="torch")
    return bh.import_memory(tmp_path / "torch")


MEMORIES: dict[str, Make] = {
    "attention": lambda: bh.build(FACTS),
    "attention, float64": lambda: bh.build(FACTS, dtype="float64"),
    "attention, badly conditioned": lambda: bh.build(
        bh.random_associations(N=50, S=2, T=40, seed=0), d=40, d_h=40, H=1, dtype="float64"
    ),
    "attention, start token": lambda: bh.build(ONE_TOKEN),
    "attention, padded": lambda: bh.build(PADDED),
    "attention, one fact": lambda: bh.build({("a", "b"): "c"}),
    "attention, convex": lambda: bh.build(FACTS, readout="convex"),
    "sharded, query": lambda: bh.build(FACTS, "sharded", shard_size=10),
    "sharded, key": lambda: bh.build(FACTS, "sharded", gate="key", shard_size=10),
    "sharded, subject-sink": lambda: bh.build(
        RELATIONS, "sharded", gate="subject-sink", shard_size=10
    ),
    "sharded, untied": lambda: bh.build(FACTS, "sharded", untied=True, shard_size=10),
    "sharded, abstain": lambda: bh.build(FACTS, "sharded", abstain=True),
    "sharded, written out": lambda: bh.build(FACTS, "sharded", shard_size=10).to_dense(),
    "associative": lambda: bh.build(FACTS, "associative"),
    "sqrt, ordered": lambda: bh.build(FACTS, "sqrt"),
    "sqrt, register": lambda: bh.build(FACTS, "sqrt", register=True),
    "sqrt, unordered": lambda: bh.build(SETS, "sqrt", ordered=False),
    "multihead, numbers": lambda: bh.build(vectors()),
    "multihead, two outputs": lambda: bh.build(vectors(outputs=2), proof="random"),
    "multihead, classes": lambda: bh.build(vectors(classes=4)),
    "multihead, own contexts": lambda: bh.build(vectors(context="random")),
    "multihead, own contexts, classes": lambda: bh.build(vectors(context="random", classes=4)),
    "distribution": lambda: bh.build(bh.random_distributions("gauss", N=5, seed=1)),
    "distribution, narrow": lambda: bh.build(bh.random_distributions("gauss", N=5, seed=1), d=2),
    **{
        f"trained {model}, {layers} layers": lambda model=model, layers=layers: trained(
            model, layers
        )
        for model in ("attention", "mlp", "as-coded")
        for layers in (1, 2)
    },
    **{
        f"kept {path.parent.name}": lambda path=path: bh.load(path.parent)
        for path in sorted(KEPT.glob("*/memory.json"))
    },
}


@pytest.mark.parametrize("make", MEMORIES.values(), ids=MEMORIES)
def test_every_family_keeps_the_contract(make: Make):
    memory = make()
    contract = bh.check_memory(memory)
    assert {*contract.holds, *contract.refused} == CLAUSES.keys()
    assert contract.refused.keys() <= {"split", "owner", "torch"}
    assert ("split" in contract.refused) == (memory.no_heads is not None)


def test_imported_memories_keep_it(tmp_path):
    assert "certificate" in bh.check_memory(imported(tmp_path)).holds


def test_facts_may_be_given():
    """A memory without its facts is asked for given ones, in any form."""
    memory = replace(bh.build(FACTS), facts=None)
    with pytest.raises(FactsError, match="without its facts"):
        bh.check_memory(memory)
    bh.check_memory(memory, FACTS)


# Broken memories: what is broken -> the clauses that must notice, the family, what it does instead.


class Unhooked(nn.Module):
    """The right outputs, and nothing to hook."""

    def __init__(self, memory: TokenMemory) -> None:
        super().__init__()
        self.memory, self.W = memory, nn.Parameter(torch.zeros(1))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.memory.outputs(inputs)


def louder(self: TokenMemory) -> nn.Module:
    module = TokenMemory.to_torch(self)
    module.load_state_dict({name: 1.01 * w for name, w in module.state_dict().items()})
    return module


def silent(self: TokenMemory) -> nn.Module:
    module = TokenMemory.to_torch(self)
    module.hook_nothing = nn.Identity()
    return module


def described(**changes: Any) -> dict[str, Any]:
    return {"describe": lambda self: replace(TokenMemory.describe(self), **changes)}


def with_recall(**changes: Any) -> dict[str, Any]:
    return {"recall": lambda self, *key: replace(TokenMemory.recall(self, *key), **changes)}


def coarse(self: TokenMemory, inputs: torch.Tensor, dtype: torch.dtype | None = None):
    return TokenMemory.outputs(self, inputs, dtype) * (1.0 if dtype is None else 1.01)


def shifted(self: TokenMemory, facts: Any = None, dtype: Any = None) -> np.ndarray:
    return TokenMemory.margins(self, facts, dtype) + 0.25


def missing_part(self: TokenMemory, inputs: torch.Tensor, answers: Any = None):
    for part in TokenMemory.head_parts(self, inputs, answers):
        yield replace(part, skip=part.skip + 0.25)


def forgets(self: TokenMemory) -> dict[str, Any]:
    return {"describe": None, **TokenMemory.record(self), "start_id": 0}


def renamed(cls: type[TokenMemory], record: Any, files: Any) -> TokenMemory:
    made = TokenMemory.from_files.__func__(cls, record, files)  # type: ignore[attr-defined]
    return replace(made, construction=replace(made.construction, seed=99))


def fails(self: TokenMemory, *key: str):
    raise KeyError(key)


BROKEN: dict[str, tuple[set[str], type[TokenMemory], dict[str, Any]]] = {
    "encode reverses": (
        {"encode", "margins", "split"},
        TokenMemory,
        {"encode": lambda self, keys: TokenMemory.encode(self, keys).flip(1)},
    ),
    "outputs depend on the format": ({"outputs"}, TokenMemory, {"outputs": coarse}),
    "one output too few": (
        {"outputs"},
        TokenMemory,
        {"outputs": lambda self, x, dtype=None: TokenMemory.outputs(self, x, dtype)[1:]},
    ),
    "margins are shifted": ({"margins", "recall"}, TokenMemory, {"margins": shifted}),
    "margins are tensors": (
        {"margins"},
        TokenMemory,
        {"margins": lambda self, *a: torch.tensor(TokenMemory.margins(self, *a)).float().numpy()},
    ),
    "recall is wrong": ({"recall"}, TokenMemory, with_recall(answer="nothing")),
    "recall has another margin": ({"recall"}, TokenMemory, with_recall(margin=123.0)),
    "recall knows everything": ({"recall"}, TokenMemory, with_recall(known=True)),
    "recall knows nothing": ({"recall"}, TokenMemory, with_recall(known=None)),
    "parts do not add up": ({"split"}, TokenMemory, {"head_parts": missing_part}),
    "parts despite the reason": (
        {"split"},
        TokenMemory,
        {"no_heads": property(lambda self: "There are none."), "head_parts": missing_part},
    ),
    "owner crashes": ({"owner"}, TokenMemory, {"owner": fails}),
    "owner of another fact": (
        {"owner"},
        ShardedMemory,
        {"owner": lambda self, *key: replace(ShardedMemory.owner(self, *key), facts=(99,))},
    ),
    "owner outside": (
        {"owner"},
        ShardedMemory,
        {"owner": lambda self, *key: replace(ShardedMemory.owner(self, *key), heads=(999,))},
    ),
    "module says something else": ({"torch"}, TokenMemory, {"to_torch": louder}),
    "module without hooks": ({"torch"}, TokenMemory, {"to_torch": Unhooked}),
    "module with a silent hook": ({"torch"}, TokenMemory, {"to_torch": silent}),
    "module without parameters": (
        {"torch"},
        TokenMemory,
        {"to_torch": lambda self: nn.Identity()},
    ),
    "long repr": ({"describe"}, TokenMemory, {"__repr__": lambda self: "\n" * (LINES + 1)}),
    "open tags": ({"describe"}, TokenMemory, {"_repr_html_": lambda self: "<table><tr></table>"}),
    "no title": ({"describe"}, TokenMemory, described(title="")),
    "no text": ({"describe"}, TokenMemory, described(rows=(("size", 3),))),
    "no JSON": ({"describe"}, TokenMemory, described(record={"margin": float("nan")})),
    "parts of another size": (
        {"describe"},
        TokenMemory,
        described(parts=(Part("all", ("there is",), 3),)),
    ),
    "another memory comes back": ({"files"}, TokenMemory, {"record": forgets}),
    "another construction comes back": (
        {"files"},
        TokenMemory,
        {"from_files": classmethod(renamed)},
    ),
    "facts cannot be left out": (
        {"files"},
        TokenMemory,
        {"save": lambda self, folder, with_facts=True: TokenMemory.save(self, folder)},
    ),
    "spec of another family": ({"spec", "files"}, TokenMemory, {"specs": ()}),
}


@pytest.mark.parametrize(("clauses", "family", "methods"), BROKEN.values(), ids=BROKEN)
def test_broken_clauses_are_caught(clauses, family, methods, monkeypatch):
    memory = broken(family, methods, monkeypatch)
    with pytest.raises(ContractBroken) as caught:
        bh.check_memory(memory)
    assert clauses <= caught.value.clauses.keys()
    for clause in clauses:
        assert f"\n  {clause}: " in str(caught.value)
    if clauses.isdisjoint({"encode", "outputs", "margins"}):  # which others are computed from
        assert caught.value.clauses.keys() == clauses


def broken(family: type[TokenMemory], methods: dict[str, Any], monkeypatch) -> TokenMemory:
    """A memory of a subclass with other methods, whose folders are opened as that class."""
    method = "sharded" if family is ShardedMemory else "attention"
    good = bh.build(FACTS, method)
    kind: Any = type("Broken", (family,), {**methods, "__module__": __name__})
    monkeypatch.setattr(sys.modules[__name__], "Broken", kind, raising=False)
    monkeypatch.setitem(FAMILIES, good.spec.family, f"{__name__}:Broken")
    return kind(**{f.name: getattr(good, f.name) for f in fields(good)})


def test_proofs_that_lie_or_fail_are_caught(monkeypatch):
    """A certificate for a memory that has lost a fact, and none for a built one."""
    memory = broken(TokenMemory, {}, monkeypatch)
    assert memory.facts is not None
    bh.check_memory(memory)
    good = bh.certify(memory)

    def lie(memory, facts, asked):
        return replace(good, weights_sha256=memory.weights_sha256(), facts_digest=facts.digest())

    def refuse(memory, facts, asked):
        return replace(good, certified=False, passed=False, failed=1)

    for proof, change in ((lie, -1.0), (refuse, 1.0)):
        prove.register(type(memory), proof)
        changed = {**memory.weights, "W_U": memory.weights["W_U"] * change}
        with pytest.raises(ContractBroken) as caught:
            bh.check_memory(replace(memory, weights=changed))
        assert "certificate" in caught.value.clauses


def test_what_is_said_of_a_broken_memory(monkeypatch):
    memory = broken(TokenMemory, {"owner": fails, **with_recall(known=None)}, monkeypatch)
    with pytest.raises(ByheartError, match=f"Broken breaks 2 of {len(CLAUSES)} clauses"):
        bh.check_memory(memory)
