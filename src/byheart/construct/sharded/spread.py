"""The batches of a build, in this process or on workers: the same bytes either way.

A task carries only what it needs: the embeddings of its own tokens, its own facts, the tied heads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import torch
from torch import Tensor

from byheart.construct.sharded.solve import Batch, solve_batch
from byheart.engine import engine
from byheart.models.attention_only import Weights
from byheart.models.threads import one_thread
from byheart.specs import ShardedSpec

BY_TOKEN = ("W_E", "group", "bits", "subject")  # weights with one row a token
NOT_READ = ("W_U", "W_O", "cancel")  # weights that a solve does not look at
IN_FLIGHT = 16  # tasks handed out at once: bounds the memory of data under way

Result = tuple[np.ndarray, float, float]


def solve_all(
    spec: ShardedSpec,
    weights: Weights,
    made: list[Batch],
    members: list[np.ndarray],
    tokens: Tensor,
    targets: Tensor,
    start: np.ndarray,
    workers: int | str,
    progress: Callable[[str], None],
) -> tuple[Tensor, float, float]:
    """W_O (H, d_h, out) of all shards, the largest residual, the largest condition number seen."""
    W_O = torch.zeros(spec.H, spec.d_h, spec.d_g + spec.check, dtype=weights["W_E"].dtype)
    worst = condition = 0.0
    done = 0
    waiting: deque[tuple[Batch, Future[Result]]] = deque()

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
            task = packed(weights, tokens, targets, own)
            waiting.append((batch, executor.submit(solve_packed, spec, batch, *task)))
            if len(waiting) >= IN_FLIGHT:
                take()
        while waiting:
            take()
    return W_O, worst, condition


def packed(
    weights: Weights, tokens: Tensor, targets: Tensor, members: list[np.ndarray]
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, list[int]]:
    """The part of the problem that some shards see, as plain arrays with token ids of their own."""
    facts = torch.from_numpy(np.concatenate(members))
    seen, local = tokens[facts].unique(return_inverse=True)
    part = {
        name: (w[seen] if name in BY_TOKEN else w).numpy()
        for name, w in weights.items()
        if name not in NOT_READ
    }
    return part, local.numpy(), targets[facts].numpy(), [len(m) for m in members]


def solve_packed(
    spec: ShardedSpec,
    batch: Batch,
    part: dict[str, np.ndarray],
    tokens: np.ndarray,
    targets: np.ndarray,
    sizes: list[int],
) -> Any:
    """`solve_batch` on a packed part; blocks rounded to the stored format. Runs anywhere."""
    # torch.tensor copies into aligned memory, on which results do not depend on where it came from.
    weights = {name: torch.tensor(array) for name, array in part.items()}
    ends = np.cumsum(sizes)
    members = [np.arange(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    with one_thread():
        blocks, residual, condition = solve_batch(
            spec, weights, batch, torch.tensor(tokens), torch.tensor(targets), members
        )
    return blocks.to(weights["W_E"].dtype).numpy(), residual, condition
