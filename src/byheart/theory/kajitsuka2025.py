"""Kajitsuka and Sato, "On the Optimal Memorization Capacity of Transformers" (ICLR 2025).

The formulas, evaluated literally. `T` is the paper's N (number of sequences), `n` the tokens in
each, `d` their dimension, `spread` = r/δ, `C` the number of labels. Logarithms are to base 2: with
them Lemma C.1 gives the depth 14,643 and 2.57 million parameters at T = 10^4, n = 10, d = 4,
r/δ = 2^11. The theorems as objects are in `kajitsuka2025_bounds`.

At the end, the nonzero parameters of our own sparse O~(sqrt T) construction, counted before it is
built (byheart.exact): the paper's recipe in integers, with cheaper parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from byheart.errors import ByheartError

log2 = math.log2


@dataclass(frozen=True)
class Literal:
    """A construction counted from its formulas: dense parameters, depth, width, bits.

    `bits` is the bit complexity without its constant, which the paper does not give.
    """

    parameters: int
    depth: int
    width: int
    bits: float
    log2_R: float


def memorizer_depth(T: int, log2_R: float, log2_C: float) -> int:
    """2 + (3 sqrt(T log T) + 2) + 3 sqrt(T/log T) max(log R, log C) + 2 sqrt(T/log T) + 2, up.

    Layers of the width-12 ReLU network that gives T points their labels. T >= 2.
    Source: Kajitsuka and Sato 2025, Lemma C.1 (after Vardi et al. 2022).

    >>> memorizer_depth(10**4, log2_R=99.5, log2_C=1.0)
    9344
    """
    if T < 2:
        raise ByheartError(f"needs at least 2 sequences, found {T}")
    groups, size = math.sqrt(T * log2(T)), math.sqrt(T / log2(T))
    return math.ceil(2 + (3 * groups + 2) + 3 * size * max(log2_R, log2_C) + 2 * size + 2)


def log2_R(T: int, n: int, d: int, spread: float) -> float:
    """log2 of R = 400 sqrt(3d) n³ r T⁵ δ^{-1} π (Theorem 4.1)."""
    return log2(400 * math.pi) + 0.5 * log2(3 * d) + 3 * log2(n) + log2(spread) + 5 * log2(T)


def _ids(T: int, M: int, d: int, spread: float) -> tuple[float, float]:
    """(log2 R_φ, log2 C_φ) of Lemma B.3: R = 20 r (TM)² δ^{-1} sqrt(πd), C = ceil(4 T³ sqrt π)."""
    R = log2(20) + log2(spread) + 2 * log2(T * M) + 0.5 * log2(math.pi * d)
    return R, log2(4 * math.sqrt(math.pi)) + 3 * log2(T)


def _bits(T: int, d: int, R: float, C: int) -> float:
    """log d + sqrt(T/log T) max(log R, log C), without the constant."""
    return log2(d) + math.sqrt(T / log2(T)) * max(R, log2(C))


def theorem41(T: int, n: int, d: int, spread: float, C: int) -> Literal:
    """Theorem 4.1 / B.1 in numbers: FF1 of Lemma B.3 at width 14, attention, FF2 of Lemma C.1.

        parameters = 14·15 depth(FF1) + 12·13 depth(FF2) + 14 d + 5·14

    dense, one weight matrix and one bias a layer; E_in, E_out and one head of size 1 at the end.
    Source: Kajitsuka and Sato 2025, proof of Theorem B.1; the count is derived here.

    >>> theorem41(10**4, n=10, d=4, spread=2**11, C=2).parameters
    2570634
    """
    R = log2_R(T, n, d, spread)
    ids = memorizer_depth(T, *_ids(T, n, d, spread))
    labels = memorizer_depth(T, R, log2(C))
    count = 14 * 15 * ids + 12 * 13 * labels + 14 * d + 5 * 14
    return Literal(count, ids + labels, 14, _bits(T, d, R, C), R)


def corollary41(T: int, n: int, d: int, spread: float, C: int) -> Literal:
    """Corollary 4.1, sequence to sequence: n T next-token problems, one for each token."""
    return theorem41(n * T, n, d, spread, C)


def theoremD1(T: int, M: int, d: int, spread: float, C: int) -> Literal:
    """Theorem D.1, deep sets ρ(Σ φ(x)) on T multisets of at most M: R = 80 M² T⁵ r δ^{-1} π sqrt d.

    φ is Lemma B.3, ρ Lemma C.1, both of width 12: 12·13 (depth φ + depth ρ) parameters.
    """
    R = log2(80 * math.pi) + 2 * log2(M) + 5 * log2(T) + log2(spread) + 0.5 * log2(d)
    depth = memorizer_depth(T, *_ids(T, M, d, spread)) + memorizer_depth(T, R, log2(C))
    return Literal(12 * 13 * depth + 12 * d, depth, 12, _bits(T, d, R, C), R)


def theoremE1(T: int, n: int, spread: float, C: int, omega: int) -> Literal:
    """Theorem E.1, token ids in [ω]: FF1 is a table of ω ids; R = 200 sqrt 3 n² r T⁵ δ^{-1} ω π.

    parameters = ω + 12·13 depth(FF2)
    """
    R = log2(200 * math.sqrt(3) * math.pi) + 2 * log2(n) + log2(spread) + 5 * log2(T) + log2(omega)
    depth = memorizer_depth(T, R, log2(C))
    return Literal(omega + 12 * 13 * depth, depth, 14, _bits(T, 1, R, C), R)


def theoremF1(T: int, n: int, d: int, spread: float, C: int, B: int) -> Literal:
    """Theorem F.1, limited bits: ceil(T/B²) networks of Lemma C.1 for B² points each, in series.

        depth <= ceil(T/B²) (depth FF1(B²) + depth FF2(B²)), width 15, bits <~ log d
                 + B/sqrt(log B) max(log R, log C)

    2 <= B <= sqrt T; parameters 15·16 a layer, dense. Labels and keys keep the range of T points.

    >>> F = theoremF1(10**4, n=10, d=4, spread=2**11, C=2, B=10)
    >>> F.width, F.parameters > theorem41(10**4, n=10, d=4, spread=2**11, C=2).parameters
    (15, True)
    """
    if not 2 <= B <= math.isqrt(T):
        raise ByheartError(f"needs 2 <= B <= sqrt T = {math.isqrt(T)}, found B = {B}")
    R = log2_R(T, n, d, spread)
    one = memorizer_depth(B * B, *_ids(T, n, d, spread)) + memorizer_depth(B * B, R, log2(C))
    depth = -(-T // (B * B)) * one
    bits = log2(d) + B / math.sqrt(log2(B)) * max(R, log2(C))
    return Literal(15 * 16 * depth, depth, 15, bits, R)


def theorem43_parameters(T: int, n: int) -> float:
    """W >= sqrt(n T / (3 log2(48 e n³ T))): what shattering needs (Theorem 4.3, eqs 90-96).

    The chain is n T <= W̄ log2(48 e n³ T), W̄ <= 3 W².

    >>> round(theorem43_parameters(10**4, 1), 1)
    12.8
    """
    return math.sqrt(n * T / (3 * (log2(48 * math.e) + 3 * log2(n) + log2(T))))


def theorem42_parameters(T: int) -> int:
    """The smallest W with T <= 16 W (W + 1), about sqrt(T)/4: what shattering T sequences of equal
    tokens needs. Theorem 4.2 says Ω(sqrt T); the constant is that of its source.

    On such sequences attention is the linear map I + Σ W_O W_V, softmax or hardmax, so the model
    is a ReLU network. One token takes at most t = 4 W + 2 operations: a product and a sum for each
    of W parameters; two for each ReLU unit and one for each skipped coordinate, of which there are
    at most W/2 and W (each has parameters of its own); a comparison and the output. Goldberg and
    Jerrum 1995 (Anthony and Bartlett 1999, Theorem 8.4): VC dimension <= 4 W (t + 2).

    >>> theorem42_parameters(10**6)
    250
    """
    W = max(0, math.isqrt(T) // 4 - 1)  # 16 W (W + 1) < (4 W + 2)² <= T here
    while 16 * W * (W + 1) < T:
        W += 1
    return W


@dataclass(frozen=True)
class Table:
    """The memorizer: K keys of w bits, values of c bits, groups of k, t low bits told apart."""

    K: int
    w: int
    c: int
    k: int
    t: int

    @property
    def largest_weight_bits(self) -> int:
        """k b + 1, b = t + c: the bits of a group's code Z_j, the largest weight (without sign)."""
        return self.k * (self.t + self.c) + 1

    @property
    def parameters(self) -> int:
        """1 + 6(m-1) + 6(w-t) + 7k + 3b(k-1) + 6 ceil(log2(k+1)) + 8c + 2, m = ceil(K/k); exact.

        >>> Table(K=10**4, w=26, c=1, k=31, t=17).parameters
        3864
        """
        m, b = -(-self.K // self.k), self.t + self.c
        steps = 6 * (m - 1) + 6 * (self.w - self.t) + 7 * self.k + 3 * b * (self.k - 1)
        return 1 + steps + 6 * self.k.bit_length() + 8 * self.c + 2


def low_bits(K: int, k: int, w: int) -> int:
    """t = min(w, ceil(log2 K + log2 k - 1.5)): low bits that tell the keys of every group apart.

    An expectation for random keys (about K k / 2 pairs share a group); w bits always suffice.
    """
    return max(1, min(w, math.ceil(log2(K) + log2(k) - 1.5)))


def best_table(K: int, w: int, c: int) -> Table:
    """The group size with the fewest parameters, near k = sqrt(6K/(3b+7))."""
    b = log2(max(2, K)) + c
    start = math.sqrt(6 * K / (3 * b + 7))
    # The optimum is flat: sizes from a third to three times the estimate, one per cent apart.
    sizes = {min(K, max(1, round(start * 1.01**i))) for i in range(-110, 111)}
    tables = [Table(K, w, c, k, low_bits(K, k, w)) for k in sorted(sizes)]
    return min(tables, key=lambda table: table.parameters)


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


def sparse_size(
    T: int, *, key_bits: int, C: int, d: int = 2, n: int = 2, folds: int = 12
) -> SparseSize:
    """Nonzero parameters for T sequences of n tokens in Z^d, token keys of `key_bits` bits.

        E_in d, E_out 1, attention 2 (W_V, W_O)
        FF1 (hash): 6 a bit for the key mod a prime; z += c_0 l 2, a fold with z += c_r relu 4, 2 to
        clear l
        FF2: 2 to clear z; 6 a bit for l mod p; the table

    Labels 1..C with 0 for "unknown": bits(C) bits each. p of about log2(T^2 / 2) + 2 bits is drawn
    until the T sums differ. An estimate: `byheart build --method sqrt` may need more folds and
    longer numbers. Built: 789 and 1,177 parameters for elements and countries, 4,693 and 16,797 for
    10^4 and 10^5 random facts; this says 809, 1,203, 4,791 and 16,842.

    >>> sparse_size(10**4, key_bits=11, C=1000).parameters
    4791
    """
    w = max(4, (T * (T // 2)).bit_length() + 1)
    sum_bits = key_bits + 8 + math.ceil(log2((folds + 1) * max(1, n)))
    table = best_table(T, min(w, sum_bits), max(1, C.bit_length()))
    ff1 = 6 * key_bits + 2 + 4 * folds + 2
    ff2 = 2 + 6 * max(0, sum_bits - w) + table.parameters
    return SparseSize(embedding=d + 1, ff1=ff1, attention=2, ff2=ff2, table=table)
