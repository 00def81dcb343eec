"""Every path through the trainer has the gradients of the literal formula."""

from functools import lru_cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.literal import literal_forward

from byheart.errors import ByheartError
from byheart.models.architectures import module_of
from byheart.specs import (
    AttentionOnlySpec,
    MLPTransformerSpec,
    MultiHeadSpec,
    SharedBottleneckSpec,
)
from byheart.training import native
from byheart.training.choose import BY_NAME, choose
from byheart.training.data import Data
from byheart.training.learner import FlatOptimizer, evaluate
from byheart.training.losses import example_losses
from byheart.training.recipe import Recipe

ONE_LAYER = [
    AttentionOnlySpec(N=11, S=2, d=5, d_h=5, H=7, positions="attention", scale=True),
    AttentionOnlySpec(N=11, S=2, d=5, d_h=3, H=4),
    AttentionOnlySpec(N=7, S=2, d=4, d_h=6, H=2, positions="none", scale=True),
    AttentionOnlySpec(N=9, S=4, d=5, d_h=3, H=4, positions="none"),
    AttentionOnlySpec(N=9, S=3, d=4, d_h=4, H=6, positions="attention"),
    AttentionOnlySpec(N=9, S=3, d=4, d_h=4, H=6, skip=False, positions="attention"),
    SharedBottleneckSpec(N=8, S=2, d=5, d_h=3, H=4),
    SharedBottleneckSpec(N=8, S=3, d=3, d_h=5, H=6),
    SharedBottleneckSpec(N=8, S=2, d=4, d_h=4, H=3),
    MLPTransformerSpec(N=8, S=2, d=4, d_h=4, H=1, w=9, positions="attention", scale=True),
    MLPTransformerSpec(N=8, S=3, d=4, d_h=3, H=5, w=6, activation="relu"),
    MLPTransformerSpec(N=8, S=2, d=4, d_h=4, H=2, w=0),
]
VECTORS = [
    MultiHeadSpec(d=8, n=4, d_h=3, H=3, d_out=5, shared=True),
    MultiHeadSpec(d=6, n=4, d_h=3, H=3, d_out=5, shared=True),
    MultiHeadSpec(d=6, n=4, d_h=3, H=3, d_v=2, d_out=5, shared=True),
    MultiHeadSpec(d=6, n=4, d_h=3, H=3, d_v=2, d_out=5, shared=False),
    MultiHeadSpec(d=6, n=4, d_h=3, H=3, d_out=5, shared=False, scale=True),
    MultiHeadSpec(8, 4, 6, 3, 1, 5, True, embed=True, scale=True, decoder=True),
    MultiHeadSpec(16, 13, 5, 7, 1, 5, True, embed=True, scale=True, decoder=True),
    MultiHeadSpec(6, 4, 6, 3, 1, 5, False, embed=True, scale=True, decoder=True),
    MultiHeadSpec(8, 4, 3, 9, 1, 5, False),
    MultiHeadSpec(8, 1, 3, 4, 1, 5, False, embed=True, scale=True, decoder=True),
    MultiHeadSpec(16, 13, 5, 7, 1, 5, False, embed=True, scale=True, decoder=True),
]
DEEP = [
    AttentionOnlySpec(N=9, S=2, d=4, d_h=4, H=3, layers=3, positions="attention", scale=True),
    AttentionOnlySpec(N=9, S=2, d=4, d_h=2, H=3, layers=2),
    AttentionOnlySpec(N=9, S=2, d=3, d_h=5, H=2, layers=2, qk_rank=1, positions="none"),
    SharedBottleneckSpec(N=8, S=2, d=5, d_h=3, H=4, layers=2),
    SharedBottleneckSpec(N=8, S=2, d=4, d_h=4, H=3, layers=2),
    MLPTransformerSpec(N=8, S=2, d=4, d_h=4, H=1, w=5, layers=3, positions="attention", scale=True),
    MLPTransformerSpec(N=8, S=2, d=4, d_h=3, H=2, w=5, layers=2, activation="relu"),
    MLPTransformerSpec(N=8, S=2, d=4, d_h=3, H=2, w=0, layers=2),
]
M, T, B = 3, 20, 8
STEPS = 60
COMPILED = "compiled pairs"


def learner(spec, models, data, path, dtype=torch.float32):
    if path == COMPILED and native.missing("stack") is not None:
        pytest.skip(f"no compiled kernels here: {native.missing('stack')}")
    kernel = choose(spec, "cross-entropy", data, path, dtype=dtype)
    return kernel(spec, models, Recipe(), dtype=dtype)


def some_data(spec, own=False, seed=0):
    made = torch.Generator().manual_seed(seed)
    lead = (M, T) if own else (T,)
    if isinstance(spec, MultiHeadSpec):
        context = torch.rand(
            *(() if spec.shared else lead), spec.n, spec.d, generator=made, dtype=torch.float64
        )
        query = torch.rand(*lead, spec.d, generator=made, dtype=torch.float64)
        targets = torch.randint(spec.d_out, lead, generator=made)
        return Data(query, targets, context=context, own=own, contexts_differ=not spec.shared)
    tokens = torch.randint(spec.N, (*lead, spec.S), generator=made)
    return Data(tokens, torch.randint(spec.N, lead, generator=made), own=own)


def some_weights(spec, seed=0, size=0.7):
    made = torch.Generator().manual_seed(seed)
    return {
        name: size * torch.randn(M, *shape, generator=made, dtype=torch.float64)
        for name, shape in spec.weight_shapes().items()
    }


def literal(spec, weights, data, order, i, loss="cross-entropy"):
    """Outputs, gradients and mean losses of the literal formula, in float64."""
    leaves = {k: w.clone().requires_grad_() for k, w in weights.items()}
    if order is None:
        order, i = torch.arange(data.T).expand(1, M, -1), 0
    inputs, targets = data.batch(order[i])
    outputs = literal_forward(spec, leaves, *inputs)
    losses = example_losses(loss, outputs, targets, data.kind)
    if data.rows is None:
        means = losses.mean(1)
    else:
        means = torch.stack([x[:n].mean() for x, n in zip(losses, data.rows, strict=True)])
    means.sum().backward()
    gradients: dict[str, torch.Tensor] = {k: w.grad for k, w in leaves.items()}  # type: ignore[misc]
    return outputs.detach(), gradients, means.detach()


def paths(spec):
    if isinstance(spec, MultiHeadSpec):
        by_hand = ["scalar heads"] if spec.d_v == 1 else []
        compiled = ["compiled shared" if spec.shared else "compiled vectors"]
        if not by_hand or native.missing("vectors") or spec.d % 8:
            compiled = []
        return ["autograd", *by_hand, *compiled]
    tables = ["token tables"] if isinstance(spec, AttentionOnlySpec) else []
    pairs = [COMPILED] if spec.S == 2 else []
    return ["autograd", "bilinear", "u/z", *tables, *pairs]


# Data of each model's own is the general case; one order of examples for all is a special one.
REGIMES = [*(pytest.param(shared, marks=pytest.mark.slow) for shared in ("batch", "full")),
           "own batch", "own full", "own sizes"]  # fmt: skip
CASES = [(spec, path) for spec in ONE_LAYER + VECTORS for path in paths(spec)]


def close(a, b, size, tolerance=1e-5):
    assert float((a - b).abs().max()) <= tolerance * max(1.0, float(size))


@lru_cache(maxsize=4)  # the oracle's loops take longer than all paths that are held against it
def oracle(spec, regime):
    data = some_data(spec, own="own" in regime)
    if regime == "own sizes":
        data = Data(**{**vars(data), "rows": torch.tensor([20, 7, 13])})
    made = torch.Generator().manual_seed(1)
    order = torch.randint(T, (2, M, B), generator=made) if "batch" in regime else None
    weights = some_weights(spec)
    return data, order, weights, literal(spec, weights, data, order, 0)


@pytest.mark.parametrize(("spec", "path"), CASES, ids=lambda x: str(x))
@pytest.mark.parametrize("regime", REGIMES)
def test_gradients_equal_the_literal_oracle(spec, path, regime):
    data, order, weights, (outputs, expected, losses) = oracle(spec, regime)
    made = learner(spec, M, data, path=path)
    made.load(weights)
    made.prepare(data.to("cpu", torch.float32), order)
    right = made.gradient(0, log=True)
    assert right is not None
    wanted = data.targets if order is None else data.batch(order[0])[1]
    hits = outputs.argmax(-1) == wanted
    if data.rows is not None:
        hits &= torch.arange(T) < data.rows[:, None]
    assert right.tolist() == hits.sum(1).tolist()
    assert made.losses is not None
    close(made.losses, losses, losses.max())
    found = made.weights(made.grad)
    assert found.keys() == expected.keys()
    for name in found:
        close(found[name], expected[name], expected[name].abs().max())


@given(
    N=st.integers(2, 9),
    S=st.integers(2, 5),
    d=st.integers(1, 6),
    d_h=st.integers(1, 6),
    H=st.integers(1, 8),
    positions=st.sampled_from(["input", "attention", "none"]),
    scale=st.booleans(),
    skip=st.booleans(),
    path=st.sampled_from(["autograd", "bilinear", "u/z", "token tables"]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=40, deadline=None)
def test_gradients_equal_the_oracle_for_any_size(path, seed, **sizes):
    spec = AttentionOnlySpec(**sizes)
    data, weights = some_data(spec, seed=seed), some_weights(spec, seed)
    order = torch.randint(T, (1, M, 4), generator=torch.Generator().manual_seed(seed))
    _, expected, _ = literal(spec, weights, data, order, 0)
    made = learner(spec, M, data, path=path)
    made.load(weights)
    made.prepare(data, order)
    assert made.gradient(0) is None
    for name, gradient in made.weights(made.grad).items():
        close(gradient, expected[name], expected[name].abs().max(), 3e-5)


@lru_cache(maxsize=4)
def literally_trained(spec):
    """Autograd in float64 and `torch.optim.Adam`, `STEPS` steps: data, order, start, weights, rate.
    Deep layers amplify rounding, so they have smaller weights and steps."""
    size, lr = (0.3, 0.002) if spec in DEEP else (0.4, 0.01)
    data, weights = some_data(spec), some_weights(spec, size=size)
    order = torch.randint(T, (STEPS, M, B), generator=torch.Generator().manual_seed(2))
    leaves = {k: w.clone().requires_grad_() for k, w in weights.items()}
    adam = torch.optim.Adam(list(leaves.values()), lr=lr)
    for i in range(STEPS):
        inputs, targets = data.batch(order[i])
        outputs = module_of(spec).forward(spec, leaves, *inputs)
        adam.zero_grad()
        example_losses("cross-entropy", outputs, targets, "class").mean(1).sum().backward()
        adam.step()
    return data, order, weights, {k: w.detach() for k, w in leaves.items()}, lr


STEPPED = [c for c in CASES if c[1] != "autograd"]
STEPPED += [(DEEP[i], path) for i in (0, 3, 5) for path in ("deep pairs", COMPILED)]


@pytest.mark.parametrize(("spec", "path"), STEPPED, ids=str)
def test_parameters_after_adam_steps_equal_literal_training(spec, path):
    """The kernel and torch's fused Adam beside autograd in float64 and `torch.optim.Adam`."""
    data, order, weights, expected, lr = literally_trained(spec)
    made = learner(spec, M, data, path=path)
    made.load(weights)
    made.prepare(data.to("cpu", torch.float32), order)
    optimizer = FlatOptimizer(made.recipe, made.theta, made.grad)
    for i in range(STEPS):
        made.gradient(i)
        optimizer.step(lr)
    for name, w in made.weights().items():
        assert float((w - expected[name]).abs().max()) <= 3e-5, name


@pytest.mark.parametrize("spec", DEEP, ids=str)
@pytest.mark.parametrize("regime", REGIMES)
def test_deep_pairs_equal_the_literal_oracle(spec, regime):
    """In float64: random deep layers amplify rounding, which float32 would blame on the kernel.
    The compiled one computes in float32, and so with smaller weights."""
    data = some_data(spec, own="own" in regime)
    if regime == "own sizes":
        data = Data(**{**vars(data), "rows": torch.tensor([20, 7, 13])})
    made = torch.Generator().manual_seed(1)
    order = torch.randint(T, (2, M, B), generator=made) if "batch" in regime else None
    weights, i = some_weights(spec, size=0.3), 1 if order is not None else 0
    _, expected, _ = literal(spec, weights, data, order, i)
    paths = {"deep pairs": (torch.float64, 1e-11)}
    if native.missing("stack") is None:
        paths[COMPILED] = torch.float32, 1e-5
    for path, (dtype, tolerance) in paths.items():
        found = learner(spec, M, data, path=path, dtype=dtype)
        found.load(weights)
        found.prepare(data.to("cpu", dtype), order)
        found.gradient(i)
        for name, gradient in found.weights(found.grad).items():
            size = expected[name].abs().max()
            assert float((gradient - expected[name]).abs().max()) <= tolerance * size, (path, name)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("fused", [True, False])
def test_optimizers_equal_those_of_torch(name, fused):
    start = torch.randn(50, generator=torch.Generator().manual_seed(0))
    theta, grad = start.clone(), torch.zeros(50)
    options: dict[str, Any] = {"weight_decay": 0.02}
    options |= {"momentum": 0.9} if name == "sgd" else {}
    mine = FlatOptimizer(Recipe(optimizer=name, **options), theta, grad, fused=fused)
    parameter = torch.nn.Parameter(start.clone())
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    oracle = kinds[name]([parameter], lr=0.1, **options)
    for i in range(30):
        grad.copy_(torch.randn(50, generator=torch.Generator().manual_seed(i)))
        parameter.grad = grad.clone()
        oracle.param_groups[0]["lr"] = 0.1 / (i + 1)
        mine.step(0.1 / (i + 1))
        oracle.step()
    close(theta, parameter.detach(), 1.0, 1e-6)
    assert int(mine.t) == 30


@pytest.fixture(params=["compiled", "off"])
def kernels(request, monkeypatch):
    """With compiled kernels, where there are any, and without."""
    if request.param == "off":
        monkeypatch.setenv(native.SWITCH, "off")
    native.load.cache_clear()
    if request.param == "compiled" and native.missing("stack") is not None:
        pytest.skip(f"no compiled kernels here: {native.missing('stack')}")
    yield request.param
    native.load.cache_clear()


def test_the_path_is_chosen_by_shape_and_refused_where_it_does_not_fit(kernels):
    token, loss = some_data(ONE_LAYER[0]), "cross-entropy"
    for spec, plain in (
        (AttentionOnlySpec(50, 2, 10, 10, 16), "bilinear"),
        (AttentionOnlySpec(50, 2, 10, 10, 6), "u/z"),
        (AttentionOnlySpec(50, 2, 10, 10, 6, layers=2), "deep pairs"),
    ):
        compiled = COMPILED if kernels == "compiled" else plain
        assert choose(spec, loss, token).name == compiled
        assert choose(spec, loss, token, "torch").name == plain
        assert choose(spec, loss, token, dtype=torch.float64).name == plain
        assert choose(spec, loss, token, device="meta").name == plain
    # whole products G_h of narrow heads in a wide layer cost more than token tables
    wide = AttentionOnlySpec(N=50, S=2, d=128, d_h=16, H=8)
    assert choose(wide, loss, token).name == "token tables"
    assert choose(AttentionOnlySpec(50, 3, 10, 10, 6, layers=2), loss, token).name == "autograd"
    assert choose(AttentionOnlySpec(50, 2, 10, 10, 6), "hinge", token).name == "token tables"
    compiled = "scalar heads" if native.missing("vectors") else "compiled shared"
    assert choose(VECTORS[0], loss, some_data(VECTORS[0])).name == compiled
    assert choose(VECTORS[1], loss, some_data(VECTORS[1])).name == "scalar heads"
    assert choose(VECTORS[2], loss, some_data(VECTORS[2])).name == "autograd"
    own = some_data(VECTORS[-1])
    compiled = "scalar heads" if native.missing("vectors") else "compiled vectors"
    assert choose(VECTORS[-1], loss, own).name == compiled
    assert choose(VECTORS[-1], loss, own, dtype=torch.float64).name == "scalar heads"
    assert choose(VECTORS[-1], loss, own, device="cuda").name == "scalar heads"
    three = AttentionOnlySpec(50, 3, 10, 10, 6, layers=2)
    for name in BY_NAME:
        with pytest.raises(ByheartError, match="does not do this"):
            choose(three, loss, token, name)
    with pytest.raises(ByheartError, match="`path` must be one of"):
        choose(three, loss, token, "magic")
    if kernels == "off":
        with pytest.raises(ByheartError, match=f"not here: {native.SWITCH}=off switches"):
            choose(AttentionOnlySpec(50, 2, 10, 10, 6), loss, token, COMPILED)


@pytest.mark.parametrize("path", ["scalar heads", "compiled vectors"])
@pytest.mark.parametrize("own", [False, True])
def test_an_evaluation_by_a_kernel_is_the_model_s(path, own):
    """Of all examples in pieces of a batch, whatever it computed before; and nothing of it is left
    in the gradients after."""
    spec = VECTORS[-1]
    if path not in paths(spec):
        pytest.skip("no C++ compiler")
    data = some_data(spec, own=own).to("cpu", torch.float32)
    made = learner(spec, M, data, path=path)
    made.load(some_weights(spec))
    made.prepare(data, torch.randint(T, (2, M, B), generator=torch.Generator().manual_seed(1)))
    made.gradient(0)
    before = made.grad.clone()
    accuracy, loss = made.score(data)
    known = evaluate(spec, made.weights(), data, Recipe())
    assert accuracy.tolist() == known[0].tolist()
    close(loss, known[1], known[1].max())
    made.gradient(0)
    assert torch.equal(made.grad, before)


def test_compiled_vectors_keep_to_one_context_s_memory():
    """Contexts that are slices of a larger tensor are read where they are."""
    spec = VECTORS[-1]
    if "compiled vectors" not in paths(spec):
        pytest.skip("no C++ compiler")
    data = some_data(spec, own=True).to("cpu", torch.float32)
    assert data.context is not None
    wide = torch.full((M, T + 5, spec.n, spec.d), torch.nan)
    wide[:, 2 : T + 2] = data.context
    sliced = Data(**{**vars(data), "context": wide[:, 2 : T + 2]})
    made = learner(spec, M, data, path="compiled vectors")
    made.load(some_weights(spec))
    for order in (None, torch.randint(T, (1, M, B), generator=torch.Generator().manual_seed(1))):
        made.prepare(data, order)
        made.gradient(0)
        expected = made.grad.clone()
        made.prepare(sliced, order)
        made.gradient(0)
        assert torch.equal(made.grad, expected) and expected.abs().max() > 0


def test_bfloat16_is_a_path_that_is_named():
    """Products in bfloat16: gradients near those of float32 and not the same, everything that is
    kept in float32, and never chosen by itself."""
    for spec in (ONE_LAYER[0], VECTORS[-1]):
        data = some_data(spec).to("cpu", torch.float32)
        assert choose(spec, "cross-entropy", data).name != "bfloat16"
        grads = {}
        for path in ("autograd", "bfloat16"):
            made = learner(spec, M, data, path=path)
            made.load(some_weights(spec))
            made.prepare(data, torch.arange(T).expand(1, M, -1))
            made.gradient(0)
            grads[path] = made.grad.clone()
            assert made.name == path and made.theta.dtype == made.grad.dtype == torch.float32
        size = float(grads["autograd"].abs().max())
        off = float((grads["autograd"] - grads["bfloat16"]).abs().max())
        assert 1e-6 * size < off < 0.1 * size
        accuracy, _ = made.score(data)
        assert accuracy.tolist() == evaluate(spec, made.weights(), data, Recipe())[0].tolist()
