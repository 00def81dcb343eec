"""The features that Theorems 1 and 3 of Dana et al. solve for, of a literal layer in numpy."""

import numpy as np


def random_features(N: int, d: int, H: int, seed: int) -> np.ndarray:
    """[W_V A(t); x_S] (H d + d, N²) of all keys of two tokens, d_h = d, random heads."""
    r = np.random.default_rng(seed)
    e, pos = r.normal(size=(N, d)), r.normal(size=(2, d))
    first, last = np.divmod(np.arange(N * N), N)
    x = np.stack([e[first] + pos[0], e[last] + pos[1]], axis=1)
    parts = []
    for _ in range(H):
        scores = 2 * np.einsum("td,de,tse->ts", x[:, 1], r.normal(size=(d, d)), x)
        a = np.exp(scores - scores.max(axis=1, keepdims=True))
        parts.append(np.einsum("ts,tsd->td", a / a.sum(axis=1, keepdims=True), x))
    return np.concatenate([*parts, x[:, 1]], axis=1).T
