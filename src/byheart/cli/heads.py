"""`byheart heads`: what each head of a vector memory memorizes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from byheart.cli import _options as opt
from byheart.cli._group import option
from byheart.cli._show import columns, emit, guarded, say
from byheart.errors import ByheartError

if TYPE_CHECKING:
    import numpy as np

    from byheart.measure import HeadStatistics

SHOWN = 20


@guarded
def heads(
    folder: opt.Folder,
    fresh: int = option(1000, "Fresh queries to compare with.", min=1, max=10**6),
    threshold: float = option(0.99, "Attention above which a head is saturated.", min=0.0, max=1.0),
    facts: str | None = option(None, "Other examples than those in DIR", metavar="FILE"),
    plot: str | None = option(None, "Also draw it: .png, .svg or .pdf.", metavar="FILE"),
    seed: int = option(0, "Of the fresh queries.", min=0),
    as_json: opt.Json = False,
) -> None:
    """What does each head of the memory in DIR memorize?

    Saturation on stored and on fresh queries, the number of saturated heads per example beside
    independent heads, distinct attended tokens on own and other examples, and what breaks when a
    head is replaced by its mean. A level alone (all heads saturated) shows no specialisation: the
    contrast between own and other examples does.
    """
    from byheart.theory.plots import check_path, save

    if plot is not None:
        check_path(plot)
    opt.check_memory_folder(folder)

    from byheart.facts import read_vectors
    from byheart.measure.specialisation import head_statistics
    from byheart.models import VectorMemory, load

    memory = load(folder)
    if not isinstance(memory, VectorMemory):
        raise ByheartError(
            f"{folder} holds tokens ({memory.spec.family}): `byheart heads` is for vector "
            "memories. `byheart recall` and `byheart owner` show the heads of the others."
        )
    examples = None if facts is None else read_vectors(facts)
    stats = head_statistics(memory, examples, fresh=fresh, threshold=threshold, seed=seed)
    if plot is not None:
        from byheart.measure.specialisation import heads_figure

        save(heads_figure(stats, str(memory.spec)), plot)
    if as_json:
        emit(stats.to_json())
    else:
        _print(stats)
        if plot is not None:
            say(f"\nDrawn to {plot}")


def _print(stats: HeadStatistics) -> None:
    heads = len(stats.saturated)
    cells = {
        "head": str,
        "owns": lambda h: f"{int((stats.owner == h).sum()):,}",
        "saturated stored / fresh": lambda h: _pair(h, stats.saturated, stats.fresh_saturated),
        "own / other": lambda h: _pair(h, stats.own_saturated, stats.other_saturated),
        "entropy stored / fresh": lambda h: _pair(h, stats.entropy, stats.fresh_entropy),
        "tokens own / other": lambda h: f"{stats.own_tokens[h]} / {stats.other_tokens[h]}",
        "breaks": lambda h: f"{stats.broken[h]:.2f}",
    }
    columns(range(min(heads, SHOWN)), cells)
    if heads > SHOWN:
        say(f"... and {heads - SHOWN} more heads (--json lists all)")
    say(f"\n{stats.T:,} examples, {stats.fresh:,} fresh queries; owners by {stats.owner_from}.")
    say(f"saturated heads per example: {_counts(stats.histogram.tolist())}")
    say(f"       of independent heads: {_counts([round(v, 1) for v in stats.expected.tolist()])}")
    correlation = "-" if stats.correlation is None else f"{stats.correlation:+.2f}"
    say(f"mean correlation of two heads' saturation: {correlation}")
    needed = _counts(stats.heads_needed.tolist())
    say(f"examples by number of heads whose loss breaks them: {needed}")
    say(f"largest share of one head in an example, mean: {stats.concentration:.2f}")


def _pair(h: int, *heads: np.ndarray) -> str:
    return " / ".join(f"{v[h]:.2f}" if math.isfinite(v[h]) else "-" for v in heads)


def _counts(values: list) -> str:
    found = [f"{k}: {v}" for k, v in enumerate(values) if v]
    return ", ".join(found[:SHOWN]) + (", ..." if len(found) > SHOWN else "")
