"""`byheart precision`: what number formats keep."""

from __future__ import annotations

from pathlib import Path

from byheart.cli import _options as opt
from byheart.cli._group import argument, option
from byheart.cli._show import columns, emit, guarded, say


@guarded
@opt.reading()
def precision(
    reading: opt.Given,
    source: str = argument("DIR|FACTS", "A memory folder, or a table of facts."),
    method: list[str] | None = option(
        None,
        "FACTS: which constructions (repeat it). Default: all three.",
        metavar="sqrt|attention|sharded",
    ),
    most: int = option(1024, "FACTS: the largest number of facts tried.", min=2),
    as_json: opt.Json = False,
) -> None:
    """Say which number formats recall the facts of a memory, or how many facts of a table.

    DIR: the weights are rounded to float16, bfloat16, float32, float64 and int8 with one scale a
    channel; exact memories are evaluated in the format throughout. FACTS: for each construction
    the first 2, 3, 4, 6, 8, 12, ... facts are built, and the first number that a format gets wrong
    is shown.
    """
    from byheart.errors import check_choice
    from byheart.measure import precision as measured

    if Path(source).is_dir():
        from byheart.models import load

        kept = measured.precision(load(source))
        if as_json:
            emit({"source": source, "rows": [vars(k) for k in kept]})
            return
        columns(
            kept,
            {
                "format": lambda k: k.format,
                "bits": lambda k: f"{k.significant_bits:,}",
                "recalled": lambda k: f"{k.recalled:,} of {k.asked:,}",
            },
        )
        return
    chosen = tuple(method or measured.METHODS)
    for name in chosen:
        check_choice("method", name, measured.METHODS)
    facts = opt.read(source, reading)
    sizes = [T for T in measured.sizes_to(facts.T) if T <= most]
    limits = measured.limits(facts, chosen, sizes)
    if as_json:
        emit({"source": facts.name, "rows": [vars(limit) for limit in limits]})
        return
    columns(
        limits,
        {
            "construction": lambda k: k.method,
            "format": lambda k: k.format,
            "all right up to": lambda k: _count(k.last_right, "none"),
            "first wrong": lambda k: _count(k.first_wrong, "none tried"),
            "needs bits": lambda k: _count(k.bits, ""),
        },
    )
    say("\nFacts are the first ones of the table; bits are those of the longest exact weight.")


def _count(value: int | None, nothing: str) -> str:
    return nothing if value is None else f"{value:,}"
