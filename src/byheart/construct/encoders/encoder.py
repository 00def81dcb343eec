"""A sequence encoder: W (A, d) and E (T, d), logits f_t = W E_t."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from byheart.errors import ByheartError

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)  # one is itself: arrays have no hash
class Encoder:
    """f_{W,E}(t) = W E(t), an element of L(N, S, d): logits of rank at most d.

    `W` (A, d) one row an answer, `E` (T, d) one row a sequence; `name` how it was made, `why` in
    words. Source: Dana et al. 2025, section 3 (Proposition 1: no width-d Transformer is nearer to
    π than the best of these).

    >>> Encoder(np.eye(2), np.array([[1.0, -1.0]]), "by hand").logits
    array([[ 1., -1.]])
    """

    W: Array
    E: Array
    name: str
    why: str = ""

    @property
    def d(self) -> int:
        return self.W.shape[1]

    @property
    def logits(self) -> Array:
        """f (T, A)."""
        return self.E @ self.W.T

    def balanced(self) -> Encoder:
        """The same logits with W of orthonormal columns (where its rank allows): |W z| = |z|.

        A read-out then fits E in the metric of the logits.
        """
        U, s, Vt = np.linalg.svd(self.W, full_matrices=False)
        W = np.zeros_like(self.W)
        W[:, : U.shape[1]] = U
        E = np.zeros_like(self.E)
        E[:, : U.shape[1]] = self.E @ Vt.T * s
        return Encoder(W, E, self.name, self.why)


def check_rank(d: int) -> None:
    if d < 1:
        raise ByheartError(f"the rank d of an encoder must be at least 1, found {d}")


def factored(matrix: Array, d: int) -> tuple[Array, Array]:
    """(W, E) with E W^T the best rank-d approximation of `matrix` (T, A) in Frobenius norm."""
    T, A = matrix.shape
    if min(T, A) > 4 * d and T * A > 10**6:
        from scipy.sparse.linalg import svds

        start = np.ones(min(T, A))  # a fixed start: the same bits every time
        U, s, Vt = svds(matrix, k=d, v0=start, return_singular_vectors=True)
        assert U is not None and Vt is not None  # asked for
    else:
        U, s, Vt = np.linalg.svd(matrix, full_matrices=False)
        U, s, Vt = U[:, :d], s[:d], Vt[:d]
    W, E = np.zeros((A, d)), np.zeros((T, d))
    W[:, : len(s)] = Vt.T * np.sqrt(s)
    E[:, : len(s)] = U * np.sqrt(s)
    return W, E
