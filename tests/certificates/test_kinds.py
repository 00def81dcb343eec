"""Certificates as a sum type: what each kind says, its JSON, and proofs that others register."""

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

import byheart as bh
from byheart.certificates import (
    AnswerCertificate,
    Arithmetic,
    Certificate,
    DistributionCertificate,
    IntegerCertificate,
    NumberCertificate,
    certify_folder,
    prove,
    residual,
)
from byheart.certificates.architectures import bounded_logits
from byheart.errors import ByheartError, MemoryFileError
from byheart.models import TokenMemory, register_architecture
from byheart.specs import AttentionOnlySpec
from byheart.specs.base import TokenSpec

KEPT = Path(__file__).parents[1] / "kept"
KINDS = {
    "attention": AnswerCertificate,
    "sharded": AnswerCertificate,
    "multihead-classes": AnswerCertificate,
    "multihead-numbers": NumberCertificate,
    "distribution": DistributionCertificate,
    "sqrt": IntegerCertificate,
}


def record(name: str) -> dict:
    return json.loads((KEPT / name / "certificate.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", sorted(p.parent.name for p in KEPT.glob("*/certificate.json")))
def test_certificates_written_before_are_read_and_written_as_they_were(name):
    """Every key, every number and the statement, word for word. They bind weights and facts only:
    they are no proof about a memory any more, and a new one says the same."""
    before = record(name)
    made = Certificate.from_json(before)
    after = json.loads(json.dumps(made.to_json(), allow_nan=False))
    assert {key: after[key] for key in before} == before
    memory = bh.load(KEPT / name)
    assert not made.about(memory)
    again = bh.certify(memory)
    assert again.about(memory) and again.certified
    same = ("facts", "failed", "arithmetic", "weights_sha256", "facts_digest")
    assert all(again.to_json()[key] == before[key] for key in same)
    if made.margin is not None:
        assert again.margin == pytest.approx(made.margin, rel=1e-6)


@pytest.mark.parametrize("name", KINDS)
def test_a_certificate_is_about_all_that_it_speaks_of(name):
    memory = bh.load(KEPT / name)
    made = bh.certify(memory)
    assert made.about(memory)
    for other in ({"digest": ""}, {"arithmetic": "by hand"}, {"certified": False}):
        assert not replace(made, **other).about(memory)


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_every_kind_has_its_own_words(name, kind):
    made = bh.certify(bh.load(KEPT / name))
    assert type(made) is kind
    assert made.statement.startswith("proved: the ")
    assert made.verdict().startswith("CERTIFIED: ")
    assert made.summary().startswith("proved in ")
    assert made.rows()[0] == ("arithmetic", made.arithmetic)
    assert len(repr(made).splitlines()) < 10
    assert made._repr_html_().count("<tr>") == len(made.rows())
    assert made.weights_sha256[:12] in made.sentences()[-1]
    lost = replace(made, certified=False, passed=False, failed=2)
    assert lost.statement.startswith("NOT proved: the ")
    assert lost.verdict().startswith("NOT CERTIFIED: 2 of ")
    assert lost.summary().startswith("NOT proved")
    brief = made.brief()
    assert brief["certified"] is True
    assert ("distribution" in brief) == (kind is DistributionCertificate)


def test_what_is_no_certificate_is_refused(tmp_path):
    for text in ("", "[]", "{}", '{"certified": true}', '{"distribution": 3}', "\x00"):
        (tmp_path / "certificate.json").write_text(text)
        assert Certificate.read(tmp_path) is None
    assert Certificate.read(tmp_path / "nowhere") is None
    with pytest.raises(MemoryFileError, match="is no certificate"):
        Certificate.from_json({"certified": True})


def test_a_path_is_certified_from_its_files(tmp_path):
    facts = {("a", "b"): "c", ("a", "c"): "d", ("b", "b"): "a"}
    folder = bh.build(facts).save(tmp_path / "memory")
    made = bh.certify(folder)
    assert made.certified and Certificate.read(folder) == made
    assert bh.certify(str(folder), facts).certified
    assert not bh.certify(folder, {("a", "b"): "d"}).passed
    assert certify_folder(folder, [("a", "c", "d")]).facts == 1


@dataclass(frozen=True)
class LookupSpec(TokenSpec):
    """logits(t) = row t of one matrix: an architecture of another package."""

    family, title, printed = "lookup", "look-up table", ("N", "S")

    @property
    def parameters(self) -> int:
        return self.N**2

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"W_U": (self.N, self.N)}


def lookup(make_memory, right: list[int]) -> bh.Memory:
    words = bh.Vocabulary(tuple("abc"))
    facts = bh.Facts.make([[0], [1], [2]], right, words)
    rows = {"W_U": torch.eye(3)[[1, 2, 0]]}
    return make_memory(LookupSpec(N=3, S=1), rows, words, facts)


def test_a_spec_of_another_package_registers_its_proof(make_memory):
    """One `register` for the proofs in every arithmetic."""
    forward = SimpleNamespace(forward=lambda spec, weights, t: weights["W_U"][:, t[:, 0]])
    register_architecture(LookupSpec, forward)  # type: ignore[arg-type]
    memory = lookup(make_memory, [1, 2, 0])
    with pytest.raises(ByheartError, match="do not cover look-up table"):
        bh.certify(memory)
    assert bh.certify(memory, arithmetic="float").passed

    def row(spec: LookupSpec, A: Arithmetic, tokens: Tensor) -> object:
        return A.exact(torch.eye(spec.N, dtype=torch.float64)[tokens[:, 0]])

    residual.register(LookupSpec, row)
    for arithmetic in ("rounding", "ball"):
        made = bh.certify(memory, arithmetic=arithmetic)
        assert made.certified and made.margin == pytest.approx(1.0)
        wrong = lookup(make_memory, [1, 2, 1])
        assert not bh.certify(wrong, arithmetic=arithmetic).certified


def test_a_memory_of_another_package_registers_its_proof():
    """Dispatch goes by the class of the memory: the proof of a subclass comes before that of its
    base, and what nobody has registered is refused."""
    good = bh.build({("a", "b"): "c", ("a", "c"): "d"})
    assert isinstance(good, TokenMemory)

    class Foreign(TokenMemory):
        """Like a token memory, with a proof of its own."""

    memory = Foreign(**{f.name: getattr(good, f.name) for f in fields(good)})
    assert bh.certify(memory).certified
    prove.register(Foreign, lambda memory, facts, asked: replace(bh.certify(good), facts=7))
    assert bh.certify(memory).facts == 7
    with pytest.raises(ByheartError, match=r"prove\.register\(Foreign"):
        prove.dispatch(object)(memory, memory.facts, None)


def test_a_layer_of_one_position_attends_to_it_exactly(random_weights):
    """S = 1: the attention weight is 1, and nothing of the scores enters the bound."""
    spec = AttentionOnlySpec(N=3, S=1, d=4, d_h=2, H=2)
    weights, tokens = random_weights(spec, 0), torch.tensor([[0], [2]])
    wild = {**weights, "W_Q": weights["W_Q"] * 1e9, "W_K": weights["W_K"] * 1e9}
    small, large = (bounded_logits(spec, w, tokens) for w in (weights, wild))
    assert torch.equal(small.value, large.value) and torch.equal(small.error, large.error)
    assert np.isfinite(small.error.numpy()).all()
