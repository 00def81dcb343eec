"""How many bits a memory of random answers holds."""

from __future__ import annotations

import math


def memorized_bits(T: int, N: int, accuracy: float = 1.0) -> float:
    """Bits about T uniform answers out of N that recalling a share `accuracy` of them carries.

    All right: T log2 N. Otherwise the mutual information of a symmetric channel whose errors fall
    on the other N - 1 answers alike,
        T ( log2 N - h(p) - p log2(N - 1) ),  p = 1 - accuracy,  h the binary entropy,
    which is 0 at chance, accuracy = 1/N.

    >>> memorized_bits(100, 1024), round(memorized_bits(100, 10, 0.1), 9)
    (1000.0, 0.0)
    >>> round(memorized_bits(100, 10, 0.9), 1)
    253.6
    """
    if N < 2:
        return 0.0
    p = 1 - accuracy
    lost = 0.0
    if 0 < p < 1:
        lost = -p * math.log2(p) - accuracy * math.log2(accuracy)
    if p > 0:
        lost += p * math.log2(N - 1)
    return T * max(0.0, math.log2(N) - lost)
