"""Facts that a memory recalls: accuracy, margins, and what other number formats keep of them; how
near it is to the distributions it should hold, and what the bounds say.

In a number format, exact memories are evaluated step by step (`byheart.exact.precision`); float
weights are rounded and evaluated in float64, so that only the rounding counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import TYPE_CHECKING

import numpy as np
import torch

from byheart.errors import ByheartError
from byheart.exact.precision import FORMATS, evaluate_in
from byheart.facts import Distributions, Facts, VectorFacts, as_facts
from byheart.methods import build
from byheart.models import DistributionMemory, ExactMemory, Memory, TokenMemory
from byheart.models.memory import FactTable
from byheart.models.threads import one_thread
from byheart.models.token_memory import token_table
from byheart.theory.dana2025 import (
    bennett_bound,
    slides_least_squares,
    slides_weighted_least_squares,
    theorem2_bound,
    theorem2_factor,
)
from byheart.theory.divergences import kl, log_ratio, squared_error, top_answers, total_variation

if TYPE_CHECKING:
    from byheart.construct.encoders import Encoder

ASKED = 500  # facts of an exact memory that are evaluated in every format
METHODS = ("sqrt", "attention", "sharded")


def accuracy(memory: Memory, facts: object = None) -> float:
    """Σ_t p_t [argmax T(t) = g(t)]: the share of the prior that is recalled (ties count as lost).
    Vector memories: the share of the examples, numbers within the memory's tolerance. `facts`: the
    memory's own by default, or anything that `as_facts` reads.

    >>> import byheart as bh
    >>> bh.accuracy(bh.build("elements")), bh.accuracy(bh.build("elements", "sqrt"))
    (1.0, 1.0)
    """
    table = _table(memory, facts)
    recalled = memory.margins(table) > 0
    if isinstance(table, VectorFacts):
        return float(recalled.mean())
    # Sum what was lost, so that a perfect memory gives exactly 1.
    return float(1.0 - table.prior[~recalled].sum())


def margin_quantiles(
    memory: Memory, facts: object = None, levels: tuple[float, ...] = (0.0, 0.01, 0.5, 1.0)
) -> dict[float, float]:
    """Quantiles of the margins over the facts; level 0 is the smallest."""
    with np.errstate(invalid="ignore"):  # between margins without a competitor, which are infinite
        values = np.quantile(memory.margins(_table(memory, facts)), levels)
    return dict(zip(levels, values.tolist(), strict=True))


def _table(memory: Memory, facts: object) -> FactTable:
    return memory.own(None if facts is None else as_facts(facts))


@dataclass(frozen=True)
class Kept:
    """How many of `asked` facts a format recalls."""

    format: str
    significant_bits: int
    asked: int
    recalled: int


def precision(memory: Memory, facts: object = None) -> list[Kept]:
    """Facts recalled in every number format; exact memories: at most 500 of them are asked.

    >>> import byheart as bh
    >>> kept = {k.format: k.recalled for k in precision(bh.build("elements"))}
    >>> kept["float32"], kept["float64"], kept["int8"] < 236
    (236, 236, True)
    """
    with one_thread():
        return list(_kept(memory, token_table(_table(memory, facts))))


@singledispatch
def _kept(memory: Memory, facts: Facts) -> Iterator[Kept]:
    raise ByheartError(f"number formats are compared for memories of tokens, not {memory.name}.")


@_kept.register
def _(memory: ExactMemory, facts: Facts) -> Iterator[Kept]:
    chosen = np.random.default_rng(0).permutation(facts.T)[:ASKED]
    tokens = memory.vectors(facts.tokens[chosen])
    right = memory.classes(facts.answers[chosen])
    for form in FORMATS.values():
        said = evaluate_in(memory.network, tokens, form.name)
        yield Kept(form.name, form.bits, len(chosen), int((said == right).sum()))
    said = memory.literal_outputs(facts.tokens[chosen])
    yield Kept("exact integers", memory.spec.max_bits, len(chosen), int((said == right).sum()))


@_kept.register
def _(memory: TokenMemory, facts: Facts) -> Iterator[Kept]:
    for form in FORMATS.values():
        if form.name == "longdouble":
            continue
        weights = {name: _rounded(w, form.name) for name, w in memory.weights.items()}
        margins = replace(memory, weights=weights).margins(facts, torch.float64)
        yield Kept(form.name, form.bits, facts.T, int((margins > 0).sum()))


def _rounded(w: torch.Tensor, form: str) -> torch.Tensor:
    """Float weights rounded to the format; int8 with one scale a channel (the last axis)."""
    if not w.is_floating_point():
        return w
    if form != "int8":
        return w.to(getattr(torch, form)).to(w.dtype)
    top = w.abs().amax(dim=tuple(range(w.ndim - 1)), keepdim=True)
    scale = torch.where(top > 0, top, torch.ones_like(top)) / 127
    return (w / scale).round() * scale


@dataclass(frozen=True)
class Limit:
    """The largest of the tried numbers of facts that a format holds, the first that it does not."""

    method: str
    format: str
    last_right: int | None
    first_wrong: int | None
    bits: int | None
    """Bits of the longest weight at `first_wrong` (exact memories)."""


def limits(
    facts: Facts, methods: Sequence[str] = METHODS, sizes: Sequence[int] | None = None
) -> list[Limit]:
    """For each construction and format, the first T facts of the table that it gets wrong."""
    tried = [T for T in sizes or sizes_to(facts.T) if T <= facts.T]
    rows: list[Limit] = []
    for method in methods:
        open_ = {name: 0 for name in FORMATS if method == "sqrt" or name != "longdouble"}
        for T in tried:
            memory = build(facts.subset(np.arange(T)), method)
            bits = getattr(memory.spec, "max_bits", None)
            for kept in precision(memory):
                if kept.format in open_ and kept.recalled == kept.asked:
                    open_[kept.format] = T
                elif kept.format in open_:
                    last = open_.pop(kept.format) or None
                    rows.append(Limit(method, kept.format, last, T, bits))
            if not open_:
                break
        rows += [Limit(method, name, last or None, None, None) for name, last in open_.items()]
    return rows


def sizes_to(T: int) -> list[int]:
    """2, 3, 4, 6, 8, 12, ... and T."""
    steps = {a << i for i in range(12) for a in (2, 3)}
    return sorted({s for s in steps if s < T} | {T})


@dataclass(frozen=True)
class Losses:
    """Losses of logits f (T, A) against π, one a sequence, and their means under the prior.

    `kl` in nats, `total_variation` in [0, 1], `squared_error` Σ_j (π_j - q_j)², `log_ratio`
    max_j |log π_j - log q_j|, `right` whether a most probable answer is recalled.
    """

    kl: np.ndarray
    total_variation: np.ndarray
    squared_error: np.ndarray
    log_ratio: np.ndarray
    right: np.ndarray
    prior: np.ndarray

    def mean(self) -> dict[str, float]:
        """E_t of each, under the prior; for `log_ratio` the largest."""
        means = ("kl", "total_variation", "squared_error")
        return {
            **{name: float(self.prior @ getattr(self, name)) for name in means},
            "max_log_ratio": float(self.log_ratio.max()),
            "accuracy": float(1.0 - self.prior[~self.right].sum()),
        }


def losses(table: Distributions, f: np.ndarray) -> Losses:
    """All losses of logits `f` (T, A) on `table`.

    >>> import byheart as bh
    >>> table = bh.random_distributions("gauss", N=4)
    >>> losses(table, np.log(table.probabilities)).mean()["accuracy"]
    1.0
    """
    pi, prior = table.probabilities, table.prior
    distance, error = total_variation(pi, f), squared_error(pi, f)
    return Losses(kl(pi, f), distance, error, log_ratio(pi, f), top_answers(pi, f), prior)


def memory_losses(memory: DistributionMemory, table: Distributions | None = None) -> Losses:
    """The losses of a memory, stored weights evaluated in float64, on its own distributions.

    >>> import byheart as bh
    >>> memory = bh.build(bh.random_distributions("gauss", N=5), d=4, dtype="float64")
    >>> memory_losses(memory).mean()["kl"] < 1e-12
    True
    """
    given = memory.own(table)
    assert isinstance(given, Distributions)
    return losses(given, memory.answer_logits(given))


def encoder_bounds(table: Distributions, encoder: Encoder) -> dict[str, float | None]:
    """Every bound on d_KL(π, f) that can be computed for this encoder, by name, in nats.

    "bennett" and, for encoders λ W_g on unit rows, "theorem2" are rigorous; "theorem2 published"
    is infinite for C >= 1/2; the two of the slides are heuristics for the SVD encoders. A bound
    that does not apply is None.

    >>> import byheart as bh
    >>> from byheart.construct.encoders import encode
    >>> table = bh.random_distributions("gauss", N=6, tau=0.3)
    >>> encoder = encode(table, 2, "centred")
    >>> encoder_bounds(table, encoder)["bennett"] >= losses(table, encoder.logits).mean()["kl"]
    True
    """
    pi, prior, d = table.probabilities, table.prior, encoder.d
    names = ("bennett", "theorem2", "theorem2 published", "slides", "slides weighted")
    bounds: dict[str, float | None] = dict.fromkeys(names)
    if encoder.name.startswith("theorem2") and table.entropy.min() > 0:
        bounds["theorem2"] = bound = theorem2_bound(pi, encoder.W, prior)
        try:
            ratio = theorem2_factor(encoder.W, "published") / theorem2_factor(encoder.W)
        except ByheartError:  # C >= 1/2
            ratio = float("inf")
        bounds["theorem2 published"] = ratio * bound
    if table.full_support:
        bounds["bennett"] = bennett_bound(pi, encoder.logits, prior)
        if encoder.name in ("svd", "centred"):
            bounds["slides"] = slides_least_squares(pi, prior, d)
        if encoder.name == "weighted":
            bounds["slides weighted"] = slides_weighted_least_squares(pi, prior, d)
    return bounds
