"""`byheart precision`: what number formats keep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from byheart.cli import _options as opt
from byheart.cli._show import emit, guarded, say, table

if TYPE_CHECKING:
    from byheart.measure.precision import Kept, Limit


@guarded
@opt.reading()
def precision(
    reading: opt.Given,
    source: Annotated[
        str,
        typer.Argument(metavar="DIR|FACTS", help="A memory folder, or a table of facts."),
    ],
    method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="sqrt|attention|sharded",
            help="FACTS: which constructions (repeat it). Default: all three.",
        ),
    ] = None,
    most: Annotated[
        int, typer.Option(min=2, help="FACTS: the largest number of facts tried.")
    ] = 1024,
    as_json: opt.Json = False,
) -> None:
    """Say which number formats recall the facts of a memory, or how many facts of a table.

    DIR: the weights are rounded to float16, bfloat16, float32, float64 and int8 with one scale a
    channel; exact memories are evaluated in the format throughout. FACTS: for each construction
    the first 2, 3, 4, 6, 8, 12, ... facts are built, and the first number that a format gets wrong
    is shown.
    """
    from byheart.errors import ByheartError
    from byheart.measure import precision as measured

    if Path(source).is_dir():
        from byheart.models import load

        rows = measured.precision(load(source))
        _report_kept(source, rows, as_json)
        return
    chosen = tuple(method or measured.METHODS)
    unknown = [name for name in chosen if name not in measured.METHODS]
    if unknown:
        raise ByheartError(
            f"--method must be one of {', '.join(measured.METHODS)}, found {unknown[0]!r}"
        )
    facts = opt.read(source, reading)
    sizes = [T for T in measured.sizes_to(facts.T) if T <= most]
    _report_limits(facts.name, measured.limits(facts, chosen, sizes), as_json)


def _report_kept(source: str, rows: list[Kept], as_json: bool) -> None:
    if as_json:
        emit({"source": source, "rows": [vars(row) for row in rows]})
        return
    shown = [
        (row.format, f"{row.significant_bits:,}", f"{row.recalled:,} of {row.asked:,}")
        for row in rows
    ]
    table(shown, header=("format", "bits", "recalled"))


def _report_limits(source: str, rows: list[Limit], as_json: bool) -> None:
    if as_json:
        emit({"source": source, "rows": [vars(row) for row in rows]})
        return
    shown = [
        (
            row.method,
            row.format,
            "none" if row.last_right is None else f"{row.last_right:,}",
            "none tried" if row.first_wrong is None else f"{row.first_wrong:,}",
            "" if row.bits is None else f"{row.bits:,}",
        )
        for row in rows
    ]
    table(shown, header=("construction", "format", "all right up to", "first wrong", "needs bits"))
    say("\nFacts are the first ones of the table; bits are those of the longest exact weight.")
