"""What is decided before a run begins: which path computes the gradients, a kernel where it was
measured to pay, else autograd; and whether device, sizes and memory are there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from byheart._machine import check_room, check_time
from byheart.errors import ByheartError, check_choice
from byheart.specs import (
    AttentionOnlySpec,
    FeedForwardTransformerSpec,
    MLPTransformerSpec,
    MultiHeadSpec,
    SharedBottleneckSpec,
    Spec,
)
from byheart.training import native
from byheart.training.data import Data
from byheart.training.devices import check_device
from byheart.training.kernels.compiled_pairs import CompiledPairs
from byheart.training.kernels.compiled_shared import CompiledShared
from byheart.training.kernels.compiled_vectors import CompiledVectors
from byheart.training.kernels.narrow import Narrow
from byheart.training.kernels.one_layer import UZ, Bilinear
from byheart.training.kernels.regrouped import DeepPairs, TokenTables
from byheart.training.kernels.scalar_heads import ScalarHeads
from byheart.training.learner import Learner, MixedPrecision, Weights
from byheart.training.losses import check_loss
from byheart.training.recipe import Recipe, TrainableSpec

Kernel = type[Learner[Any]]
AUTO, PLAIN = "auto", "torch"  # the kernel that fits, the same without compiled ones

# The kernels of each architecture: the first that covers a shape, and pays there, is chosen.
KERNELS: dict[type, tuple[Kernel, ...]] = {
    AttentionOnlySpec: (CompiledPairs, DeepPairs, Bilinear, UZ, TokenTables),
    SharedBottleneckSpec: (CompiledPairs, DeepPairs, Bilinear, UZ),
    MLPTransformerSpec: (CompiledPairs, DeepPairs, Bilinear, UZ),
    MultiHeadSpec: (CompiledShared, CompiledVectors, ScalarHeads),
    FeedForwardTransformerSpec: (Narrow,),
}
ANY_SHAPE: dict[str, Kernel] = {k.name: k for k in (Learner, MixedPrecision)}
BY_NAME: dict[str, Kernel] = {k.name: k for kernels in KERNELS.values() for k in kernels}


def choose(
    spec: Spec, loss: str, data: Data, path: str = AUTO, *,
    device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32,
) -> Kernel:  # fmt: skip
    """The learner for this shape (docs/training.md has the measurements); `path` forces one."""
    check_choice("path", path, (AUTO, PLAIN, *ANY_SHAPE, *BY_NAME))
    own = KERNELS.get(type(spec), ())
    if path in (AUTO, PLAIN):
        fitting = (k for k in own if k.covers(spec, loss, data) and k.pays(spec))
        if path == PLAIN:
            fitting = (k for k in fitting if k.library is None)
        return next((k for k in fitting if k.missing(device, dtype) is None), Learner)
    if path in ANY_SHAPE:
        return ANY_SHAPE[path]
    kernel = BY_NAME[path]
    if not (kernel in own and kernel.covers(spec, loss, data)):
        raise ByheartError(
            f"the kernel {path} does not do this: {kernel.covers.__doc__} Found {spec} with loss "
            f"{loss}. Leave `path` to byheart."
        )
    reason = kernel.missing(device, dtype)
    if reason is not None:
        raise ByheartError(f"the kernel {path} is not here: {reason}. Leave `path` to byheart.")
    return kernel


def compiling(spec: TrainableSpec, loss: str, device: str, dtype: str) -> Iterator[str]:
    """What a user should be told of the compiled kernel that would train `spec`: that it is being
    compiled, before that begins, and that there is none, and why."""
    one = torch.zeros(1, 1, dtype=torch.long)
    data = Data(one.expand(1, spec.S), one[0])
    fitting = (k for k in KERNELS[type(spec)] if k.covers(spec, loss, data) and k.pays(spec))
    library = next(fitting, Learner).library
    if library is None or (check_device(device), dtype) != ("cpu", "float32"):
        return
    if not native.ready(library):
        yield "compiling the training kernels for this machine, once: some ten seconds."
    reason = native.missing(library)
    if reason is not None:
        yield f"no compiled training kernels: {reason}. Training takes about 2.5 times as long."


def check_work(
    kernel: Kernel, spec: Spec, data: Data, recipe: Recipe, models: int, itemsize: int
) -> None:
    """Refuse a run that this machine's memory cannot hold, or that would not end, before any work.

    Counted are the intermediates of a step, the weights with their gradient, the optimizer's
    moments and copies, the examples, and the batches that are drawn ahead.
    """
    full = recipe.sampling == "full"
    rows = data.T if full else min(recipe.batch, data.T)
    step = kernel.step_bytes(spec, models, rows, itemsize, full)
    weights = 6 * models * spec.parameters * itemsize
    tensors = (data.inputs, data.targets, data.context)
    examples = sum(x.nbytes for x in tensors if x is not None)
    ahead = recipe.batch * recipe.epoch_steps
    if full or recipe.sampling == "without-replacement":
        ahead = data.T  # the full batch is laid out once, an epoch at its beginning
    tokens = 0 if data.inputs.is_floating_point() else data.inputs.shape[-1] + 2
    needed = step + weights + examples + 8 * models * ahead * (1 + tokens)
    smaller = "give a `batch` (examples a step)" if full else "give a smaller `batch`"
    advice = f"{step / 1e9:,.0f} GB of it are for one step on {rows:,} facts: {smaller}, fewer "
    what = f"training {models} models on {data.T:,} facts"
    check_room(needed, what, f"{advice}`seeds`, or a smaller model.")
    each = models * spec.parameters * (6 * rows + 10)  # forward, backward, and the update
    advice = f"Give fewer `steps` than {recipe.steps:,}, fewer `seeds`, or a smaller model."
    check_time(float(recipe.steps) * each, what, advice)


def check_planned(spec: TrainableSpec, T: int, recipe: Recipe, models: int, device: str) -> None:
    """`check_work` for tables of `T` facts that nobody has made yet."""
    device = check_device(device)
    one = torch.zeros((), dtype=torch.long)  # as many as wished, in no more memory
    data = Data(one.expand(models, T, spec.S), one.expand(models, T), own=True)
    if torch.device(device).type == "cpu":
        kernel = choose(spec, recipe.loss, data, device=device)
        check_work(kernel, spec, data, recipe, models, torch.float32.itemsize)


def check_recipes(recipes: list[Recipe], models: int) -> Recipe:
    """The recipe of a stack, of which each model may have its own learning rate and warm-up."""
    if recipes and len(recipes) != models:
        raise ByheartError(f"{len(recipes)} recipes, but {models} seeds")
    first = recipes[0] if recipes else Recipe()
    for other in recipes[1:]:
        if other.but(lr=first.lr, lr_low=first.lr_low, warmup=first.warmup) != first:
            raise ByheartError(
                "the recipes of a stack may differ in `lr`, `lr_low` and `warmup` only: found "
                f"{first} and {other}. Train them in stacks of their own."
            )
    return first


def check_shapes(
    spec: Spec, data: Data, recipe: Recipe, start: Weights | None, models: int
) -> None:
    """Refuse data of other models, a loss that does not fit them, keys of another length, tokens
    that the model does not have, and starting weights of other names or shapes."""
    if not models:
        raise ByheartError("give at least one seed: one model is trained for each")
    if data.models not in (None, models):
        raise ByheartError(f"data of {data.models} models, but {models} seeds")
    check_loss(recipe.loss, data.kind)
    for name, shape in spec.weight_shapes().items():
        found = None if start is None else tuple(start[name].shape) if name in start else "nothing"
        if found not in (None, (models, *shape)):
            raise ByheartError(f"`start`: {name} must have shape {(models, *shape)}, found {found}")
    if isinstance(spec, FeedForwardTransformerSpec):
        check_tokens(spec, data)
    S, N = getattr(spec, "S", None), getattr(spec, "N", 0)
    if data.inputs.is_floating_point() or S is None:
        return
    if data.inputs.shape[-1] != S:
        raise ByheartError(f"keys of {data.inputs.shape[-1]} tokens, {spec} reads {S}")
    for name, ids in (("tokens", data.inputs), ("answers", data.targets)):
        if not ids.is_floating_point():
            _check_range(name, ids, N, f"{spec} has {N} tokens")


def check_tokens(spec: FeedForwardTransformerSpec, data: Data) -> None:
    """Refuse sequences of another length, vectors of another dimension, numbers of tokens that no
    table has, and answers that the model does not give."""
    table, tokens, lead = data.context, data.inputs, data.targets.shape[: 1 + data.own]
    vectors = tokens.is_floating_point()
    wanted = (*lead, spec.n, spec.d) if vectors else (*lead, spec.n)
    if tuple(tokens.shape) != wanted:
        raise ByheartError(f"{spec} reads tokens {wanted}, found {tuple(tokens.shape)}")
    if table is not None and (vectors or table.dim() != 2 or table.shape[1] != spec.d):
        found = f"{tuple(table.shape)} beside {'vectors' if vectors else 'numbers'}"
        raise ByheartError(f"{spec} reads numbers of rows of a table of vectors, found {found}")
    if not vectors:
        rows = spec.d if table is None else len(table)
        _check_range("tokens", tokens, rows, f"the table has {rows} rows")
    if data.kind == "class":
        _check_range("answers", data.targets, spec.d_out, f"{spec} has {spec.d_out} outputs")
    elif data.targets.shape[-1] != spec.d_out:
        raise ByheartError(f"{spec.d_out} outputs, but targets {tuple(data.targets.shape)}")


def _check_range(name: str, ids: Tensor, N: int, known: str) -> None:
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= N:
        raise ByheartError(f"{name} from {low} to {high}, {known}")
