"""Several layers over one context: the fast forward is the formula; one layer is the authors'."""

import dataclasses

import pytest
import torch
from oracles.literal import literal_forward

from byheart.models import multi_head
from byheart.models.architectures import initial
from byheart.models.deep_multi_head import forward
from byheart.specs import DeepMultiHeadSpec, MultiHeadSpec
from byheart.training import Data, Recipe, train_stack

SPEC = DeepMultiHeadSpec(d=5, n=3, d_h=4, H=2, layers=3, d_v=2, d_out=4)
CONTEXTS = {"shared": (3, 5), "own": (6, 3, 5), "own by model": (2, 6, 3, 5)}


def inputs(spec: DeepMultiHeadSpec, shape: tuple[int, ...]):
    generators = [torch.Generator().manual_seed(seed) for seed in (1, 2)]
    weights = initial(spec, generators, torch.float64)
    source = torch.Generator().manual_seed(3)
    context = torch.rand(shape, generator=source, dtype=torch.float64)
    return weights, context, torch.rand(2, 6, spec.d, generator=source, dtype=torch.float64)


@pytest.mark.parametrize("shape", CONTEXTS.values(), ids=list(CONTEXTS))
@pytest.mark.parametrize("layers", [1, 3])
def test_the_fast_forward_is_the_formula(shape: tuple[int, ...], layers: int):
    spec = dataclasses.replace(SPEC, layers=layers)
    weights, context, query = inputs(spec, shape)
    expected = literal_forward(spec, weights, context, query)
    assert torch.allclose(forward(spec, weights, context, query), expected, atol=1e-12)


def test_one_layer_is_the_authors_layer_with_a_skip():
    spec = dataclasses.replace(SPEC, layers=1)
    weights, context, query = inputs(spec, (3, 5))
    plain = MultiHeadSpec(5, 3, 4, 2, 2, 4, True, scale=True, decoder=True)
    single = {k: w[:, 0] if k not in ("W_U", "b_U") else w for k, w in weights.items()}
    expected = multi_head.forward(plain, single, context, query) + query @ weights["W_U"]
    assert torch.allclose(forward(spec, weights, context, query), expected, atol=1e-12)


def test_parameters_are_what_the_weights_hold():
    shapes = SPEC.weight_shapes().values()
    assert SPEC.parameters == sum(torch.Size(shape).numel() for shape in shapes)
    assert "3 layers" in str(SPEC) and SPEC.to_json()["layers"] == 3


def test_wrong_shapes_are_refused():
    weights, _, query = inputs(SPEC, (3, 5))
    with pytest.raises(ValueError, match=r"expected a query .* found"):
        forward(SPEC, weights, torch.zeros(4, 5, dtype=torch.float64), query)
    with pytest.raises(ValueError, match="layers"):
        dataclasses.replace(SPEC, layers=0)


def test_it_can_be_trained():
    source = torch.Generator().manual_seed(0)
    query, context = torch.rand(12, 5, generator=source), torch.rand(3, 5, generator=source)
    data = Data(query, torch.arange(12) % 4, "class", context)
    trained = train_stack(SPEC, data, Recipe(steps=300, lr=0.05), [0, 1])
    assert max(o.accuracy for o in trained.outcomes) > 0.9
