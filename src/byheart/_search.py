"""The one search over whole numbers that everything here uses: double, then bisect."""

from __future__ import annotations

from collections.abc import Callable


def smallest(good: Callable[[int], bool], start: int = 1, limit: int | None = None) -> int | None:
    """The smallest integer k >= `start` with good(k), where good stays true once it is; None if
    there is none up to `limit`. Asks O(log k) times: at start, start + 1, start + 3, ...

    >>> smallest(lambda k: k * k >= 1000)
    32
    >>> smallest(lambda k: k > 100, limit=64) is None
    True
    """
    low, high, step = start - 1, start, 1  # good(low) is false, or low was never asked
    while not good(high):
        if limit is not None and high >= limit:
            return None
        low, high, step = high, high + step, 2 * step
        if limit is not None:
            high = min(high, limit)
    return bisect(good, low, high)


def bisect(good: Callable[[int], bool], low: int, high: int) -> int:
    """The smallest integer in (low, high] with good(k), given that good(high), and not good(low).

    >>> bisect(lambda k: k >= 7, 0, 100)
    7
    """
    while high - low > 1:
        middle = (low + high) // 2
        if good(middle):
            high = middle
        else:
            low = middle
    return high


def guarded(
    good: Callable[[int, int], bool], start: int = 1, limit: int | None = None, guards: int = 3
) -> int | None:
    """`smallest` where good(k, attempt) may fail by chance, as a training does: what was found
    stands only if the size below it, asked again by another attempt, is refused again; else that
    one is taken, at most `guards` times.

    >>> guarded(lambda k, attempt: k >= 6 - attempt, guards=2)
    4
    """
    found = smallest(lambda k: good(k, 0), start, limit)
    for attempt in range(1, guards + 1):
        if found is None or found <= start or not good(found - 1, attempt):
            break
        found -= 1
    return found
