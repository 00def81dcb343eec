"""The largest number that passes: what several studies of capacity share."""

from __future__ import annotations

from collections.abc import Callable

PRECISE = 1.1  # the search ends when the bracket is this narrow


def largest_passing(
    passes: Callable[[int], bool], start: int, most: int = 1 << 16, precise: float = PRECISE
) -> int:
    """The largest T found with passes(T): doubling from `start`, then bisection to 10 %.

    >>> largest_passing(lambda T: T <= 100, 16) in range(91, 101)
    True
    >>> largest_passing(lambda T: T <= 3, 16)
    3
    """
    low, high = 0, start
    while high <= most and passes(high):
        low, high = high, 2 * high
    while high - low > 1 and high > precise * low:
        middle = (low + high) // 2 if low == 0 else round((low * high) ** 0.5)
        middle = min(max(middle, low + 1), high - 1)
        low, high = (middle, high) if passes(middle) else (low, middle)
    return low
