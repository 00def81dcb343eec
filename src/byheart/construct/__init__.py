"""Theorem -> weights: memories made without training.

`build` is the door; `attention_only`, `readout` and `associative` are the constructions behind
it, `frames` the unembeddings, `solve` the linear algebra, `choose` the sizes.
"""

from byheart.construct.build import build
from byheart.construct.frames import coherence, frame

__all__ = ["build", "coherence", "frame"]
