"""Many small models trained at once: facts -> memories by gradient descent.

`train` makes a memory of a table, `train_stack` trains one model per seed along a model axis,
`Recipe` says how; `capacity` searches for the largest number of facts, `smallest` for the smallest
model.
"""

from byheart.training.capacity import Capacity, capacity
from byheart.training.data import Data, token_data
from byheart.training.recipe import Recipe, dana2025, kajitsuka2025, mahdavi2024
from byheart.training.smallest import Smallest, smallest
from byheart.training.train import train, training_spec
from byheart.training.trainer import Outcome, Progress, Trained, train_stack

__all__ = [
    "Capacity",
    "Data",
    "Outcome",
    "Progress",
    "Recipe",
    "Smallest",
    "Trained",
    "capacity",
    "dana2025",
    "kajitsuka2025",
    "mahdavi2024",
    "smallest",
    "token_data",
    "train",
    "train_stack",
    "training_spec",
]
