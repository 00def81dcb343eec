"""Vector facts of the paper (uniform entries), and handwritten digits as patch tokens."""

from __future__ import annotations

import numpy as np

from byheart.errors import FactsError
from byheart.facts import _checks as check
from byheart.facts.vectors import VectorFacts

__all__ = ["digit_vectors", "handwritten_digits", "random_vectors"]

CONTEXTS = ("fixed", "random", "perm")
BAG = 500  # tokens that "perm" contexts are drawn from, as in the authors' code
MAX_NUMBERS = 10**9
SIDE, GREYS = 8, 16  # scikit-learn's digits: 8 x 8 pixels of 0..16


def random_vectors(
    T: int,
    n: int = 32,
    d: int = 64,
    context: str = "fixed",
    *,
    classes: int | None = None,
    outputs: int = 1,
    seed: int = 42,
) -> VectorFacts:
    """T examples with entries uniform in [0, 1], labels uniform: classes, or numbers in [0, 1].

    `context`: "fixed" (one for all), "random" (one each), "perm" (n of a bag of 500 tokens, drawn
    anew for each example). `classes` of them, or else labels of `outputs` numbers.

    The stream is that of the authors' code (numpy's RandomState: contexts, queries, labels), and
    numbers are rounded to float32 as there. Source: Mahdavi et al. 2024, synthetic experiments.

    >>> facts = random_vectors(T=5, n=3, d=4, classes=100)
    >>> facts.context.shape, facts.query.shape, facts.classes
    ((3, 4), (5, 4), 100)
    """
    check.whole(T=T, n=n, d=d, outputs=outputs, seed=seed)
    if classes is not None:
        check.whole(classes=classes)
    if context not in CONTEXTS:
        raise FactsError(
            f"expected `context` to be one of {', '.join(CONTEXTS)}, found {context!r}."
        )
    if context == "perm" and n > BAG:
        raise FactsError(f"perm contexts draw n of {BAG} tokens: found n = {n}.")
    if T * d * (1 if context == "fixed" else n) > MAX_NUMBERS:
        raise FactsError(f"expected at most {MAX_NUMBERS:,} numbers, found T={T:,}, n={n}, d={d}.")
    rng = np.random.RandomState(seed)
    if context == "fixed":
        E = rng.uniform(size=(1, n, d))[0]
    elif context == "random":
        E = rng.uniform(size=(T, n, d))
    else:
        bag = rng.uniform(size=(BAG, d))
        E = np.stack([bag[rng.permutation(BAG)[:n]] for _ in range(T)])
    e = rng.uniform(size=(T, d))
    if classes is not None:
        y: np.ndarray = rng.multinomial(1, np.ones(classes) / classes, size=(T,)).argmax(-1)
    else:
        y = rng.uniform(size=(T,) if outputs == 1 else (T, outputs)).astype(np.float32)
    labels = f"classes={classes}" if classes is not None else f"outputs={outputs}"
    name = f"vectors:T={T},n={n},d={d},context={context},{labels},seed={seed}"
    return VectorFacts.make(
        E.astype(np.float32), e.astype(np.float32), y, classes=classes, name=name
    )


def handwritten_digits() -> tuple[np.ndarray, np.ndarray]:
    """The 1,797 digits of scikit-learn, 64 pixels of 0..16 each, and what they are."""
    try:
        from sklearn.datasets import load_digits  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise FactsError(
            "the digits come with scikit-learn: pip install 'byheart[digits]', or give a file."
        ) from None
    images, names = load_digits(return_X_y=True)
    return np.asarray(images), np.asarray(names)


def digit_vectors(
    T: int = 500, patch: int = 2, *, classes: int | None = 10, random: bool = True, seed: int = 0
) -> VectorFacts:
    """T handwritten digits (scikit-learn, 8 x 8 pixels) as patch tokens, d = 64.

    Query: the 64 pixels, 0..16. Context: one token a patch of `patch` x `patch` pixels, its pixels
    in their own places and 0 elsewhere, plus 16 at the patch's first pixel: a position mark, which
    makes every context of rank n although many patches are blank. All numbers are whole.
    `random`: labels are random (`classes` of them, or scalars if None), as in the paper; else the
    digits themselves.
    """
    images, names = handwritten_digits()
    if patch not in (1, 2, 4, 8):
        raise FactsError(f"expected patches of 1, 2, 4 or 8 pixels a side, found {patch!r}.")
    if not 1 <= T <= len(images):
        raise FactsError(f"expected 1 to {len(images):,} digits, found T = {T!r}.")
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.permutation(len(images))[:T])
    query = images[chosen]
    row, column = np.divmod(np.arange(SIDE * SIDE), SIDE)
    patch_of = row // patch * (SIDE // patch) + column // patch
    mask = np.arange(patch_of.max() + 1)[:, None] == patch_of
    first = np.zeros_like(query, shape=mask.shape)
    first[np.arange(len(mask)), mask.argmax(1)] = GREYS
    context = query[:, None] * mask + first
    if not random:
        label = names[chosen].astype(np.int64)
        classes = 10
    else:
        label = rng.uniform(size=T) if classes is None else rng.integers(classes, size=T)
    labels = f"classes={classes or 0}" if random else "labels=digits"
    name = f"digits:T={T},patch={patch},{labels},seed={seed}"
    return VectorFacts.make(context, query, label, classes=classes, name=name)
