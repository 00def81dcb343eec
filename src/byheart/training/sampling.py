"""Which examples a step sees: per model, from the model's own generator."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor

from byheart.errors import ByheartError
from byheart.training.data import Data
from byheart.training.recipe import Recipe


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
        self.recipe, self.data, self.generators = recipe, data, list(generators)
        rows = [data.T] * len(self.generators) if data.rows is None else data.rows.tolist()
        self.rows = [int(n) for n in rows]
        self.batch, self.block = recipe.batch, recipe.epoch_steps
        self.sample: Tensor | None = None
        if recipe.sampling in ("without-replacement", "fixed-sample") and len(set(self.rows)) > 1:
            raise ByheartError(
                f"{recipe.sampling} batches need tables of one length in a stack, found "
                f"{min(self.rows)} to {max(self.rows)} rows: use `sampling` full or "
                "with-replacement"
            )
        if recipe.sampling == "without-replacement":
            self.batch = min(recipe.batch, self.rows[0])
            self.block = self.rows[0] // self.batch
        if recipe.sampling == "fixed-sample":
            source = generator(sample_seed, "fixed sample")
            n = recipe.batch * recipe.epoch_steps
            self.sample = torch.randint(data.T, (n,), generator=source)
        if recipe.sampling == "full":
            self.block = recipe.evaluate_every

    def next(self) -> Tensor | None:
        kind = self.recipe.sampling
        if kind == "full":
            return None
        orders = []
        for rows, source in zip(self.rows, self.generators, strict=True):
            if kind == "with-replacement":
                n = self.block * self.batch
                picked = torch.randint(rows, (n,), generator=source)
            elif self.sample is None:
                picked = torch.randperm(rows, generator=source)[: self.block * self.batch]
            else:
                picked = self.sample[torch.randperm(len(self.sample), generator=source)]
            orders.append(picked.view(self.block, self.batch))
        return torch.stack(orders, 1).to(self.data.inputs.device)

    def select(self, models: Sequence[int]) -> Sampler:
        """The sampler of some of the models, carrying on with their generators."""
        some = copy(self)
        some.data = self.data.select(models)
        some.generators = [self.generators[m] for m in models]
        some.rows = [self.rows[m] for m in models]
        return some
