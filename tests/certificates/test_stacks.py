"""Proofs of trained families: ball arithmetic breaks no bound, and the balls hold the formula.

The balls at 300 bits are the truth here; that they evaluate the right formula is checked against
the literal oracle of each family.
"""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.literal import literal_forward
from torch import Tensor

import byheart as bh
from byheart.certificates import certify
from byheart.certificates.architectures import ball_margins, bounded_logits
from byheart.certificates.arithmetic import (
    FLOAT64,
    FORMATS,
    GELU_SLOPE,
    Bounded,
    Rounding,
    margins,
)
from byheart.errors import ByheartError
from byheart.facts import Vocabulary
from byheart.models import TokenMemory, attention_only, mlp_transformer, shared_bottleneck
from byheart.models.architectures import initial
from byheart.specs import (
    AssociativeSpec,
    AttentionOnlySpec,
    MLPTransformerSpec,
    SharedBottleneckSpec,
)

SETTINGS = settings(max_examples=60, deadline=None, derandomize=True)
SMALL = st.integers(1, 4)
MODULES: dict[str, Any] = {
    "attention-only": attention_only,
    "shared-bottleneck": shared_bottleneck,
    "mlp-transformer": mlp_transformer,
}
OPTIONS: dict[str, Any] = {
    "layers": st.integers(1, 3),
    "positions": st.sampled_from(["input", "attention", "none"]),
    "scale": st.booleans(),
    "qk_rank": SMALL,
}
SIZES: dict[str, Any] = {"N": st.integers(2, 5), **dict.fromkeys(("S", "d", "d_h", "H"), SMALL)}
SPECS = st.one_of(
    st.builds(AttentionOnlySpec, **SIZES, **OPTIONS, skip=st.booleans()),
    st.builds(SharedBottleneckSpec, **SIZES, layers=st.integers(1, 3)),
    st.builds(
        MLPTransformerSpec,
        **SIZES,
        **OPTIONS,
        w=st.integers(0, 4),
        activation=st.sampled_from(["gelu", "relu"]),
    ),
)


def make(spec: Any, seed: int, spread: float = 0.0) -> tuple[dict[str, Tensor], Tensor]:
    """Gaussian weights, each with a scale of its own between 10^-spread and 10^spread."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in spec.weight_shapes().items():
        exponent = spread * (2 * float(torch.rand((), generator=generator)) - 1)
        w = torch.randn(shape, generator=generator, dtype=torch.float64)
        weights[name] = w * 10**exponent
    return weights, torch.randint(spec.N, (3, spec.S), generator=generator)


def balls(spec: Any, weights: dict[str, Tensor], tokens: Tensor, right: np.ndarray, bits: int):
    return ball_margins(
        spec, weights, tokens.numpy(), right, precision=bits, progress=lambda _: None
    )


@SETTINGS
@given(spec=SPECS, seed=st.integers(0, 2**20), spread=st.sampled_from([0.0, 1.0, 3.0]))
def test_no_bound_is_refuted_by_balls(spec, seed, spread):
    weights, tokens = make(spec, seed, spread)
    values = bounded_logits(spec, weights, tokens)
    for g in range(spec.N):
        right = np.full(len(tokens), g)
        margin, bound = (v.numpy() for v in margins(values, torch.from_numpy(right)))
        middle, radius = balls(spec, weights, tokens, right, 300)
        sure = np.isfinite(margin) & np.isfinite(bound) & np.isfinite(radius)
        error = np.abs(margin - middle) - radius
        # The midpoint is itself rounded to a double, which its radius counts.
        assert (error[sure] <= bound[sure]).all()
        claimed = margin > bound
        assert (middle[claimed & sure] + radius[claimed & sure] > 0).all()


@SETTINGS
@given(spec=SPECS, seed=st.integers(0, 2**20))
def test_balls_hold_the_formula(spec, seed):
    weights, tokens = make(spec, seed)
    stacked = {name: w[None] for name, w in weights.items()}
    logits = literal_forward(spec, stacked, tokens)[0]
    right = np.arange(len(tokens)) % spec.N
    own = logits.gather(1, torch.from_numpy(right)[:, None])[:, 0]
    others = logits.scatter(1, torch.from_numpy(right)[:, None], -torch.inf).amax(1)
    middle, radius = balls(spec, weights, tokens, right, 200)
    size = max(1.0, float(logits.abs().max()))
    # Three layers of sums and scores of order 100: float64 keeps ten digits and more.
    assert np.abs(middle - (own - others).numpy()).max() <= 1e-9 * size
    assert (radius <= 1e-12 * size).all()


EVERY = SPECS | st.builds(AssociativeSpec, **{n: SIZES[n] for n in ("N", "S", "d")})


@SETTINGS
@given(spec=EVERY, seed=st.integers(0, 2**20), spread=st.sampled_from([0.0, 1.0]))
def test_what_is_run_lies_within_the_bounds(make_memory, spec, seed, spread):
    """Plain floats, as `recall` computes them, against the bounds for their format."""
    weights, tokens = make(spec, seed, spread)
    weights = {name: w.float().double() for name, w in weights.items()}
    words = Vocabulary(tuple(f"t{i}" for i in range(spec.N)))
    exact = bounded_logits(spec, weights, tokens)
    for dtype, format in FORMATS.items():
        stored = {name: w.to(dtype) for name, w in weights.items()}
        said = make_memory(spec, stored, words).outputs(tokens, dtype).double()
        found = bounded_logits(spec, weights, tokens, format)
        sure = torch.isfinite(found.error)
        assert bool(((said - found.value).abs() <= found.error)[sure].all())
        assert bool((found.error >= exact.error)[sure].all())
        assert spread or format is not FLOAT64 or bool(sure.all())


@SETTINGS
@given(spec=SPECS, seed=st.integers(0, 2**20))
def test_bounds_are_not_vacuous(spec, seed):
    """Weights as they start: bounds far below any margin that matters. A layer turns errors of x
    into errors of scores, |W_QK||x| times as large, and a softmax turns those into errors of x."""
    _, tokens = make(spec, seed)
    start = initial(spec, [torch.Generator().manual_seed(seed)], torch.float64)
    found = bounded_logits(spec, {k: w[0] for k, w in start.items()}, tokens)
    limit = 1e-11 * 1e2 ** (spec.layers - 1)
    assert float(found.error.max()) < limit * max(1.0, float(found.value.abs().max()))


@given(
    z=st.floats(-40, 40),
    error=st.floats(0, 1e-9) | st.floats(0, 3),
    sign=st.sampled_from([-1, 0, 1]),
)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_activations_contain_every_value_within_the_error(z, error, sign):
    given_z = Bounded(*(torch.tensor([v], dtype=torch.float64) for v in (z, error)))
    before, ctx.prec = ctx.prec, 200
    try:
        exact = arb(z) + sign * arb(error)
        truths = {
            "gelu": exact * (-exact / arb(2).sqrt()).erfc() / 2,
            "relu": exact.max(arb(0)),
        }
        for act, truth in truths.items():
            found = Rounding({}).activation(given_z, act)
            difference = abs(truth - arb(float(found.value)))
            assert not difference > arb(float(found.error))
    finally:
        ctx.prec = before


def test_erf_is_as_good_as_assumed():
    """torch.erf against Arb: 16 times better than the bounds need, on the vector, strided and
    scalar paths of the library."""
    generator = torch.Generator().manual_seed(0)
    points = 14 * torch.rand(50_001, generator=generator, dtype=torch.float64) - 7
    points[:1001] = torch.logspace(-20, 2, 1001, dtype=torch.float64)
    single = torch.stack([torch.erf(x) for x in points[:2000]])
    worst = 0.0
    before, ctx.prec = ctx.prec, 128
    try:
        for x, found in itertools.chain(
            zip(points.tolist(), torch.erf(points).tolist(), strict=True),
            zip(points[::7].tolist(), torch.erf(points[::7]).tolist(), strict=True),
            zip(points[:2000].tolist(), single.tolist(), strict=True),
        ):
            worst = max(worst, abs(float(arb(x).erf() - arb(found))))
    finally:
        ctx.prec = before
    assert 0 < worst <= FLOAT64.erf / 16


def test_gelu_is_nowhere_steeper_than_assumed():
    """gelu'(z) = Φ(z) + z φ(z), whose derivative (2 - z²) φ(z) vanishes at ±sqrt 2 only."""
    z = torch.tensor([2.0**0.5, -(2.0**0.5), 0.0, 50.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(torch.nn.functional.gelu(z).sum(), z)
    assert float(slope.abs().max()) <= GELU_SLOPE


# Memories.

TRAINED: list[Any] = [
    MLPTransformerSpec(N=6, S=2, d=6, d_h=6, H=1, w=24),
    MLPTransformerSpec(N=6, S=2, d=6, d_h=6, H=1, w=12, activation="relu", layers=2),
    SharedBottleneckSpec(N=6, S=2, d=6, d_h=4, H=6),
    AttentionOnlySpec(N=6, S=2, d=6, d_h=4, H=4, layers=2, positions="attention", scale=True),
]


@pytest.fixture(scope="module", params=TRAINED, ids=str)
def trained(request: pytest.FixtureRequest, make_memory) -> TokenMemory:
    """A memory trained to recall 12 random facts, by plain full-batch Adam."""
    spec, module = request.param, MODULES[request.param.family]
    facts = bh.random_associations(N=6, S=2, T=12, seed=3)
    weights = initial(spec, [torch.Generator().manual_seed(0)])
    parameters = [w.requires_grad_() for w in weights.values()]
    optimizer = torch.optim.Adam(parameters, lr=0.02)
    tokens, answers = torch.tensor(facts.tokens), torch.tensor(facts.answers)
    loss = torch.tensor(torch.inf)
    for _ in range(300):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(module.forward(spec, weights, tokens)[0], answers)
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.1
    kept = {k: w[0].detach() for k, w in weights.items()}
    return make_memory(spec, kept, facts.vocabulary, facts)


@pytest.mark.parametrize("arithmetic", ["rounding", "ball"])
def test_trained_memories_are_certified_from_their_files(trained, arithmetic, tmp_path):
    from byheart.certificates.certificate import certify_folder

    proof = certify_folder(trained.save(tmp_path / "memory"), arithmetic=arithmetic)
    assert proof.certified
    assert proof.margin is not None
    assert proof.error_bound is not None
    assert proof.error_bound < 1e-6 < proof.margin
    uses_erf = getattr(trained.spec, "activation", "") == "gelu" and arithmetic == "rounding"
    assert ("erf" in proof.arithmetic) == uses_erf


@pytest.mark.parametrize("arithmetic", ["rounding", "ball"])
def test_a_fact_that_is_wrong_is_named(trained, arithmetic):
    facts = trained.facts
    answers = facts.answers.copy()
    answers[4] = (answers[4] + 1) % facts.N
    wrong = dataclasses.replace(facts, answers=answers)
    proof = certify(trained, wrong, arithmetic)
    assert not proof.certified
    assert [failure.key for failure in proof.failures] == [facts.key(4)]


def test_weights_that_are_not_numbers_prove_nothing(trained):
    weights = dict(trained.weights)
    weights["W_U"] = torch.full_like(weights["W_U"], torch.nan)
    proof = certify(dataclasses.replace(trained, weights=weights))
    assert proof.failed == proof.facts


@pytest.mark.parametrize("arithmetic", ["rounding", "ball"])
@pytest.mark.parametrize("family", [AttentionOnlySpec, MLPTransformerSpec])
def test_hardmax_is_refused(make_memory, family, arithmetic):
    sizes = {"N": 6, "S": 2, "d": 3, "d_h": 3, "H": 2}
    spec = family(**sizes, attention="hardmax", **({"w": 2} if "MLP" in family.__name__ else {}))
    weights, _ = make(spec, 0)
    facts = bh.random_associations(N=6, S=2, T=5)
    with pytest.raises(ByheartError, match="softmax attention"):
        certify(make_memory(spec, weights, facts.vocabulary, facts), arithmetic=arithmetic)
