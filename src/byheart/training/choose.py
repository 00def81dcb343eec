"""Which path computes the gradients: a kernel where it was measured to pay, else autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from byheart.errors import ByheartError
from byheart.training.data import Data
from byheart.training.kernels.bilinear import Bilinear
from byheart.training.kernels.deep_pairs import DeepPairs, pairs_admissible
from byheart.training.kernels.multi_head import FoldedMultiHead, multi_head_admissible
from byheart.training.kernels.one_layer import admissible, heads_of
from byheart.training.kernels.token_tables import TokenTables, tables_admissible
from byheart.training.kernels.uz import UZ
from byheart.training.learner import Autograd, Goal, Learner

KERNELS: dict[str, tuple[type[Learner], Callable[[object, Goal, Data], bool]]] = {
    Bilinear.name: (Bilinear, admissible),
    UZ.name: (UZ, admissible),
    TokenTables.name: (TokenTables, tables_admissible),
    FoldedMultiHead.name: (FoldedMultiHead, multi_head_admissible),
    DeepPairs.name: (DeepPairs, pairs_admissible),
}
PATHS: tuple[str, ...] = ("auto", "autograd", "compiled", *KERNELS)

WIDEST_FEATURES = 625  # d² up to which bilinear features were measured to win
NARROW = 600  # H d from which heads with d_h < d/2 are cheaper in token tables


def choose(spec: Any, goal: Goal, data: Data) -> str:
    """The name of the path for this shape (docs/training.md has the measurements)."""
    if multi_head_admissible(spec, goal, data):
        return FoldedMultiHead.name
    if pairs_admissible(spec, goal, data):
        return DeepPairs.name
    heads = heads_of(spec)
    if heads is not None and admissible(spec, goal, data):
        if heads.H >= heads.d and heads.d**2 <= WIDEST_FEATURES:
            return Bilinear.name
        if heads.H * heads.d <= NARROW or 2 * heads.d_h >= heads.d:
            return UZ.name
    return TokenTables.name if tables_admissible(spec, goal, data) else Autograd.name


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
        kernel, fits = KERNELS[name]
        if not fits(spec, goal, data):
            raise ByheartError(
                f"the kernel {name} does not do this: {fits.__doc__} Found {spec} with loss "
                f"{goal.loss}. Leave the path to byheart."
            )
        return kernel(spec, models, goal, device=device, dtype=dtype)
    compiled = name == "compiled"
    return Autograd(spec, models, goal, device=device, dtype=dtype, compiled=compiled)
