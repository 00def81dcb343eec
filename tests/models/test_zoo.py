"""What every architecture satisfies, one list of cases through all of it: the fast forward and its
gradients are the literal oracle's, specs count their weights, starts do not depend on the stack."""

import dataclasses
import math
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.literal import literal_forward
from torch import Tensor

import byheart as bh
from byheart.certificates import certify
from byheart.facts import Facts
from byheart.models import (
    attention_only,
    feed_forward,
    mlp_transformer,
    sequence_encoder,
    shared_bottleneck,
)
from byheart.models.architectures import initial
from byheart.models.attention_only import Hardmax, attention_weights
from byheart.models.construction import ImportedConstruction
from byheart.models.token_memory import TokenMemory
from byheart.specs import (
    AttentionOnlySpec,
    FeedForwardTransformerSpec,
    MLPTransformerSpec,
    SequenceEncoderSpec,
    SharedBottleneckSpec,
)

# Largest difference allowed, relative to the largest entry of the oracle's tensor: some 10^3
# operations a number, in float32 (2^-24) and float64 (2^-53).
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}

SIZES: dict[str, Any] = {"N": 7, "S": 3, "d": 4, "d_h": 3, "H": 2}

CASES: list[tuple[ModuleType, Any]] = [
    *[
        (attention_only, AttentionOnlySpec(**SIZES, **options))
        for options in [
            {},
            {"qk_rank": 1, "positions": "none"},
            {"layers": 2, "positions": "attention", "scale": True},
            {"attention": "hardmax"},
            {"attention": "hardmax", "layers": 2, "qk_rank": 1},
            {"attention": "hardmax", "layers": 3, "positions": "none", "skip": False},
        ]
    ],
    (shared_bottleneck, SharedBottleneckSpec(**SIZES)),
    (shared_bottleneck, SharedBottleneckSpec(**SIZES, layers=3)),
    (shared_bottleneck, SharedBottleneckSpec(N=7, S=2, d=3, d_h=5, H=2, layers=2)),
    (shared_bottleneck, SharedBottleneckSpec(N=7, S=1, d=3, d_h=3, H=2)),
    (shared_bottleneck, SharedBottleneckSpec(N=7, S=3, d=3, d_h=3, H=2, layers=2)),
    *[
        (mlp_transformer, MLPTransformerSpec(**SIZES, **options))
        for options in [
            {"w": 5},
            {"w": 5, "activation": "relu", "positions": "none"},
            {"w": 0},
            {"w": 0, "layers": 2},
            {"w": 6, "layers": 2, "positions": "attention", "scale": True, "qk_rank": 1},
            {"w": 3, "layers": 3, "activation": "relu"},
            {"w": 3, "layers": 2, "attention": "hardmax"},
        ]
    ],
    (sequence_encoder, SequenceEncoderSpec(T=9, N=7, d=4)),
    (feed_forward, FeedForwardTransformerSpec.experiment(d=3, n=4, blocks=3, d_out=3, read=0)),
    *[
        (feed_forward, FeedForwardTransformerSpec(d=3, n=4, m=5, q=6, s=2, **options))
        for options in [
            {"blocks": 3, "d_out": 2},
            {"blocks": 2, "attention": "hardmax", "read": 1},
            {"blocks": 2, "first": 0},
            {"blocks": 2, "first": 2, "uniform": True, "attention": "hardmax"},
        ]
    ],
]
TOKEN_FAMILIES = [case for case in CASES if hasattr(case[1], "S")]


def _id(case: tuple[ModuleType, Any]) -> str:
    spec = case[1]
    plain = {f.name: f.default for f in dataclasses.fields(spec)} | SIZES | {"qk_rank": 3}
    options = [f"{k}={v}" for k, v in spec.to_json().items() if v != plain[k]]
    return "-".join([spec.family, *options])


@pytest.fixture(params=CASES, ids=_id)
def case(request: pytest.FixtureRequest) -> tuple[ModuleType, Any]:
    return request.param


def generators(*seeds: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def random_weights(spec: Any, models: int, seed: int = 0) -> dict[str, Tensor]:
    """Gaussian weights of order fan_in^-1/2; of order 1 for embeddings, positions and biases."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in spec.weight_shapes().items():
        w = torch.randn(models, *shape, generator=generator, dtype=torch.float64)
        fan_in = 1 if name in ("W_E", "W_pos", "E") or name[0] == "b" else shape[-2]
        weights[name] = w / fan_in**0.5
    return weights


def inputs_for(spec: Any, *batch: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    if isinstance(spec, FeedForwardTransformerSpec):
        return torch.randn(*batch, spec.n, spec.d, generator=generator, dtype=torch.float64)
    if isinstance(spec, SequenceEncoderSpec):
        return torch.randint(spec.T, (*batch, 1), generator=generator)
    return torch.randint(spec.N, (*batch, spec.S), generator=generator)


def assert_equals_oracle(
    module: ModuleType, spec: Any, weights: dict[str, Tensor], inputs: Tensor, **options: Any
) -> None:
    """Outputs and gradients of `forward` are those of `literal_forward`, in both formats."""
    for dtype, tolerance in TOLERANCE.items():
        own = {name: w.to(dtype).requires_grad_() for name, w in weights.items()}
        given = inputs.to(dtype) if inputs.is_floating_point() else inputs
        found = module.forward(spec, own, given, **options)
        expected = literal_forward(spec, own, given, **options)
        assert found.shape == expected.shape
        assert found.dtype == dtype
        error = float((found - expected).detach().abs().max())
        assert error <= tolerance * float(expected.detach().abs().max()), dtype
        generator = torch.Generator().manual_seed(2)
        cotangent = torch.randn(found.shape, generator=generator, dtype=torch.float64).to(dtype)
        gradients = [
            torch.autograd.grad((out * cotangent).sum(), list(own.values()), materialize_grads=True)
            for out in (found, expected)
        ]
        largest = max(float(g.abs().max()) for g in gradients[1])
        for name, a, b in zip(own, *gradients, strict=True):
            assert float((a - b).abs().max()) <= tolerance * largest, (name, dtype)


def test_forward_and_gradients_are_those_of_the_formula(case):
    module, spec = case
    assert_equals_oracle(module, spec, random_weights(spec, 2), inputs_for(spec, 4))


def test_every_model_reads_its_own_batch(case):
    module, spec = case
    weights, inputs = random_weights(spec, 3), inputs_for(spec, 3, 2)
    assert_equals_oracle(module, spec, weights, inputs)
    together = module.forward(spec, weights, inputs)
    for m in range(3):
        alone = module.forward(spec, {k: w[m : m + 1] for k, w in weights.items()}, inputs[m])
        torch.testing.assert_close(together[m], alone[0], rtol=1e-11, atol=1e-11)


def test_batches_for_another_number_of_models_are_refused(case):
    module, spec = case
    with pytest.raises(ValueError, match="for 2 models, weights of 3"):
        module.forward(spec, random_weights(spec, 3), inputs_for(spec, 2, 2))


SMALL = st.integers(1, 4)
SPECS = st.one_of(
    st.builds(
        AttentionOnlySpec,
        **dict.fromkeys(("N", "S", "d", "d_h", "H", "qk_rank"), SMALL),
        layers=st.integers(1, 2),
        positions=st.sampled_from(["input", "attention", "none"]),
        scale=st.booleans(),
        skip=st.booleans(),
        attention=st.sampled_from(["softmax", "hardmax"]),
    ),
    st.builds(
        SharedBottleneckSpec,
        **dict.fromkeys(("N", "S", "d", "d_h", "H"), SMALL),
        layers=st.integers(1, 2),
    ),
    st.builds(
        MLPTransformerSpec,
        **dict.fromkeys(("N", "S", "d", "d_h", "H", "qk_rank"), SMALL),
        w=st.integers(0, 4),
        layers=st.integers(1, 2),
        activation=st.sampled_from(["gelu", "relu"]),
        positions=st.sampled_from(["input", "attention", "none"]),
        scale=st.booleans(),
    ),
    st.builds(SequenceEncoderSpec, T=SMALL, N=SMALL, d=SMALL),
    st.builds(
        FeedForwardTransformerSpec,
        **dict.fromkeys(("d", "m", "q", "s", "blocks", "d_out"), SMALL),
        n=st.integers(2, 4),
        attention=st.sampled_from(["softmax", "hardmax"]),
        first=st.integers(-1, 1),
        uniform=st.booleans(),
        read=st.integers(-2, 1),
    ),
)
MODULES = {spec.family: module for module, spec in CASES}


@settings(max_examples=40, deadline=None)
@given(spec=SPECS, models=st.integers(1, 3), own=st.booleans())
def test_all_sizes(spec, models, own):
    module, batch = MODULES[spec.family], (models, 2) if own else (2,)
    assert_counts(spec)
    assert_equals_oracle(module, spec, random_weights(spec, models), inputs_for(spec, *batch))


def assert_counts(spec: Any) -> None:
    """The count is that of the weights, and the spec survives JSON."""
    assert spec.parameters == sum(math.prod(shape) for shape in spec.weight_shapes().values())
    assert type(spec)(**spec.to_json()) == spec
    assert spec.row_bytes(8) == 2 * spec.row_bytes(4) > 0
    assert str(spec.d) in str(spec)


def test_parameters_are_the_entries_of_the_weights(case):
    assert_counts(case[1])


# Starts.


def test_a_start_depends_on_its_own_generator_only(case):
    module, spec = case

    def read(rows: int) -> tuple[tuple[Tensor, ...], Tensor]:
        return (inputs_for(spec, rows),), torch.zeros(rows)

    for init in module.INITS:
        stack = initial(spec, generators(3, 4, 5), init=init, inputs=read)
        alone = initial(spec, generators(4), init=init, inputs=read)
        exact = initial(spec, generators(4), torch.float64, init=init, inputs=read)
        assert stack.keys() == spec.weight_shapes().keys()
        for name, shape in spec.weight_shapes().items():
            assert stack[name].shape == (3, *shape)
            assert stack[name].dtype == torch.float32
            assert bool((stack[name][1] == alone[name][0]).all())
            assert bool((exact[name].float() == alone[name]).all())
            assert not bool((stack[name][0] == stack[name][2]).all())


def test_unknown_starts_are_refused(case):
    _, spec = case
    with pytest.raises(ValueError, match=r"init of .* must be one of .*, found 'zero'"):
        initial(spec, generators(0), init="zero")


def assert_fills(w: Tensor, bound: float) -> None:
    """U(-bound, bound): P(all |w| < (1 - x) bound) = (1 - x)^entries, e^-20 at x = 20 / entries;
    the variance bound^2 / 3 within 6 standard errors, bound^2 sqrt(4/45) each."""
    entries = w.numel()
    assert bound * (1 - 20 / entries) <= float(w.abs().max()) <= bound * (1 + 1e-6)
    error = 6 * bound**2 * math.sqrt(4 / 45 / entries)
    assert abs(float(w.double().square().mean()) - bound**2 / 3) < error


@pytest.mark.parametrize("d", [10, 6])
def test_attention_only_starts_as_coded(d):
    """Xavier on the stacked in-projection is U(±sqrt(1.5 / d)) where d_h = d."""
    spec = AttentionOnlySpec(N=50, S=9, d=d, d_h=10, H=20)
    start = initial(spec, generators(0))
    for name in ("W_E", "W_U"):
        assert_fills(start[name], d**-0.5)
    for name in ("W_pos", "W_O"):
        assert_fills(start[name], 10**-0.5)
    for name in ("W_Q", "W_K", "W_V"):
        assert_fills(start[name], math.sqrt(1.5 / 10) if d == 10 else math.sqrt(6 / (6 + 30)))
        linear = initial(spec, generators(0), init="linear")
        assert_fills(linear[name], d**-0.5)


def test_attention_only_starts_as_torch_does_it():
    """The bounds are those of the modules the authors use, read off torch's own starts."""
    d = 16
    layer = torch.nn.MultiheadAttention(d, 1, bias=False)
    out, embedding = torch.nn.Linear(d, d, bias=False), torch.nn.Linear(d, 50, bias=False)
    start = initial(AttentionOnlySpec(N=50, S=2, d=d, d_h=d, H=5), generators(0))
    for w, reference in [
        (start["W_Q"], layer.in_proj_weight),
        (start["W_O"], out.weight),
        (start["W_U"], embedding.weight),
    ]:
        ratio = float(w.abs().max() / reference.detach().abs().max())
        assert abs(ratio - 1) < 0.1  # 256 entries and more: each maximum within 5 % of its bound


def test_shared_bottleneck_starts_as_coded():
    spec = SharedBottleneckSpec(N=50, S=40, d=10, d_h=4, H=20)
    start = initial(spec, generators(0))
    for name in ("W_E", "W_U", "W_C"):
        assert_fills(start[name], 10**-0.5)
    for name in ("W_pos", "W_O", "W_D"):
        assert_fills(start[name], 0.5)
    for name in ("W_Q", "W_K", "W_V"):
        assert_fills(start[name], math.sqrt(1.5 / 4))


def test_mlp_starts_as_linear_layers():
    spec = MLPTransformerSpec(N=50, S=9, d=10, d_h=10, H=1, w=40)
    start = initial(spec, generators(0))
    for name, bound in [("W_in", 10**-0.5), ("b_in", 10**-0.5), ("W_out", 40**-0.5)]:
        assert_fills(start[name], bound)
    bare = initial(spec.heads, generators(0))
    assert all(bool((start[name] == bare[name]).all()) for name in bare)


def test_sequence_encoder_starts():
    spec = SequenceEncoderSpec(T=400, N=300, d=16)
    for init in ("uniform", "gaussian"):
        start = initial(spec, generators(0), init=init)
        assert_fills(start["W_U"], 0.25)
    lengths = start["E"].square().sum(-1)  # N(0, 1/d): mean 1, variance 2/d, 400 of them
    assert abs(float(lengths.mean()) - 1) < 6 * math.sqrt(2 / 16 / 400)
    assert_fills(initial(spec, generators(0))["E"], 0.25)


def test_feed_forward_starts_as_linear_layers():
    spec = FeedForwardTransformerSpec(d=9, n=4, m=16, q=25, s=4, blocks=30, d_out=20)
    start = initial(spec, generators(0))
    for name in ("W_1", "b_1", "W_Q", "W_K", "W_V", "E_out"):
        assert_fills(start[name], 1 / 4)
    for name, bound in [("E_in", 1 / 3), ("W_2", 1 / 5), ("b_2", 1 / 5), ("W_O", 1 / 2)]:
        assert_fills(start[name], bound)


# How the architectures contain each other.


def test_no_bottleneck_is_attention_only():
    """d = d_h: the authors' code is attention-only with positions="attention", scale=True."""
    spec = SharedBottleneckSpec(N=7, S=3, d=4, d_h=4, H=3, layers=2)
    weights, tokens = random_weights(spec, 2), inputs_for(spec, 5)
    found = shared_bottleneck.forward(spec, weights, tokens)
    torch.testing.assert_close(found, attention_only.forward(spec.heads, weights, tokens))


def test_a_bottleneck_is_attention_only_with_projections_in_the_heads():
    """One layer, no positions: W_Q^h = C Q^h, ..., W_O^h = O^h D. So a shared bottleneck can do
    nothing that heads with projections of their own cannot."""
    spec = SharedBottleneckSpec(N=7, S=3, d=5, d_h=3, H=4)
    weights, tokens = random_weights(spec, 2), inputs_for(spec, 5)
    weights["W_pos"] = torch.zeros_like(weights["W_pos"])
    C, D = weights["W_C"][:, :, None], weights["W_D"][:, :, None]
    own = {name: C @ weights[name] for name in ("W_Q", "W_K", "W_V")}
    own |= {"W_O": weights["W_O"] @ D, "W_E": weights["W_E"], "W_U": weights["W_U"]}
    plain = AttentionOnlySpec(N=7, S=3, d=5, d_h=3, H=4, positions="none", scale=True)
    torch.testing.assert_close(
        shared_bottleneck.forward(spec, weights, tokens), attention_only.forward(plain, own, tokens)
    )


def test_all_layers_share_one_bottleneck():
    """As coded: `linear_compress` and `linear_decompress` are made once for the whole model, so a
    layer more costs its heads alone."""
    sizes = {"N": 70, "S": 2, "d": 10, "d_h": 4, "H": 21}
    one, three = (SharedBottleneckSpec(**sizes, layers=layers) for layers in (1, 3))
    assert three.parameters - one.parameters == 2 * 4 * 4**2 * 21
    assert initial(three, generators(0))["W_C"].shape == (1, 1, 10, 4)


def test_without_hidden_units_the_mlp_transformer_is_attention_only():
    spec = MLPTransformerSpec(**SIZES, w=0, layers=2)
    weights, tokens = random_weights(spec, 2), inputs_for(spec, 5)
    found = mlp_transformer.forward(spec, weights, tokens)
    torch.testing.assert_close(found, attention_only.forward(spec.heads, weights, tokens))


def test_mlp_count_of_the_authors():
    """4 d^2 + 2 d w + w a layer, with w = 2 d (k - 1): 4 d^2 k + 2 d (k - 1)."""
    d, k = 10, 6
    spec = MLPTransformerSpec(N=50, S=2, d=d, d_h=d, H=1, w=2 * d * (k - 1))
    assert spec.parameters - d * (2 + 2 * 50) == 4 * d**2 * k + 2 * d * (k - 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"w": -1}, "w must be a whole number >= 0"),
        ({"w": 2, "H": 0}, "H must be a whole number >= 1"),
        ({"w": 2, "activation": "tanh"}, "activation must be gelu or relu, found 'tanh'"),
        ({"w": 2, "positions": "rotary"}, "positions must be input, attention or none"),
        ({"w": 2, "attention": "linear"}, "attention must be softmax or hardmax"),
    ],
)
def test_mlp_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        MLPTransformerSpec(**(SIZES | options))


def test_shared_bottleneck_sizes_are_checked():
    with pytest.raises(ValueError, match="d_h must be a whole number >= 1, found 0"):
        SharedBottleneckSpec(N=7, S=3, d=4, d_h=0, H=2)


# The sequence encoder and the feed-forward Transformer.


def test_sequences_can_be_given_with_or_without_a_column():
    spec = SequenceEncoderSpec(T=9, N=7, d=4)
    weights = random_weights(spec, 2)
    shared, own = torch.tensor([3, 0, 8]), torch.tensor([[3, 0, 8], [1, 1, 2]])
    for inputs in (shared, own):
        found = sequence_encoder.forward(spec, weights, inputs)
        assert bool((found == sequence_encoder.forward(spec, weights, inputs[..., None])).all())
        assert_equals_oracle(sequence_encoder, spec, weights, inputs)


def test_a_sequence_encoder_is_any_matrix_of_rank_d():
    """E and W_U from the SVD of a rank-d matrix of logits give it back (L(N, S, d))."""
    T, N, d = 12, 7, 3
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(T, d, generator=generator) @ torch.randn(d, N, generator=generator)
    U, s, V = torch.linalg.svd(target.double(), full_matrices=False)
    weights = {"E": (U[:, :d] * s[:d])[None], "W_U": V[None, :d]}
    found = sequence_encoder.forward(SequenceEncoderSpec(T, N, d), weights, torch.arange(T))
    torch.testing.assert_close(found[0], target.double(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("attention", ["softmax", "hardmax"])
def test_uniform_attention_is_softmax_and_hardmax_without_queries(attention):
    """UA = SA with W_Q = 0 or W_K = 0: all scores tie."""
    plain = FeedForwardTransformerSpec(d=3, n=5, m=4, q=6, s=2, blocks=2, attention=attention)
    weights, inputs = random_weights(plain, 2), inputs_for(plain, 6)
    uniform = {k: w for k, w in weights.items() if k not in ("W_Q", "W_K")}
    expected = feed_forward.forward(dataclasses.replace(plain, uniform=True), uniform, inputs)
    for name in ("W_Q", "W_K"):
        zero = weights | {name: torch.zeros_like(weights[name])}
        torch.testing.assert_close(feed_forward.forward(plain, zero, inputs), expected)


def test_feed_forward_cannot_tell_an_order():
    spec = FeedForwardTransformerSpec(d=3, n=5, m=4, q=6, blocks=4)
    weights, inputs = random_weights(spec, 2), inputs_for(spec, 6)
    turned = inputs[:, [2, 0, 3, 1, 4]]  # the last one, which is read, stays
    torch.testing.assert_close(
        feed_forward.forward(spec, weights, inputs), feed_forward.forward(spec, weights, turned)
    )


def test_blocks_are_halved_around_the_attention():
    assert FeedForwardTransformerSpec(d=3, n=5, m=4, q=6, blocks=4).first == 2
    paper = FeedForwardTransformerSpec.experiment(d=6, n=10, blocks=4)
    assert (paper.m, paper.q, paper.blocks, paper.first) == (2, 8, 8, 4)
    # E_in 12, E_out 2, 8 blocks of 2·16 + 8 + 2, W_V and W_O 2 each.
    assert paper.parameters == 12 + 2 + 8 * 42 + 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"first": 3}, "first must be at most blocks = 2, found 3"),
        ({"first": -2}, "first must be a whole number >= -1"),
        ({"read": 5}, "read must be a position of 5, found 5"),
        ({"read": -6}, "read must be a position of 5, found -6"),
        ({"d_out": 0}, "d_out must be a whole number >= 1"),
    ],
)
def test_feed_forward_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        FeedForwardTransformerSpec(d=3, n=5, m=4, q=6, blocks=2, **options)


# Hardmax.


def test_hardmax_shares_ties():
    """Two positions hold equal scores: x_1 = x_3 = 1, x_2 = 0, all scores x_S w x_s."""
    spec = AttentionOnlySpec(N=2, S=3, d=1, d_h=1, H=1, positions="none", attention="hardmax")
    one = {"W_E": [[0.0], [1.0]], "W_U": [[1.0, 0.0]]}
    one |= {name: [[[[1.0]]]] for name in ("W_Q", "W_K", "W_V", "W_O")}
    weights = {name: torch.tensor([w]) for name, w in one.items()}
    found = attention_only.forward(spec, weights, torch.tensor([[1, 0, 1], [1, 1, 0]]))[0, :, 0]
    assert found.tolist() == pytest.approx([1 + 1, 0 + 2 / 3])  # the latter: all scores 0


def test_softmax_tends_to_hardmax():
    """|softmax(s / τ) - hardmax(s)| <= 2 (S - 1) e^{-gap / τ}."""
    spec = AttentionOnlySpec(N=9, S=4, d=5, d_h=4, H=3, attention="hardmax")
    weights, tokens = random_weights(spec, 2), inputs_for(spec, 6)
    hard = attention_only.forward(spec, weights, tokens)
    errors = [
        float(
            attention_only.forward(spec, weights, tokens, Hardmax("annealed", t))
            .sub(hard)
            .abs()
            .max()
        )
        for t in (1.0, 0.1, 1e-4)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-9


def test_annealed_at_temperature_1_is_softmax():
    hard = AttentionOnlySpec(**SIZES, layers=2, attention="hardmax")
    weights, tokens = random_weights(hard, 2), inputs_for(hard, 5)
    soft = attention_only.forward(dataclasses.replace(hard, attention="softmax"), weights, tokens)
    annealed = attention_only.forward(hard, weights, tokens, Hardmax("annealed"))
    torch.testing.assert_close(annealed, soft)


@pytest.mark.parametrize("temperature", [0.3, 2.0])
@pytest.mark.parametrize("surrogate", ["straight-through", "annealed"])
@pytest.mark.parametrize("family", ["attention-only", "mlp-transformer"])
def test_surrogates_are_those_of_the_oracle(family, surrogate, temperature):
    options = {"layers": 2, "attention": "hardmax"}
    module, spec = {
        "attention-only": (attention_only, AttentionOnlySpec(**SIZES, **options)),
        "mlp-transformer": (mlp_transformer, MLPTransformerSpec(**SIZES, w=3, **options)),
    }[family]
    weights, tokens = random_weights(spec, 2), inputs_for(spec, 4)
    assert_equals_oracle(module, spec, weights, tokens, hardmax=Hardmax(surrogate, temperature))


def test_straight_through_gradient_by_hand():
    """Forward exact; backward J^T g, J = (diag(p) - p p^T) / τ the Jacobian of softmax(s / τ)."""
    scores = torch.tensor([0.5, 2.0, 2.0, -1.0], dtype=torch.float64, requires_grad=True)
    g, temperature = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64), 0.7
    a = attention_weights(scores, "hardmax", hardmax=Hardmax(temperature=temperature))
    assert a.tolist() == [0.0, 0.5, 0.5, 0.0]
    (found,) = torch.autograd.grad(a @ g, scores)
    p = torch.softmax(scores.detach() / temperature, 0)
    torch.testing.assert_close(found, (torch.diag(p) - torch.outer(p, p)) @ g / temperature)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"surrogate": "gumbel"}, "surrogate must be one of straight-through, annealed"),
        ({"temperature": 0.0}, "temperature must be above 0, found 0.0"),
        ({"temperature": math.nan}, "temperature must be above 0, found nan"),
    ],
)
def test_wrong_surrogates_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Hardmax(**options)


# Memories.


def untrained(case: tuple[ModuleType, Any], facts: Facts) -> TokenMemory:
    _, spec = case
    own = dataclasses.replace(spec, N=facts.N, S=facts.S)
    start = initial(own, generators(0))
    weights = {k: w[0] for k, w in start.items()}
    return TokenMemory(
        spec=own,
        weights=weights,
        vocabulary=facts.vocabulary,
        construction=ImportedConstruction(),
        facts=facts,
    )


@pytest.fixture
def facts() -> Facts:
    return bh.random_associations(N=6, S=2, T=9)


@pytest.mark.parametrize("case", TOKEN_FAMILIES, ids=_id)
def test_untrained_memories_are_saved_loaded_and_asked(case, facts, tmp_path):
    memory = untrained(case, facts)
    again = bh.load(memory.save(tmp_path / "memory"))
    assert again.spec == memory.spec
    module, tokens = case[0], torch.tensor(facts.tokens)
    stacked = {name: w[None] for name, w in memory.weights.items()}
    logits = module.forward(memory.spec, stacked, tokens)[0]
    assert bool((again.outputs(tokens) == logits).all())
    key = facts.key(0)
    best = memory.vocabulary.token(int(logits[0].argmax()))
    assert again.recall(*key) == memory.recall(*key)
    assert again.recall(*key).answer == best
    # The module multiplies in another order: float64, some hundred products of order 1.
    with torch.no_grad():
        found = again.to_torch().double()(tokens)
    torch.testing.assert_close(found, again.outputs(tokens, torch.float64), rtol=0, atol=1e-12)


def test_memories_from_before_hardmax_load():
    """memory.json of an earlier version has no `attention`."""
    old = AttentionOnlySpec(**SIZES).to_json()
    del old["attention"]
    assert AttentionOnlySpec(**old).attention == "softmax"


@pytest.mark.parametrize("case", TOKEN_FAMILIES, ids=_id)
def test_plain_floats_check_every_family(case, facts):
    """What plain floats say is what recall says, and never a proof."""
    memory = untrained(case, facts)
    checked = certify(memory, arithmetic="float")
    right = memory.answers(torch.tensor(facts.tokens)).numpy() == facts.answers
    assert checked.failed == int((~right).sum())
    assert not checked.certified
