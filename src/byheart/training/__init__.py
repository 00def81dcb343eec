"""Many small models trained at once: facts -> memories by gradient descent.

`train` makes a memory of a table (`Train` is the same as a method), `train_stack` trains one model
per seed along a model axis, `Recipe` says how; `best_of` draws learning rates; `capacity` searches
for the largest number of facts, `smallest` for the smallest model. Nothing is loaded before it is
used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from byheart._lazy import attach

if TYPE_CHECKING:
    from byheart.training.data import Data, token_data
    from byheart.training.method import Train, train, training_spec
    from byheart.training.recipe import Recipe, dana2025, kajitsuka2025, mahdavi2024
    from byheart.training.search import Capacity, Smallest, capacity, smallest
    from byheart.training.trainer import Outcome, Progress, Trained, train_stack
    from byheart.training.trials import best_of

__all__ = [
    "Capacity", "Data", "Outcome", "Progress", "Recipe", "Smallest", "Train", "Trained", "best_of",
    "capacity", "dana2025", "kajitsuka2025", "mahdavi2024", "smallest", "token_data", "train",
    "train_stack", "training_spec",
]  # fmt: skip
__getattr__, __dir__ = attach(__name__)
