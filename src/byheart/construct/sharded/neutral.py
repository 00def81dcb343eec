"""A neutral rest: what is left of the stream without a fact's heads does not name its answer.

With all heads of a shard zeroed the literal layer computes W_U x_S, the same for all facts of one
last token. Random embeddings name the right answer for a few facts by luck, and these would survive
the loss of their heads. So the embedding of such a token is drawn again until x_S puts another
answer (or a token that is none) above all answers of the token's facts.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from byheart.construct.attention_only import gaussians
from byheart.facts import Facts
from byheart.models.attention_only import Weights

BELOW = 0.02  # by so much of |x_S| the right answers stay below: far more than rounding and leaks
TRIES = 64  # draws of one token; then its embedding is turned towards an answer it has not
TURNS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # lengths of |x_S| by which it is turned
STREAM = 0x4E5  # apart from the streams of embeddings and answers
TOKENS_AT_ONCE = 1024


def neutral_rest(facts: Facts, last: Tensor, weights: Weights, seed: int) -> Tensor:
    """W_E with such rows for the tokens `last` (T,) read last, as stored. A token whose facts have
    every answer keeps the best that was found: one of them survives."""
    W_E, pos, dtype = weights["W_E"].clone(), weights["W_pos"][-1].double(), weights["W_E"].dtype
    gaussian, answers = gaussians(seed + STREAM), torch.from_numpy(facts.answer_ids.copy())
    W_U = weights["W_U"].double()[:, answers]
    size = float(W_E[:-1].double().norm(dim=1).square().mean().sqrt()) / W_E.shape[1] ** 0.5
    column = torch.from_numpy(np.searchsorted(facts.answer_ids, facts.answers))
    for tokens in last.unique().split(TOKENS_AT_ONCE):
        at = torch.searchsorted(tokens, last).clamp_max(len(tokens) - 1)
        mine = tokens[at] == last
        owned = torch.zeros(len(tokens), len(answers), dtype=torch.bool)
        owned[at[mine], column[mine]] = True
        lead = _lead(W_E[tokens].double() + pos, W_U, owned)
        for _ in range(TRIES):
            loud = torch.nonzero(lead > 0)[:, 0]
            if not len(loud):
                break
            drawn = (size * gaussian(len(loud), W_E.shape[1])).to(dtype)
            found = _lead(drawn.double() + pos, W_U, owned[loud])
            better = found < lead[loud]
            W_E[tokens[loud[better]]], lead[loud[better]] = drawn[better], found[better]
        for i in torch.nonzero((lead > 0) & ~owned.all(1))[:, 0].tolist():
            W_E[tokens[i]] = _turned(W_E[tokens[i]], pos, W_U, owned[i])
    return W_E


def _lead(x: Tensor, W_U: Tensor, owned: Tensor) -> Tensor:
    """How far the own answers come too close to all others, in logits: (tokens,)."""
    logits = x @ W_U
    own = logits.masked_fill(~owned, -torch.inf).amax(1)
    # Tokens that are no answers have the logit 0, the start token among them.
    others = logits.masked_fill(owned, -torch.inf).amax(1).clamp_min(0.0)
    return own - others + BELOW * x.norm(dim=1)


def _turned(e: Tensor, pos: Tensor, W_U: Tensor, owned: Tensor) -> Tensor:
    """e turned towards the nearest answer that its facts have not, at the same length |x_S|."""
    x = e.double() + pos
    towards = W_U[:, int((x @ W_U).masked_fill(owned, -torch.inf).argmax())]
    for turn in TURNS:
        new = x + turn * x.norm() * towards
        made = (new * (x.norm() / new.norm()) - pos).to(e.dtype)
        if float(_lead((made.double() + pos)[None], W_U, owned[None])) <= 0:
            return made
    return e
