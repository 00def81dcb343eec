"""`byheart encoder`: how near a model of width d can come to given distributions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from byheart.cli import _options as opt
from byheart.cli._distribution import describe
from byheart.cli._flags import with_flags
from byheart.cli._group import argument, option
from byheart.cli._show import emit, guarded, progress, say, table
from byheart.errors import FactsError

if TYPE_CHECKING:
    from byheart.construct.encoders import Compared
    from byheart.facts import Distributions


@guarded
@opt.reading(opt.ANY_TABLE)
def encoder(
    reading: opt.Given,
    source: str = argument(
        "FACTS",
        'JSONL with "output": {token: probability}; a table with --on-conflict '
        "distribution; a text with --ngram; or random:kind=gauss,N=20,tau=1,zipf=0,seed=0.",
    ),
    rank: int = option(..., "Rank of the logits: the width.", min=1, metavar="d"),
    seed: int = option(0, "Same seed, same encoders.", min=0, max=2**62),
    as_json: opt.Json = False,
) -> None:
    """Compare all sequence encoders of rank d on FACTS: what any model of width d must lose.

    A Transformer of width d has logits W E(t) of rank d; none is nearer to the distributions than
    the best of these (Dana et al. 2025, Proposition 1). Bounds are rigorous unless marked.
    """
    from byheart.facts import Distributions

    given = opt.read_any(source, {"distribution": True, **reading})
    if not isinstance(given, Distributions):
        raise FactsError(f"{source}: expected distributions over answers, found {given!r}.")

    from byheart.construct.encoders import compare

    with progress() as tell:
        rows = [_row(given, one) for one in compare(given, rank, seed=seed, progress=tell)]
    exact = min(given.T, given.A - 1)
    measured = [row for row in rows if row["kl"] is not None]
    least = min(measured, key=lambda row: row["kl"])["name"] if measured else None
    if as_json:
        described = {**given.describe(), "rank": rank, "exact_rank": exact, "best": least}
        emit({**described, "rows": rows})
        return
    say(f"{given.name}:")
    table(describe(given))
    say()
    table([_cells(row, least) for row in rows], header=(
        "encoder", "d_KL", "total variation", "top answer", "bound", "seconds", ""))  # fmt: skip
    say()
    if rank >= exact:
        say(f"d = {rank} >= min(T, A - 1) = {exact:,}: exact (Proposition 2).")
    else:
        say(f"d_KL in nats; it vanishes at d = {exact:,} (Proposition 2). Smallest: {least}.")


def _row(given: Distributions, one: Compared) -> dict[str, Any]:
    from byheart.measure import encoder_bounds, losses

    row: dict[str, Any] = {
        "name": one.name,
        "why": with_flags(one.reason, opt.ANY_TABLE),
        "seconds": one.seconds,
    }
    if one.encoder is None:
        empty = dict.fromkeys(("kl", "total_variation", "accuracy", "max_log_ratio"))
        return row | empty | {"bounds": {}}
    return {
        **row,
        **losses(given, one.encoder.logits).mean(),
        "bounds": encoder_bounds(given, one.encoder),
    }


def _cells(row: dict[str, Any], least: str | None) -> tuple[str, ...]:
    if row["kl"] is None:
        return (row["name"], "-", "-", "-", "-", "-", row["why"])
    return (
        row["name"],
        f"{row['kl']:.4g}",
        f"{row['total_variation']:.4g}",
        f"{row['accuracy']:.1%}",
        _tightest(row["bounds"]),
        f"{row['seconds']:.2f}",
        "smallest" if row["name"] == least else "",
    )


def _tightest(bounds: dict[str, Any]) -> str:
    """The smallest rigorous bound, with its name."""
    rigorous = {k: bounds[k] for k in ("bennett", "theorem2") if bounds.get(k) is not None}
    if not rigorous:
        return "-"
    name = min(rigorous, key=lambda key: rigorous[key])
    return f"{rigorous[name]:.3g} ({name})"
