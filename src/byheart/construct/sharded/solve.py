"""The block-diagonal solve: one small system a shard, many shards at a time, in this process or on
workers, with the same bytes. A task carries only what it needs: its facts, the embeddings of their
tokens, the tied heads."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from byheart._progress import Report
from byheart.construct.solve import minimum_norm
from byheart.engine import engine
from byheart.models.attention_only import Weights
from byheart.models.sharded import own_features
from byheart.models.threads import one_thread
from byheart.specs import ShardedSpec

BATCH_ENTRIES = 4_000_000  # of the Gram matrices of one batch: 32 MB
BATCH_ROWS = 65_536  # facts of one batch: many tiny shards have small matrices but many features
HEADS_AT_ONCE = 1024  # untied heads whose largest scores are looked for together
BY_TOKEN = ("W_E", "group", "bits", "subject")  # weights with one row a token
NOT_READ = ("W_U", "W_O", "cancel")  # weights that a solve does not look at
Sizes = list[int]
IN_FLIGHT = 16  # tasks handed out at once: bounds the memory of data under way


class Batch(NamedTuple):
    """Shards of similar size that are solved together; all get `heads` heads."""

    shards: np.ndarray
    heads: int
    size: int


def unknowns_needed(
    shard: np.ndarray, sizes: np.ndarray, tokens: np.ndarray, d_h: int, last_decides: bool = True
) -> np.ndarray:
    """How many unknowns H_g d_h each shard needs for its n_g facts: (shards,), n_g as a rule.

    `tokens` (T, S) as the model reads them. Shards of few distinct tokens need more:

    - the vectors e(t) + pos_s of N_g tokens at S positions span at most N_g + S - 1 dimensions,
      and a head cannot have more;
    - for one last token t, head j computes f / Z_j, f and Z_j sums of one term a position. Such f
      form a space of D = 1 + Σ_{s<S} (n_s - 1) dimensions for n_s different tokens at position s,
      and all heads share Z_j / Z_j = 1: together 1 + H_g (D - 1), which must reach t's facts
      (counted only where the last token decides, so that they are all in one shard).
    """
    N, S = int(tokens.max()) + 1, tokens.shape[1]
    pairs = np.unique((shard[:, None] * N + tokens).ravel())
    rank = np.bincount(pairs // N, minlength=len(sizes)) + S - 1
    needed = -(-sizes * d_h // np.minimum(rank, d_h))
    last = tokens[:, -1]
    facts = np.bincount(last, minlength=N)
    # S = 2: as many facts as first tokens. D >= 2: enough where heads outnumber facts.
    doubtful = facts[last] - 1 > (sizes // d_h)[shard]
    if S == 2 or not last_decides or not doubtful.any():
        return needed
    degrees = np.zeros(N, dtype=np.int64)  # D - 1
    for s in range(S - 1):
        pairs = np.unique(last[doubtful] * N + tokens[doubtful, s])
        degrees += np.maximum(np.bincount(pairs // N, minlength=N) - 1, 0)
    some = np.unique(last[doubtful])
    heads = -(-(facts[some] - 1) // np.maximum(degrees[some], 1))
    where = np.zeros(N, dtype=np.int64)
    where[last] = shard  # the last token decides, and cannot be split: one shard
    np.maximum.at(needed, where[some], heads * d_h)
    return needed


def batches(sizes: np.ndarray, d_h: int, slack: float, needed: np.ndarray) -> list[Batch]:
    """Shards from large to small in padded batches; a fixed function of the sizes and the unknowns
    `needed`, so that any number of workers solves the same batches and gets the same bytes."""
    order = np.argsort(-sizes, kind="stable")
    made, i = [], 0
    while i < len(order):
        size = max(1, int(sizes[order[i]]))
        count = max(1, min(BATCH_ENTRIES // size**2, BATCH_ROWS // size))
        some = order[i : i + count]
        # Padding costs work: no shard is padded to more than 9/8 of its size.
        some = some[sizes[some] * 9 >= size * 8] if size > 16 else some
        heads = max(1, int(np.ceil(needed[some].max() * (1 + slack) / d_h)))
        made.append(Batch(some, heads, size))
        i += len(some)
    return made


def solve_batch(
    spec: ShardedSpec, weights: Weights, batch: Batch, tokens: Tensor, targets: Tensor, sizes: Sizes
) -> tuple[Tensor, float, float]:
    """W_O (shards, heads, d_h, out) of a batch, its largest residual, and the condition number of
    its first, largest shard. `tokens`, `targets` of its facts, shard after shard, `sizes` of them.

    F W_O = target - x_S, minimum norm by Cholesky with one refinement; rows of padding are zero
    with a unit diagonal, so they change nothing.
    """
    B, n = len(batch.shards), batch.size
    places = [i * n + np.arange(size) for i, size in enumerate(sizes)]
    place = torch.from_numpy(np.concatenate(places))
    x_S, F = own_features(spec, weights, tokens, batch.heads, torch.float64)
    Y = targets.clone()
    Y[:, : spec.d_g] -= x_S
    X = torch.zeros(B * n, F.shape[1] * F.shape[2], dtype=torch.float64)
    R = torch.zeros(B * n, Y.shape[1], dtype=torch.float64)
    X[place], R[place] = F.flatten(1), Y
    X, R = X.view(B, n, -1), R.view(B, n, -1)
    K = torch.bmm(X, X.transpose(1, 2))
    padding = torch.ones(B * n, dtype=torch.float64)
    padding[place] = 0.0
    K.diagonal(dim1=1, dim2=2).add_(padding.view(B, n))
    L, info = torch.linalg.cholesky_ex(K)
    W = X.transpose(1, 2) @ torch.cholesky_solve(R, L)
    W += X.transpose(1, 2) @ torch.cholesky_solve(R - X @ W, L)
    residual = (X @ W - R).abs().amax((1, 2))
    for i in torch.nonzero((info != 0) | ~(residual < 1e-9))[:, 0].tolist():
        # Too ill conditioned for Cholesky: solve this one shard by QR.
        solution = minimum_norm(X[i, : sizes[i]], R[i, : sizes[i]])
        W[i], residual[i] = solution.W, solution.residual
    # cond(X) from X X^T; padding of the diagonal with 1 lies inside the spectrum's range.
    values = torch.linalg.eigvalsh(K[0])
    condition = float((values[-1] / values[0].clamp_min(1e-300)).sqrt())
    return W.view(B, batch.heads, spec.d_h, -1), float(residual.max()), condition


def by_shard(shard: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """The facts of each shard, in order."""
    order = np.argsort(shard, kind="stable")
    return np.split(order, np.cumsum(sizes)[:-1])


def largest_score(spec: ShardedSpec, weights: Weights, tokens: Tensor) -> float:
    """How far a head's generic score can lift a real token over the sink, for any key made of the
    tokens in use: max_j (max |u_j·x_S|)(max_s |w_j·x_s|) over BOS, which scores 0. A subject sink
    has a score of its own, and max_s |w_j·x_s| + max |w_j·x_1| stands for the second factor.
    """
    E, pos = weights["W_E"].double(), weights["W_pos"].double()
    x = [E[tokens[:, s].unique()] + pos[s + 1] for s in range(tokens.shape[1])]
    largest = 0.0
    for i in range(0, len(weights["u"]), HEADS_AT_ONCE):
        u, w = (weights[name][i : i + HEADS_AT_ONCE].double() for name in ("u", "w"))
        keys = torch.stack([(x_s @ w.T).abs().amax(0) for x_s in x])
        reach = keys.amax(0) + (keys[0] if spec.gate == "subject-sink" else 0.0)
        largest = max(largest, float(((x[-1] @ u.T).abs().amax(0) * reach).max()))
    return largest


def solve_all(
    spec: ShardedSpec,
    weights: Weights,
    made: list[Batch],
    members: list[np.ndarray],
    tokens: Tensor,
    targets: Tensor,
    workers: int | str,
    progress: Report,
) -> tuple[Tensor, float, float]:
    """W_O (H, d_h, out) of all shards, the largest residual, the largest condition number seen."""
    W_O = torch.zeros(spec.H, spec.d_h, spec.d_g + spec.check, dtype=weights["W_E"].dtype)
    start = weights["head_start"].tolist()
    worst = condition = done = 0
    waiting: deque[tuple[Batch, Future[tuple[np.ndarray, float, float]]]] = deque()

    def take() -> None:
        nonlocal worst, condition, done
        batch, future = waiting.popleft()
        blocks, residual, cond = future.result()
        for g, block in zip(batch.shards.tolist(), blocks, strict=True):
            W_O[start[g] : start[g] + batch.heads] = torch.from_numpy(block)
        worst, condition = max(worst, residual), max(condition, cond)
        done += len(batch.shards)
        progress(f"{done:,} of {spec.shards:,} shards solved")

    with engine(workers) as executor:
        for batch in made:
            own = [members[g] for g in batch.shards]
            facts = torch.from_numpy(np.concatenate(own))
            seen, local = tokens[facts].unique(return_inverse=True)
            part = {
                name: (w[seen] if name in BY_TOKEN else w).numpy()
                for name, w in weights.items()
                if name not in NOT_READ
            }
            sizes = [len(m) for m in own]
            task = (spec, part, batch, local.numpy(), targets[facts].numpy(), sizes)
            waiting.append((batch, executor.submit(solve_packed, *task)))
            if len(waiting) >= IN_FLIGHT:
                take()
        while waiting:
            take()
    return W_O, float(worst), float(condition)


def solve_packed(
    spec: ShardedSpec,
    part: dict[str, np.ndarray],
    batch: Batch,
    tokens: np.ndarray,
    targets: np.ndarray,
    sizes: Sizes,
) -> tuple[np.ndarray, float, float]:
    """`solve_batch` on plain arrays with token ids of their own; blocks rounded to the stored
    format. Runs anywhere."""
    # torch.tensor copies into aligned memory, on which results do not depend on where it came from.
    weights = {name: torch.tensor(array) for name, array in part.items()}
    with one_thread():
        blocks, residual, condition = solve_batch(
            spec, weights, batch, torch.tensor(tokens), torch.tensor(targets), sizes
        )
    return blocks.to(weights["W_E"].dtype).numpy(), residual, condition
