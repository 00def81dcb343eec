"""The experiments of Kajitsuka and Sato (2025): their model trained on sentences, the construction.

E_out o FF_2 o attention o FF_1 o E_in with m = 2, q = 4 m and #blocks feed-forward blocks on either
side (eq. 165), AdamW on the full batch. The authors tuned the learning rate by a few trials; here a
trial is one start with one of a few learning rates or, with `trials`, with a rate and a warm-up
drawn at random, and the best trial counts. They do not say what a word's vector was, on which the
outcome depends: `embedding` names it.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from byheart._search import guarded
from byheart.errors import ByheartError, check_choice
from byheart.papers.kajitsuka2025 import text
from byheart.specs import FeedForwardTransformerSpec
from byheart.studies import Measurements, Params, Procedure

if TYPE_CHECKING:
    from byheart.training import Data, Outcome, Recipe

ANOTHER = 7919  # from the seeds of one attempt to those of the next
ERROR = 0.01  # the paper's ε: a size suffices if the training error is below it

# What a cell is unless it says otherwise.
DEFAULTS: Params = {
    "data": "text",  # sentences; "random" vectors with labels ±1; a class for "every token" of such
    "n": 8, "d": 16, "m": 2, "q": None,  # 4 m
    "classes": 3, "attention": "uniform",  # or softmax, hardmax
    "surrogate": "straight-through", "epochs": 1000, "rates": [0.03, 0.06], "starts": 4,
    "start": "scaled",  # or "linear", "spread": see `byheart.models.feed_forward`
    "corpus": text.SYSTEM,
    "embedding": "fixed",  # Gaussian vectors in R^d; "trained": a table; "given": a file of vectors
    "vectors": None,  # that file
    "trials": None,  # so many instead of `starts` at each of `rates`, all in one stack, drawn from:
    "drawn_rates": [0.005, 0.08], "drawn_warmups": [0.02, 0.3],
}  # fmt: skip
EVERY = "every token"
EMBEDDINGS = ("fixed", "trained", "given")


def spec_of(p: Params, blocks: int, data: Data | None = None) -> FeedForwardTransformerSpec:
    """`blocks` blocks before and `blocks` after the attention; the first token is read. At m = 2
    with 3 classes it has 84 blocks + 10 parameters and E_in's: d m, or, where the table is trained,
    m for every word of the `data`.

    >>> spec_of({**DEFAULTS}, 4).parameters
    378
    """
    uniform, d = p["attention"] == "uniform", p.get("d", 0)
    if data is not None and not data.inputs.is_floating_point():
        d = int(data.inputs.max()) + 1 if data.context is None else data.context.shape[1]
    return FeedForwardTransformerSpec(
        d=d, n=p["n"], m=p["m"], q=p.get("q") or 4 * p["m"], blocks=2 * blocks, uniform=uniform,
        read=0,
        attention="softmax" if uniform else p["attention"],
        d_out=1 if p["data"] == "random" else p["classes"],
    )  # fmt: skip


def data_of(p: Params, seed: int) -> Data:
    """Sentences as numbers of words and, unless a table is trained, the words' vectors: Gaussian in
    R^d, drawn from the seed, or given; or tokens uniform in [0, 1)^d with labels ±1, as in the
    paper's experiment on length; or Gaussian tokens, all different, each with a class: n N examples
    of which each has another token in front, the one that is read (Corollary 4.1's reduction of
    sequence to sequence, and the same loss)."""
    import torch

    from byheart.training import Data
    from byheart.training.data import generator

    source = generator(seed, "data of kajitsuka2025")
    N, n = p["N"], p["n"]
    if p["data"] == "random":
        inputs = torch.rand(N, n, p["d"], generator=source)
        signs = torch.randint(2, (N, 1), generator=source)
        return Data(inputs, (2 * signs - 1).float(), "value")
    if p["data"] == EVERY:
        table = torch.randn(N * n, p["d"], generator=source)
        ids = torch.arange(N * n).reshape(N, n)
        rotated = torch.stack([ids.roll(-k, 1) for k in range(n)], 1).flatten(0, 1)
        labels = torch.randint(p["classes"], (N * n,), generator=source)
        return Data(rotated, labels, context=table)
    _same_file("text", p["corpus"], text.digest(p["corpus"]), p["text"])
    embedding = p.get("embedding", "fixed")
    given = None
    if embedding == "given":
        _same_file("vectors", p["vectors"], text.vectors_digest(p["vectors"]), p["vectors_digest"])
        given = text.vectors(p["vectors"])
    known = None if given is None else given.keys()
    tokens, labels, words = text.examples(p["corpus"], N, n, p["classes"], seed, known)
    ids, table = torch.tensor(tokens), None
    if given is not None:
        table = torch.stack([torch.tensor(given[word]) for word in words]).float()
    elif embedding == "fixed":
        table = torch.randn(len(words), p["d"], generator=source)
    return Data(ids, torch.tensor(labels), context=table)


def _same_file(what: str, name: str, found: str, wanted: str) -> None:
    if found != wanted:
        raise ByheartError(
            f"the {what} of {name} is not this cell's: the files have changed, or this worker has "
            "others."
        )


def recipe_of(p: Params, values: bool, enough: bool) -> Recipe:
    """The training of a cell, but for its learning rates. With `enough`, a model stops at an error
    below 0.01, and all do with the first."""
    from byheart.training import kajitsuka2025

    return kajitsuka2025(
        tuned=bool(p.get("trials")), steps=p["epochs"], loss="mse" if values else "cross-entropy",
        tolerance=0.999,  # of a label ±1: the sign is right
        stop_at=1 - ERROR + 1e-6 if enough else 1.0, evaluate_every=20 if p.get("trials") else 50,
        keep_best=True, surrogate=p["surrogate"], init=p["start"],
        stop_together=enough and bool(p.get("trials")),
    )  # fmt: skip


def trials(
    p: Params, blocks: int, data: Data, seed: int, enough: bool, attempt: int = 0
) -> list[tuple[Outcome, Recipe]]:
    """All trials of one size; with `enough`, no further learning rate after a success. Another
    `attempt` has other starts, learning rates and warm-ups."""
    from byheart.training import best_of, train_stack

    spec, recipe = spec_of(p, blocks, data), recipe_of(p, data.kind == "value", enough)
    if p.get("trials"):
        drawn = {"rates": tuple(p["drawn_rates"]), "warmups": tuple(p["drawn_warmups"])}
        first = seed + ANOTHER * attempt
        tried = best_of(spec, data, recipe, trials=p["trials"], seed=first, **drawn)
        return list(zip(tried.outcomes, tried.recipes or [tried.recipe], strict=True))
    outcomes: list[tuple[Outcome, Recipe]] = []
    seeds = [seed + ANOTHER * attempt + k for k in range(p["starts"])]
    for rate in p["rates"]:
        recipe = recipe.but(lr=rate)
        outcomes += [(o, recipe) for o in train_stack(spec, data, recipe, seeds).outcomes]
        if enough and max(o.accuracy for o, _ in outcomes) > 1 - ERROR:
            break
    return outcomes


def told_of(tried: list[tuple[Outcome, Recipe]]) -> Measurements:
    """Of drawn trials: their seeds, learning rates, warm-ups and accuracies."""
    return {
        "tried_seeds": [o.seed for o, _ in tried],
        "tried_rates": [r.lr for _, r in tried],
        "tried_warmups": [r.warmup for _, r in tried],
        "tried_accuracies": [o.accuracy for o, _ in tried],
    }


def train(p: Params, seed: int) -> Measurements:
    """The best of all trials of one size, as the paper reports it, and the mean of them."""
    data = data_of(p, seed)
    tried = trials(p, p["blocks"], data, seed, enough=False)
    outcomes = [outcome for outcome, _ in tried]
    best = max(outcomes, key=lambda o: (o.accuracy, -math.inf if o.loss is None else -o.loss))
    mean = sum(o.accuracy for o in outcomes) / len(outcomes)
    told = {"mean_accuracy": mean, "trials": len(outcomes)}
    size = spec_of(p, p["blocks"], data).parameters
    told |= told_of(tried) if p.get("trials") else {}
    return {"accuracy": best.accuracy, "loss": best.loss, **told, "parameters": size}


def minimal(p: Params, seed: int) -> Measurements:
    """The smallest #blocks with training error below 0.01, sizes tried in rising order; with
    `trials` doubled up to the last of `sizes`, bisected, and the size below tried once more.

    `blocks` is None if none of them suffices.
    """
    data = data_of(p, seed)
    known: dict[int, list[tuple[Outcome, Recipe]]] = {}

    def suffices(blocks: int, attempt: int = 0) -> bool:
        tried = trials(p, blocks, data, seed, enough=True, attempt=attempt)
        passed = max(o.accuracy for o, _ in tried) > 1 - ERROR
        known[blocks] = tried
        return passed

    if p.get("trials"):
        blocks = guarded(suffices, limit=max(p["sizes"]))
    else:
        blocks = next((size for size in p["sizes"] if suffices(size)), None)
    last = known[max(known) if blocks is None else blocks]
    told = told_of(last) | {"asked": sorted(known)} if p.get("trials") else {}
    needed = None if blocks is None else spec_of(p, blocks, data).parameters
    best = max(o.accuracy for o, _ in last)
    return {"blocks": blocks, "parameters": needed, "accuracy": best, **told}


def built(p: Params, seed: int) -> Measurements:
    """The exact network for N random multisets of n words out of V: what it counts.

    `max_bits` limits the weights of tables (Theorem F.1's trade-off); `formats`: the share of the
    labels that is right when the network is computed in a number format.
    """
    import numpy as np

    from byheart.exact.build import memorize
    from byheart.exact.precision import evaluate_in

    rng = np.random.default_rng(seed)
    tokens = np.empty((0, p["n"]), dtype=np.int64)
    while len(tokens) < p["N"]:
        more = np.sort(rng.integers(p["V"], size=(2 * p["N"], p["n"])), axis=1)
        tokens = np.unique(np.concatenate([tokens, more]), axis=0)
    tokens = rng.permutation(tokens)[: p["N"]]
    labels = 1 + rng.integers(p["classes"], size=p["N"])  # 0 would cost nothing
    memory = memorize(tokens, labels, ff1=p["ff1"], max_bits=p["max_bits"], seed=seed)
    counts = memory.network.counts()
    wrong = int((memory.structured.evaluate(tokens) != labels).sum())
    right = {
        name: float((evaluate_in(memory.network, tokens, name) == labels).mean())
        for name in p["formats"]
    }
    return {
        "parameters": counts.parameters, "dense": counts.dense, "depth": counts.depth,
        "bits": counts.max_bits, "total_bits": counts.total_bits, "wrong": wrong,
        "accuracy": 1 - wrong / p["N"], **right,
    }  # fmt: skip


def built_vectors(p: Params, seed: int) -> Measurements:
    """The exact network for N sequences of n different integer vectors in R^d, coordinates below
    2^20, with a label for each sequence or for `every` token: what it counts."""
    import numpy as np

    from byheart.exact.build import memorize

    rng, (N, n, d) = np.random.default_rng(seed), (p["N"], p["n"], p["d"])
    vectors = np.empty((0, d), dtype=np.int64)
    while len(vectors) < N * n:  # different ones: equal draws are drawn again
        more = rng.integers(1 << 20, size=(N * n, d))
        vectors = np.unique(np.concatenate([vectors, more]), axis=0)
    tokens = rng.permutation(vectors)[: N * n].reshape(N, n, d)
    labels = 1 + rng.integers(p["classes"], size=(N, n) if p["every"] else N)
    memory = memorize(tokens, labels, seed=seed)
    wrong = int((memory.structured.evaluate(tokens, every=p["every"]) != labels).sum())
    counts = memory.network.counts()
    return {"parameters": counts.parameters, "dense": counts.dense, "depth": counts.depth,
            "bits": counts.max_bits, "wrong": wrong}  # fmt: skip


def trial_seconds(p: Params, blocks: int) -> float:
    """CPU seconds of all trials of one size, from the recorded rows: tokens and blocks. Of the
    compiled kernel; hardmax, and everything where there is no compiler, takes autograd."""
    tokens = p["N"] * (p["n"] + 1)
    if p["data"] == EVERY:  # FF_1 at n N tokens, FF_2 at as many; autograd: at n N sequences of n
        tokens = p["N"] * p["n"] * (p["n"] + 1 if p["attention"] == "hardmax" else 2)
    words = p["data"] == "text"  # of which many are the same
    step, block = 5e-5, tokens * p["m"] ** 2 * (2.5e-10 if words else 7.2e-10)
    if p["attention"] == "softmax":
        step += 1.1e-8 * tokens
    if p["attention"] == "hardmax":
        step, block = 2e-7 * tokens, 3e-5 + tokens * p["m"] * 4e-8
    number = p.get("trials") or len(p["rates"]) * p["starts"]
    return number * p["epochs"] * (step + blocks * block)


def text_seconds(p: Params) -> float:
    """CPU seconds for the vectors of a text."""
    return 3.6e-6 * p["N"] * p.get("d", 0) if p["data"] == "text" else 0.0


def minimal_seconds(p: Params) -> float:
    """As if all sizes were tried up to what the recorded searches needed in the mean: more blocks
    for more labels, and for tokens and models of fewer numbers."""
    labels = p["N"] * (p["n"] if p["data"] == EVERY else 1)
    harder = math.sqrt(128 / p["d"]) / 25
    if p["data"] == "text":
        harder = (300 / p.get("d", 300)) ** 0.8 / 65
    needed = max(1, round(labels * harder / (p["m"] / 2) ** 3))
    tried = [size for size in p["sizes"] if size <= needed]
    return text_seconds(p) + sum(trial_seconds(p, size) for size in tried)


def built_seconds(p: Params) -> float:
    """CPU seconds of one construction, from the recorded rows: keys, pairs of keys that share a
    token, and evaluations in number formats."""
    N = p["N"]
    return 0.005 + 1e-5 * N + 9e-8 * N**2 / p["V"] + (0.002 + 2.5e-5 * N) * len(p["formats"])


def complete(params: Params) -> Params:
    """The digest of the text is part of a cell: other sentences are another cell. What has no
    consequence is left out or the same everywhere, so that equal cells are equal."""
    full = dict(params)
    if full["data"] != "text":
        del full["corpus"]
        full["classes"] = 2 if full["data"] == "random" else full["classes"]
    else:
        full["text"] = text.digest(full["corpus"])
    if full["attention"] != "hardmax":
        full["surrogate"] = "straight-through"
    unused = {"rates", "starts"} if full["trials"] else {"trials", "drawn_rates", "drawn_warmups"}
    check_choice("embedding", full["embedding"], EMBEDDINGS)
    if full["q"] is None:
        unused.add("q")
    if full["embedding"] == "fixed" or full["data"] != "text":
        unused.add("embedding")
    if "embedding" in unused or full["embedding"] == "trained":
        unused.add("vectors")
    else:
        full["vectors_digest"] = text.vectors_digest(full["vectors"])
    if "embedding" not in unused:
        unused.add("d")  # it follows from the words, or from the file
    return {name: value for name, value in full.items() if name not in unused}


ROWS = "byheart.papers.kajitsuka2025.ways"  # under this name the rows of stores are kept
_make = partial(Procedure, defaults=DEFAULTS, complete=complete)
TRAIN = _make(
    train, name=f"{ROWS}:train", parameters=("N", "blocks"),
    seconds=lambda p: text_seconds(p) + trial_seconds(p, p["blocks"]),
)  # fmt: skip
MINIMAL = _make(minimal, name=f"{ROWS}:minimal", parameters=("N", "sizes"), seconds=minimal_seconds)
BUILT = Procedure(
    built, name=f"{ROWS}:built",
    seconds=built_seconds,
    defaults={"n": 8, "V": 1000, "classes": 3, "ff1": "hash", "max_bits": None, "formats": []},
)  # fmt: skip
BUILT_VECTORS = Procedure(
    built_vectors, name=f"{ROWS}:built_vectors", parameters=("N",),
    seconds=lambda p: 0.02 + 1.5e-6 * p["N"] * (10 + p["d"]) * (p["n"] if p["every"] else 1),
    defaults={"n": 8, "d": 6, "classes": 2, "every": False},
)  # fmt: skip
