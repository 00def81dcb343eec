"""How many threads small matrices get."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Run many small operations on one thread.

    Two threads gain nothing on matrices of some hundred rows, and on a busy machine they wait for
    each other: the same loop was seen to take twenty times as long.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
