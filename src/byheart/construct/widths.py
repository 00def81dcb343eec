"""How wide a residual stream must be for so many answers, and the margin that they keep there.

Numbers only, without the vectors of `frames`: whoever asks about sizes does not wait for torch.
"""

from __future__ import annotations

import math

OPTIMISED_UP_TO = 2048  # answers: above, the search for neighbours takes longer than a build


def hamming_width(A: int) -> int:
    """The least d with 2^(d - 1 - ceil(log2 d)) >= A: so many words of length d differ in 4 places.

    >>> [hamming_width(A) for A in (2_049, 10_000, 50_000, 10**6)]
    [18, 20, 22, 26]
    """
    d = 4
    while 1 << (d - 1 - math.ceil(math.log2(d))) < A:
        d += 1
    return d


def smallest_width(answers: int) -> int:
    """The width at which a frame of A rows keeps a margin near 0.4: max(4, 2 + ceil(log2 A)) up to
    2,048 answers, that of the Hamming code (`hamming_width`) above.

    >>> [smallest_width(A) for A in (1, 10, 350, 5000)]
    [4, 6, 11, 19]
    """
    if answers > OPTIMISED_UP_TO:
        return hamming_width(answers)
    return max(4, 2 + math.ceil(math.log2(max(1, answers))))


def frame_margin(A: int, d: int) -> float:
    """About the margin 1 - max w_i·w_j of `frame(A, d)`, without making it.

    Simplex, circle and Hamming frames: exact. Random rows: the angle at which one of the A²/2
    pairs is expected to be closer, cap_d(θ) = 2/A², where cap_d(θ) = I_{sin² θ}((d-1)/2, 1/2) / 2
    is the share of the sphere within θ of a point. Optimised rows: at most the angle at which A
    caps of radius θ/2 fill the sphere, cap_d(θ/2) = 1/A.

    >>> [f"{frame_margin(A, d):.1e}" for A, d in ((2, 4), (100, 2), (50_000, 4), (50_000, 22))]
    ['1.0e+00', '2.0e-03', '1.2e-06', '3.6e-01']
    """
    from scipy.special import betaincinv

    def cap_angle(share: float) -> float:  # θ <= π/2 with cap_d(θ) = share <= 1/2
        return math.asin(math.sqrt(float(betaincinv((d - 1) / 2, 0.5, min(1.0, 2 * share)))))

    if A <= d + 1:
        return 1.0
    if d <= 2:
        return 0.0 if d == 1 else 1 - math.cos(2 * math.pi / A)
    if A > OPTIMISED_UP_TO:
        return 8 / d if d >= hamming_width(A) else 1 - math.cos(cap_angle(2 / A**2))
    return min(1.0, 1 - math.cos(min(math.pi, 2 * cap_angle(1 / A))))
