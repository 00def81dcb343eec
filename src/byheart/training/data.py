"""What a stack of models is trained on, shared by all or each model's own, and its batches."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from byheart.errors import ByheartError
from byheart.facts import Facts
from byheart.training.recipe import Recipe

Kind = Literal["class", "distribution", "value"]


@dataclass(frozen=True)
class Data:
    """T examples: `inputs` (T, ...) and `targets`, the same for every model of the stack.

    With `own`, every tensor has a model axis in front, and `rows` (models,) says how many of its T
    examples a model really has (the others are padding and never weigh anything).
    `context` is handed to the model before the inputs: one that all examples share, (n, d), or,
    with `contexts_differ`, one for each, (T, n, d). A feed-forward Transformer takes a table of
    vectors (K, d) for it, and inputs (T, n) that are numbers of its rows: equal words are seen.
    `kind`: targets are classes (T,), distributions (T, N) or values (T, m).
    """

    inputs: Tensor
    targets: Tensor
    kind: Kind = "class"
    context: Tensor | None = None
    own: bool = False
    rows: Tensor | None = None
    contexts_differ: bool = False

    def __post_init__(self) -> None:
        lead = 2 if self.own else 1
        if self.inputs.shape[:lead] != self.targets.shape[:lead]:
            shapes = f"{tuple(self.inputs.shape)} and {tuple(self.targets.shape)}"
            raise ByheartError(f"inputs and targets differ in length: {shapes}")
        if self.T == 0:
            raise ByheartError("there are no examples to train on")

    @property
    def T(self) -> int:
        """Examples of one model, padding included."""
        return self.targets.shape[int(self.own)]

    @property
    def models(self) -> int | None:
        """Models the data was made for; None if any number may share it."""
        return self.inputs.shape[0] if self.own else None

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Data:
        """The same on `device`, real numbers as `dtype`."""
        return self._each(lambda x: x.to(device, dtype if x.is_floating_point() else None))

    def select(self, models: Sequence[int]) -> Data:
        """The data of some of the models."""
        if not self.own:
            return self
        chosen = torch.tensor(models, device=self.inputs.device)
        if self.contexts_differ or self.context is None:
            return self._each(lambda x: x[chosen])
        alone = replace(self, context=None)  # the context is everybody's
        return replace(alone._each(lambda x: x[chosen]), context=self.context)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Data:
        tensors = {name: getattr(self, name) for name in ("inputs", "targets", "context", "rows")}
        return replace(self, **{k: change(x) for k, x in tensors.items() if x is not None})

    def batch(self, index: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Inputs and targets of examples `index` (..., models, B)."""
        at = (index,)
        if self.own:
            at = (torch.arange(index.shape[-2], device=index.device)[:, None], index)
        return self._with_context(at), self.targets[at]

    def span(self, start: int, stop: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Inputs and targets of examples start..stop-1: (B, ...), with the model axis if `own`."""
        at = (slice(None), slice(start, stop)) if self.own else (slice(start, stop),)
        return self._with_context(at), self.targets[at]

    def row_weights(self, start: int, stop: int) -> Tensor | None:
        """1 / rows for the examples a model has, 0 for padding: (models, B); None: all 1 / T."""
        if self.rows is None:
            return None
        number = torch.arange(start, stop, device=self.rows.device)
        return (number < self.rows[:, None]) / self.rows[:, None].to(torch.float64)

    def _with_context(self, at: tuple[Tensor | slice, ...]) -> tuple[Tensor, ...]:
        if self.context is None:
            return (self.inputs[at],)
        context = self.context[at] if self.contexts_differ else self.context
        return context, self.inputs[at]


def token_data(facts: Facts | Sequence[Facts], start_id: int | None = None) -> Data:
    """Token facts as training data; several tables become the models' own, padded to the longest.

    `start_id`: put this token in front of every key.
    """
    tables = [facts] if isinstance(facts, Facts) else list(facts)
    if not tables:
        raise ByheartError("there is no table to train on")
    rows = torch.tensor([table.T for table in tables])
    number = torch.arange(int(rows.max()))
    inputs, targets = [], []
    for table in tables:
        fill = torch.where(number < table.T, number, 0)  # padding repeats the first example
        tokens = torch.tensor(table.tokens, dtype=torch.long)[fill]
        if start_id is not None:
            tokens = torch.nn.functional.pad(tokens, (1, 0), value=start_id)
        inputs.append(tokens)
        targets.append(torch.tensor(table.answers, dtype=torch.long)[fill])
    if isinstance(facts, Facts):
        return Data(inputs[0], targets[0])
    lengths = rows if len(rows.unique()) > 1 else None
    return Data(torch.stack(inputs), torch.stack(targets), own=True, rows=lengths)


def generator(seed: int, purpose: str) -> torch.Generator:
    """A generator for one model and purpose, whatever the stack, order or worker.

    >>> a, b = generator(0, "order"), generator(0, "order")
    >>> bool((torch.rand(3, generator=a) == torch.rand(3, generator=b)).all())
    True
    """
    name = hashlib.sha256(f"{purpose}:{seed}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(name[:8], "little") % 2**63)


class Sampler:
    """`next()` gives the batches (batches, models, B) of one block, or None: the full batch.

    A block is an epoch, or `epoch_steps` batches where there is no epoch. `generators` are on the
    CPU whatever the device, so that every device sees the same batches.
    """

    def __init__(
        self, recipe: Recipe, data: Data, generators: Sequence[torch.Generator], sample_seed: int
    ) -> None:
        self.sampling, self.device = recipe.sampling, data.inputs.device
        self.generators = list(generators)
        self.rows = [data.T] * len(self.generators) if data.rows is None else data.rows.tolist()
        self.batch, self.block = recipe.batch, recipe.epoch_steps
        self.sample: Tensor | None = None
        if recipe.sampling in ("without-replacement", "fixed-sample") and len(set(self.rows)) > 1:
            raise ByheartError(
                f"{recipe.sampling} batches need tables of one length in a stack, found "
                f"{min(self.rows)} to {max(self.rows)} rows: use full or with-replacement"
            )
        if recipe.sampling == "without-replacement":
            self.batch = min(recipe.batch, data.T)
            self.block = data.T // self.batch
        elif recipe.sampling == "fixed-sample":
            source = generator(sample_seed, "fixed sample")
            self.sample = torch.randint(data.T, (self.block * self.batch,), generator=source)
        elif recipe.sampling == "full":
            self.block = recipe.evaluate_every

    def next(self) -> Tensor | None:
        if self.sampling == "full":
            return None
        n, orders = self.block * self.batch, []
        for rows, source in zip(self.rows, self.generators, strict=True):
            if self.sampling == "with-replacement":
                picked = torch.randint(rows, (n,), generator=source)
            elif self.sample is None:
                picked = torch.randperm(rows, generator=source)[:n]
            else:
                picked = self.sample[torch.randperm(n, generator=source)]
            orders.append(picked.view(self.block, self.batch))
        return torch.stack(orders, 1).to(self.device)

    def select(self, models: Sequence[int]) -> Sampler:
        """The sampler of some of the models, carrying on with their generators."""
        some = copy(self)
        some.generators = [self.generators[m] for m in models]
        some.rows = [self.rows[m] for m in models]
        return some
