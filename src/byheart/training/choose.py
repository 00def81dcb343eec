"""Which path computes the gradients: a kernel where it was measured to pay, else autograd."""

from __future__ import annotations

from typing import Any

import torch

from byheart.errors import ByheartError
from byheart.training.data import Data
from byheart.training.kernels.bilinear import Bilinear
from byheart.training.kernels.multi_head import FoldedMultiHead, multi_head_admissible
from byheart.training.kernels.one_layer import admissible, heads_of
from byheart.training.kernels.uz import UZ
from byheart.training.learner import Autograd, Goal, Learner

KERNELS: dict[str, type[Learner]] = {k.name: k for k in (Bilinear, UZ, FoldedMultiHead)}
PATHS: tuple[str, ...] = ("auto", "autograd", "compiled", *KERNELS)

WIDEST = 600  # d² or H d up to which the feature-major kernels were measured to win


def choose(spec: Any, goal: Goal, data: Data) -> str:
    """The name of the path for this shape (docs/training.md has the measurements)."""
    if multi_head_admissible(spec, goal, data):
        return FoldedMultiHead.name
    heads = heads_of(spec)
    if heads is not None and admissible(spec, goal, data):
        if heads.H >= heads.d and heads.d**2 <= WIDEST:
            return Bilinear.name
        if heads.H * heads.d <= WIDEST:
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
        fits = multi_head_admissible if name == FoldedMultiHead.name else admissible
        if not fits(spec, goal, data):
            raise ByheartError(
                f"the kernel {name} does not do this: {fits.__doc__} Found {spec} with loss "
                f"{goal.loss}. Leave the path to byheart."
            )
        return KERNELS[name](spec, models, goal, device=device, dtype=dtype)
    compiled = name == "compiled"
    return Autograd(spec, models, goal, device=device, dtype=dtype, compiled=compiled)
