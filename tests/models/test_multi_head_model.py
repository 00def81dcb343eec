"""The fast forward is the formula, outputs and gradients; the spec counts what the weights hold."""

import dataclasses
import json

import pytest
import torch
from oracles.literal import literal_forward

from byheart.models.architectures import initial
from byheart.models.multi_head import (
    attention,
    forward,
    head_outputs,
    positions,
)
from byheart.specs import MultiHeadSpec

PLAIN = MultiHeadSpec(d=6, n=4, d_h=3, H=3)
SPECS = {
    "plain": PLAIN,
    "outputs": dataclasses.replace(PLAIN, d_v=2, d_out=5),
    "scale": dataclasses.replace(PLAIN, scale=True),
    "embed": dataclasses.replace(PLAIN, embed=True, d_v=3, d_out=2),
    "decoder": dataclasses.replace(PLAIN, decoder=True, d_out=7),
    "reference": dataclasses.replace(PLAIN, embed=True, scale=True, decoder=True, d_out=7),
    "odd d": MultiHeadSpec(d=5, n=3, d_h=5, H=2, d_out=4, embed=True, scale=True, decoder=True),
    "one token": MultiHeadSpec(d=3, n=1, d_h=2, H=2, embed=True),
    "one head": MultiHeadSpec(d=1, n=2, d_h=1, H=1),
}
CONTEXTS = {
    "shared": (lambda M, B, n, d: (n, d), None),
    "own": (lambda M, B, n, d: (B, n, d), False),
    "shared by model": (lambda M, B, n, d: (M, n, d), True),
    "own by model": (lambda M, B, n, d: (M, B, n, d), None),
}
# Some 100 operations a number, entries of order 1: far below both.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
M, B = 3, 4


@pytest.fixture(params=SPECS.values(), ids=list(SPECS))
def case(request):
    return request.param


def inputs(spec, shape, dtype, per_model):
    generator = torch.Generator().manual_seed(1)
    weights = {k: w.to(dtype) for k, w in initial(spec, [generator] * M).items()}
    context = torch.rand(*shape(M, B, spec.n, spec.d), generator=generator, dtype=dtype)
    size = (M, B, spec.d) if per_model else (B, spec.d)
    return weights, context, torch.rand(*size, generator=generator, dtype=dtype)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("shape", "shared"), CONTEXTS.values(), ids=list(CONTEXTS))
@pytest.mark.parametrize(
    "per_model",
    [pytest.param(False, marks=pytest.mark.slow), True],
    ids=["queries", "queries by model"],
)
def test_fast_forward_and_its_gradients_are_the_formula(case, dtype, shape, shared, per_model):
    spec = dataclasses.replace(case, shared=shared)
    weights, context, query = inputs(spec, shape, dtype, per_model)
    for w in weights.values():
        w.requires_grad_()
    cotangent = torch.rand(M, B, spec.d_out, dtype=dtype)
    results = []
    for way in (forward, literal_forward):
        out = way(spec, weights, context, query)
        assert out.shape == (M, B, spec.d_out) and out.dtype == dtype
        results.append([out, *torch.autograd.grad((out * cotangent).sum(), list(weights.values()))])
    for name, fast, literal in zip(["output", *weights], *results, strict=True):
        scale = max(1.0, float(literal.detach().abs().max()))
        assert float((fast - literal).detach().abs().max()) <= TOLERANCE[dtype] * scale, name


def test_attention_and_head_outputs_add_up_to_the_output(case):
    weights, context, query = inputs(case, CONTEXTS["own"][0], torch.float64, False)
    a = attention(case, weights, context, query)
    assert a.shape == (M, B, case.H, case.n)
    assert torch.allclose(a.sum(-1), torch.ones((), dtype=torch.float64))
    parts = head_outputs(case, weights, context, query)
    assert parts.shape == (M, B, case.H, case.d_out)
    total = parts.sum(2) + (weights["b_U"][:, None] if case.decoder else 0)
    assert torch.allclose(total, forward(case, weights, context, query), atol=1e-12)


def test_models_do_not_see_each_other(case):
    weights, context, query = inputs(case, CONTEXTS["own by model"][0], torch.float64, True)
    together = forward(case, weights, context, query)
    for m in range(M):
        alone = {k: w[m : m + 1] for k, w in weights.items()}
        out = forward(case, alone, context[m], query[m])
        assert torch.allclose(together[m], out[0], atol=1e-13)


def test_parameters_and_shapes_are_those_of_the_weights(case):
    weights = initial(case, [torch.Generator().manual_seed(m) for m in range(2)])
    assert {k: tuple(w.shape[1:]) for k, w in weights.items()} == case.weight_shapes()
    assert case.parameters == sum(w[0].numel() for w in weights.values())
    assert all(w.dtype == torch.float32 for w in weights.values())


def test_the_reference_model_has_the_size_of_the_paper():
    assert MultiHeadSpec.reference(n=32, H=20, d_out=100).parameters == 177_060


def test_initial_weights_are_xavier_uniform():
    """Bound sqrt(6/(rows + columns)), reached from below; embedding and decoder 1/sqrt(d)."""
    spec = MultiHeadSpec.reference(n=32, H=20)
    weights = initial(spec, [torch.Generator().manual_seed(m) for m in range(4)])
    bounds = {
        "W_Q": (6 / 128) ** 0.5, "W_K": (6 / 128) ** 0.5, "W_V": (6 / 65) ** 0.5,
        "W_O": (6 / 84) ** 0.5, "W_E": 1 / 8, "b_E": 1 / 8, "W_U": 1 / 8, "b_U": 1 / 8,
    }  # fmt: skip
    for name, bound in bounds.items():
        largest = float(weights[name].abs().max())
        assert 0.95 * bound < largest <= bound * (1 + 1e-6), name
        assert abs(float(weights[name].mean())) < 5 * bound / weights[name].numel() ** 0.5


def test_one_head_by_hand():
    """d = 1, n = 2: e = 2, E = (1, 3), W_Q = 1, W_K = 0.5: logits (1, 3), values 10 E."""
    spec = MultiHeadSpec(d=1, n=2, d_h=1, H=1)
    numbers = {"W_Q": 1.0, "W_K": 0.5, "W_V": 2.0, "W_O": 5.0}
    weights = {k: torch.full((1, 1, 1, 1), v, dtype=torch.float64) for k, v in numbers.items()}
    E, e = torch.tensor([[1.0], [3.0]]).double(), torch.tensor([[2.0]]).double()
    a = 1 / (1 + torch.e**2)
    out = forward(spec, weights, E, e)
    assert out.item() == pytest.approx(10 * (a * 1 + (1 - a) * 3), rel=1e-14)


def test_positions_are_sines_and_cosines():
    table = positions(5, 6)
    for p in range(5):
        for i in range(3):
            angle = torch.tensor(p / 10_000 ** (2 * i / 6), dtype=torch.float64)
            assert float(table[p, 2 * i]) == pytest.approx(float(angle.sin()), abs=1e-14)
            assert float(table[p, 2 * i + 1]) == pytest.approx(float(angle.cos()), abs=1e-14)


@pytest.mark.parametrize(
    ("context", "query"), [((4, 5), (2, 6)), ((3, 4, 6), (2, 6)), ((4, 6), (2, 5)), ((4, 6), (6,))]
)
def test_shapes_that_do_not_fit_are_named(context, query):
    weights = initial(PLAIN, [torch.Generator()])
    with pytest.raises(ValueError, match=r"expected a query \(B, 6\) and a context \(4, 6\)"):
        forward(PLAIN, weights, torch.zeros(context), torch.zeros(query))


@pytest.mark.parametrize("field", ["embed", "scale", "decoder", "shared"])
def test_options_are_true_or_false(field):
    with pytest.raises(ValueError, match=f"{field} must be true"):
        MultiHeadSpec(d=4, n=2, d_h=2, H=2, **{field: "yes"})  # pyright: ignore


def test_spec_survives_json(case):
    again = MultiHeadSpec(**json.loads(json.dumps(case.to_json())))
    assert again == case and again.weight_shapes() == case.weight_shapes()
