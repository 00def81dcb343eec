"""The figures of a memory, each drawn from the memory itself in the style of `byheart._style`.

`figure(source, name)` draws one; `FIGURES` lists those of memories with what each shows. Studies
and audits draw their own.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from byheart import _style as style
from byheart.errors import ByheartError
from byheart.models import VectorMemory
from byheart.models.exact import ExactMemory
from byheart.reports.carriers import head_map, stories, why_no_heads
from byheart.reports.memory_words import capacity_bars
from byheart.specs import AttentionOnlySpec, ShardedSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LARGEST_SVD = 4000  # rows and columns


def head_map_figure(memory: Any) -> Figure:
    """Facts by heads: what a fact loses of its margin when a head is replaced by its mean."""
    _needs_heads(memory)
    found = head_map(memory)
    figure, (axes,) = style.new_figure(7.0, 4.6)
    axes.grid(False)
    size = np.abs(found.effect[found.effect != 0])
    scale = float(np.quantile(size, 0.99)) if len(size) else 1.0
    image = axes.imshow(
        found.effect, aspect="auto", interpolation="nearest", cmap=style.diverging(),
        vmin=-scale, vmax=scale,
    )  # fmt: skip
    _rows_by_owner(axes, found)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, extend="both")
    bar.set_label(f"loss {found.what} without the head", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    share = 100 * found.concentration
    style.title(axes, f"Who carries which fact (strongest head: {share:.0f} % on average)")
    return figure


def ablation_figure(memory: Any) -> Figure:
    """Which facts are lost with which head, and how many facts each head takes with it."""
    _needs_heads(memory)
    from matplotlib.colors import ListedColormap

    found = head_map(memory)
    figure, (left, right) = style.new_figure(9.0, 4.2, panels=2)
    left.grid(False)
    left.imshow(
        found.lost, aspect="auto", interpolation="nearest",
        cmap=ListedColormap(["#f2f2f2", style.LOST]), vmin=0, vmax=1,
    )  # fmt: skip
    _rows_by_owner(left, found)
    style.title(left, "Lost without the head (orange)")
    share = found.lost.mean(0)
    right.bar(np.arange(len(share)), share, 0.9, color=style.LOST)
    right.set_ylim(0, 1.02)
    style.whole_ticks(right)
    right.set_xlabel("head")
    style.title(right, "Share of the facts that a head takes with it")
    return figure


def margins_figure(memory: Any) -> Figure:
    """The margins of all facts, sorted; zero is where a fact is lost."""
    facts = _facts(memory)
    if isinstance(memory, ExactMemory):
        raise ByheartError("an exact memory has no margins: its outputs are right or wrong.")
    margins = np.sort(memory.margins(facts).numpy())
    figure, (axes,) = style.new_figure()
    real = np.isfinite(margins)
    axes.plot(np.arange(1, len(margins) + 1)[real], margins[real], color=style.MEASURED, lw=1.8)
    axes.axhline(0, color=style.LOST, lw=1.2)
    ideal = memory.construction.get("ideal_margin")
    if ideal is not None:
        style.level(axes, float(ideal), "lower bound", "smallest margin by construction")
    error = None
    if not isinstance(memory, VectorMemory) and memory.distribution is None:
        from byheart.certificates import certify

        made = certify(memory)
        error = made.error_bound
    proven = "" if error is None else f"; proven error at most {error:.1e}"
    axes.set_xlabel("facts, by margin")
    axes.set_ylabel("right answer minus next best")
    style.title(axes, f"Margins of {facts.T:,} facts, smallest {margins[0]:.3g}{proven}")
    return figure


def attention_figure(memory: Any, facts: int = 6) -> Figure:
    """Where the heads that carry a fact look: attention of the strongest heads, some facts."""
    _needs_heads(memory)
    table = _facts(memory)
    chosen = np.unique(np.linspace(0, table.T - 1, facts).astype(int))
    told = stories(memory, chosen, min(12, memory.spec.H))
    figure, panels = style.new_figure(1.1 + 1.5 * len(chosen), 3.8, panels=len(chosen))
    for k, (i, axes) in enumerate(zip(chosen, panels, strict=True)):
        axes.grid(False)
        kept = told.heads[k] >= 0
        axes.imshow(told.attention[k][kept], aspect="auto", cmap="Blues", vmin=0, vmax=1)
        axes.set_yticks(np.arange(kept.sum()), [f"h {h}" for h in told.heads[k][kept]])
        if isinstance(memory, VectorMemory):
            axes.set_xlabel("context token", fontsize=8)
            axes.set_title(f"example {table.rows[i]}", fontsize=8)
        else:
            key = [table.key(int(i))[p] for p in (memory.order or range(table.S))]
            names = ["start"] * (told.attention.shape[2] - len(key)) + key
            axes.set_xticks(np.arange(len(names)), [_brief(n) for n in names], rotation=30)
            axes.set_title(f"→ {_brief(table.answer(int(i)))}", fontsize=8)
    return figure


def capacity_figure(memory: Any) -> Figure:
    """Facts held, room by the theorem, parameters, information limit, on one log scale."""
    bars = capacity_bars(memory)[::-1]
    figure, (axes,) = style.new_figure(7.0, 0.6 + 0.5 * len(bars))
    colours = {"held": style.MEASURED, "size": style.COLOURS[5]}
    for y, bar in enumerate(bars):
        if bar.kind in colours:
            axes.barh(y, bar.value, 0.6, color=colours[bar.kind])
        else:
            edge = style.BUILT if bar.kind == "lower bound" else style.QUIET
            axes.barh(
                y, bar.value, 0.6, color="none", edgecolor=edge, lw=1.6,
                linestyle=style.DASHES[bar.kind],
            )  # fmt: skip
        style.name(axes, bar.value, y, f"{bar.value:,.0f}")
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    axes.set_xscale("log")
    axes.set_xlim(1, 10 * max(bar.value for bar in bars))
    axes.set_xlabel("count (dashed: promised, dotted: a limit)")
    return figure


def condition_figure(memory: Any) -> Figure:
    """The singular values of the equations behind the weights, or a condition number a shard."""
    if isinstance(memory, ExactMemory) or why_no_heads(memory):
        raise ByheartError("condition numbers belong to memories that solve for attention heads.")
    figure, (axes,) = style.new_figure()
    if isinstance(memory.spec, ShardedSpec):
        found = np.sort(np.array([_condition(s) for s in shard_spectra(memory)]))
        axes.plot(np.arange(1, len(found) + 1), found, ".", color=style.MEASURED, ms=5)
        axes.set_ylim(1, 10 * found[-1])
        style.whole_ticks(axes)
        axes.set_xlabel("shards, by condition number")
        axes.set_ylabel("condition number")
        worst = found[-1]
    else:
        values = spectrum(memory)
        axes.plot(np.arange(1, len(values) + 1), values, color=style.MEASURED, lw=1.8)
        axes.set_xlabel("singular value")
        axes.set_ylabel("size")
        worst = _condition(values)
    axes.set_yscale("log")
    lost = math.log10(worst)
    style.title(axes, f"Condition number {worst:.3g}: about {lost:.0f} decimal digits are lost")
    return figure


def _condition(values: np.ndarray) -> float:
    return float(values[0] / values[-1])


def spectrum(memory: Any) -> np.ndarray:
    """Singular values of the features: [F^h(t), x_S(t)] of tokens, [Σ_i a_i E_i] of vectors."""
    facts = _facts(memory)
    if isinstance(memory, VectorMemory):
        own = None if memory.context is not None else facts.contexts()
        a = memory.attention(facts.query, own).numpy()
        E = facts.context
        z = a @ E if E.ndim == 2 else np.einsum("thn,tnd->thd", a, E)
        X = z.reshape(facts.T, -1)
    else:
        from byheart.models.attention_only import head_outputs

        spec = memory.spec
        assert isinstance(spec, AttentionOnlySpec)
        weights = {name: w[None].double() for name, w in memory.weights.items()}
        skip, F = head_outputs(spec, weights, memory.with_start(facts.tokens))
        X = torch.cat([F[0].flatten(1), skip[0]], 1).numpy()
    if min(X.shape) > LARGEST_SVD:
        raise ByheartError(
            f"the equations are {X.shape[0]:,} x {X.shape[1]:,}: too many for a picture of their "
            f"singular values (at most {LARGEST_SVD:,})."
        )
    values = np.linalg.svd(X, compute_uv=False)
    return values[values > values[0] * np.finfo(float).eps * max(X.shape)]


def shard_spectra(memory: Any) -> list[np.ndarray]:
    """Singular values of each shard's own features (at most 400 shards, evenly chosen)."""
    from byheart.models.sharded import own_features, shard_of

    facts, weights = _facts(memory), dict(memory.weights)
    tokens = memory.with_start(facts.tokens)
    shards = shard_of(weights, tokens)
    found = []
    names = shards.unique().tolist()
    for shard in names[:: -(-len(names) // 400)]:
        first, end = weights["head_start"][shard : shard + 2].tolist()
        rows = tokens[shards == shard]
        _, F = own_features(memory.spec, weights, rows, end - first, torch.float64)
        found.append(np.linalg.svd(F.flatten(1).numpy(), compute_uv=False))
    return found


def kl_figure(memory: Any, most: int = 12) -> Figure:
    """d_KL of the best encoder of each rank, and of this memory, against the rank."""
    from byheart.construct.encoders import encode
    from byheart.measure import encoder_bounds, losses, memory_losses

    table = getattr(memory, "distribution", None)
    if table is None:
        raise ByheartError("kl belongs to memories of distributions (--distribution).")
    exact = min(table.T, table.A - 1)
    ranks = list(range(1, min(most, exact) + 1))
    rows = [encode(table, d, "best") for d in ranks]
    kl = [max(losses(table, row.logits).mean()["kl"], 1e-16) for row in rows]
    proved = [encoder_bounds(table, row)["bennett"] for row in rows]
    figure, (axes,) = style.new_figure()
    axes.plot(ranks, kl, "o-", color=style.MEASURED, lw=1.8, ms=4, label="best encoder found")
    known = [(d, b) for d, b in zip(ranks, proved, strict=True) if b is not None and b > 0]
    if known:
        x, y = zip(*known, strict=True)
        axes.plot(
            x, y, linestyle=style.DASHES["upper bound"], color=style.INK, label="Bennett's bound"
        )
    own = max(memory_losses(memory).mean()["kl"], 1e-16)
    axes.plot([memory.spec.d], [own], "D", color=style.LOST, ms=7, label="this memory")
    axes.axvline(exact, linestyle=style.DASHES["lower bound"], color=style.BUILT, lw=1.4)
    style.name(axes, exact, max(kl), "exact (Proposition 2)", style.BUILT)
    axes.set_yscale("log")
    axes.set_xlabel("rank d")
    axes.set_ylabel("d_KL, nats")
    style.legend(axes)
    style.title(axes, "How near a model of width d can come")
    return figure


FIGURES: dict[str, tuple[Callable[[Any], Figure], str]] = {
    "head-map": (head_map_figure, "facts by heads: who carries which fact"),
    "ablation": (ablation_figure, "facts that are lost without a head"),
    "margins": (margins_figure, "the margins of all facts, with the proven error"),
    "attention": (attention_figure, "where the strongest heads of some facts look"),
    "capacity": (capacity_figure, "facts, room by the theorem, parameters, information limit"),
    "condition": (condition_figure, "singular values or condition numbers of the equations"),
    "kl": (kl_figure, "d_KL against the rank (memories of distributions)"),
}


def figure(source: Any, name: str, output: str | os.PathLike[str] | None = None) -> Figure:
    """Draw figure `name` of a memory (or its folder), a study or an audit; save it to `output`.

    Studies: `name` is the study's (dana2025/fig1a); audits: "layers".

    >>> import byheart as bh
    >>> len(figure(bh.build(bh.read_facts("elements")), "head-map").axes)
    2
    """
    from byheart.models import load
    from byheart.reports.audit_page import read_audit
    from byheart.reports.study_page import study_figure
    from byheart.reports.write import AUDIT, STUDY, kind_of
    from byheart.theory.plots import check_path, save

    if output is not None:
        check_path(output)
    kind = kind_of(source)
    if kind == STUDY:
        drawn = study_figure(Path(source), name)
    elif kind == AUDIT:
        from byheart.audits.tables import audit_figure

        if name != "layers":
            raise ByheartError(f"an audit has the figure layers, found {name!r}.")
        drawn = audit_figure(read_audit(source))
    else:
        if name not in FIGURES:
            raise ByheartError(f"there is no figure {name!r}: choose from {', '.join(FIGURES)}.")
        memory = load(Path(source)) if isinstance(source, (str, os.PathLike)) else source
        drawn = FIGURES[name][0](memory)
    if output is not None:
        save(drawn, output)
    return drawn


def _facts(memory: Any) -> Any:
    if memory.facts is None:
        raise ByheartError("the memory was saved without its facts: nothing to draw.")
    return memory.facts


def _needs_heads(memory: Any) -> None:
    why = why_no_heads(memory)
    if why is not None:
        raise ByheartError(f"{why} The figure needs heads.")


def _rows_by_owner(axes: Any, found: Any) -> None:
    axes.set_xlabel("head")
    style.whole_ticks(axes)
    part = f"{len(found.rows):,} of {found.total:,}" if len(found.rows) < found.total else (
        f"{found.total:,}"
    )  # fmt: skip
    axes.set_ylabel(f"{part} facts, by owner ({found.owner_from})")


def _brief(text: str) -> str:
    return text if len(text) <= 12 else f"{text[:11]}…"
