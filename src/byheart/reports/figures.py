"""The figures of a memory, each drawn from the memory itself in the style of `byheart._style`.

`figure(source, name)` draws one; `FIGURES` lists those of memories with what each shows. Studies
and audits draw their own.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from byheart import _style as style
from byheart.errors import ByheartError
from byheart.facts import Facts, VectorFacts
from byheart.models.construction import TrainedConstruction
from byheart.models.memory import Memory
from byheart.models.sharded_memory import ShardedMemory
from byheart.models.token_memory import DistributionMemory, TokenMemory, token_table
from byheart.models.vector_memory import VectorMemory
from byheart.reports import carriers
from byheart.reports.memory_page import capacity_bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from byheart.reports.write import Source

LARGEST_SVD = 4000  # rows and columns
RANKS = 12  # of encoders, at most
SHARDS = 400  # whose condition numbers are drawn, evenly chosen


def head_map_figure(memory: Memory) -> Figure:
    """Facts by heads: what a fact loses of its margin when a head is replaced by its mean."""
    _needs_heads(memory)
    heads = carriers.head_map(memory)
    figure, (axes,) = style.new_figure(7.0, 4.6)
    end = carriers.colour_scale(heads.effect)
    image = _by_owner(axes, heads, heads.effect, style.diverging(), -end, end)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, extend="both")
    bar.set_label(f"loss {heads.what} without the head", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    share = 100 * heads.concentration
    style.title(axes, f"Who carries which fact (strongest head: {share:.0f} % on average)")
    return figure


def ablation_figure(memory: Memory) -> Figure:
    """Which facts are lost with which head, and how many facts each head takes with it."""
    from matplotlib.colors import ListedColormap

    _needs_heads(memory)
    heads = carriers.head_map(memory)
    figure, (left, right) = style.new_figure(9.0, 4.2, panels=2)
    _by_owner(left, heads, heads.lost, ListedColormap(["#f2f2f2", style.LOST]), 0, 1)
    style.title(left, "Lost without the head (orange)")
    share = heads.lost.mean(0)
    right.bar(np.arange(len(share)), share, 0.9, color=style.LOST)
    right.set(ylim=(0, 1.02), xlabel="head")
    style.whole_ticks(right)
    style.title(right, "Share of the facts that a head takes with it")
    return figure


def margins_figure(memory: Memory) -> Figure:
    """The margins of all facts, sorted; zero is where a fact is lost."""
    from byheart.certificates import certify

    facts, meaning = carriers.held_facts(memory), memory.page_words().margin
    if meaning is None:
        raise ByheartError("an exact memory has no margins: its outputs are right or wrong.")
    margins = np.sort(memory.margins())
    figure, (axes,) = style.new_figure()
    real = np.isfinite(margins)
    axes.plot(np.arange(1, len(margins) + 1)[real], margins[real], color=style.MEASURED, lw=1.8)
    axes.axhline(0, color=style.LOST, lw=1.2)
    ideal = getattr(memory.construction, "ideal_margin", None)
    if ideal is not None:
        style.level(axes, float(ideal), "lower bound", "smallest margin by construction")
    error = certify(memory).error_bound
    proven = "" if error is None else f"; proven error at most {error:.1e}"
    axes.set(xlabel="facts, by margin", ylabel=meaning)
    style.title(axes, f"Margins of {facts.T:,} facts, smallest {margins[0]:.3g}{proven}")
    return figure


def attention_figure(memory: Memory, facts: int = 6) -> Figure:
    """Where the heads that carry a fact look: attention of the strongest heads, some facts."""
    _needs_heads(memory)
    table, positions = carriers.held_facts(memory), memory.page_words().positions
    chosen = np.unique(np.linspace(0, table.T - 1, facts).astype(int))
    largest = carriers.contributions(memory, chosen, min(12, carriers.head_count(memory)))
    figure, panels = style.new_figure(1.1 + 1.5 * len(chosen), 3.8, panels=len(chosen))
    for k, (i, axes) in enumerate(zip(chosen, panels, strict=True)):
        axes.grid(False)
        present = largest.heads[k] >= 0
        axes.imshow(largest.attention[k][present], aspect="auto", cmap="Blues", vmin=0, vmax=1)
        axes.set_yticks(np.arange(present.sum()), [f"h {h}" for h in largest.heads[k][present]])
        name_key(table, axes, int(i), positions)
    return figure


@singledispatch
def name_key(facts: Facts, axes: Axes, i: int, positions: tuple[str | int, ...]) -> None:
    """Write what fact i is, and what its positions hold, beside a picture of attention."""
    key = facts.key(i)
    names = [p if isinstance(p, str) else key[p] for p in positions]
    axes.set_xticks(np.arange(len(names)), [_brief(n) for n in names], rotation=30)
    axes.set_title(f"→ {_brief(facts.answer(i))}", fontsize=8)


@name_key.register(VectorFacts)
def _(facts: VectorFacts, axes: Axes, i: int, positions: tuple[str | int, ...]) -> None:
    axes.set_xlabel("context token", fontsize=8)
    axes.set_title(f"example {facts.rows[i]}", fontsize=8)


def capacity_figure(memory: Memory) -> Figure:
    """Facts held, room by the theorem, parameters, information limit, on one log scale."""
    bars = capacity_bars(memory)[::-1]
    figure, (axes,) = style.new_figure(7.0, 0.6 + 0.5 * len(bars))
    colours = {"held": style.MEASURED, "size": style.COLOURS[5]}
    for y, bar in enumerate(bars):
        if bar.kind in colours:
            axes.barh(y, bar.value, 0.6, color=colours[bar.kind])
        else:
            edge = style.BUILT if bar.kind == "lower bound" else style.QUIET
            line = {"edgecolor": edge, "lw": 1.6, "linestyle": style.DASHES[bar.kind]}
            axes.barh(y, bar.value, 0.6, color="none", **line)
        style.name(axes, bar.value, y, f"{bar.value:,.0f}")
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    axes.set(xscale="log", xlim=(1, 10 * max(bar.value for bar in bars)))
    axes.set_xlabel("count (dashed: promised, dotted: a limit)")
    return figure


def condition_figure(memory: Memory) -> Figure:
    """The singular values of the equations behind the weights, or a condition number a shard."""
    if carriers.why_no_heads(memory):
        raise ByheartError("condition numbers belong to memories that solve for attention heads.")
    spectra = [spectrum(X) for X in equations(memory)]
    conditions = np.sort([values[0] / values[-1] for values in spectra])
    worst = conditions[-1]
    figure, (axes,) = style.new_figure()
    if len(spectra) > 1:
        axes.plot(np.arange(1, len(conditions) + 1), conditions, ".", color=style.MEASURED, ms=5)
        axes.set_ylim(1, 10 * worst)
        style.whole_ticks(axes)
        axes.set(xlabel="shards, by condition number", ylabel="condition number")
    else:
        axes.plot(np.arange(1, len(spectra[0]) + 1), spectra[0], color=style.MEASURED, lw=1.8)
        axes.set(xlabel="singular value", ylabel="size")
    axes.set_yscale("log")
    lost = f"about {math.log10(worst):.0f} decimal digits are lost"
    style.title(axes, f"Condition number {worst:.3g}: {lost}")
    return figure


def spectrum(X: np.ndarray) -> np.ndarray:
    """The singular values of `X` that are not rounding errors, the largest first."""
    if min(X.shape) > LARGEST_SVD:
        size = f"{X.shape[0]:,} x {X.shape[1]:,}, at most {LARGEST_SVD:,}"
        raise ByheartError(f"too many equations for a picture of their singular values: {size}.")
    values = np.linalg.svd(X, compute_uv=False)
    return values[values > values[0] * np.finfo(float).eps * max(X.shape)]


@singledispatch
def equations(memory: Memory) -> Iterator[np.ndarray]:
    """The features (facts, unknowns) of the linear equations behind the weights: one matrix, or one
    a shard."""
    raise ByheartError(f"a {memory.name} has no equations to draw.")


@equations.register
def _(memory: TokenMemory) -> Iterator[np.ndarray]:
    """[F^h(t), x_S(t)] of every fact t."""
    from byheart.models.architectures import module_of

    weights = {name: w[None].double() for name, w in memory.weights.items()}
    inputs = memory.inputs_of(carriers.held_facts(memory))
    skip, F = module_of(memory.spec).head_outputs(memory.spec, weights, inputs)
    yield torch.cat([F[0].flatten(1), skip[0]], 1).numpy()


@equations.register
def _(memory: ShardedMemory) -> Iterator[np.ndarray]:
    """The own features F^h(t) of the facts of each shard."""
    from byheart.models.sharded import own_features

    facts = token_table(carriers.held_facts(memory))
    tokens, shards = memory.in_order(facts.tokens), memory.shards_of(facts)
    names = np.unique(shards)
    starts = memory.weights["head_start"]
    for shard in names[:: -(-len(names) // SHARDS)]:
        heads = int(starts[shard + 1] - starts[shard])
        rows = tokens[torch.tensor(shards == shard)]
        _, F = own_features(memory.spec, memory.tensors, rows, heads, torch.float64)
        yield F.flatten(1).numpy()


@equations.register
def _(memory: VectorMemory) -> Iterator[np.ndarray]:
    """[Σ_i a_i E_i] of every example, head by head."""
    inputs = memory.inputs_of(carriers.held_facts(memory))
    a, E = memory.attention(inputs), inputs.context.double()
    z = a @ E if E.dim() == 2 else torch.einsum("thn,tnd->thd", a, E)
    yield z.flatten(1).numpy()


@singledispatch
def kl_figure(memory: Memory) -> Figure:
    """d_KL of the best encoder of each rank, and of this memory, against the rank."""
    raise ByheartError("kl belongs to memories of distributions (`method=distribution`).")


@kl_figure.register(DistributionMemory)
def _(memory: DistributionMemory) -> Figure:
    from byheart.construct.encoders import encode
    from byheart.measure import encoder_bounds, losses, memory_losses

    table = memory.distribution
    if table is None:
        raise ByheartError(carriers.NO_FACTS)
    exact = min(table.T, table.A - 1)
    ranks = list(range(1, min(RANKS, exact) + 1))
    rows = [encode(table, d, "best") for d in ranks]
    kl = [max(losses(table, row.logits).mean()["kl"], 1e-16) for row in rows]
    proved = [encoder_bounds(table, row)["bennett"] for row in rows]
    figure, (axes,) = style.new_figure()
    axes.plot(ranks, kl, "o-", color=style.MEASURED, lw=1.8, ms=4, label="best encoder found")
    points = [(d, b) for d, b in zip(ranks, proved, strict=True) if b is not None and b > 0]
    if points:
        line = {"linestyle": style.DASHES["upper bound"], "label": "Bennett's bound"}
        axes.plot(*zip(*points, strict=True), color=style.INK, **line)
    loss = max(memory_losses(memory).mean()["kl"], 1e-16)
    axes.plot(len(memory.weights["W_U"]), loss, "D", color=style.LOST, ms=7, label="this memory")
    axes.axvline(exact, linestyle=style.DASHES["lower bound"], color=style.BUILT, lw=1.4)
    style.name(axes, exact, max(kl), "exact (Proposition 2)", style.BUILT)
    axes.set(yscale="log", xlabel="rank d", ylabel="d_KL, nats")
    style.legend(axes)
    style.title(axes, "How near a model of width d can come")
    return figure


def training_figure(memory: Memory) -> Figure:
    """Loss and accuracy over the steps of the training, a line a start."""
    from byheart.training import curves

    made = memory.construction
    if not isinstance(made, TrainedConstruction):
        raise ByheartError(f"the memory was not trained ({made.method}): it has no curves.")
    if all(outcome.curve is None for outcome in made.training.models):
        raise ByheartError("the memory keeps no curves: an earlier version trained it.")
    return curves.training_figure(made.training.models, str(memory.spec))


FIGURES: dict[str, tuple[Callable[[Memory], Figure], str]] = {
    "head-map": (head_map_figure, "facts by heads: who carries which fact"),
    "ablation": (ablation_figure, "facts that are lost without a head"),
    "margins": (margins_figure, "the margins of all facts, with the proven error"),
    "attention": (attention_figure, "where the strongest heads of some facts look"),
    "capacity": (capacity_figure, "facts, room by the theorem, parameters, information limit"),
    "condition": (condition_figure, "singular values or condition numbers of the equations"),
    "kl": (kl_figure, "d_KL against the rank (memories of distributions)"),
    "training": (
        training_figure,
        "loss and accuracy over steps (trained memories)",
    ),
}


def figure(source: Source, name: str, output: str | os.PathLike[str] | None = None) -> Figure:
    """Draw figure `name` of a memory (or its folder), a study or an audit; save it to `output`.

    Studies: `name` is the study's (dana2025/fig1a); audits: "layers".

    >>> import byheart as bh
    >>> len(figure(bh.build("elements"), "head-map").axes)
    2
    """
    from byheart.theory.plots import check_path, save

    if output is not None:
        check_path(output, "output")
    drawn = _draw(source, name)
    if output is not None:
        save(drawn, output)
    return drawn


def _draw(source: Source, name: str) -> Figure:
    from byheart.models import load
    from byheart.reports.write import AUDIT, STUDY, kind_of

    kind = kind_of(source)
    if isinstance(source, (str, os.PathLike)):
        if kind == STUDY:
            from byheart.reports.study_page import study_figure

            return study_figure(Path(source), name)
        if kind == AUDIT:
            from byheart.audits.tables import audit_figure
            from byheart.reports.audit_page import read_audit

            if name != "layers":
                raise ByheartError(f"an audit has the figure layers, found {name!r}.")
            return audit_figure(read_audit(Path(source)))
        source = load(Path(source))
    if name not in FIGURES:
        raise ByheartError(f"there is no figure {name!r}: choose from {', '.join(FIGURES)}.")
    return FIGURES[name][0](source)


def _needs_heads(memory: Memory) -> None:
    if (why := carriers.why_no_heads(memory)) is not None:
        raise ByheartError(f"{why} The figure needs heads.")


def _by_owner(
    axes: Axes, heads: carriers.HeadMap, values: np.ndarray, colours: Colormap, low: float,
    high: float,
) -> AxesImage:  # fmt: skip
    """Facts by heads as a picture."""
    axes.grid(False)
    style.whole_ticks(axes)
    drawn = f"{len(heads.rows):,} of " if len(heads.rows) < heads.total else ""
    axes.set(xlabel="head", ylabel=f"{drawn}{heads.total:,} facts, by owner ({heads.owner_from})")
    return axes.imshow(values, colours, aspect="auto", interpolation="nearest", vmin=low, vmax=high)


def _brief(text: str) -> str:
    return style.plain(text if len(text) <= 12 else f"{text[:11]}…")
