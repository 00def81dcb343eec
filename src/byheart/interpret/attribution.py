"""Attribution methods: which heads hold a fact? Each gives a score to every head, in plain PyTorch.

A method is a function `(model, key, answer) -> scores`: the `Subject`, one key (S,) as token ids,
the id of its answer; a number for each (layer, head), larger where the head is more believed to
hold the fact. `lead` is the logit of the answer minus that of the runner-up of the unchanged model,
x^h_s what head h writes at position s, S the last position, g the answer, j the runner-up.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from byheart.interpret.subject import Run, Subject, leads, runner_up

Method = Callable[[Subject, Tensor, int], object]
"""What it returns is checked (`loading.checked`)."""
STEPS = 16  # points of the path of integrated gradients
DRAWS = 4  # other keys that resampling takes

_nodes, _weights = np.polynomial.legendre.leggauss(STEPS)
NODES, WEIGHTS = torch.from_numpy((_nodes + 1) / 2), torch.from_numpy(_weights / 2)


def _seen(model: Subject, key: Tensor, answer: int) -> tuple[Run, int, float]:
    """The run of one key, its runner-up, and the lead of its answer."""
    seen = model.run(key[None])
    second = runner_up(seen.logits[0], answer)
    return seen, second, float(leads(seen.logits[0], answer, second))


def direct(model: Subject, key: Tensor, answer: int) -> Tensor:
    """Direct logit attribution: w_g · x^h_S, what the head adds to the logit of the answer."""
    return model.run(key[None]).heads[:, 0, -1] @ model.W_U[:, answer]


def direct_lead(model: Subject, key: Tensor, answer: int) -> Tensor:
    """Direct attribution of the lead: (w_g - w_j) · x^h_S."""
    seen, second, _ = _seen(model, key, answer)
    return seen.heads[:, 0, -1] @ (model.W_U[:, answer] - model.W_U[:, second])


def zero(model: Subject, key: Tensor, answer: int) -> Tensor:
    """Zero ablation: how much of the lead is lost when the head writes nothing."""
    seen, second, lead = _seen(model, key, answer)
    nothing = torch.zeros_like(seen.heads[:, 0]).transpose(1, 2)
    return lead - leads(model.replaced(seen, nothing), answer, second)


def lost(model: Subject, key: Tensor, answer: int) -> Tensor:
    """Knock-out: 1 where the answer no longer has the largest logit when the head writes nothing,
    else 0."""
    seen = model.run(key[None])
    logits = model.replaced(seen, torch.zeros_like(seen.heads[:, 0]).transpose(1, 2))
    return (logits.argmax(-1) != answer).double()


def mean(model: Subject, key: Tensor, answer: int) -> Tensor:
    """Mean ablation: how much of the lead is lost when the head writes what it writes on average
    over all keys."""
    seen, second, lead = _seen(model, key, answer)
    return lead - leads(model.replaced(seen, model.mean_heads), answer, second)


def resample(model: Subject, key: Tensor, answer: int) -> Tensor:
    """Resample ablation: how much of the lead is lost, on average over four keys with another
    answer, when the head writes what it writes for that key."""
    seen, second, lead = _seen(model, key, answer)
    others = model.run(model.others(answer, DRAWS)).heads
    left = [
        leads(model.replaced(seen, others[:, i].transpose(1, 2)), answer, second)
        for i in range(DRAWS)
    ]
    return lead - torch.stack(left).mean(0)


def patch(model: Subject, key: Tensor, answer: int) -> Tensor:
    """Activation patching: how much the answer gains on the answer of another key when, in the run
    of that key, the head writes what it writes for this one."""
    seen = model.run(key[None])
    other = model.run(model.others(answer, 1))
    logits = other.logits[0]
    theirs = int(logits.argmax())
    patched = model.replaced(other, seen.heads[:, 0].transpose(1, 2))
    return leads(patched, answer, theirs) - leads(logits, answer, theirs)


def gradient(model: Subject, key: Tensor, answer: int) -> Tensor:
    """Gradient times activation: Σ_s x^h_s · d lead / d x^h_s, the derivative of the lead by a
    factor on all that the head writes."""
    return _gate_gradients(model, key, answer, torch.ones(1, dtype=torch.float64))[0]


def integrated(model: Subject, key: Tensor, answer: int) -> Tensor:
    """Integrated gradients: ∫_0^1 d lead / d a_h da, all heads' factors a running from 0 to 1
    together (16 points of Gauss and Legendre). The scores add up to the lead minus the lead without
    heads."""
    along = _gate_gradients(model, key, answer, NODES)
    return torch.einsum("p,plh->lh", WEIGHTS, along)


def _gate_gradients(model: Subject, key: Tensor, answer: int, at: Tensor) -> Tensor:
    """d lead / d a_h (P, layers, H) where all factors are at_p."""
    _, second, _ = _seen(model, key, answer)
    gates = at[:, None, None].repeat(1, model.layers, model.H).requires_grad_()
    lead = leads(model.gated(key, gates), answer, second)
    return model.gradients(lead, gates)


def attention(model: Subject, key: Tensor, answer: int) -> Tensor:
    """Attention weight: how much of its attention the last position's head does not give to the
    start token (all of it where there is none)."""
    last = model.run(key[None]).patterns[:, 0, :, -1]
    return 1 - last[..., 0] if model.start else last.sum(-1)


def random(model: Subject, key: Tensor, answer: int) -> Tensor:
    """The control: independent uniform numbers."""
    shape = model.layers, model.H
    return torch.rand(shape, generator=model.generator, dtype=torch.float64)


METHODS: dict[str, Callable[[Subject, Tensor, int], Tensor]] = {
    "direct": direct, "direct-lead": direct_lead, "zero": zero, "lost": lost, "mean": mean,
    "resample": resample, "patch": patch, "gradient": gradient, "integrated": integrated,
    "attention": attention, "random": random,
}  # fmt: skip
