"""The bigrams and skip-trigrams that one head's circuits hold most strongly.

Logits are those above the mean token's, for a source token above the text's mean source: what does
not depend on the source, or is the same for every answer, is no pair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from byheart.audits.circuits import Head
from byheart.audits.information import ENTRIES, Text

if TYPE_CHECKING:
    from byheart.audits.measures import Record

Names = Callable[[int], str]
DISTANCE = 1  # of b behind a in the list of skip-trigrams, for rotary positions


def stored_pairs(
    head: Head, norm: nn.Module, W_E: Tensor, W_U: Tensor, text: Text, k: int, names: Names
) -> list[Record]:
    """The k largest logits C[s, t] over the whole vocabulary, W_E (V, d) and W_U (d, V): V² of
    them, a block of rows at a time. `count`: how often the pair stands in the text."""
    mean = _mean_value(head, norm(W_E[text.kinds]), text)
    U = _above_mean(head.W_O @ W_U)
    best = torch.full((k,), -torch.inf)
    at = torch.zeros(k, dtype=torch.long)
    V = len(W_E)
    size = max(1, ENTRIES // V)
    for start in range(0, V, size):
        logits = ((norm(W_E[start : start + size]) @ head.W_V - mean) @ U).flatten()
        value, index = logits.topk(min(k, len(logits)))
        best, order = torch.cat([best, value]).topk(k)
        at = torch.cat([at, index + start * V])[order]
    tokens = text.kinds[text.indices]
    rows = []
    for logit, key in zip(best.tolist(), at.tolist(), strict=True):
        if logit == -torch.inf:  # there are fewer pairs than asked for
            break
        s, t = divmod(key, V)
        count = int(((tokens[:, :-1] == s) & (tokens[:, 1:] == t)).sum())
        rows.append({"tokens": [names(s), names(t)], "logit": logit, "count": count})
    return rows


def stored_trigrams(
    head: Head, x: Tensor, W_U: Tensor, text: Text, n: int, k: int, names: Names
) -> list[Record]:
    """The k strongest "a ... b -> t" among the text's tokens, x (K, d) normed: the logit that a
    gives its best answer t, times the attention that b pays to one a among n - 1 other tokens,
    e^{q·k(a)} / (e^{q·k(a)} + (n - 1) Σ_s u(s) e^{q·k(s)}), with a right before b."""
    u = torch.bincount(text.sources, minlength=text.K) / len(text.sources)
    U = _above_mean(head.W_O @ W_U)
    values = x @ head.W_V - _mean_value(head, x, text)
    size = max(1, ENTRIES // text.K)
    answers = [(part @ U).max(1) for part in values.split(size)]
    logit = torch.cat([answer.values for answer in answers])
    answer = torch.cat([answer.indices for answer in answers])
    here, before = torch.full((1,), DISTANCE), torch.zeros(1, dtype=torch.long)
    best, at = torch.full((k,), -torch.inf), torch.zeros(k, dtype=torch.long)
    attention = torch.zeros(k)
    for start in range(0, text.K, size):
        scores = head.scores(x[start : start + size], x, here, before)
        others = torch.logsumexp(scores + u.log(), 1, keepdim=True) + torch.tensor(n - 1.0).log()
        paid = torch.sigmoid(scores - others).flatten()
        value, index = (paid * logit.repeat(len(scores))).topk(min(k, len(paid)))
        best, order = torch.cat([best, value]).topk(k)
        at = torch.cat([at, index + start * text.K])[order]
        attention = torch.cat([attention, paid[index]])[order]
    rows = []
    for value, key, share in zip(best.tolist(), at.tolist(), attention.tolist(), strict=True):
        if value == -torch.inf:
            break
        b, a = divmod(key, text.K)
        tokens = [names(int(text.kinds[i])) for i in (a, b, int(answer[a]))]
        rows.append({"tokens": tokens, "logit": value, "attention": share})
    return rows


def _mean_value(head: Head, x: Tensor, text: Text) -> Tensor:
    """The mean of x W_V over the text, x (K, d) for its tokens."""
    count = torch.bincount(text.sources, minlength=text.K).to(x.dtype)
    return count @ (x @ head.W_V) / count.sum()


def _above_mean(U: Tensor) -> Tensor:
    return U - U.mean(1, keepdim=True)
