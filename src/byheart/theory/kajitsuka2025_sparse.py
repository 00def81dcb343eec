"""The parameters of our own sparse O~(sqrt T) construction, counted before it is built.

Integer weights, ReLU blocks with skip of width 5, one uniform attention; nonzero parameters. The
recipe is the one of Kajitsuka and Sato 2025 with cheaper parts: tent folds (3 parameters a bit),
matches that extract no key, low-bit keys, a hash in place of FF1.
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


def sparse_size(T: int, *, key_bits: int, C: int, d: int = 2, n: int = 2) -> SparseSize:
    """Nonzero parameters for T sequences of n tokens in R^d, integer token keys of `key_bits` bits.

        E_in d, E_out 1, attention 2 (W_V, W_O)
        FF1 (hash): 2 + 3 (3 + 2) = 17: the key, then three times a fold and z += c_r relu(l)
        FF2: 6 to clear l, z, y; 4 for l += α relu(S) + β relu(u); 6 a bit for l mod 2^w; the table

    w = 2 log2 T - 2 bits (random α, β are redrawn until the T context keys differ), c = log2 C
    bits a label. Sum S of n ids, an id being a key times a random number of 2 log2 T bits. The
    hash has no worst-case proof: it is checked when built. An estimate: four prototype builds of
    100, 10^3, 10^4 and 10^5 sequences had 608, 1,431, 4,330 and 13,834 parameters, this says 526,
    1,358, 4,210 and 13,946.

    >>> sparse_size(10**4, key_bits=17, C=2, d=4, n=10).parameters
    4210
    """
    log_T = math.ceil(math.log2(max(2, T)))
    w = max(1, 2 * log_T - 2)
    c = max(1, math.ceil(math.log2(C)))
    table = best_table(T, w, c)
    sum_bits = key_bits + 2 * log_T + 2 + math.ceil(math.log2(max(1, n)))
    ff2 = 6 + 4 + 6 * (sum_bits + 1) + table.parameters
    return SparseSize(embedding=d + 1, ff1=17, attention=2, ff2=ff2, table=table)
