"""Feed-forward Transformers of small width: the compiled kernel has the gradients of autograd in
float64, and everything works without it."""

import itertools

import pytest
import torch

from byheart.errors import ByheartError
from byheart.specs import FeedForwardTransformerSpec
from byheart.training import Data, Recipe, kajitsuka2025, native, train_stack
from byheart.training.choose import choose
from byheart.training.kernels import narrow
from byheart.training.native import load, missing

M, N, K, D = 3, 37, 9, 4
compiled = pytest.mark.skipif(load("narrow") is None, reason=str(missing("narrow")))
PATHS = ["autograd", pytest.param("narrow", marks=compiled)]


def some_spec(kind="vectors", m=2, **sizes):
    sizes = {"n": 5, "q": 2 * m + 1, "blocks": 4, "d_out": 3, "read": 0, "uniform": True} | sizes
    return FeedForwardTransformerSpec(d=K if kind == "words" else D, m=m, **sizes)


def some_data(spec, kind="vectors", loss="cross-entropy", own=False, rows=N, seed=0):
    """`vectors`; `table`: numbers of the rows of a table; `words`: of the rows of E_in."""
    source = torch.Generator().manual_seed(seed)
    lead = (M, rows) if own else (rows,)
    if loss == "mse":
        targets = torch.randn(*lead, spec.d_out, generator=source, dtype=torch.float64)
    else:
        targets = torch.randint(spec.d_out, lead, generator=source)
    if kind == "vectors":
        inputs = torch.randn(*lead, spec.n, D, generator=source, dtype=torch.float64)
    else:
        inputs = torch.randint(K, (*lead, spec.n), generator=source)
    table = torch.randn(K, D, generator=source, dtype=torch.float64) if kind == "table" else None
    return Data(inputs, targets, "value" if loss == "mse" else "class", context=table, own=own)


def some_weights(spec, size=0.35, seed=0):
    source = torch.Generator().manual_seed(seed)
    return {
        name: size * torch.randn(M, *shape, generator=source, dtype=torch.float64)
        for name, shape in spec.weight_shapes().items()
    }


def learned(spec, data, order, loss, path, dtype=torch.float32):
    """Gradients, right answers, accuracy and loss."""
    recipe = Recipe(loss=loss, tolerance=0.5)
    made = choose(spec, loss, data, path, dtype=dtype)(spec, M, recipe, dtype=dtype)
    made.load(some_weights(spec))
    data = data.to("cpu", dtype)
    made.prepare(data, order)
    hits = made.gradient(0, log=True)
    assert hits is not None
    return made.weights(made.grad), hits, *made.score(data)


def check(spec, data, order=None, loss="cross-entropy"):
    expected = learned(spec, data, order, loss, "autograd", torch.float64)
    found = learned(spec, data, order, loss, "narrow")
    assert found[0].keys() == expected[0].keys()
    for name, gradient in found[0].items():
        size = max(1e-4, float(expected[0][name].abs().max()))
        assert float((gradient - expected[0][name]).abs().max()) <= 1e-5 * size, name
    assert torch.equal(found[1], expected[1]) and torch.equal(found[2], expected[2])
    torch.testing.assert_close(found[3], expected[3], rtol=1e-5, atol=1e-6)


@compiled
@pytest.mark.parametrize("loss", ["cross-entropy", "mse"])
@pytest.mark.parametrize("uniform", [True, False])
@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 6, 7, 8, 11])
def test_gradients_equal_autograd_in_float64(m, uniform, loss):
    for kind, read in (("vectors", -1), ("table", 0), ("words", 2)):
        spec = some_spec(kind, m, uniform=uniform, read=read, s=1 + read % 3)
        check(spec, some_data(spec, kind, loss), loss=loss)


@compiled
@pytest.mark.parametrize(("first", "blocks"), [(0, 1), (1, 1), (0, 3), (3, 4), (5, 6)])
@pytest.mark.parametrize(("n", "rows"), [(1, 1), (1, 700), (2, 64), (70, 33), (3, 513)])
def test_gradients_of_any_number_of_blocks_tokens_and_rows(first, blocks, n, rows):
    """Parts of tiles, whole tiles and more than one; one token; no block before or after."""
    for kind, uniform in itertools.product(("vectors", "table"), (True, False)):
        spec = some_spec(kind, 2, n=n, first=first, blocks=blocks, uniform=uniform, q=3)
        check(spec, some_data(spec, kind, rows=rows))


@compiled
@pytest.mark.parametrize("uniform", [True, False])
def test_long_sequences_are_computed_again_in_pieces(monkeypatch, uniform):
    spec = some_spec(n=300, uniform=uniform, blocks=6, first=4)
    data = some_data(spec, rows=13)
    check(spec, data)
    monkeypatch.setattr(narrow, "KEEP_BYTES", 0)
    check(spec, data)
    monkeypatch.setattr(narrow, "PIECE", 4 * M * spec.m * spec.n)
    check(spec, data)  # 4 + 4 + 4 + 1 rows
    order = torch.randint(13, (1, M, 9), generator=torch.Generator().manual_seed(1))
    check(spec, data, order)


@compiled
@pytest.mark.parametrize("kind", ["vectors", "table", "words"])
def test_batches_and_data_of_each_model(kind):
    order = torch.randint(N, (1, M, 7), generator=torch.Generator().manual_seed(1))
    for uniform, loss in itertools.product((True, False), ("cross-entropy", "mse")):
        spec = some_spec(kind, uniform=uniform)
        check(spec, some_data(spec, kind, loss), order, loss)
        own = some_data(spec, kind, loss, own=True)
        check(spec, own, order, loss)
        check(spec, own, None, loss)
        check(spec, Data(**{**vars(own), "rows": torch.tensor([37, 5, 20])}), None, loss)
    if kind != "vectors":
        spec = some_spec(kind)
        data = some_data(spec, kind)
        short = Data(**{**vars(data), "inputs": data.inputs.int(), "targets": data.targets.int()})
        gradients = [learned(spec, d, None, "cross-entropy", "narrow")[0] for d in (data, short)]
        assert all(torch.equal(w, gradients[1][name]) for name, w in gradients[0].items())


def test_where_there_is_no_kernel_autograd_says_so(monkeypatch):
    spec = some_spec()
    data = some_data(spec)
    squares = some_data(spec, loss="mse")
    name = "narrow" if load("narrow") else "autograd"
    assert choose(spec, "cross-entropy", data).name == name
    assert choose(spec, "mse", squares).name == name
    hard = some_spec(uniform=False, attention="hardmax")
    wide = some_spec(m=17)
    for other, loss in ((spec, "hinge"), (spec, "mse"), (hard, "kl"), (wide, "cross-entropy")):
        assert choose(other, loss, data).name == "autograd"
    assert choose(hard, "cross-entropy", data).name == "autograd"
    assert choose(spec, "cross-entropy", data, dtype=torch.float64).name == "autograd"
    assert choose(spec, "cross-entropy", data, device="cuda").name == "autograd"
    monkeypatch.setattr(native, "load", lambda name: None)
    monkeypatch.setitem(native._reasons, "narrow", "no C++ compiler was found (c++)")
    assert choose(spec, "cross-entropy", data).name == "autograd"
    with pytest.raises(ByheartError, match="the kernel narrow is not here: no C"):
        choose(spec, "cross-entropy", data, "narrow")
    trained = train_stack(spec, data, Recipe(steps=5), seeds=[0])
    assert trained.path == "autograd"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", ["vectors", "table", "words"])
def test_both_paths_learn(path, kind):
    spec = some_spec(kind, n=3, q=8, uniform=kind != "vectors")
    data = some_data(spec, kind, rows=24)
    recipe = kajitsuka2025(tuned=True, steps=400)
    trained = train_stack(spec, data, recipe, seeds=range(6), path=path)
    assert trained.path == path
    assert max(o.accuracy for o in trained.outcomes) >= 0.95
    start = train_stack(spec, data, recipe.but(steps=1), seeds=range(6), path=path)
    assert max(o.accuracy for o in start.outcomes) < 0.8


@compiled
def test_two_paths_go_the_same_way():
    spec = some_spec("table", n=3, q=8)
    data = some_data(spec, "table")
    recipe = Recipe(steps=30, lr=0.003)
    a, b = (train_stack(spec, data, recipe, range(3), path=p) for p in ("autograd", "narrow"))
    for name, w in a.weights.items():
        assert float((w - b.weights[name]).abs().max()) < 1e-4, name


@compiled
def test_a_model_that_diverges_harms_nobody():
    spec = some_spec("table")
    data = some_data(spec, "table")
    start = {name: w.float() for name, w in some_weights(spec).items()}
    start["W_1"][1, 0] = torch.nan
    recipe = Recipe(steps=20, evaluate_every=10, stop_at=None)
    trained = train_stack(spec, data, recipe, range(M), start=start)
    assert [o.diverged is not None for o in trained.outcomes] == [False, True, False]
    start["W_1"][1, 0] = 0.1
    well = train_stack(spec, data, recipe, range(M), start=start)
    for name, w in trained.weights.items():
        assert torch.equal(w[[0, 2]], well.weights[name][[0, 2]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": torch.full((N, 5), K)}, "tokens from 9 to 9, the table has 9 rows"),
        ({"inputs": torch.full((N, 5), -1)}, "tokens from -1 to -1"),
        ({"inputs": torch.zeros(N, 4).long()}, r"reads tokens \(37, 5\), found \(37, 4\)"),
        ({"context": torch.zeros(K, 3)}, r"numbers of rows of a table of vectors, found \(9, 3\)"),
        ({"targets": torch.full((N,), 3)}, "answers from 3 to 3, .* has 3 outputs"),
        ({"inputs": torch.zeros(N, 5, D)}, "beside vectors"),
    ],
)
def test_data_that_do_not_fit_are_refused(changes, message):
    spec = some_spec("table")
    data = Data(**{**vars(some_data(spec, "table")), **changes})
    with pytest.raises(ByheartError, match=message):
        train_stack(spec, data, Recipe(steps=1), seeds=[0])
