"""The associative baseline: its formula, its count, its checks."""

import json
import math

import pytest
import torch

from byheart.models.associative import forward, keys
from byheart.specs import AssociativeSpec


def signs(spec: AssociativeSpec, models: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)

    def gaussian(*shape: int) -> torch.Tensor:
        return torch.randn(models, *shape, generator=generator, dtype=torch.float64)

    shapes = spec.weight_shapes()
    return {name: gaussian(*shapes[name]) for name in ("W", "W_U")} | {
        "W_E": gaussian(*shapes["W_E"]).sign()
    }


def test_forward_is_the_formula(associative_spec):
    spec = associative_spec
    weights = signs(spec, models=2)
    tokens = torch.tensor([[0, 1], [5, 5], [3, 0]])
    logits = forward(spec, weights, tokens)
    for m in range(2):
        for b, (t1, t2) in enumerate(tokens.tolist()):
            key = weights["W_E"][m, 0, t1] * weights["W_E"][m, 1, t2] / math.sqrt(spec.d)
            expected = key @ weights["W"][m] @ weights["W_U"][m]
            # Two sums of 5 products of order 1.
            assert torch.allclose(logits[m, b], expected, rtol=0, atol=1e-13)


def test_keys_are_unit_vectors(associative_spec):
    found = keys(associative_spec, signs(associative_spec, 2), torch.tensor([[0, 1], [2, 2]]))
    # Five squares of 1/sqrt(5): 5 roundings each of 2^-53.
    assert torch.allclose(found.norm(dim=-1), torch.ones(2, 2, dtype=torch.float64), atol=2e-15)


def test_parameters_are_the_entries_of_the_weights(associative_spec):
    entries = sum(math.prod(shape) for shape in associative_spec.weight_shapes().values())
    assert associative_spec.parameters == entries


def test_spec_survives_json(associative_spec):
    assert AssociativeSpec(**json.loads(json.dumps(associative_spec.to_json()))) == associative_spec


@pytest.mark.parametrize("name", ["N", "S", "d"])
@pytest.mark.parametrize("value", [0, -1])
def test_sizes_must_be_positive(name, value):
    with pytest.raises(ValueError, match=name):
        AssociativeSpec(**({"N": 5, "S": 2, "d": 3} | {name: value}))
