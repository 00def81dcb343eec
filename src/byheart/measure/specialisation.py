"""What does each head memorize? Saturation, co-saturation, ablation and ownership.

Mahdavi et al. (2024) count heads whose largest attention exceeds 0.99 ("saturated"). The level
says little, the contrast does: a head is *less* saturated on its own examples than on others, which
attend to many distinct tokens, and taking it away breaks its own only. So stored and fresh queries
are compared, joint counts are held against independent heads, every head is taken away once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from byheart._json import Json, plain
from byheart._style import FRESH, LOST, MEASURED, legend, new_figure
from byheart.errors import FactsError
from byheart.facts import VectorFacts
from byheart.models.memory import answer_margins
from byheart.models.vector_memory import VectorMemory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SATURATED = 0.99  # the paper's threshold
PER_HEAD = ("saturated", "fresh_saturated", "own_saturated", "other_saturated", "entropy",
            "fresh_entropy", "tokens", "own_tokens", "other_tokens")  # fmt: skip
MOVED = 0.5  # numbers as labels: an example is broken when moved by this many standard deviations
DRAWN = 400  # examples in the picture of what breaks


@dataclass(frozen=True)
class HeadStatistics:
    """All statistics of one memory; arrays over heads (H,), examples (T,) or both (T, H).

    `saturated`, `fresh_saturated`: share of stored and of fresh queries with max attention > 0.99.
    `entropy`: mean, in nats. `tokens`: distinct attended tokens over all stored examples;
    `own_tokens`, `other_tokens`: on the examples a head owns, on the others. `histogram`: examples
    by number of saturated heads, `expected`: of independent heads with the same shares
    (Poisson-binomial); `correlation`: mean over pairs of heads. `breaks`: example lost when the
    head is replaced by its mean; `effect`: by how much margin or output moves. `owner`: the head
    with the largest effect, or the group of the construction where there is one.
    """

    threshold: float
    T: int
    fresh: int
    saturated: np.ndarray
    fresh_saturated: np.ndarray
    entropy: np.ndarray
    fresh_entropy: np.ndarray
    tokens: np.ndarray
    own_tokens: np.ndarray
    other_tokens: np.ndarray
    own_saturated: np.ndarray
    other_saturated: np.ndarray
    histogram: np.ndarray
    expected: np.ndarray
    correlation: float | None
    breaks: np.ndarray
    effect: np.ndarray
    owner: np.ndarray
    owner_from: str

    @property
    def broken(self) -> np.ndarray:
        """Share of the examples that each head breaks when taken away: (H,)."""
        return self.breaks.mean(0)

    @property
    def heads_needed(self) -> np.ndarray:
        """Examples by the number of heads whose loss breaks them: (H + 1,)."""
        return np.bincount(self.breaks.sum(1), minlength=self.breaks.shape[1] + 1)

    @property
    def concentration(self) -> float:
        """Mean over examples of the largest share of the effect: 1/H even, 1 one head alone."""
        total = self.effect.sum(1)
        share = np.divide(self.effect.max(1), total, out=np.zeros(len(total)), where=total > 0)
        return float(share.mean())

    def to_json(self) -> dict[str, Json]:
        """Plain JSON; null where a head owns no example, or all of them."""
        H = len(self.saturated)
        columns = {name: getattr(self, name) for name in PER_HEAD}
        columns |= {"owns": (self.owner[:, None] == np.arange(H)).sum(0), "breaks": self.broken}
        record = {
            "facts": self.T,
            "fresh": self.fresh,
            "threshold": self.threshold,
            "heads": [{"head": h} | {k: v[h] for k, v in columns.items()} for h in range(H)],
            "histogram": self.histogram,
            "independent": self.expected,
            "correlation": self.correlation,
            "heads_needed": self.heads_needed,
            "concentration": self.concentration,
            "owner_from": self.owner_from,
        }
        return {name: plain(value) for name, value in record.items()}


def head_statistics(
    memory: VectorMemory,
    facts: VectorFacts | None = None,
    *,
    fresh: int | np.ndarray = 1000,
    threshold: float = SATURATED,
    seed: int = 0,
) -> HeadStatistics:
    """The statistics of `memory` on `facts` (its own by default).

    `fresh`: queries (F, d) that are not stored, or how many to draw: every coordinate from the
    stored queries by itself, which keeps the marginals and forgets the examples.

    >>> import byheart as bh
    >>> stats = head_statistics(bh.build(bh.random_vectors(T=29, n=8, d=16), H=4, d_h=8))
    >>> stats.saturated.tolist(), sorted(stats.own_tokens.tolist())
    ([1.0, 1.0, 1.0, 1.0], [7, 7, 7, 7])
    """
    facts = memory.fitting(memory.own(facts))
    rng = np.random.default_rng(seed)
    a = memory.attention(memory.inputs_of(facts)).numpy()
    new, contexts = _fresh(facts, fresh, rng)
    b = memory.attention(memory.inputs(new, contexts if memory.context is None else None)).numpy()
    effect, breaks = ablation(memory, facts)
    # The groups of the construction own these examples, or the largest effect of an ablation.
    stored = memory.facts
    same = stored is not None and stored.digest() == facts.digest()
    groups = memory.owners() if same else None
    owner = effect.argmax(1) if groups is None else groups.shard  # one head a group
    full, token = a.max(-1) > threshold, a.argmax(-1)
    mine = owner[:, None] == np.arange(memory.spec.H)
    return HeadStatistics(
        threshold=threshold,
        T=facts.T,
        fresh=len(new),
        saturated=full.mean(0),
        fresh_saturated=(b.max(-1) > threshold).mean(0),
        entropy=_entropy(a),
        fresh_entropy=_entropy(b),
        tokens=_distinct(token, np.ones_like(mine)),
        own_tokens=_distinct(token, mine),
        other_tokens=_distinct(token, ~mine),
        own_saturated=_share(full, mine),
        other_saturated=_share(full, ~mine),
        histogram=np.bincount(full.sum(1), minlength=memory.spec.H + 1),
        expected=facts.T * poisson_binomial(full.mean(0)),
        correlation=_mean_correlation(full),
        breaks=breaks,
        effect=effect,
        owner=owner,
        owner_from="ablation" if groups is None else "construction",
    )


def ablation(memory: VectorMemory, facts: VectorFacts) -> tuple[np.ndarray, np.ndarray]:
    """Effect (T, H) of replacing one head by its mean over the examples, and what it breaks.

    Classes: the drop of the margin, and whether the answer is lost. Numbers: how far the output
    moves (largest coordinate), and whether that is more than half a standard deviation of the
    labels.
    """
    inputs = memory.inputs_of(facts)
    parts, out = memory.contributions(inputs), memory.outputs(inputs, torch.float64)
    change = parts.mean(0) - parts  # (T, H, d_out)
    if facts.classes is None:
        effect = change.abs().amax(2).numpy()
        return effect, effect > MOVED * max(float(facts.targets.std()), 1e-300)
    label = torch.tensor(facts.label)
    before = answer_margins(out, label)
    effect = np.empty(change.shape[:2])
    breaks = np.empty(change.shape[:2], dtype=bool)
    for h in range(change.shape[1]):
        after = answer_margins(out + change[:, h], label)
        effect[:, h] = (before - after).numpy()
        breaks[:, h] = ((before > 0) & (after <= 0)).numpy()
    return np.abs(effect), breaks


def poisson_binomial(p: np.ndarray) -> np.ndarray:
    """P(k of independent events with probabilities p): (len(p) + 1,).

    >>> poisson_binomial(np.array([0.5, 0.5])).tolist()
    [0.25, 0.5, 0.25]
    """
    mass = np.ones(1)
    for q in p:
        mass = np.convolve(mass, [1 - q, q])
    return mass


def _fresh(
    facts: VectorFacts, fresh: int | np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(fresh, int):
        if fresh < 1:
            raise FactsError(f"expected at least one fresh query, found {fresh}.")
        chosen = rng.integers(facts.T, size=(fresh, facts.d))
        query = np.take_along_axis(facts.query, chosen, 0)
    else:
        query = np.asarray(fresh, dtype=np.float64)
        if query.ndim != 2 or query.shape[1] != facts.d:
            raise FactsError(f"expected fresh queries (F, {facts.d}), found {query.shape}.")
    return query, facts.contexts()[rng.integers(facts.T, size=len(query))]


def _entropy(a: np.ndarray) -> np.ndarray:
    logs = np.log(a, out=np.zeros_like(a), where=a > 0)
    return -(a * logs).sum(-1).mean(0)


def _distinct(token: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    return np.array([len(np.unique(token[chosen[:, h], h])) for h in range(token.shape[1])])


def _share(full: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    count = chosen.sum(0)
    hit = (full & chosen).sum(0)
    return np.divide(hit, count, out=np.full(len(count), np.nan), where=count > 0)


def _mean_correlation(full: np.ndarray) -> float | None:
    """Mean correlation of the saturation of two heads; None where no two heads vary."""
    varying = full[:, full.std(0) > 0].astype(float)
    if varying.shape[1] < 2:
        return None
    C = np.corrcoef(varying, rowvar=False)
    return float(C[np.triu_indices(len(C), 1)].mean())


def heads_figure(stats: HeadStatistics, title: str = "") -> Figure:
    """Left: saturated share on stored and fresh queries. Middle: saturated heads per example beside
    independent heads. Right: examples (rows, by owner) that break when a head is taken away."""
    from matplotlib.colors import ListedColormap

    H = len(stats.saturated)
    figure, (left, middle, right) = new_figure(10.5, 3.4, panels=3)
    heads, counts = np.arange(H), np.arange(H + 1)
    left.bar(heads - 0.2, stats.saturated, 0.4, color=MEASURED, label="stored")
    left.bar(heads + 0.2, stats.fresh_saturated, 0.4, color=FRESH, label="fresh")
    left.set_ylim(0, 1.25)  # room for the legend
    middle.bar(counts, stats.histogram, 0.8, color=MEASURED, label="found")
    middle.plot(counts, stats.expected, "o-", color="black", ms=4, lw=1, label="independent heads")
    middle.set_ylim(0, 1.35 * max(stats.histogram.max(), np.max(stats.expected)))
    order = np.lexsort((-stats.effect.max(1), stats.owner))
    if len(order) > DRAWN:
        order = order[np.linspace(0, len(order) - 1, DRAWN).astype(int)]
    shown, colours = stats.breaks[order], ListedColormap(["#f2f2f2", LOST])
    right.imshow(shown, aspect="auto", interpolation="nearest", cmap=colours, vmin=0, vmax=1)
    titles = (
        (left, f"saturated (max attention > {stats.threshold:g})", "head"),
        (middle, "saturated heads per example", "heads"),
        (right, "broken without the head", "head"),
    )
    for axes, text, below in titles:
        axes.set_title(text, loc="left", fontsize=9)
        axes.set_xlabel(below)
    right.set_ylabel(f"{len(order)} examples, by owner ({stats.owner_from})")
    right.grid(False)
    for axes in (left, middle):
        legend(axes)
    for axes in (left, right):
        axes.set_xticks(heads if H <= 12 else np.linspace(0, H - 1, 6).astype(int))
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return figure
