"""FF1: a number for every token whose sums tell sequences apart (docs/square-root.md, `--ff1`)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from byheart.errors import ByheartError
from byheart.exact.blocks import Block, Record, as_count, as_record
from byheart.exact.primitives import add, clear, fold, mod, shift, unit
from byheart.exact.table import Table

L, Z, Y = 0, 1, 2
"""Coordinates of the state that every network has: the key, the value, the scratch."""

FACTOR_BITS = 1 << 10  # of a factor in product mode: twice the logarithm of all sequences will do
MODES = ("hash", "product", "paper", "embedding")


class FF1(ABC):
    """From the key of a token in l to its number in z."""

    mode: ClassVar[str]
    needs_spare: ClassVar[bool] = False
    """Does it need one more coordinate?"""

    @property
    @abstractmethod
    def bound(self) -> int:
        """No number is larger."""

    @abstractmethod
    def values(self, keys: np.ndarray) -> np.ndarray:
        """The numbers of keys, exact."""

    def blocks(self, spare: int) -> list[Block]:
        """The same as a network; l ends at 0. `spare`: the coordinate that `needs_spare` adds."""
        return []

    @property
    def embedding(self) -> tuple[int, ...] | None:
        """The numbers of all token ids, where they are weights of an embedding layer."""
        return None

    def layout(self) -> dict[str, object]:
        """The small numbers with which `read_ff1` finds its parts in the blocks."""
        return {}

    @abstractmethod
    def check(self, largest: int) -> str:
        """That `values` are what the blocks compute for keys up to `largest`, in words; a
        `ByheartError` where that is not sure."""


def _sure(good: bool, words: str) -> str:
    if not good:
        raise ByheartError(f"expected {words}: it can only be evaluated block by block")
    return words


def exact(values: np.ndarray, bits: int) -> np.ndarray:
    """int64 where results of `bits` bits fit, else Python integers."""
    return values.astype(np.int64 if bits <= 62 else object)


@dataclass(frozen=True)
class Hash(FF1):
    """z = c_0 l + sum_r c_r relu(l_r - A_r), l_{r+1} = l_r - 2 relu(l_r - A_r) (tent folds).

    2 + 4 parameters a fold, and 2 to clear l. The folds make z non-linear: sequences with equal
    sums of keys get different sums of z. `largest` is the largest key.
    """

    largest: int
    first: int
    folds: tuple[tuple[int, int], ...]

    mode = "hash"

    def blocks(self, spare: int) -> list[Block]:
        folds = (fold(L, A, {Z: c}) for A, c in self.folds)
        return [add(L, {Z: self.first}), *folds, clear(L)]

    @property
    def bound(self) -> int:
        return self.largest * (self.first + sum(c for _, c in self.folds))

    def values(self, keys: np.ndarray) -> np.ndarray:
        key = exact(keys, self.bound.bit_length() + 1)
        z = key * self.first
        for A, c in self.folds:
            over = np.maximum(key - A, 0)
            key = key - 2 * over
            z = z + c * over
        return z

    def layout(self) -> dict[str, object]:
        return {"folds": len(self.folds)}

    def check(self, largest: int) -> str:
        top, good = max(largest, self.largest), self.first >= 0
        for A, c in self.folds:  # 2A - top is the least key that a fold leaves
            good &= c >= 0 and 0 <= top <= 2 * A
            top = min(top, A)
        return _sure(good, f"{len(self.folds)} folds that keep keys and numbers >= 0")

    @staticmethod
    def read(blocks: Sequence[Block], record: Record, largest: int) -> Hash:
        units = [block.units[0] for block in blocks[: 1 + as_count(record["folds"], len(blocks))]]
        folds = tuple((-unit.bias, dict(unit.outputs)[Z]) for unit in units[1:])
        return Hash(largest, dict(units[0].outputs)[Z], folds)


@dataclass(frozen=True)
class Product(FF1):
    """z = prod_j X_j[digit_j(l)], X_j[0] = 1: over the digits of the key, `g` bits each.

    Different multisets of keys have different polynomials in the X_j[d], of degree <= digits, with
    integer coefficients; by Schwartz and Zippel two of them agree at random X_j[d] in 1..2^B with
    probability <= digits / 2^B. Each factor costs 8g + 7 (2^g - 1) + 6 parameters, whatever N.
    """

    largest: int
    g: int
    factors: tuple[tuple[int, ...], ...]
    """factors[j][d - 1] = X_j[d]; the first j is the highest digit."""

    mode = "product"
    needs_spare = True

    def blocks(self, spare: int) -> list[Block]:
        # The product goes back and forth between z and the spare coordinate, and ends in z.
        here, there = (Z, spare) if len(self.factors) % 2 == 0 else (spare, Z)
        blocks, bound = [shift({here: 1})], 1
        digits = self._digits(self.largest, self.g, len(self.factors))
        for digit, X in zip(digits, self.factors, strict=True):
            blocks += [*digit, add(here, {there: 1})]
            big = 1 << bound.bit_length()  # more than any value of the product so far
            for d, (before, x) in enumerate(pairwise((1, *X)), 1):
                # relu(v + big (y - d)) - big relu(y - d) = v if y >= d else 0, for 0 <= v < big.
                taken = unit({here: 1, Y: big}, -big * d, {there: x - before})
                undone = unit({Y: 1}, -d, {there: -big * (x - before)})
                blocks.append(Block((taken, undone)))
            blocks.append(clear(here, Y))
            here, there = there, here
            bound *= max(1, *X)
        return blocks

    @staticmethod
    def _digits(largest: int, g: int, digits: int) -> Iterator[list[Block]]:
        """For each digit, highest first: y = the digit, l = what is below it."""
        for j in reversed(range(digits)):
            power = 1 << (g * j)
            yield mod(L, power, largest, quotient=Y)
            largest = min(largest, power - 1)

    @property
    def bound(self) -> int:
        return math.prod(max(1, *X) for X in self.factors)

    def values(self, keys: np.ndarray) -> np.ndarray:
        z = exact(np.ones(keys.shape, dtype=int), self.bound.bit_length())
        for j, X in enumerate(reversed(self.factors)):
            digit = (keys >> (self.g * j)) & ((1 << self.g) - 1)
            z = z * np.array([1, *X], dtype=z.dtype)[digit.astype(np.int64)]
        return z

    def layout(self) -> dict[str, object]:
        return {"g": self.g, "digits": len(self.factors)}

    def check(self, largest: int) -> str:
        digits = len(self.factors)
        good = max(largest, self.largest) < 1 << (self.g * digits)
        good &= all(x >= 0 for X in self.factors for x in X)
        return _sure(good, f"{digits} digits of {self.g} bits, factors >= 0")

    @staticmethod
    def read(blocks: Sequence[Block], record: Record, largest: int) -> Product:
        g = as_count(record["g"], 8)
        digits = as_count(record["digits"], largest.bit_length() // max(1, g) + 1)
        factors, at = [], 1
        for digit in Product._digits(largest, g, digits):
            at += len(digit) + 1
            X, x = [], 1
            for block in blocks[at : at + (1 << g) - 1]:
                # Equal neighbours leave no weight behind.
                x += block.units[0].outputs[0][1] if block.units[0].outputs else 0
                X.append(x)
                if x.bit_length() > FACTOR_BITS:
                    raise ValueError(f"a factor of {x.bit_length()} bits")
            factors.append(tuple(X))
            at += 1 << g
        return Product(largest, g, tuple(factors))


@dataclass(frozen=True)
class Paper(FF1):
    """A table from the keys of the distinguishing tokens A to their ids; 0 for all others."""

    table: Table

    mode = "paper"

    def blocks(self, spare: int) -> list[Block]:
        return [*self.table.blocks(L, Z, Y), clear(L, Y)]

    @property
    def bound(self) -> int:
        return (1 << self.table.c) - 1

    def values(self, keys: np.ndarray) -> np.ndarray:
        return self.table.look_up(keys.astype(np.int64))

    def layout(self) -> dict[str, object]:
        return {"ids": self.table.layout()}

    def check(self, largest: int) -> str:
        return _sure(self.table.largest >= largest, f"a table of keys: {self.table.check()}")


@dataclass(frozen=True)
class Embedding(FF1):
    """A number for each token id, in the embedding layer; there is no FF1."""

    ids: tuple[int, ...]

    mode = "embedding"

    @property
    def bound(self) -> int:
        return max(self.ids)

    def values(self, keys: np.ndarray) -> np.ndarray:
        return exact(np.array(self.ids, dtype=object), self.bound.bit_length())[keys]

    @property
    def embedding(self) -> tuple[int, ...]:
        return self.ids

    def check(self, largest: int) -> str:
        good = largest < len(self.ids) and min(self.ids) >= 0
        return _sure(good, f"{len(self.ids):,} numbers >= 0 in the embedding layer")


def read_ff1(
    blocks: Sequence[Block], record: Record, largest: int, embedding: tuple[int, ...] | None
) -> FF1:
    """FF1 of a network, from its blocks or its embedding layer and from what `layout` said."""
    mode = record["mode"]
    if mode == "hash":
        return Hash.read(blocks, record, largest)
    if mode == "product":
        return Product.read(blocks, record, largest)
    if mode == "paper":
        return Paper(Table.read(blocks, as_record(record["ids"])))
    if mode == "embedding" and embedding is not None:
        return Embedding(embedding)
    raise ValueError(f"mode {mode!r}")
