"""New rows for what an edit adds: tokens, answers, lattice points, bits, heads.

Everything is appended, nothing that is stored moves, and each new row depends on the memory's seed
and its own number only: the same edits give the same bytes, in one step or in several.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from byheart.construct.attention_only import TOKEN_SHARE
from byheart.construct.frames import hamming, hamming_width, smallest_width, word_numbers
from byheart.construct.sharded.plan import LEAST_MARGIN
from byheart.errors import CapacityError
from byheart.facts import Facts
from byheart.models.attention_only import Weights
from byheart.specs import ShardedSpec

TOKEN, HEAD, ANSWER, BIT = range(4)  # what a random stream is for
CANDIDATES = 256  # random directions tried for a new answer before the best is refined
REFINEMENTS = 120  # steps of refinement
REFINED_PAIRS = 2**23  # inner products in a step of refinement; beyond, the first guess is kept


def stream(seed: int, purpose: int, number: int) -> np.random.Generator:
    """The random numbers of one new row."""
    return np.random.default_rng([seed, purpose, number])


def token_rows(seed: int, first: int, count: int, d_g: int) -> Tensor:
    """Generic embeddings N(0, 0.7/d_g) of the tokens first..first + count - 1: (count, d_g).

    >>> both = token_rows(0, 7, 2, 4)
    >>> bool((token_rows(0, 8, 1, 4) == both[1:]).all())
    True
    """
    rows = [stream(seed, TOKEN, first + i).standard_normal(d_g) for i in range(count)]
    return torch.from_numpy(np.array(rows)).reshape(count, d_g) * math.sqrt(TOKEN_SHARE / d_g)


def free_points(taken: np.ndarray, far: np.ndarray, count: int, limit: int) -> np.ndarray:
    """`count` lattice points that are neither `taken` (groups, k) nor `far`, nearest to 0 first.

    `limit`: distances are exact while 4 |P|² <= limit (`certificates.sharded.exact_gates`).

    >>> free_points(np.array([[0, 0], [-1, 0]]), np.array([1, 1]), 2, 2**24).tolist()
    [[-1, -1], [-1, 1]]
    """
    k = taken.shape[1]
    used = np.concatenate([taken, far[None]])
    # A cube of this many points holds all that is used and `count` more.
    radius = math.ceil(((len(used) + count) ** (1 / k) - 1) / 2) + 1
    cube = np.indices((2 * radius + 1,) * k).reshape(k, -1).T - radius
    nearest = cube[np.argsort(np.abs(cube).max(1), kind="stable")]
    width = 2 * max(radius, int(np.abs(used).max())) + 1
    place = width ** np.arange(k)
    free = nearest[~np.isin(nearest @ place, used @ place)][:count]
    if 4 * int((free**2).sum(1).max()) > limit:
        raise CapacityError(
            f"no lattice point is left for group {len(taken) + 1:,}: beyond, distances are not "
            "exact. Build the memory again: its shards will be fuller, so there are fewer groups."
        )
    return free


def balanced_bit(classes: np.ndarray, tokens: np.ndarray, N: int, seed: int, j: int) -> np.ndarray:
    """A new bit (N,), number j: random signs, but every class of `tokens` is split in halves."""
    bit = (2 * stream(seed, BIT, -1 - j + 2**32).integers(0, 2, N) - 1).astype(np.int8)
    order = np.lexsort((tokens, classes))
    starts = np.flatnonzero(np.diff(classes[order], prepend=-1))
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    bit[tokens[order]] = np.where(rank & 1, 1, -1)
    return bit


def answer_rows(W: Tensor, count: int, seed: int, least: float) -> tuple[Tensor, float]:
    """`count` unit rows (count, d) for new answers beside the rows W (A, d), and their margin
    1 - max w_new·w over all other rows.

    If W are the first A words of the Hamming code: its next words, margin 8/d. Otherwise the best
    of random directions, moved away from what is nearest to them; W itself does not move.
    Refuses a margin below `least`.
    """
    A, d = W.shape
    rows = _next_words(W, count)
    margin = 8 / d
    if rows is None:
        rows = _repelled(W, count, seed)
        margin = 1 - _closest(rows, W)
    if margin < least:
        needed = smallest_width(A + count)
        raise CapacityError(
            f"{count:,} new answer{'s'[: count > 1]} beside {A:,} in R^{d}: the best margin found "
            f"is {margin:.2g}, the stored number format needs {least:.2g}. Build the memory again "
            f"with `d={max(needed, d + 1)}`, at which {A + count:,} answers keep about 0.4."
        )
    return rows, margin


def _next_words(W: Tensor, count: int) -> Tensor | None:
    """The code words that follow those in W; None if W is another frame or the code is full."""
    A, d = W.shape
    signs = W.abs() * math.sqrt(d)
    if d < 4 or not bool(((signs - 1).abs() < 1e-5).all()) or hamming_width(A + count) > d:
        return None
    words = hamming(A + count, d)
    # As sets: answers and words were matched in the order of ids at build time.
    if not torch.equal(word_numbers(words[:A]).sort().values, word_numbers(W).sort().values):
        return None
    return words[A:]


def _repelled(W: Tensor, count: int, seed: int) -> Tensor:
    """One after the other into the widest gap found; then all new rows move, W stays."""
    A, d = W.shape
    made = torch.empty(count, d, dtype=torch.float64)
    for i in range(count):
        draw = stream(seed, ANSWER, A + i).standard_normal((CANDIDATES, d))
        tried = torch.nn.functional.normalize(torch.from_numpy(draw))
        cosines = tried @ torch.cat([W, made[:i]]).T
        made[i] = tried[cosines.amax(1).argmin()]
    best, best_closest = made, _closest(made, W)
    if count * (A + count) > REFINED_PAIRS:
        return best
    for step in range(REFINEMENTS):
        size = 0.1 * (1 - step / REFINEMENTS)
        made = made - size * _push(made, W, 20.0 + step)
        made = torch.nn.functional.normalize(made)
        now = _closest(made, W)
        if now < best_closest:
            best, best_closest = made, now
    return best


def _push(rows: Tensor, W: Tensor, sharpness: float) -> Tensor:
    """Direction of the nearest neighbours of each row, tangent to the sphere, length 1 at most."""
    C, others = _cosines(rows, W)
    p = torch.softmax(sharpness * C, dim=1)
    push = p @ others
    push = push - (push * rows).sum(1, keepdim=True) * rows
    return push / push.norm(dim=1, keepdim=True).clamp_min(1.0)


def _closest(rows: Tensor, W: Tensor) -> float:
    """max w_i·w_j between a new row and any other; 0 at least: tokens that are no answers."""
    largest, step = 0.0, max(1, REFINED_PAIRS // (len(W) + len(rows)))
    for i in range(0, len(rows), step):
        others = torch.cat([W, rows[:i], rows[i + step :]])
        largest = max(largest, float(_cosines(rows[i : i + step], others)[0].max()))
    return largest


def _cosines(rows: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
    others = torch.cat([W, rows])
    C = rows @ others.T
    here = torch.arange(len(rows))
    C[here, len(W) + here] = -2.0
    return C, others


def with_tokens(spec: ShardedSpec, weights: Weights, count: int, seed: int) -> Weights:
    """Rows for `count` tokens between the known ones and BOS, which stays last."""
    first = spec.N - 1
    rows = {"W_E": token_rows(seed, first, count, spec.d_g), "group": torch.full((count,), -1)}
    if spec.bits:  # random signs
        streams = [stream(seed, BIT, first + i) for i in range(count)]
        rows["bits"] = torch.from_numpy(
            np.array([2 * s.integers(0, 2, spec.bits) - 1 for s in streams])
        )
    made = {
        name: torch.cat([weights[name][:-1], new.to(weights[name].dtype), weights[name][-1:]])
        for name, new in rows.items()
    }
    W_U = weights["W_U"]
    blank = torch.zeros(spec.d_g, count, dtype=W_U.dtype)
    return made | {"W_U": torch.cat([W_U[:, :-1], blank, W_U[:, -1:]], dim=1)}


def place_answers(facts: Facts, weights: Weights, ideal: float, seed: int) -> tuple[int, float]:
    """Columns of W_U for answers that have none; how many, and the margin of the frame."""
    W_U = weights["W_U"]
    used = (W_U != 0).any(0)
    answers = torch.from_numpy(facts.answer_ids.copy())
    new = answers[~used[answers]]
    if not len(new):
        return 0, ideal
    least = LEAST_MARGIN[str(W_U.dtype).removeprefix("torch.")]
    rows, margin = answer_rows(W_U[:, used].T.double(), len(new), seed, least)
    W_U = W_U.clone()
    W_U[:, new] = rows.T.to(W_U.dtype)
    weights["W_U"] = W_U
    return len(new), min(ideal, margin)


def draw_heads(spec: ShardedSpec, weights: Weights, heads: int, beta: float, seed: int) -> None:
    """More tied heads u, w (d_g,) and V (d_g, d_h) behind the stored ones, drawn as they were, if a
    shard has more than any had."""
    rows: dict[str, list[np.ndarray]] = {"u": [], "w": [], "V": []}
    for j in range(len(weights["u"]), heads):
        draw = stream(seed, HEAD, j)
        rows["u"].append(beta * draw.standard_normal(spec.d_g))
        rows["w"].append(draw.standard_normal(spec.d_g))
        rows["V"].append(np.linalg.qr(draw.standard_normal((spec.d_g, spec.d_h))).Q)
    for name, new in rows.items() if rows["u"] else ():
        w = weights[name]
        weights[name] = torch.cat([w, torch.from_numpy(np.array(new)).to(w.dtype)])
