"""Which path computes the gradients: a kernel where it was measured to pay, else autograd."""

from __future__ import annotations

from typing import Any

from byheart.errors import ByheartError, check_choice
from byheart.specs import (
    AttentionOnlySpec,
    MLPTransformerSpec,
    MultiHeadSpec,
    SharedBottleneckSpec,
    Spec,
)
from byheart.training.data import Data
from byheart.training.kernels.bilinear import Bilinear
from byheart.training.kernels.deep_pairs import DeepPairs
from byheart.training.kernels.folded import FoldedMultiHead
from byheart.training.kernels.scalar_heads import ScalarHeads
from byheart.training.kernels.token_tables import TokenTables
from byheart.training.kernels.uz import UZ
from byheart.training.learner import Autograd, Goal, Learner

Kernel = type[Learner[Any]]

# The kernels of each architecture: the first that covers a shape, and pays there, is chosen.
KERNELS: dict[type, tuple[Kernel, ...]] = {
    AttentionOnlySpec: (DeepPairs, Bilinear, UZ, TokenTables),
    SharedBottleneckSpec: (DeepPairs, Bilinear, UZ),
    MLPTransformerSpec: (DeepPairs, Bilinear, UZ),
    MultiHeadSpec: (ScalarHeads, FoldedMultiHead),
}
BY_NAME: dict[str, Kernel] = {k.name: k for kernels in KERNELS.values() for k in kernels}
PATHS: tuple[str, ...] = ("auto", Autograd.name, *BY_NAME)


def choose(spec: Spec, goal: Goal, data: Data, path: str = "auto") -> Kernel:
    """The learner for this shape (docs/training.md has the measurements); `path` forces one."""
    check_choice("path", path, PATHS)
    own = KERNELS.get(type(spec), ())
    if path == "auto":
        return next((k for k in own if k.covers(spec, goal, data) and k.pays(spec)), Autograd)
    if path == Autograd.name:
        return Autograd
    kernel = BY_NAME[path]
    if kernel not in own or not kernel.covers(spec, goal, data):
        raise ByheartError(
            f"the kernel {path} does not do this: {kernel.covers.__doc__} Found {spec} with loss "
            f"{goal.loss}. Leave `path` to byheart."
        )
    return kernel
