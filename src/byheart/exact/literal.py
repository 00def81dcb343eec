"""The oracle: every block executed in exact integers, nothing known of how it was made.

Batched over tokens. A coordinate is an int64 array while its values provably stay below 2^62, and
an array of Python integers otherwise: both are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from byheart._progress import Report, quiet
from byheart.errors import ByheartError
from byheart.exact.blocks import Block, Network, Unit
from byheart.exact.data import as_vectors, distinct_tokens

SAFE = 1 << 62  # sums of numbers below it are checked before they are made
CHUNK = 4096  # tokens at a time: the state stays in the cache

State = list[np.ndarray]
Trace = Callable[[str, int, State], None]


def evaluate(
    network: Network,
    tokens: np.ndarray,
    *,
    every: bool = False,
    lengths: np.ndarray | None = None,
    trace: Trace | None = None,
    progress: Report = quiet,
) -> np.ndarray:
    """E_out o FF2 o pooling o FF1 o E_in, block by block: outputs (B,), or (B, n) with `every`.

    `tokens`: (B, n, d) integers, (B, n) if d = 1 or for an embedding layer. Read at the last token,
    or at every one. `lengths` (B,): only the first tokens of each row are there.
    `trace(stack, i, state)` sees the state after every block (of one batch).
    """
    distinct, index = distinct_tokens(as_vectors(tokens, d=network.d))
    B, n = index.shape
    if B == 0:
        return np.zeros((0, n) if every else 0, dtype=object)
    states = run(network.ff1, embed(network, distinct), "ff1", trace, progress)
    pooled = pool(network, states[network.source], index, lengths)
    if every:
        chosen, added = index.reshape(-1), np.repeat(pooled, n)
    else:
        last = (np.full(B, n) if lengths is None else lengths) - 1
        chosen, added = index[np.arange(B), last], pooled
    state = [column[chosen] for column in states]
    if network.pooling == "register":
        added = _add(added, registered(network))
    state[network.target] = _add(state[network.target], added)
    state = run(network.ff2, state, "ff2", trace, progress)
    out = _as_object(state[network.out])
    return out.reshape(B, n) if every else out


def embed(network: Network, vectors: np.ndarray) -> State:
    """E_in: one row of coordinates for each token vector (V, d)."""
    V = len(vectors)
    state: State = [np.zeros(V, dtype=np.int64) for _ in range(network.m)]
    if network.embedding is not None:
        table = shrink(np.array(network.embedding, dtype=object))
        ids = vectors[:, 0]
        if V and not 0 <= ids.min() <= ids.max() < len(table):
            found = f"{ids.min()}..{ids.max()}"
            raise ByheartError(f"expected token ids 0..{len(table) - 1}, found {found}.")
        state[network.source] = table[ids.astype(np.int64)]
    for i, row in enumerate(network.E_in):
        for j, w in row:
            state[i] = _add_product(state[i], w, shrink(vectors[:, j]))
    return state


def pool(
    network: Network, source: np.ndarray, index: np.ndarray, lengths: np.ndarray | None = None
) -> np.ndarray:
    """What pooling adds to the target: scale x mean (attention) or sum, for each sequence.

    Softmax of n equal scores is exactly 1/n, hardmax of n ties too; that `scale` makes the mean
    whole is checked, not assumed.
    """
    n, values = index.shape[1], source[index]
    if values.dtype != object and int(np.abs(values).max(initial=0)) * n >= SAFE:
        values = values.astype(object)
    if lengths is not None:
        values = np.where(np.arange(n) < np.asarray(lengths)[:, None], values, 0)
    total = values.sum(axis=1)
    if network.pooling == "sum":
        return total
    counts = np.full(len(index), n, dtype=object) if lengths is None else lengths.astype(object)
    scaled = _as_object(total) * network.scale
    if (scaled % counts).any():
        raise ByheartError(
            f"the attention's scale {network.scale} is not a multiple of every length "
            f"({sorted(set(counts))[:5]}): this network was built for other lengths."
        )
    return shrink(scaled // counts)


def registered(network: Network) -> int:
    """What a register adds to the target of every token beside the pooled ids, the same for all
    sequences: in the first attention, where it is all that they read, `scale` times its source; in
    the second the target that it had, together with the pooled ids that it read in the first."""
    start = [np.zeros(1, dtype=np.int64) for _ in range(network.m)]
    register = run(network.ff1, start)
    source, target = (int(register[i][0]) for i in (network.source, network.target))
    return network.scale * source + target


def run(
    blocks: Sequence[Block],
    state: State,
    stack: str = "",
    trace: Trace | None = None,
    progress: Report = quiet,
) -> State:
    """All blocks of a stack, in batches."""
    size = len(state[0])
    if not blocks or size == 0:
        return state
    parts: list[State] = []
    for start in range(0, size, CHUNK):
        part = [column[start : start + CHUNK].copy() for column in state]
        for i, block in enumerate(blocks):
            apply(block, part)
            if trace is not None:
                trace(stack, i, part)
        parts.append(part)
        progress(f"{stack}: {min(start + CHUNK, size):,} of {size:,} states, block by block")
    # One chunk of Python integers makes the whole column one.
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


def apply(block: Block, state: State) -> None:
    """H <- H + W2 relu(W1 H + b1) + b2, in place."""
    terms: dict[int, list[tuple[int, np.ndarray]]] = {}
    for unit in block.units:
        r = _hidden(unit, state)
        for o, w in unit.outputs:
            terms.setdefault(o, []).append((w, r))
    for o, products in terms.items():
        if len(products) == 2 and products[0][0] == -products[1][0]:
            # w a - w b = w (a - b): the same number, with one long multiplication in place of two.
            (w, a), (_, b) = products
            short = a.dtype != object and b.dtype != object  # both are in [0, 2^62)
            products = [(w, a - b if short else _as_object(a) - _as_object(b))]
        for w, r in products:
            state[o] = _add_product(state[o], w, r)
    for o, w in block.shift:
        state[o] = _add(state[o], w)


def _hidden(unit: Unit, state: State) -> np.ndarray:
    """relu(sum_i w_i H_i + bias)."""
    terms = [_times(w, state[i]) for i, w in unit.inputs]
    x = reduce(_add, terms) if terms else np.zeros(len(state[0]), dtype=np.int64)
    x = _add(x, unit.bias) if unit.bias else x
    if x.dtype != object:
        return np.maximum(x, 0)
    return np.array([v if v > 0 else 0 for v in x], dtype=object)


def _add_product(x: np.ndarray, w: int, r: np.ndarray) -> np.ndarray:
    """x + w r."""
    if x.dtype != object and r.dtype != object:
        top = _bound(r)
        if top == 0:
            return x
        if top * abs(w) + _bound(x) < SAFE:
            return x + w * r
    where = np.flatnonzero(r)
    if not len(where):
        return x
    out = _as_object(x).copy() if x.dtype != object else x
    out[where] += w * _as_object(r[where])
    return shrink(out)


def _times(w: int, x: np.ndarray) -> np.ndarray:
    if w == 1:
        return x
    # A long weight meets zeros only: numpy could not even hold the weight.
    if x.dtype != object and abs(w) < SAFE and _bound(x) * abs(w) < SAFE:
        return x * w
    return shrink(_as_object(x) * w)


def _add(x: np.ndarray, y: np.ndarray | int) -> np.ndarray:
    short = x.dtype != object and (isinstance(y, int) or y.dtype != object)
    if short and _bound(x) + _bound(y) < SAFE:
        return x + y
    return shrink(_as_object(x) + (y if isinstance(y, int) else _as_object(y)))


def _bound(x: np.ndarray | int) -> int:
    """max |x|."""
    if isinstance(x, int):
        return abs(x)
    return max(int(x.max()), -int(x.min())) if len(x) else 0


def shrink(x: np.ndarray) -> np.ndarray:
    """Back to int64 where all values are below 2^62 again."""
    if x.dtype != object or not len(x):
        return x
    # Cheap test first: most long coordinates stay long.
    if not -SAFE < x[0] < SAFE or max(x) >= SAFE or min(x) <= -SAFE:
        return x
    return x.astype(np.int64)


def _as_object(x: np.ndarray) -> np.ndarray:
    return x if x.dtype == object else x.astype(object)
