"""The random tasks of the papers (sequences with random answers or distributions over them, uniform
vectors, handwritten digits), and recipes: texts such as `random:N=50,S=2,T=1000,seed=0`."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable

import numpy as np

from byheart._install import install
from byheart._words import quote
from byheart.errors import FactsError
from byheart.facts import _checks as check
from byheart.facts.distinct import group_equal_rows
from byheart.facts.distributions import Distributions
from byheart.facts.facts import Facts
from byheart.facts.vectors import VectorFacts
from byheart.facts.vocabulary import Vocabulary

KINDS = {"gauss": "tau", "lut": "eta", "power": "exponent"}
# What a machine of some ten gigabytes holds; beyond, allocation fails late and without a reason.
MAX_TOKENS, MAX_CELLS = 100_000_000, 1_000_000_000
MAX_DIGITS = 18
MAX_KEY = 64  # tokens: 2**64 keys are more than there are facts
BAG = 500  # tokens that "perm" contexts are drawn from, as in the authors' code
SIDE, GREYS = 8, 16  # scikit-learn's digits: 8 x 8 pixels of 0..16


def _require(fits: bool, expected: str, found: object) -> None:
    if not fits:
        raise FactsError(f"expected {expected}, found {found}.")


def random_associations(N: int, S: int, T: int, seed: int = 0) -> Facts:
    """T distinct keys drawn uniformly from [N]^S, each with an answer drawn uniformly from [N].

    Symbols:
        N: tokens, named "0", ..., "N-1"; S: tokens in a key; T: facts, at most N^S.

    Example:
        >>> facts = random_associations(N=3, S=2, T=9, seed=1)
        >>> facts, len({facts.key(i) for i in range(facts.T)})
        (Facts('random:N=3,S=2,T=9,seed=1', T=9, S=2, N=3), 9)
    """
    check.whole(N=N, S=S, T=T, seed=seed)
    limit = f"at most {MAX_TOKENS:,} tokens and {MAX_CELLS:,} cells T·S"
    sizes = f"N = {N:,} and T·S = {T * S:,}. Choose smaller sizes"
    _require(N <= MAX_TOKENS and T * S <= MAX_CELLS, limit, sizes)
    # N**S may be too long to compute; the power of 64 is larger than any T, unless N = 1.
    keys = int(N) ** min(int(S), MAX_KEY)
    if keys < T:
        distinct = f"at most N**S = {N}**{S} = {keys:,} distinct keys"
        _require(False, distinct, f"T = {T:,}. Choose a larger N or S, or fewer facts")
    rng = np.random.default_rng(seed)
    if keys < 2 * T:  # shuffle the numbers 0, ..., N^S - 1 and write T of them in base N
        tokens = rng.permutation(keys)[:T, None] // N ** np.arange(S)[::-1] % N
    else:
        tokens = _sparse_keys(rng, N, S, T)
    answers = rng.integers(N, size=T)
    vocabulary = Vocabulary(tuple(str(i) for i in range(N)))
    return Facts.make(tokens, answers, vocabulary, name=f"random:N={N},S={S},T={T},seed={seed}")


def _sparse_keys(rng: np.random.Generator, N: int, S: int, T: int) -> np.ndarray:
    """At most half of all keys: draw, keep each key where it first appears, until there are T. A
    draw is new with probability at least 1/2, so twice as many as are missing nearly always do."""
    tokens = np.empty((0, S), dtype=np.int64)
    while len(tokens) < T:
        draws = 2 * (T - len(tokens)) + 16
        tokens = np.concatenate([tokens, rng.integers(N, size=(draws, S))])
        order, starts = group_equal_rows(tokens, N)
        tokens = tokens[np.sort(order[starts])]
    return tokens[:T]


def random_distributions(
    kind: str,
    N: int,
    S: int = 2,
    T: int | None = None,
    *,
    tau: float = 1.0,
    eta: float = 0.03,
    exponent: float = 1.0,
    zipf: float = 0.0,
    seed: int = 0,
) -> Distributions:
    """T distinct keys out of [N]^S (all of them by default), each with a distribution over [N].

    Symbols:
        kind: "gauss": softmax of τ·N(0, 1) logits; "lut": 1 - η on a random g(t), η spread over
            the other tokens by a uniform (Dirichlet(1)) draw; "power": probability proportional to
            rank^-exponent, ranks shuffled for each sequence.
        zipf: the prior is proportional to i^-zipf over the keys in random order; 0 is uniform.

    Example:
        >>> table = random_distributions("lut", N=10, eta=0.03)
        >>> table.T, table.A, float(table.probabilities.max().round(2))
        (100, 10, 0.97)
    """
    _require(kind in KINDS, f"`kind` to be one of {', '.join(KINDS)}", repr(kind))
    _require(N >= 2, "N >= 2 tokens for a distribution", N)
    settings = {"tau": tau, "eta": eta, "exponent": exponent, "zipf": zipf}
    for letter, value in settings.items():
        _require(0 <= value < float("inf"), f"`{letter}` to be a finite number >= 0", value)
    _require(0 < eta < 1, "`eta` strictly between 0 and 1", eta)
    check.whole(N=N, S=S, seed=seed, T=1 if T is None else T)
    fits = T is not None or S * math.log10(N) < MAX_DIGITS
    _require(fits, "all of N**S keys to fit", f"{N}**{S}. Give T")
    count = int(N) ** int(S) if T is None else T
    check.room(count, N, f"random:{kind}")
    keys = random_associations(N, S, count, seed)
    rng = np.random.default_rng([seed, 1])
    if kind == "gauss":
        logits = tau * rng.normal(size=(count, N))
        pi = np.exp(logits - logits.max(axis=1, keepdims=True))
    elif kind == "lut":
        pi = np.empty((count, N))
        noise = rng.exponential(size=(count, N - 1))
        noise *= eta / noise.sum(axis=1, keepdims=True)
        right = rng.integers(N, size=count)
        pi[:, 1:], pi[:, 0] = noise, 1 - eta
        # Token j stands in column (j - g) mod N: a shift keeps the noise exchangeable.
        pi = np.take_along_axis(pi, (np.arange(N) - right[:, None]) % N, axis=1)
    else:
        law = np.arange(1, N + 1.0) ** -exponent
        pi = rng.permuted(np.tile(law, (count, 1)), axis=1)
    # The keys are in random order already unless they are all of [N]^S; shuffle all the same.
    prior = rng.permutation(np.arange(1, count + 1.0) ** -zipf)
    setting = f"{KINDS[kind]}={settings[KINDS[kind]]:g}"
    name = f"random:kind={kind},N={N},S={S},T={count},{setting},zipf={zipf:g},seed={seed}"
    return Distributions.make(keys.tokens, pi, keys.vocabulary, prior, normalise=True, name=name)


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
    anew for each example). `classes` of them, or else labels of `outputs` numbers. The stream is
    that of the authors' code (RandomState: contexts, queries, labels), rounded to float32 as there.
    Source: Mahdavi et al. 2024, synthetic experiments.

    >>> facts = random_vectors(T=5, n=3, d=4, classes=100)
    >>> facts.context.shape, facts.query.shape, facts.classes
    ((3, 4), (5, 4), 100)
    """
    check.whole(T=T, n=n, d=d, outputs=outputs, seed=seed)
    if classes is not None:
        check.whole(classes=classes)
        # Drawn as the authors do, one count for each class: T numbers a class.
        _require(
            T * classes <= MAX_CELLS, f"at most {MAX_CELLS:,} numbers", f"T·{classes:,} classes"
        )
    contexts = ("fixed", "random", "perm")
    _require(context in contexts, f"`context` to be one of {', '.join(contexts)}", repr(context))
    _require(context != "perm" or n <= BAG, f"perm contexts of at most {BAG} tokens", f"n = {n}")
    numbers = max(T * outputs, n * d if context == "fixed" else T * n * d, T * d)
    _require(numbers <= MAX_CELLS, f"at most {MAX_CELLS:,} numbers", f"T={T:,}, n={n}, d={d}")
    _require(seed < 2**32, "a seed below 2^32", seed)
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
    E, e = E.astype(np.float32), e.astype(np.float32)
    return VectorFacts.make(E, e, y, classes=classes, name=name)


def handwritten_digits() -> tuple[np.ndarray, np.ndarray]:
    """The 1,797 digits of scikit-learn, 64 pixels of 0..16 each, and what they are."""
    try:
        from sklearn.datasets import load_digits  # pyright: ignore[reportMissingImports]
    except ImportError:
        advice = f"{install('digits')}, or give a file"
        raise FactsError(f"the digits come with scikit-learn: {advice}.") from None
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
    check.whole(seed=seed, **({} if classes is None else {"classes": classes}))
    images, names = handwritten_digits()
    _require(patch in (1, 2, 4, 8), "patches of 1, 2, 4 or 8 pixels a side", repr(patch))
    _require(1 <= T <= len(images), f"1 to {len(images):,} digits", f"T = {T!r}")
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
        label, classes = names[chosen].astype(np.int64), 10
    else:
        label = rng.uniform(size=T) if classes is None else rng.integers(classes, size=T)
    labels = f"classes={classes or 0}" if random else "labels=digits"
    name = f"digits:T={T},patch={patch},{labels},seed={seed}"
    return VectorFacts.make(context, query, label, classes=classes, name=name)


def _digits(
    T: int = 500, patch: int = 2, classes: int | None = 10, labels: str = "random", seed: int = 0
) -> VectorFacts:
    _require(labels in ("random", "digits"), "labels=random or labels=digits", quote(labels))
    return digit_vectors(T, patch, classes=classes, random=labels == "random", seed=seed)


ASSOCIATIONS = "random:N=50,S=2,T=1000,seed=0"
# Kind -> an example, and the function whose parameters are the settings.
RECIPES: dict[str, tuple[str, Callable[..., Facts | Distributions | VectorFacts]]] = {
    "random": (ASSOCIATIONS, random_associations),
    "random:kind": ("random:kind=gauss,N=20,S=2,tau=1,zipf=0,seed=0", random_distributions),
    "vectors": ("vectors:T=621,n=32,d=64,context=fixed,classes=100,seed=42", random_vectors),
    "digits": ("digits:T=500,patch=2,classes=10,seed=0", _digits),
}


def _whole(text: str) -> int:
    """A whole number of at most 18 digits: what is made of it still fits into 64 bits."""
    if len(text) > MAX_DIGITS:
        raise ValueError
    return int(text)


# How the text of a setting is read, by the annotation of its parameter.
READ: dict[str, Callable[[str], int | float | str]] = {
    "int": _whole,
    "float": float,
    "str": str,
}


def is_recipe(source: str | os.PathLike[str]) -> bool:
    """Whether a source is a recipe: `random:...`, `vectors:...`, `digits`; and no file.

    >>> is_recipe("digits"), is_recipe("random:N=3"), is_recipe("random.csv")
    (True, True, False)
    """
    text = os.fspath(source)
    kind, colon, _ = text.partition(":")
    return (kind == "digits" or bool(colon and kind in RECIPES)) and not os.path.exists(text)


def facts_from_recipe(recipe: str) -> Facts | Distributions | VectorFacts:
    """The task that a text describes; `classes=0` means labels that are numbers.

    Example:
        >>> facts_from_recipe("random:N=50,S=2,T=1000,seed=0")
        Facts('random:N=50,S=2,T=1000,seed=0', T=1000, S=2, N=50)
    """
    kind, _, rest = recipe.partition(":")
    parts = [part.strip().partition("=") for part in rest.split(",")]
    if kind != "random" and not rest:
        parts = []
    elif kind == "random" and any(name == "kind" for name, _, _ in parts):
        kind = "random:kind"
    example, make = RECIPES[kind]
    expected = f"a recipe such as {example}"
    parameters = inspect.signature(make).parameters
    settings: dict[str, int | float | str | None] = {}
    for name, mark, text in parts:
        wrong = f"{quote(name + mark + text)} in {quote(recipe)}"
        _require(name in parameters and name not in settings, expected, wrong)
        try:
            settings[name] = READ[str(parameters[name].annotation).split(" ")[0]](text)
        except ValueError:
            _require(False, expected, wrong)
    if settings.get("classes") == 0:
        settings["classes"] = None
    missing = [n for n, p in parameters.items() if p.default is p.empty and n not in settings]
    _require(not missing, expected, f"no {' and no '.join(missing)} in {quote(recipe)}")
    return make(**settings)
