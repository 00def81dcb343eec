"""Sequences, labels, networks: both evaluators are right and agree, block by block."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.errors import ByheartError, CapacityError, ConflictError, FactsError
from byheart.exact import evaluate, memorize
from byheart.exact.blocks import POOLINGS, Block, Unit
from byheart.exact.build import distinguishing
from byheart.exact.data import sequences
from byheart.exact.ids import MODES, Hash, Product
from byheart.exact.keys import quantise
from byheart.exact.literal import apply, run
from byheart.exact.parts import layout, read, times
from byheart.exact.primitives import add

few = settings(deadline=None, max_examples=25)  # a busy machine is slow at times


@st.composite
def labelled(draw, most: int = 24, tokens: int = 30, length: int = 5):
    """(N, n) tokens with a label for each different multiset."""
    n = draw(st.integers(1, length))
    row = st.lists(st.integers(0, tokens), min_size=n, max_size=n)
    rows = draw(st.lists(row, min_size=1, max_size=most, unique_by=lambda r: tuple(sorted(r))))
    labels = draw(st.lists(st.integers(0, 5), min_size=len(rows), max_size=len(rows)))
    return rows, labels


@pytest.mark.parametrize("mode", MODES)
@few
@given(case=labelled(), pooling=st.sampled_from(POOLINGS))
def test_labels_of_multisets(mode, case, pooling):
    """Theorems 4.1, D.1, E.1, Remark 4.5: every order of every sequence gets its label, by both
    evaluators."""
    rows, labels = np.array(case[0]), np.array(case[1])
    built = memorize(rows, labels, ff1=mode, pooling=pooling)
    assert (evaluate(built.network, rows) == labels).all()
    assert (built.structured.evaluate(rows[:, ::-1]) == labels).all()
    assert read(built.network, layout(built.parts)) == built.parts


@pytest.mark.parametrize("mode", ["hash", "product", "paper"])
@few
@given(case=labelled(most=12, tokens=6, length=3))
def test_every_other_multiset_is_unknown_when_named(mode, case):
    rows, labels = np.array(case[0]), np.array(case[1]) + 1
    n = rows.shape[1]
    every = np.array(list(itertools.combinations_with_replacement(range(7), n)))
    known = {tuple(sorted(row)) for row in rows.tolist()}
    others = np.array([row for row in every.tolist() if tuple(row) not in known])
    if not len(others):
        return
    limits = ((0,), (6,))
    built = memorize(rows, labels, ff1=mode, others=others, limits=limits)
    assert (evaluate(built.network, rows) == labels).all()
    assert (evaluate(built.network, others) == 0).all()
    assert (built.structured.evaluate(others) == 0).all()


@pytest.mark.parametrize("mode", MODES)
@few
@given(case=labelled(most=10, length=4), seed=st.integers(0, 99))
def test_sequence_to_sequence(mode, case, seed):
    """Corollary 4.1: a label for each (multiset, token)."""
    rows = np.array(case[0])
    marks = np.random.default_rng(seed).integers(0, 4, 31)
    labels = (marks[rows] + rows.sum(1, keepdims=True)) % 4  # a function of multiset and token
    built = memorize(rows, labels, ff1=mode)
    assert (evaluate(built.network, rows, every=True) == labels).all()
    assert (built.structured.evaluate(rows, every=True) == labels).all()
    last = memorize(rows, labels[:, -1], ff1=mode, reads=True)
    assert (evaluate(last.network, rows) == labels[:, -1]).all()
    assert (last.structured.evaluate(rows) == labels[:, -1]).all()


@few
@given(
    M=st.integers(2, 2**56),
    x=st.lists(st.integers(0, 2**56), min_size=1, max_size=5),
    f=st.integers(0, 2**90),
)
def test_products_of_residues(M, x, f):
    residues = np.array([v % M for v in x])
    assert times(residues, f, M).tolist() == [v % M * f % M for v in x]


def test_sequence_to_sequence_with_long_residues():
    """A small rate makes a long modulus: products of residues leave 64 bits."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 1 << 40, (300, 10))
    labels = rng.integers(0, 2, rows.shape)
    built = memorize(rows, labels, rate=2.0**-24)
    assert built.parts.modulus is not None and 2 * built.parts.modulus.bit_length() > 64
    assert (built.structured.evaluate(rows, every=True) == labels).all()
    assert (evaluate(built.network, rows[:20], every=True) == labels[:20]).all()


@pytest.mark.parametrize("mode", ["hash", "product", "paper"])
def test_the_evaluators_agree_on_keys_never_seen(mode):
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 10**6, (200, 4))
    built = memorize(rows, rng.integers(1, 9, 200), ff1=mode, limits=((0,), (10**6,)))
    strange = rng.integers(0, 10**6, (3000, 4))
    assert (evaluate(built.network, strange) == built.structured.evaluate(strange)).all()


@pytest.mark.parametrize("mode", ["hash", "product", "paper"])
def test_block_by_block(mode):
    """The state after every block, against Python integers; then id and sum in place."""
    rng = np.random.default_rng(2)
    rows = rng.integers(0, 5000, (60, 5))
    labels = rng.integers(1, 4, 60)
    built = memorize(rows, labels, ff1=mode)
    network, fast = built.network, built.structured
    states: dict[tuple[str, int], list[list[int]]] = {}
    evaluate(
        network,
        rows[:7],
        trace=lambda stack, i, state: states.__setitem__((stack, i), [c.tolist() for c in state]),
    )
    tokens = np.unique(rows[:7])[:, None]
    plain = [[int(v) for v in column] for column in _start(network, tokens)]
    for i, block in enumerate(network.ff1):
        plain = _plain_block(block, plain)
        assert plain == states["ff1", i]
    keys = fast.keys(tokens)
    assert plain[network.source] == built.parts.ff1.values(keys).tolist()
    before_table = len(network.ff2) - len(built.parts.table.blocks(0, 1, 2))
    reduced = states["ff2", before_table - 1][network.target]
    ids = dict(zip(tokens[:, 0].tolist(), plain[network.source], strict=True))
    sums = [sum(ids[x] for x in row) for row in rows[:7].tolist()]
    modulus = built.parts.modulus
    assert reduced == [s if modulus is None else s % modulus for s in sums]
    assert states["ff2", len(network.ff2) - 1][network.out] == labels[:7].tolist()


def _start(network, tokens):
    (row,) = network.E_in
    first = sum(w * tokens[:, j].astype(object) for j, w in row)
    return [first, *(np.zeros(len(tokens), dtype=object) for _ in range(network.m - 1))]


def _plain_block(block, state):
    """H + W2 relu(W1 H + b1) + b2 with nothing but Python integers, one input at a time."""
    out = [list(column) for column in state]
    for at in range(len(state[0])):
        for unit in block.units:
            r = max(0, sum(w * state[i][at] for i, w in unit.inputs) + unit.bias)
            for o, w in unit.outputs:
                out[o][at] += w * r
        for o, w in block.shift:
            out[o][at] += w
    return out


@few
@given(z=st.lists(st.integers(-(10**30), 10**30), min_size=1, max_size=9), n=st.integers(1, 9))
def test_softmax_and_hardmax_of_equal_scores_are_the_mean(z, n):
    """W_Q = W_K = 0: all scores 0. Softmax e^0 / sum e^0, hardmax 1 / ties: the same rational."""
    scores = [Fraction(0)] * len(z)
    softmax = [Fraction(1, len(scores)) for _ in scores]  # e^0 = 1 exactly
    ties = [s == max(scores) for s in scores]
    hardmax = [Fraction(int(t), sum(ties)) for t in ties]
    assert softmax == hardmax
    mean = sum(a * v for a, v in zip(softmax, z, strict=True))
    assert mean * len(z) * n == n * sum(z)


def _star(network, rows):
    """The outputs of a network with a register, nothing left out: n + 1 tokens in every layer, and
    attention with a mask in rational numbers, softmax over those that may be read."""
    n = rows.shape[1]
    mask = [[(k == n) != (j == n) for j in range(n + 1)] for k in range(n + 1)]
    assert sum(map(sum, mask)) * network.attentions == network.links(n)

    def attention(state, source, target, scale):
        read = [[state[source][j] for j in range(n + 1) if mask[k][j]] for k in range(n + 1)]
        added = [scale * Fraction(sum(values), len(values)) for values in read]
        return [
            [x + a for x, a in zip(column, added, strict=True)] if i == target else column
            for i, column in enumerate(state)
        ]

    outputs = []
    for row in rows:
        state = [[int(v) for v in column] + [0] for column in _start(network, row[:, None])]
        for block in network.ff1:
            state = _plain_block(block, state)
        state = attention(state, network.source, network.target, network.scale)
        state = attention(state, network.target, network.target, 1)
        for block in network.ff2:
            state = _plain_block(block, state)
        outputs.append(state[network.out][:n])
    return outputs


@pytest.mark.parametrize("low", [0, 7, -20])
@pytest.mark.parametrize("mode", ["hash", "product", "paper"])
def test_a_register_token(mode, low):
    """Remark 4.5: O(n) links, two attentions, two or three parameters more; as a whole network with
    masks, at every token, whatever the first part makes of the register's zeros."""
    rng = np.random.default_rng(4)
    rows = low + rng.permutation(40).reshape(10, 4)
    labels = rng.integers(0, 3, rows.shape)
    plain, built = (memorize(rows, labels, ff1=mode, pooling=p) for p in ("attention", "register"))
    assert _star(built.network, rows) == labels.tolist()
    assert (evaluate(built.network, rows, every=True) == labels).all()
    assert (built.structured.evaluate(rows, every=True) == labels).all()
    assert read(built.network, layout(built.parts)) == built.parts
    before, after = plain.network.counts(), built.network.counts()
    own = after.depth - before.depth  # a shift that takes off what the register brings along
    assert after.parameters - before.parameters == 2 + own and own in (0, 1)
    m = built.network.m
    assert after.dense - before.dense == 5 * m + own * m
    assert [net.links(100) for net in (plain.network, built.network)] == [10_000, 400]


def test_variable_lengths_with_a_length_token():
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 7, 300)
    rows = rng.integers(0, 40, (300, 7))
    rows[np.arange(300), lengths - 1] = 50 + lengths
    table: dict[tuple[int, ...], int] = {}
    labels = np.array(
        [
            table.setdefault(tuple(sorted(row[:n])), int(rng.integers(0, 5)))
            for row, n in zip(rows.tolist(), lengths.tolist(), strict=True)
        ]
    )
    for pooling in POOLINGS:
        built = memorize(rows, labels, lengths=lengths, pooling=pooling)
        assert (evaluate(built.network, rows, lengths=lengths) == labels).all()
        assert (built.structured.evaluate(rows, lengths=lengths) == labels).all()
    built = memorize(rows, labels, lengths=lengths)
    with pytest.raises(ByheartError, match="built for"):
        built.structured.evaluate(rows, lengths=np.full(300, 7))
    with pytest.raises(ByheartError, match="built for other lengths"):
        evaluate(built.network, rows, lengths=np.full(300, 7))


ADVERSARIAL = {
    "equal token sums": lambda rng: (lambda b: np.concatenate([b, (10**7 - b.sum(1))[:, None]], 1))(
        rng.integers(0, 10**5, (300, 6))
    ),
    "pairs a, 1000 - a": lambda rng: np.array([(a, 1000 - a) for a in range(1, 400)]),
    "two counts": lambda rng: np.array([[0] * k + [1] * (60 - k) for k in range(61)]),
    "huge": lambda rng: np.array(
        [[(1 << 200) + int(x) for x in r] for r in rng.integers(0, 99, (40, 3))], dtype=object
    ),
    "negative": lambda rng: rng.integers(-(10**6), 10**6, (100, 4)),
    "one token": lambda rng: rng.permutation(500)[:, None],
}


@pytest.mark.parametrize("name", ADVERSARIAL)
@pytest.mark.parametrize("mode", ["hash", "product", "paper"])
def test_adversarial_sets(name, mode):
    rows = ADVERSARIAL[name](np.random.default_rng(0))
    _, first = np.unique(np.sort(rows, axis=1).astype(str), axis=0, return_index=True)
    rows = rows[np.sort(first)]
    labels = np.random.default_rng(1).integers(0, 3, len(rows))
    built = memorize(rows, labels, ff1=mode)
    assert (evaluate(built.network, rows) == labels).all()
    assert (built.structured.evaluate(rows) == labels).all()


def test_permutations_of_one_multiset_are_told_apart_by_position():
    order = np.array(list(itertools.permutations(range(5))))
    rows = np.stack([order, np.broadcast_to(np.arange(5), order.shape)], 2)
    labels = np.arange(len(rows)) % 7
    built = memorize(rows, labels)
    assert (evaluate(built.network, rows) == labels).all()


def test_a_hash_that_cannot_work_is_replaced(monkeypatch):
    monkeypatch.setattr("byheart.exact.build.Drawing._hashes", lambda _: iter(()))
    built = memorize([[1, 2], [3, 4], [5, 6]], [1, 2, 3])
    assert built.asked == "hash" and built.mode in ("product", "paper")
    assert "no hash" in built.notes[0]
    assert evaluate(built.network, np.array([[1, 2], [3, 4], [5, 6]])).tolist() == [1, 2, 3]


def test_product_ids_are_the_products_of_their_digits():
    made = Product(0x3F, 2, ((5, 7, 11), (13, 17, 19), (23, 29, 31)))
    assert made.values(np.array([0b011011, 0, 0b110000])).tolist() == [5 * 17 * 31, 1, 11]
    assert made.bound == 11 * 19 * 31


def test_hash_folds_like_a_tent():
    made = Hash(15, 3, ((8, 5), (4, 7)))
    # l = 11: over 8 by 3, folded to 5; over 4 by 1.
    assert made.values(np.array([11])).tolist() == [33 + 15 + 7]


@few
@given(case=labelled(most=30, tokens=8, length=4))
def test_lemma_b1(case):
    """At most N - 1 tokens, whose counts alone tell all multisets apart."""
    data = sequences(case[0], case[1])
    chosen = distinguishing(data)
    assert len(chosen) <= max(0, len(data.firsts) - 1)
    counts = [tuple((row == x).sum() for x in chosen) for row in data.index[data.firsts]]
    assert len(set(counts)) == len(data.firsts)


@few
@given(
    d=st.integers(1, 5),
    delta=st.sampled_from([0.1, 0.3, 1.0, 1e-6]),
    seed=st.integers(0, 1000),
)
def test_quantised_tokens_stay_distinct(d, delta, seed):
    rng = np.random.default_rng(seed)
    points = rng.uniform(-5, 5, (6, d))
    points = np.concatenate([points, points[:1], points[:1] + delta * 2 * np.eye(d)[0]])
    gaps = np.linalg.norm(points[:, None] - points[None], axis=2)
    if ((gaps > 0) & (gaps < delta)).any():
        with pytest.raises(FactsError, match="less than delta"):
            quantise(points, delta)
        return
    whole = quantise(points, delta)
    same = (whole[:, None] == whole[None]).all(2)
    assert (same == (gaps == 0)).all()


def test_real_tokens_end_to_end():
    rng = np.random.default_rng(5)
    tokens = rng.uniform(-1, 1, (80, 6, 3))
    labels = rng.integers(0, 4, 80)
    whole = quantise(tokens, 1e-3)
    built = memorize(whole, labels)
    assert (evaluate(built.network, whole) == labels).all()


BAD = {
    "equal multisets": ({"tokens": [[1, 2], [2, 1]], "labels": [1, 2]}, ConflictError, "ordered"),
    "no sequences": ({"tokens": np.zeros((0, 3), int), "labels": []}, FactsError, "at least one"),
    "reals": ({"tokens": [[0.5, 1.0]], "labels": [1]}, FactsError, "[Qq]uantise"),
    "objects": (
        {"tokens": np.array([["a", "b"]], dtype=object), "labels": [1]}, FactsError, "whole numbers"
    ),
    "labels": ({"tokens": [[1, 2]], "labels": [-1]}, FactsError, "0..2"),
    "label shape": ({"tokens": [[1, 2]], "labels": [1, 2, 3]}, FactsError, "expected shape"),
    "bits": (
        {"tokens": np.arange(600).reshape(200, 3), "labels": np.ones(200, int), "max_bits": 5},
        CapacityError, "at least",
    ),
    "mode": ({"tokens": [[1]], "labels": [1], "ff1": "magic"}, ByheartError, "must be one of"),
    "limits": ({"tokens": [[9]], "labels": [1], "limits": ((0,), (5,))}, FactsError, "limits"),
    "embedding": (
        {"tokens": [[-4, 10**9]], "labels": [1], "ff1": "embedding"}, ByheartError, "token ids"
    ),
    "lengths": ({"tokens": [[1, 2]], "labels": [1], "lengths": [3]}, FactsError, "lengths"),
    "lcm": (
        {"tokens": np.arange(50 * 70).reshape(50, 70), "labels": np.ones(50, int),
             "lengths": np.arange(20, 70)},
        FactsError, "least common multiple",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_its_reason(name):
    arguments, error, words = BAD[name]
    arguments = dict(arguments)
    with pytest.raises(error, match=words):
        memorize(arguments.pop("tokens"), arguments.pop("labels"), **arguments)


def test_conflicts_are_listed():
    with pytest.raises(ConflictError) as found:
        memorize([[1, 2], [3, 4], [2, 1]], [1, 2, 2])
    assert "sequences 1 and 3: labels 1 and 2" in str(found.value)
    assert len(found.value.conflicts) == 1
    # The same with the last token read is consistent: another last token.
    built = memorize([[1, 2], [3, 4], [2, 1]], [1, 2, 2], reads=True)
    assert evaluate(built.network, np.array([[1, 2], [2, 1]])).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("rows", "labels"),
    [([[5]], [1]), ([[5]], [0]), ([[1, 1, 1], [1, 1, 2]], [3, 3]), ([[7, 7]], [65_536])],
)
def test_smallest_cases(rows, labels):
    """One sequence, one class, repeated tokens, nothing but label 0."""
    for mode in ("hash", "product", "paper"):
        built = memorize(rows, labels, ff1=mode)
        assert evaluate(built.network, np.array(rows)).tolist() == labels
        assert built.structured.evaluate(np.array(rows)).tolist() == labels


def test_nothing_but_label_0_and_sums_beyond_machine_integers():
    rows = np.random.default_rng(0).permutation(4000).reshape(1000, 4)
    built = memorize(rows, np.zeros(1000, dtype=int), ff1="product")
    assert built.parts.most >= 1 << 64
    assert (built.structured.evaluate(rows) == 0).all()
    assert (evaluate(built.network, rows[:20]) == 0).all()


def test_many_classes_and_long_sequences():
    rng = np.random.default_rng(0)
    rows, labels = rng.permutation(3000).reshape(1000, 3), rng.integers(1, 65_537, 1000)
    built = memorize(rows, labels)
    assert (evaluate(built.network, rows) == labels).all()
    long = rng.integers(0, 9, (12, 10**4))
    built = memorize(long, np.arange(12))
    assert (evaluate(built.network, long) == np.arange(12)).all()


def test_tokens_outside_the_limits_are_refused():
    built = memorize([[1, 2], [3, 4]], [1, 2])
    with pytest.raises(ByheartError, match=r"takes 1\.\.4, found 1\.\.9"):
        built.structured.evaluate(np.array([[1, 9]]))
    with pytest.raises(ByheartError, match="whole numbers"):
        evaluate(built.network, np.array([[1.5, 2.0]]))
    with pytest.raises(ByheartError, match="expected tokens of shape"):
        evaluate(built.network, np.zeros((1, 2, 3), dtype=int))


def test_parameters_grow_like_the_square_root():
    """Exponent at most 0.53 from 250 to 4,000 sequences, and fewer than N at 2,000 (hash)."""
    rng = np.random.default_rng(0)
    N = [250, 1000, 4000]
    made = []
    for size in N:
        rows = rng.permutation(10 * size).reshape(size, 10)
        made.append(memorize(rows, rng.integers(0, 2, size)).network.counts().parameters)
    assert np.polyfit(np.log(N), np.log(made), 1)[0] <= 0.53
    rows = rng.permutation(20_000).reshape(2000, 10)
    assert memorize(rows, rng.integers(1, 3, 2000)).network.counts().parameters < 2000


def test_apply_is_exact_at_the_edge_of_machine_integers():
    big = (1 << 62) - 1
    state = [np.array([big, 1]), np.array([big, 0])]
    apply(add(0, {1: 3}), state)
    assert state[1].tolist() == [4 * big, 3]
    # A weight that numpy cannot hold, on zeros.
    long = Block((Unit(((0, 1), (1, -(1 << 99))), 0, ((2, 1 << 99),)),))
    zeros = run([long], [np.array([0, 5]), np.array([0, 0]), np.array([1, 1])])
    assert zeros[2].tolist() == [1, 1 + (5 << 99)]
    again = run([add(0, {1: big})], [np.array([big]), np.array([0])])
    assert again[1].tolist() == [big * big]
