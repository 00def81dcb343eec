"""`byheart precision`: what number formats keep."""

from __future__ import annotations

from pathlib import Path

from byheart.cli import _options as opt
from byheart.cli._group import argument, option
from byheart.cli._show import emit, guarded, say, table


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
        cells = [
            (k.format, f"{k.significant_bits:,}", f"{k.recalled:,} of {k.asked:,}") for k in kept
        ]
        _report(source, [vars(k) for k in kept], cells, ("format", "bits", "recalled"), as_json)
        return
    chosen = tuple(method or measured.METHODS)
    for name in chosen:
        check_choice("method", name, measured.METHODS)
    facts = opt.read(source, reading)
    sizes = [T for T in measured.sizes_to(facts.T) if T <= most]
    limits = measured.limits(facts, chosen, sizes)
    cells = [
        (
            limit.method,
            limit.format,
            "none" if limit.last_right is None else f"{limit.last_right:,}",
            "none tried" if limit.first_wrong is None else f"{limit.first_wrong:,}",
            "" if limit.bits is None else f"{limit.bits:,}",
        )
        for limit in limits
    ]
    header = ("construction", "format", "all right up to", "first wrong", "needs bits")
    note = "\nFacts are the first ones of the table; bits are those of the longest exact weight."
    _report(facts.name, [vars(limit) for limit in limits], cells, header, as_json, note)


def _report(
    source: str,
    rows: list[dict[str, object]],
    cells: list[tuple[str, ...]],
    header: tuple[str, ...],
    as_json: bool,
    note: str = "",
) -> None:
    if as_json:
        emit({"source": source, "rows": rows})
        return
    table(cells, header=header)
    if note:
        say(note)
