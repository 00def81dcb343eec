"""Fast recall: the same function as the blocks, from their parts.

token -> key (one dot product) -> id (folds, or a binary search) -> sum -> reduction -> one binary
search among the records. `parts.read` has checked that the blocks are those of the parts; that the
blocks compute what is computed here is argued in docs/square-root.md and tested block by block.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from byheart.errors import ByheartError
from byheart.exact.blocks import Network
from byheart.exact.literal import as_vectors
from byheart.exact.parts import Parts, emit


@dataclass(frozen=True)
class Structured:
    """Evaluates a network through its parts.

    >>> from byheart.exact import memorize
    >>> built = memorize([[1, 2], [3, 4]], [1, 2], others=[[1, 3]])
    >>> Structured(built.parts).evaluate(np.array([[2, 1], [4, 3], [1, 3]])).tolist()
    [1, 2, 0]
    """

    parts: Parts

    @cached_property
    def network(self) -> Network:
        return emit(self.parts)

    def evaluate(
        self, tokens: np.ndarray, *, every: bool = False, lengths: np.ndarray | None = None
    ) -> np.ndarray:
        """Outputs (B,), or (B, n) with `every`, as `literal.evaluate`."""
        vectors = as_vectors(self.network, tokens)
        B, n, d = vectors.shape
        keys = self.keys(vectors.reshape(B * n, d))
        return self.outputs(
            keys.reshape(B, n), self.ids(keys).reshape(B, n), every=every, lengths=lengths
        )

    def keys(self, vectors: np.ndarray) -> np.ndarray:
        """(V, d) integer vectors -> keys (V,): (v . x + offset) mod M."""
        return self.parts.projection.keys(vectors)

    def ids(self, keys: np.ndarray) -> np.ndarray:
        """The number of each key that pooling adds up; mod M, since only the sum mod M is read."""
        z = self.parts.ff1.values(keys)
        M = self.parts.modulus
        if M is None:
            wide = self.parts.most.bit_length() > 62
            return z.astype(object) if wide else z.astype(np.int64)
        return (z % M).astype(np.int64)

    def outputs(
        self,
        keys: np.ndarray,
        ids: np.ndarray,
        *,
        every: bool = False,
        lengths: np.ndarray | None = None,
    ) -> np.ndarray:
        """Outputs of sequences given as keys and ids (B, n) of their tokens."""
        parts, (B, n) = self.parts, ids.shape
        M, factor = parts.modulus, parts.factor
        if lengths is not None:
            ids = np.where(np.arange(n) < lengths[:, None], ids, 0)
        S = ids.sum(axis=1)
        if parts.pooling == "attention":
            counts = np.full(B, n) if lengths is None else np.asarray(lengths)
            S = S * self._shares(counts, M)
        l = S if M is None else (S % M).astype(np.int64)  # noqa: E741
        if parts.reads:
            last = np.full(B, n - 1) if lengths is None else np.asarray(lengths) - 1
            u = keys if every else keys[np.arange(B), last]
            if M is None:
                wide = parts.reach.bit_length() > 62
                l = l.astype(object) if wide else l  # noqa: E741
            else:
                factor, u = factor % M, (u % M).astype(np.int64)
            l = (l[:, None] if every else l) * factor + u  # noqa: E741
        elif every:
            l = np.repeat(l, n).reshape(B, n)  # noqa: E741
        l = l if M is None else l % M  # noqa: E741
        flat = l.reshape(-1).astype(np.int64)
        return parts.table.look_up(flat).reshape(l.shape)

    def _shares(self, counts: np.ndarray, M: int | None) -> np.ndarray:
        """lcm / n for each length n: what makes the mean whole."""
        shares = {}
        for n in np.unique(counts).tolist():
            if self.parts.lcm % n:
                raise ByheartError(
                    f"sequences of {n} tokens: this network was built for lengths that divide "
                    f"{self.parts.lcm}."
                )
            shares[n] = self.parts.lcm // n if M is None else self.parts.lcm // n % M
        wide = max(shares.values()).bit_length() > 31
        array = np.array([shares[n] for n in counts.tolist()], dtype=object if wide else np.int64)
        return array
