"""Many small models trained at once: facts -> memories by gradient descent.

`train_stack` trains one model per seed along a model axis; `Recipe` says how.
"""

from byheart.training.data import Data, token_data
from byheart.training.recipe import Recipe, dana2025, kajitsuka2025, mahdavi2024
from byheart.training.trainer import Outcome, Progress, Trained, train_stack

__all__ = [
    "Data",
    "Outcome",
    "Progress",
    "Recipe",
    "Trained",
    "dana2025",
    "kajitsuka2025",
    "mahdavi2024",
    "token_data",
    "train_stack",
]
