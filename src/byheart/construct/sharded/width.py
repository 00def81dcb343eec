"""Which width the answers need: the margin of a frame, known before any work."""

from __future__ import annotations

import math

from scipy.special import betaincinv

from byheart.construct.choose import smallest_width
from byheart.construct.frames import OPTIMISED_UP_TO, hamming_width
from byheart.errors import CapacityError

# Margins that the stored format keeps: rounding moves a logit by 1e-6 (d_g = 16) to 1e-4 (d_g = 4)
# in float32, and by 1e-14 to 1e-12 in float64. Below these a build is not worth a try.
LEAST_MARGIN = {"float32": 1e-4, "float64": 1e-10}


def frame_margin(A: int, d: int) -> float:
    """About the margin 1 - max w_i·w_j of `frames.frame(A, d)`, without making it.

    Simplex, circle and Hamming frames: exact. Random rows: the angle at which one of the A²/2
    pairs is expected to be closer, cap_d(θ) = 2/A², where cap_d(θ) = I_{sin² θ}((d-1)/2, 1/2) / 2
    is the share of the sphere within θ of a point. Optimised rows: at most the angle at which A
    caps of radius θ/2 fill the sphere, cap_d(θ/2) = 1/A.

    >>> [f"{frame_margin(A, d):.1e}" for A, d in ((2, 4), (100, 2), (50_000, 4), (50_000, 22))]
    ['1.0e+00', '2.0e-03', '1.2e-06', '3.6e-01']
    """
    if A <= d + 1:
        return 1.0
    if d == 1:
        return 0.0
    if d == 2:
        return 1 - math.cos(2 * math.pi / A)
    if A > OPTIMISED_UP_TO:
        return 8 / d if d >= hamming_width(A) else 1 - math.cos(_cap_angle(2 / A**2, d))
    return min(1.0, 1 - math.cos(min(math.pi, 2 * _cap_angle(1 / A, d))))


def _cap_angle(share: float, d: int) -> float:
    """θ <= π/2 with cap_d(θ) = share <= 1/2."""
    return math.asin(math.sqrt(float(betaincinv((d - 1) / 2, 0.5, min(1.0, 2 * share)))))


def check_width(A: int, d_g: int, dtype: str) -> None:
    """Refuse a width at which A answers cannot be told apart in the stored format."""
    margin, least = frame_margin(A, d_g), LEAST_MARGIN[dtype]
    if margin >= least:
        return
    needed = next(d for d in range(d_g + 1, 10_000) if frame_margin(A, d) >= least)
    other = " or `dtype=float64`" if margin >= LEAST_MARGIN["float64"] else ""
    raise CapacityError(
        f"{A:,} distinct answers in d_g = {d_g} dimensions leave a margin of about {margin:.0e}, "
        f"{dtype} keeps margins from {least:.0e} on. Use `d={needed}` or more "
        f"({smallest_width(A)} for a margin near 0.4){other}."
    )
