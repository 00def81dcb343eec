"""What is left of a margin without a head: logits are linear in what the heads of a layer write."""

from __future__ import annotations

import torch
from torch import Tensor

from byheart.models.memory import HeadParts, answer_margins

LOGITS_AT_ONCE = 2**24  # entries (facts, heads, tokens) that are held together: 128 MB


def margins_without_each(part: HeadParts, W_U: Tensor) -> Tensor:
    """The margins (B, h) of the right answers with each of the heads zeroed by itself.

    >>> import byheart as bh
    >>> memory = bh.build("elements")
    >>> part = next(iter(memory.head_parts(memory.encode([("Fe", "name")]))))
    >>> margins_without_each(part, memory.weights["W_U"].double()).shape == part.parts.shape
    True
    """
    if part.written is None:
        raise ValueError("these heads do not say what they write")
    heads = len(part.heads)
    step, rows = max(1, LOGITS_AT_ONCE // max(1, heads * W_U.shape[1])), []
    for i in range(0, len(part.at), step):
        b = slice(i, i + step)
        after = (part.logits[b, None] - part.written[b] @ W_U).flatten(0, 1)
        right = part.answers[b].repeat_interleave(heads)
        rows.append(answer_margins(after, right).view(-1, heads))
    return torch.cat(rows)
