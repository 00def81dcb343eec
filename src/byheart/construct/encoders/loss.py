"""Cross-entropy of bilinear logits and its gradient, in two buffers that are used again."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from byheart.models.threads import one_thread

SMALL = 10**6  # entries of π: below, several threads only wait for each other


class CrossEntropy:
    """Σ_t p_t [log Σ_j exp f_tj - π_t·f_t] for f = z W^T, and G = p (softmax f - π).

    d_KL is this minus the entropy of π. Gradients: G^T z in W, G W in z. Tables of some million
    entries would spend a third of their time on fresh memory without the buffers.

    >>> half = torch.full((1, 2), 0.5, dtype=torch.float64)
    >>> loss = CrossEntropy(half, torch.ones(1, dtype=torch.float64))
    >>> value, G = loss(torch.zeros(1, 1, dtype=torch.float64), half.T)
    >>> round(value, 6), G
    (0.693147, tensor([[0., 0.]], dtype=torch.float64))
    """

    def __init__(self, pi: Tensor, prior: Tensor) -> None:
        self.pi, self.prior = pi, prior
        self._f, self._work = torch.empty_like(pi), torch.empty_like(pi)

    def __call__(self, z: Tensor, W: Tensor) -> tuple[float, Tensor]:
        """The loss and G; G lies in a buffer that the next call overwrites."""
        f = torch.mm(z, W.T, out=self._f)
        linear = torch.mul(self.pi, f, out=self._work).sum(1)
        top = f.amax(1, keepdim=True)
        q = f.sub_(top).exp_()
        total = q.sum(1, keepdim=True)
        loss = self.prior @ ((total.log() + top)[:, 0] - linear)
        return float(loss), q.div_(total).sub_(self.pi).mul_(self.prior[:, None])

    def threads(self) -> AbstractContextManager[None]:
        """One thread for small tables, as many as torch has for large ones."""
        return one_thread() if self.pi.numel() <= SMALL else nullcontext()
