"""Which path computes the gradients: a kernel where it was measured to pay, else autograd."""

from __future__ import annotations

from typing import Any

import torch

from byheart.errors import ByheartError
from byheart.training.data import Data
from byheart.training.kernels.bilinear import Bilinear
from byheart.training.kernels.multi_head import FoldedMultiHead, multi_head_admissible
from byheart.training.kernels.one_layer import admissible
from byheart.training.kernels.uz import UZ
from byheart.training.learner import Autograd, Goal, Learner

KERNELS: dict[str, type[Learner]] = {k.name: k for k in (Bilinear, UZ)}
PATHS: tuple[str, ...] = ("auto", "autograd", "compiled", *KERNELS)

WIDEST = 600  # d² or H d up to which the feature-major kernels were measured to win


def choose(spec: Any, goal: Goal, data: Data) -> str:
    """The name of the path for this shape (docs/training.md has the measurements)."""
    if admissible(spec, goal, data):
        if spec.H >= spec.d and spec.d**2 <= WIDEST:
            return Bilinear.name
        if spec.H * spec.d <= WIDEST:
            return UZ.name
    return Autograd.name


def learner(
    spec: Any,
    models: int,
    goal: Goal,
    data: Data,
    *,
    path: str = "auto",
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Learner:
    """The learner of a stack. `path` forces one; "auto" chooses by shape."""
    if path not in PATHS:
        raise ByheartError(f"path must be one of {', '.join(PATHS)}, found {path!r}")
    name = choose(spec, goal, data) if path == "auto" else path
    if name in KERNELS:
        if not admissible(spec, goal, data):
            raise ByheartError(
                f"the kernel {name} does one softmax layer with rank(W_QK) = d_h, at least two "
                f"tokens and cross-entropy on classes; this is {spec} with {goal.loss}. "
                "Leave the path to byheart."
            )
        return KERNELS[name](spec, models, goal, device=device, dtype=dtype)
    compiled = name == "compiled"
    return Autograd(spec, models, goal, device=device, dtype=dtype, compiled=compiled)
