"""The blocks that everything is made of: STEP, MOD, FOLD, ADD, CLEAR.

Values are integers, so that 1[x >= A] = relu(x - A + 1) - relu(x - A) holds exactly (the paper's
Lemmas G.2, G.6 are the same ideas on reals).
"""

from __future__ import annotations

from byheart.exact.blocks import Block, Entries, Unit


def unit(inputs: dict[int, int], bias: int, outputs: dict[int, int]) -> Unit:
    """A unit from coordinate -> weight, zeros left out, coordinates in order."""
    return Unit(entries(inputs), bias, entries(outputs))


def entries(weights: dict[int, int]) -> Entries:
    """The non-zero weights, by coordinate."""
    return tuple((i, w) for i, w in sorted(weights.items()) if w)


def step(source: int, A: int, outputs: dict[int, int]) -> Block:
    """H_o += w_o 1[H_source >= A] for every output: 2 units, 4 + 2 |outputs| parameters (one fewer
    where a bias is 0).

    >>> step(0, 5, {1: 3}).units[0]
    Unit(inputs=((0, 1),), bias=-4, outputs=((1, 3),))
    """
    down = {o: -w for o, w in outputs.items()}
    return Block((unit({source: 1}, 1 - A, outputs), unit({source: 1}, -A, down)))


def mod(source: int, M: int, largest: int, quotient: int | None = None) -> list[Block]:
    """H_source <- H_source mod M, for values 0..largest; H_quotient += floor(H_source / M).

    M 2^i is taken off where it fits: a step a bit of largest // M, of 6 parameters (8 with
    quotient).

    >>> len(mod(0, 8, 63)), len(mod(0, 3, 5)), len(mod(0, 3, 2))
    (3, 1, 0)
    """
    blocks = []
    for i in reversed(range((largest // M).bit_length())):
        counted = {} if quotient is None else {quotient: 1 << i}
        blocks.append(step(source, M << i, {source: -(M << i), **counted}))
    return blocks


def fold(source: int, A: int, outputs: dict[int, int] | None = None) -> Block:
    """H_source <- H_source - 2 relu(H_source - A): the tent, values above A are reflected.

    One unit, 3 parameters; `outputs` add w relu(H_source - A) elsewhere, one parameter each.
    """
    return Block((unit({source: 1}, -A, {source: -2, **(outputs or {})}),))


def add(source: int, outputs: dict[int, int]) -> Block:
    """H_o += w_o H_source, for H_source >= 0: 1 + |outputs| parameters."""
    return Block((unit({source: 1}, 0, outputs),))


def clear(*sources: int) -> Block:
    """H_i <- 0, for H_i >= 0: 2 parameters each."""
    return Block(tuple(unit({i: 1}, 0, {i: -1}) for i in sources))


def shift(outputs: dict[int, int]) -> Block:
    """H_o += w_o: b2 alone."""
    return Block((), entries(outputs))
