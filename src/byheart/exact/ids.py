"""FF1: a number for every token whose sums tell sequences apart.

hash      random folds of the key: about 20 parameters; the sums are checked when built
product   a product of random factors, one for each digit of the key: a polynomial identity
          test, so that a random draw works for every data set with probability >= 1/2
paper     random ids for distinguishing tokens, 0 for all others, in a table (Lemmas B.1-B.3)
embedding the same numbers in an embedding layer (Theorem E.1): one parameter a token
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from byheart.exact.blocks import Block
from byheart.exact.primitives import add, clear, fold, mod, shift, unit
from byheart.exact.table import Table

L, Z, Y = 0, 1, 2
"""Coordinates of the state that every network has: the key, the value, the scratch."""

MODES = ("hash", "product", "paper", "embedding")


def exact(values: np.ndarray, bits: int) -> np.ndarray:
    """int64 where results of `bits` bits fit, else Python integers."""
    return values.astype(np.int64 if bits <= 62 else object)


@dataclass(frozen=True)
class Hash:
    """z = c_0 l + sum_r c_r relu(l_r - A_r), l_{r+1} = l_r - 2 relu(l_r - A_r) (tent folds).

    2 + 4 parameters a fold, and 2 to clear l. The folds make z non-linear: sequences with equal
    sums of keys get different sums of z. `largest` is the largest key.
    """

    largest: int
    first: int
    folds: tuple[tuple[int, int], ...]

    mode: ClassVar[str] = "hash"

    def blocks(self, spare: int | None) -> list[Block]:
        return [
            add(L, {Z: self.first}),
            *(fold(L, A, {Z: c}) for A, c in self.folds),
            clear(L),
        ]

    @property
    def bound(self) -> int:
        """No z is larger."""
        return self.largest * (self.first + sum(c for _, c in self.folds))

    def values(self, keys: np.ndarray) -> np.ndarray:
        key = exact(keys, self.bound.bit_length() + 1)
        z = key * self.first
        for A, c in self.folds:
            over = np.maximum(key - A, 0)
            key = key - 2 * over
            z = z + c * over
        return z


@dataclass(frozen=True)
class Product:
    """z = prod_j X_j[digit_j(l)], X_j[0] = 1: over the digits of the key, `g` bits each.

    Different multisets of keys have different polynomials in the X_j[d], of degree <= digits, with
    integer coefficients; by Schwartz and Zippel two of them agree at random X_j[d] in 1..2^B with
    probability <= digits / 2^B. Each factor costs 8g + 7 (2^g - 1) + 6 parameters, whatever N.
    """

    largest: int
    g: int
    factors: tuple[tuple[int, ...], ...]
    """factors[j][d - 1] = X_j[d]; the first j is the highest digit."""

    mode: ClassVar[str] = "product"

    def blocks(self, spare: int | None) -> list[Block]:
        assert spare is not None
        # The product goes back and forth between z and the spare coordinate, and ends in z.
        here, there = (Z, spare) if len(self.factors) % 2 == 0 else (spare, Z)
        made = [shift({here: 1})]
        largest, bound = self.largest, 1
        for j, X in enumerate(self.factors):
            place = self.g * (len(self.factors) - 1 - j)
            made += mod(L, 1 << place, largest, quotient=Y)
            largest = min(largest, (1 << place) - 1)
            big = 1 << bound.bit_length()  # more than any value of the product so far
            made.append(add(here, {there: 1}))
            before = 1
            for d, x in enumerate(X, 1):
                # relu(v + big (y - d)) - big relu(y - d) = v if y >= d else 0, for 0 <= v < big.
                taken = unit({here: 1, Y: big}, -big * d, {there: x - before})
                undone = unit({Y: 1}, -d, {there: -big * (x - before)})
                made.append(Block((taken, undone)))
                before = x
            made.append(clear(here, Y))
            here, there = there, here
            bound *= max(1, *X)
        return made

    @property
    def bound(self) -> int:
        total = 1
        for X in self.factors:
            total *= max(1, *X)
        return total

    def values(self, keys: np.ndarray) -> np.ndarray:
        z = np.ones(len(keys), dtype=np.int64 if self.bound.bit_length() <= 62 else object)
        for j, X in enumerate(self.factors):
            digit = (keys >> (self.g * (len(self.factors) - 1 - j))) & ((1 << self.g) - 1)
            z = z * np.array([1, *X], dtype=z.dtype)[digit.astype(np.int64)]
        return z


@dataclass(frozen=True)
class Paper:
    """A table from the keys of the distinguishing tokens A to their ids; 0 for all others."""

    table: Table

    mode: ClassVar[str] = "paper"

    def blocks(self, spare: int | None) -> list[Block]:
        return [*self.table.blocks(L, Z, Y), clear(L, Y)]

    @property
    def bound(self) -> int:
        return (1 << self.table.c) - 1

    def values(self, keys: np.ndarray) -> np.ndarray:
        return self.table.look_up(keys.astype(np.int64))


@dataclass(frozen=True)
class Embedding:
    """A number for each token id, in the embedding layer; there is no FF1."""

    ids: tuple[int, ...]

    mode: ClassVar[str] = "embedding"

    def blocks(self, spare: int | None) -> list[Block]:
        return []

    @property
    def bound(self) -> int:
        return max(self.ids)

    def values(self, keys: np.ndarray) -> np.ndarray:
        return exact(np.array(self.ids, dtype=object), self.bound.bit_length())[keys]


FF1 = Hash | Product | Paper | Embedding
