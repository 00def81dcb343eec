"""Fast recall: the same function as the blocks, from their parts.

token -> key (one dot product) -> id (folds, or a binary search) -> sum -> reduction -> one binary
search among the records. `parts.read` has checked that the blocks are those of the parts; that the
blocks compute what is computed here is argued in docs/square-root.md and tested block by block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from byheart.errors import ByheartError
from byheart.exact.data import as_vectors
from byheart.exact.parts import Parts


@dataclass(frozen=True)
class Structured:
    """Evaluates a network through its parts.

    >>> from byheart.exact import memorize
    >>> built = memorize([[1, 2], [3, 4]], [1, 2], others=[[1, 3]])
    >>> Structured(built.parts).evaluate(np.array([[2, 1], [4, 3], [1, 3]])).tolist()
    [1, 2, 0]
    """

    parts: Parts

    def evaluate(
        self, tokens: np.ndarray, *, every: bool = False, lengths: np.ndarray | None = None
    ) -> np.ndarray:
        """Outputs (B,), or (B, n) with `every`, as `literal.evaluate`."""
        vectors = as_vectors(tokens, d=len(self.parts.projection.v))
        keys = self.keys(vectors.reshape(-1, vectors.shape[2]))
        shape = vectors.shape[:2]
        ids = self.ids(keys).reshape(shape)
        return self.outputs(keys.reshape(shape), ids, every=every, lengths=lengths)

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
        M = parts.modulus
        if lengths is not None:
            ids = np.where(np.arange(n) < lengths[:, None], ids, 0)
        if M is not None and n * M >= 1 << 62:
            ids = ids.astype(object)
        S = ids.sum(axis=1)
        S = S if M is None else (S % M).astype(np.int64)
        if parts.pooling == "attention":
            counts = np.full(B, n) if lengths is None else np.asarray(lengths)
            S = times(S, self._shares(counts), M)
        if every:
            S = np.repeat(S, n).reshape(B, n)
        if parts.reads:
            last = np.full(B, n - 1) if lengths is None else np.asarray(lengths) - 1
            u = keys if every else keys[np.arange(B), last]
            if M is None and parts.reach >= 1 << 62:
                S = S.astype(object)
            S = times(S, parts.factor, M) + (u if M is None else (u % M).astype(np.int64))
            S = S if M is None else S % M
        return parts.table.look_up(S.reshape(-1).astype(np.int64)).reshape(S.shape)

    def _shares(self, counts: np.ndarray) -> np.ndarray:
        """lcm / n for each length n: what makes the mean whole."""
        lcm = self.parts.lcm
        for n in np.unique(counts).tolist():
            if lcm % n:
                raise ByheartError(
                    f"sequences of {n} tokens: this network was built for lengths that divide "
                    f"{lcm}."
                )
        return lcm // counts.astype(object if lcm >= 1 << 62 else np.int64)


def times(x: np.ndarray, factor: int | np.ndarray, M: int | None) -> np.ndarray:
    """x factor, or x factor mod M for residues x < M < 2^61, in machine integers.

    The factor is taken a few bits at a time, so that no product reaches 2^62.

    >>> times(np.array([2**40 - 1]), 2**40 - 3, 2**40 - 2).tolist() == [2**40 - 3]
    True
    """
    if M is None:
        return x * factor
    f = np.asarray(factor % M)
    bits = 61 - M.bit_length()
    pieces = -(-M.bit_length() // bits)
    result = np.zeros_like(x)
    for i in reversed(range(pieces)):
        piece = ((f >> (bits * i)) & ((1 << bits) - 1)).astype(np.int64)
        result = ((result << bits) % M + x * piece) % M
    return result
