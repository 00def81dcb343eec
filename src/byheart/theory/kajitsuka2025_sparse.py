"""The parameters of our own sparse O~(sqrt T) construction, counted before it is built.

Integer weights, ReLU blocks with skip of width 3, one uniform attention; nonzero parameters. The
recipe is the one of Kajitsuka and Sato 2025 with cheaper parts: tent folds (3 parameters a bit),
matches that extract no key, low-bit keys, a hash in place of FF1 (byheart.exact).
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """The memorizer: K keys of w bits, values of c bits, groups of k, t low bits told apart."""

    K: int
    w: int
    c: int
    k: int
    t: int

    @property
    def record_bits(self) -> int:
        """b = t + c."""
        return self.t + self.c

    @property
    def largest_weight_bits(self) -> int:
        """k b + 1, the bits of a group's code Z_j."""
        return self.k * self.record_bits + 1

    @property
    def parameters(self) -> int:
        """1 + 6(m-1) + 6(w-t) + 7k + 3b(k-1) + 6 ceil(log2(k+1)) + 8c + 2, m = ceil(K/k); exact.

        >>> Table(K=10**4, w=26, c=1, k=31, t=17).parameters
        3864
        """
        m, b = -(-self.K // self.k), self.record_bits
        steps = 6 * (m - 1) + 6 * (self.w - self.t) + 7 * self.k + 3 * b * (self.k - 1)
        return 1 + steps + 6 * self.k.bit_length() + 8 * self.c + 2


def low_bits(K: int, k: int, w: int) -> int:
    """t = min(w, ceil(log2 K + log2 k - 1.5)): low bits that tell the keys of every group apart.

    An expectation for random keys (about K k / 2 pairs share a group); w bits always suffice.

    >>> low_bits(10**4, 31, 26)
    17
    """
    return max(1, min(w, math.ceil(math.log2(K) + math.log2(k) - 1.5)))


def best_table(K: int, w: int, c: int) -> Table:
    """The group size with the fewest parameters, near k = sqrt(6K/(3b+7)).

    >>> best_table(10**4, 26, 1).k
    31
    """
    b = math.log2(max(2, K)) + c
    start = math.sqrt(6 * K / (3 * b + 7))
    # The optimum is flat: sizes from a third to three times the estimate, one per cent apart.
    sizes = {min(K, max(1, round(start * 1.01**i))) for i in range(-110, 111)}
    return min(
        (Table(K, w, c, k, low_bits(K, k, w)) for k in sorted(sizes)),
        key=lambda table: table.parameters,
    )


@dataclass(frozen=True)
class SparseSize:
    """The whole sparse Transformer, part by part."""

    embedding: int
    ff1: int
    attention: int
    ff2: int
    table: Table

    @property
    def parameters(self) -> int:
        return self.embedding + self.ff1 + self.attention + self.ff2

    @property
    def bits(self) -> int:
        """Bits of the largest weight, a group's code (its sign not counted)."""
        return self.table.largest_weight_bits


def sparse_size(
    T: int, *, key_bits: int, C: int, d: int = 2, n: int = 2, folds: int = 12
) -> SparseSize:
    """Nonzero parameters for T sequences of n tokens in Z^d, token keys of `key_bits` bits.

        E_in d, E_out 1, attention 2 (W_V, W_O)
        FF1 (hash): 6 a bit for the key mod a prime; z += c_0 l 2, a fold with z += c_r relu 4, 2 to
        clear l
        FF2: 2 to clear z; 6 a bit for l mod p; the table

    Labels 1..C with 0 for "unknown": bits(C) bits each. p of about log2(T^2 / 2) + 2 bits is drawn
    until the T sums differ. Sum S of n ids, an id being a key times a random number of 8 bits, once
    for each fold. An estimate: `byheart build --method sqrt` may need more folds and longer
    numbers, and is a bit or two luckier with t. Built: 789 parameters for 236 facts about elements,
    1,177 for 585 about countries, 4,693 and 16,797 for 10^4 and 10^5 random ones; this says 809,
    1,203, 4,791 and 16,842.

    >>> sparse_size(10**4, key_bits=11, C=1000).parameters
    4791
    """
    w = max(4, (T * (T // 2)).bit_length() + 1)
    sum_bits = key_bits + 8 + math.ceil(math.log2((folds + 1) * max(1, n)))
    table = best_table(T, min(w, sum_bits), max(1, C.bit_length()))
    ff1 = 6 * key_bits + 2 + 4 * folds + 2
    ff2 = 2 + 6 * max(0, sum_bits - w) + table.parameters
    return SparseSize(embedding=d + 1, ff1=ff1, attention=2, ff2=ff2, table=table)
