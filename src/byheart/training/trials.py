"""The best of several trainings, whose learning rates and warm-ups are drawn at random: what papers
do that tune both by a few trials and report the best."""

from __future__ import annotations

import math
from typing import Any

import torch

from byheart.errors import OptionError
from byheart.specs import Spec
from byheart.training.data import Data, generator
from byheart.training.recipe import Recipe
from byheart.training.trainer import Trained, train_stack

RATES, WARMUPS = (0.005, 0.08), (0.02, 0.3)
Range = tuple[float, float]


def drawn(
    recipe: Recipe, trials: int, seed: int, rates: Range = RATES, warmups: Range = WARMUPS
) -> list[Recipe]:
    """`trials` recipes: the learning rate uniform in its logarithm, the warm-up uniform.

    >>> [f"{r.lr:.4f} {r.warmup:.4f}" for r in drawn(Recipe(), 2, seed=0)]
    ['0.0067 0.1041', '0.0645 0.0504']
    """
    if trials < 1:
        raise OptionError("trials", "at least 1", trials)
    for name, (low, high) in (("rates", rates), ("warmups", warmups)):
        if not low <= high:
            raise OptionError(name, "a lower and an upper end", (low, high))
    source = generator(seed, "learning rates and warm-ups")
    recipes = []
    for u, v in torch.rand(trials, 2, generator=source, dtype=torch.float64).tolist():
        lr = rates[0] * math.exp(u * math.log(rates[1] / rates[0]))
        recipes.append(recipe.but(lr=lr, warmup=warmups[0] + v * (warmups[1] - warmups[0])))
    return recipes


def best_of(
    spec: Spec, data: Data, recipe: Recipe, *, trials: int = 10, seed: int = 0,
    rates: Range = RATES, warmups: Range = WARMUPS, **options: Any,
) -> Trained:  # fmt: skip
    """Train `trials` models side by side, each from a start, at a learning rate and with a warm-up
    of its own. `Trained.best` is the best of them; its `outcomes` have their seeds, its `recipes`
    what was drawn. `options` are those of `train_stack`."""
    recipes = drawn(recipe, trials, seed, rates, warmups)
    seeds = [seed * 1009 + trial for trial in range(trials)]
    return train_stack(spec, data, recipes, seeds, **options)
