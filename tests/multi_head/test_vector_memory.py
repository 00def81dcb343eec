"""Vector memories: recalled, saved, loaded, proved; damage is caught."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import byheart as bh
from byheart.certificates import AnswerCertificate, NumberCertificate, certify, certify_folder
from byheart.certificates.arithmetic import Rounding
from byheart.certificates.vectors import outputs
from byheart.construct.methods import MultiHead
from byheart.errors import ByheartError, FactsError, MemoryFileError
from byheart.facts import VectorFacts, random_vectors
from byheart.models.architectures import initial
from byheart.models.construction import ImportedConstruction, MultiHeadConstruction
from byheart.models.vector_memory import VectorMemory
from byheart.specs import MultiHeadSpec

KINDS = {
    "shared": {"context": "fixed"},
    "own": {"context": "random"},
    "classes": {"context": "fixed", "classes": 5},
    "own classes": {"context": "random", "classes": 12},
    "vector": {"context": "fixed", "outputs": 3},
}


def build_multi_head(facts: VectorFacts, proof: str = "one-hot", **options: Any) -> VectorMemory:
    memory = bh.build(facts, MultiHead(proof=proof, **options))
    assert isinstance(memory, VectorMemory)
    return memory


@pytest.fixture(params=KINDS.values(), ids=list(KINDS))
def memory(request) -> VectorMemory:
    return build_multi_head(random_vectors(29, 8, 16, **request.param), H=4, d_h=8)


def number(value: float | None) -> float:
    assert value is not None
    return value


def context_of(facts: VectorFacts, i: int):
    return None if facts.shared else facts.context[i]


def test_a_saved_memory_is_the_same_memory(memory, tmp_path):
    folder = memory.save(tmp_path / "m")
    again: Any = bh.load(folder)
    assert isinstance(again, VectorMemory)
    assert again.spec == memory.spec and again.construction == memory.construction
    facts = again.facts
    assert facts is not None and facts.digest() == memory.facts.digest()
    assert np.array_equal(again.margins(facts), memory.margins(memory.facts))
    for i in (0, 28):
        assert again.recall(facts.query[i], context_of(facts, i)) == memory.recall(
            facts.query[i], context_of(facts, i)
        )
    assert certify_folder(folder).certified
    assert (folder / "certificate.json").exists()


def test_accuracy_is_the_share_recalled(memory):
    assert bh.accuracy(memory) == 1.0
    worse = {**memory.weights, "W_V": -memory.weights["W_V"]}
    assert bh.accuracy(dataclasses.replace(memory, weights=worse)) < 0.5


def test_without_facts_they_must_be_given(memory, tmp_path):
    folder = memory.save(tmp_path / "m", with_facts=False)
    assert bh.load(folder).facts is None
    with pytest.raises(FactsError, match="saved without its facts"):
        certify_folder(folder)
    assert certify_folder(folder, memory.facts).certified


def test_answers_come_from_the_outputs(memory):
    facts = memory.facts
    out = memory.outputs(memory.inputs_of(facts))
    said = [memory.recall(facts.query[i], context_of(facts, i)) for i in range(facts.T)]
    for i, answer in enumerate(said):
        assert np.allclose(answer.output, out[i].tolist(), atol=1e-5)
    if facts.classes is not None:
        assert [a.answer for a in said] == facts.label.tolist()
        assert min(a.margin for a in said) > 0.5
    else:
        assert all(a.answer is None for a in said)
        assert float(memory.errors(facts).max()) <= memory.tolerance
    parts = memory.contributions(memory.inputs_of(facts))
    assert torch.allclose(parts.sum(1).float(), out, atol=1e-5)


def test_the_module_is_the_layer(memory):
    facts = memory.facts
    module = memory.to_torch()
    out = module(torch.tensor(facts.context).float(), torch.tensor(facts.query).float())
    expected = memory.outputs(memory.inputs_of(facts))
    assert torch.allclose(out, expected, atol=1e-5)
    assert sum(p.numel() for p in module.parameters()) == memory.spec.parameters


def test_both_proofs_agree_and_contain_each_other(memory):
    """Arb's margin lies within the float64 error bound."""
    rounding: Any = certify(memory)
    ball: Any = certify(memory, arithmetic="ball")
    assert rounding.certified and ball.certified
    bound = number(rounding.error_bound)
    assert abs(number(rounding.margin) - number(ball.margin)) <= bound
    assert number(ball.error_bound) < bound
    if memory.classes is None:
        largest = number(rounding.largest_error)
        assert number(ball.largest_error) <= largest <= memory.tolerance
        assert "within 1e-05" in rounding.statement
        assert float(memory.errors(memory.facts, torch.float64).max()) <= largest
    else:
        assert isinstance(rounding, AnswerCertificate) and "of all classes" in rounding.statement
    check = certify(memory, arithmetic="float")
    assert check.passed and not check.certified


def test_error_bounds_hold_for_random_layers():
    """Random weights, no saturation, decoder and scale too: float32 input, Arb as the judge."""
    for options in ({}, {"scale": True}, {"decoder": True, "scale": True}):
        spec = MultiHeadSpec(d=6, n=4, d_h=3, H=3, d_v=2, d_out=5, shared=True, **options)
        weights = {k: 3 * w[0].double() for k, w in initial(spec, [torch.Generator()]).items()}
        facts = random_vectors(12, 4, 6, outputs=5)
        made = MultiHeadConstruction(proof="random", tolerance=10.0)
        model = VectorMemory(
            spec=spec, weights=weights, construction=made, facts=facts, context=facts.context
        )
        ball = certify(model, arithmetic="ball")
        rounding = certify(model)
        bound = number(rounding.error_bound)
        assert abs(number(rounding.margin) - number(ball.margin)) <= bound < 1e-10
        A, context, query = Rounding(weights), *map(torch.tensor, (facts.context, facts.query))
        out = outputs(spec, A, context, query)
        assert torch.allclose(out.value, model.outputs(model.inputs_of(facts)), atol=1e-12)


def test_a_tolerance_below_the_error_is_not_proved(memory):
    if memory.classes is not None:
        with pytest.raises(ByheartError, match="labels that are numbers"):
            certify(memory, tolerance=1e-3)
        return
    proof = certify(memory)
    assert isinstance(proof, NumberCertificate)
    proved = number(proof.largest_error)
    assert certify(memory, tolerance=1.01 * proved).certified
    worst = float(memory.errors(memory.facts, torch.float64).max())
    failed = certify(memory, tolerance=0.99 * worst)
    assert not failed.certified and failed.failed >= 1
    assert failed.failures[0].reason == "lost: further from the label than the tolerance"


def test_changed_weights_lose_the_certificate(memory, tmp_path):
    folder = memory.save(tmp_path / "m")
    path = folder / "weights.safetensors"
    weights = load_file(path)
    weights["W_V"] = -weights["W_V"]
    save_file(weights, path)
    made = certify_folder(folder)
    assert not made.certified and made.failed > 0
    assert made.damage == ("weights.safetensors differs from the SHA-256 in memory.json",)
    with pytest.raises(MemoryFileError, match="differs from the SHA-256"):
        bh.load(folder)


def test_changed_labels_are_caught(memory, tmp_path):
    folder = memory.save(tmp_path / "m")
    facts = load_file(folder / "facts.safetensors")
    facts["label"] = facts["label"].flip(0)
    save_file(facts, folder / "facts.safetensors")
    assert not certify_folder(folder).certified


@pytest.mark.parametrize(
    ("field", "value"),
    [("n", 7), ("H", 3), ("d", 15), ("shared", None), ("d_v", 2)],
)
def test_files_that_contradict_each_other_are_refused(memory, tmp_path, field, value):
    folder = memory.save(tmp_path / "m")
    record = json.loads((folder / "memory.json").read_text())
    if record["spec"][field] == value:
        value = 9
    record["spec"][field] = value
    (folder / "memory.json").write_text(json.dumps(record))
    with pytest.raises(MemoryFileError, match=r"do not belong together|changed by hand"):
        bh.load(folder)


def test_examples_of_another_kind_are_refused(memory):
    facts = memory.facts
    wrong = [
        random_vectors(5, 7, 16, "fixed" if facts.shared else "random"),
        random_vectors(5, 8, 17),
        random_vectors(5, 8, 16, "fixed" if facts.shared else "random", outputs=9),
    ]
    if facts.shared:
        labels = {"classes": facts.classes} if facts.classes else {"outputs": facts.outputs}
        wrong.append(random_vectors(5, 8, 16, seed=1, **labels))  # another shared context
        wrong.append(random_vectors(5, 8, 16, "random", **labels))
    for other in wrong:
        with pytest.raises(FactsError):
            certify(memory, other)
    with pytest.raises(FactsError, match="do not belong together"):
        certify(memory, bh.read_facts("elements"))


def test_own_contexts_must_be_given():
    memory = build_multi_head(random_vectors(29, 8, 16, "random"), H=4, d_h=8)
    with pytest.raises(FactsError, match="give the context"):
        memory.recall(np.zeros(16))


def test_weights_that_do_not_fit_are_named():
    memory = build_multi_head(random_vectors(29, 8, 16), H=4, d_h=8)
    with pytest.raises(ValueError, match="W_V: expected shape"):
        dataclasses.replace(memory, weights={**memory.weights, "W_V": torch.zeros(2, 2)})
    with pytest.raises(ValueError, match="shared context"):
        dataclasses.replace(memory, context=None)
    with pytest.raises(ValueError, match="3 classes, but 1 outputs"):
        dataclasses.replace(memory, classes=3)


def test_not_finite_weights_are_not_proved():
    memory = build_multi_head(random_vectors(29, 8, 16), H=4, d_h=8)
    bad = {**memory.weights, "W_O": memory.weights["W_O"] * np.inf}
    made = certify(dataclasses.replace(memory, weights=bad))
    assert not made.passed and made.failed == 29
    assert "not finite" in made.failures[0].reason


def test_the_reference_model_is_checked_not_proved():
    facts = random_vectors(6, 4, 64, classes=3)
    spec = MultiHeadSpec.reference(n=4, H=2, d_out=3, shared=True)
    weights = {k: w[0] for k, w in initial(spec, [torch.Generator()]).items()}
    memory = VectorMemory(
        spec=spec,
        weights=weights,
        construction=ImportedConstruction(),
        facts=facts,
        classes=3,
        context=facts.context,
    )
    with pytest.raises(ByheartError, match="`arithmetic=float`"):
        certify(memory)
    assert not certify(memory, arithmetic="float").certified
