"""Head statistics: definitions by hand, the proof's signature on its constructions."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch

import byheart as bh
from byheart.construct.methods import MultiHead
from byheart.errors import FactsError
from byheart.facts import VectorFacts, random_vectors
from byheart.measure.specialisation import ablation, head_statistics, heads_figure, poisson_binomial
from byheart.models.architectures import initial
from byheart.models.construction import ImportedConstruction
from byheart.models.vector_memory import VectorMemory
from byheart.specs import MultiHeadSpec
from byheart.theory.plots import save


def build_multi_head(facts: VectorFacts, proof: str = "one-hot", **options: Any) -> VectorMemory:
    memory = bh.build(facts, MultiHead(proof=proof, **options))
    assert isinstance(memory, VectorMemory)
    return memory


@pytest.fixture(scope="module")
def literal():
    return build_multi_head(random_vectors(125, 32, 64), "literal", H=4, d_h=32, dtype="float64")


def plain_memory(
    spec: MultiHeadSpec, weights: dict[str, torch.Tensor], facts: VectorFacts
) -> VectorMemory:
    """A layer that nobody built, with the classes and the shared context of the facts."""
    return VectorMemory(
        spec=spec, weights=weights, construction=ImportedConstruction(), facts=facts,
        classes=facts.classes, context=facts.context,
    )  # fmt: skip


def test_poisson_binomial_is_the_sum_over_all_outcomes():
    p = np.array([0.1, 0.5, 0.9, 0.3])
    mass = np.zeros(5)
    for outcome in itertools.product((0, 1), repeat=4):
        bits = np.array(outcome)
        mass[bits.sum()] += np.prod(np.where(bits, p, 1 - p))
    assert np.allclose(poisson_binomial(p), mass)


def test_the_literal_proof_shows_its_signature(literal):
    """Heads 1.. are saturated on all earlier and fresh queries and not on their own: contrast."""
    stats = head_statistics(literal)
    assert stats.owner_from == "construction"
    assert (np.bincount(stats.owner[stats.owner >= 0]) == 31).all()
    assert (stats.own_saturated[1:] < 0.1).all()
    # Frozen are the examples of earlier heads; the last head has seen all.
    assert stats.other_saturated[3] == 1.0
    assert stats.fresh_saturated[3] > 0.95 > stats.saturated[3]
    assert stats.histogram.sum() == 125 == pytest.approx(stats.expected.sum())


def test_one_hot_heads_own_their_examples():
    memory = build_multi_head(random_vectors(125, 32, 64), H=4, d_h=32)
    stats = head_statistics(memory)
    assert (stats.saturated == 1).all() and (stats.entropy < 1e-9).all()
    assert (stats.own_tokens == 31).all() and (stats.other_tokens <= 2).all()
    assert stats.correlation is None  # nothing varies: the level says nothing
    # Taking a head away moves its own examples most.
    mine = stats.owner[:, None] == np.arange(4)
    for h in range(4):
        assert stats.effect[mine[:, h], h].mean() > 2 * stats.effect[~mine[:, h], h].mean()


def test_ablation_is_the_layer_with_the_head_replaced():
    """By hand: contribution of head h set to its mean, everything else as it was."""
    facts = random_vectors(20, 4, 6, classes=3)
    spec = MultiHeadSpec(d=6, n=4, d_h=3, H=3, d_v=2, d_out=3, shared=True)
    weights = {k: 4 * w[0].double() for k, w in initial(spec, [torch.Generator()]).items()}
    memory = plain_memory(spec, weights, facts)
    effect, breaks = ablation(memory, facts)
    parts = memory.contributions(memory.inputs_of(facts)).numpy()
    for h in range(3):
        left = parts.sum(1) - parts[:, h] + parts[:, h].mean(0)
        before = parts.sum(1).argmax(1) == facts.label
        after = left.argmax(1) == facts.label
        assert np.array_equal(breaks[:, h], before & ~after)
    assert effect.shape == (20, 3) and (effect >= 0).all()


def test_untrained_heads_are_not_saturated():
    facts = random_vectors(50, 32, 64, classes=100)
    spec = MultiHeadSpec.reference(n=32, H=4, shared=True)
    weights = {k: w[0] for k, w in initial(spec, [torch.Generator()]).items()}
    stats = head_statistics(plain_memory(spec, weights, facts))
    assert (stats.saturated == 0).all() and (stats.entropy > 3).all()
    assert stats.owner_from == "ablation"


def test_statistics_are_json_and_a_picture(literal, tmp_path):
    stats = head_statistics(literal, fresh=50)
    record: Any = stats.to_json()
    assert record["fresh"] == 50 and len(record["heads"]) == 4
    assert sum(record["heads_needed"]) == 125
    assert 1 / 4 <= record["concentration"] <= 1
    save(heads_figure(stats, "literal"), tmp_path / "heads.png")
    assert (tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")


def test_bad_fresh_queries(literal):
    with pytest.raises(FactsError, match="at least one fresh"):
        head_statistics(literal, fresh=0)
    with pytest.raises(FactsError, match=r"expected fresh queries \(F, 64\)"):
        head_statistics(literal, fresh=np.zeros((3, 5)))
