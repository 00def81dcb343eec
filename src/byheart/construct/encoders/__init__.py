"""Sequence encoders f(t) = W E(t) of rank d: how near a width-d model can come to π at all.

`encode` makes one by name, `best` picks by regime and says why, `compare` makes all of them. The
closed forms are in `closed` (SVD, weighted least squares) and `low_entropy` (Theorem 2), the
optimisation in `optimised`.
"""

from byheart.construct.encoders.choose import ENCODERS, best, compare, encode
from byheart.construct.encoders.encoder import Encoder

__all__ = ["ENCODERS", "Encoder", "best", "compare", "encode"]
