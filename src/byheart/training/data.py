"""What a stack of models is trained on: examples shared by all models, or each model's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from byheart.errors import ByheartError
from byheart.facts import Facts

Kind = Literal["class", "distribution", "value"]


@dataclass(frozen=True)
class Data:
    """T examples: `inputs` (T, ...) and `targets`, the same for every model of the stack.

    With `own`, every tensor has a model axis in front, and `rows` (models,) says how many of its T
    examples a model really has (the others are padding and never weigh anything).
    `context` is handed to the model before the inputs: one that all examples share, (n, d), or,
    with `contexts_differ`, one for each, (T, n, d).
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
            raise ByheartError(
                f"inputs and targets differ in length: {tuple(self.inputs.shape)} and "
                f"{tuple(self.targets.shape)}"
            )
        if self.T == 0:
            raise ByheartError("there are no examples to train on")

    @property
    def T(self) -> int:
        """Examples of one model, padding included."""
        return self.inputs.shape[1 if self.own else 0]

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
        """Inputs and targets of examples `index` (models, B), with the model axis in front."""
        at = (index,)
        if self.own:
            at = (torch.arange(len(index), device=index.device)[:, None], index)
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
    longest = max(table.T for table in tables)
    inputs, targets = [], []
    for table in tables:
        tokens = torch.tensor(table.tokens, dtype=torch.long)
        if start_id is not None:
            tokens = torch.cat([torch.full((table.T, 1), start_id), tokens], dim=1)
        answers = torch.tensor(table.answers, dtype=torch.long)
        fill = torch.zeros(longest, dtype=torch.long)  # padding repeats the first example
        fill[: table.T] = torch.arange(table.T)
        inputs.append(tokens[fill])
        targets.append(answers[fill])
    if isinstance(facts, Facts):
        return Data(inputs[0], targets[0])
    rows = torch.tensor([table.T for table in tables])
    equal = bool((rows == longest).all())
    return Data(torch.stack(inputs), torch.stack(targets), own=True, rows=None if equal else rows)
