"""`byheart size`: the smallest model of every family for given facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from byheart.cli import _options as opt
from byheart.cli._show import emit, guarded, say, table
from byheart.cli._sizes import Output, Plot, check_places, count, is_count, shown, write

if TYPE_CHECKING:
    from byheart.theory.bound import Case
    from byheart.theory.families import Crossing, Sized

PER_DECADE = 4  # points of a sweep that a plot draws a smooth line through


@guarded
def size(
    facts: Annotated[
        str | None,
        typer.Option("--facts", metavar="FILE|N", help="A table of facts, or their number."),
    ] = None,
    vocab: Annotated[int | None, typer.Option("--vocab", help="Tokens in the vocabulary.")] = None,
    length: Annotated[int | None, typer.Option("--length", help="Tokens in a key.")] = None,
    answers: Annotated[
        int | None, typer.Option("--answers", help="Different answers. Default: --vocab.")
    ] = None,
    bits: Annotated[
        int, typer.Option("--bits", help="Bits of a parameter, for the information limit.")
    ] = 32,
    family: Annotated[
        list[str] | None,
        typer.Option(
            "--family", metavar="NAME", help="Only this one (sqrt, sharded, ...); may be repeated."
        ),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option("--sweep", metavar="1e2:1e9", help="From so many facts to so many."),
    ] = None,
    output: Output = None,
    plot: Plot = None,
    as_json: opt.Json = False,
) -> None:
    """The fewest parameters for your facts, family by family, and where families cross.

    byheart size --facts 100000 --vocab 5000 --length 2

    byheart size --vocab 50000 --length 2 --sweep 1e2:1e9 --plot size.png
    """
    from byheart.errors import ByheartError
    from byheart.theory.families import facts_case

    if (facts is None) == (sweep is None):
        raise ByheartError("give --facts FILE or N, or --sweep FIRST:LAST (not both).")
    if sweep is None and (output or plot):
        raise ByheartError("-o and --plot are for --sweep: for instance --sweep 1e2:1e9.")
    if sweep is not None:
        low, high = _interval(sweep)
        case = facts_case(None, high, vocab, length, answers, bits=bits)
        _sweep(case, low, high, family, output, plot, as_json)
        return
    text = facts or ""
    if is_count(text):
        case = facts_case(None, count(text, "--facts"), vocab, length, answers, bits=bits)
    else:
        from byheart.facts import read_facts

        given = {"--vocab": vocab, "--length": length, "--answers": answers}
        for flag, value in given.items():
            if value is not None:
                raise ByheartError(f"{flag} is read from {text}: leave it out.")
        case = facts_case(read_facts(text), None, None, None, bits=bits)
    _one(case, family, as_json)


def _interval(text: str) -> tuple[int, int]:
    from byheart.errors import ByheartError

    low, colon, high = text.partition(":")
    if not colon:
        raise ByheartError(f"expected --sweep FIRST:LAST, for instance 1e2:1e9, found {text!r}")
    first, last = count(low, "--sweep"), count(high, "--sweep")
    if last < first:
        raise ByheartError(f"--sweep {text}: the last number is below the first.")
    return first, last


def _one(case: Case, family: list[str] | None, as_json: bool) -> None:
    from byheart.theory.families import choose, sized

    rows = sorted((sized(f, case) for f in choose(family)), key=lambda row: row.parameters)
    if as_json:
        emit({**_question(case), "rows": [row.to_json() for row in rows]})
        return
    say(_headline(case))
    table(
        [_row(row) for row in rows],
        header=("family", "parameters", "facts/p", "bits/p", "sizes"),
    )
    for row in rows:
        say(f" {row.title} ({row.bound}): {row.note}")
    say(_legend())


def _question(case: Case) -> dict[str, Any]:
    return {"facts": case.T, "vocabulary": case.N, "length": case.S, "answers": case.answers}


def _headline(case: Case) -> str:
    known = case.answers if case.answers is not None else case.N
    return f"{case.T:,} facts: keys of {case.S} tokens out of {case.N:,}, {known:,} answers\n"


def _row(row: Sized) -> tuple[str, ...]:
    sizes = ", ".join(f"{name} = {value:,}" for name, value in row.sizes.items())
    rates = shown(row.facts_per_parameter), shown(row.bits_per_parameter)
    return (row.title, shown(row.parameters), *rates, sizes)


def _legend() -> str:
    return (
        "Exact counts, except: sqrt(T) as published has the constants of Lemma C.1, dense; sqrt(T)"
        "\nsparse counts nonzero parameters, its low bits expected. Both have weights of more than "
        "32 bits,\nso they may lie below the information limit, which is for --bits."
    )


def _sweep(
    case: Case,
    low: int,
    high: int,
    family: list[str] | None,
    output: str | None,
    plot: str | None,
    as_json: bool,
) -> None:
    from byheart.theory import families, sweeps

    check_places(output, plot)
    crossed = families.crossings(case, low, high, family)
    rows = families.sweep(case, families.decades(low, high, PER_DECADE), family)
    if output is not None:
        flat = [{**row.to_json(), "sizes": _flat(row)} for row in rows]
        write(output, sweeps.as_csv("T", flat))
    if plot is not None:
        from byheart.theory import plots

        plots.save(plots.size_figure(rows, crossed), plot)
    if as_json:
        emit(
            {
                **_question(case),
                "rows": [row.to_json() for row in rows],
                "crossings": [vars(crossing) for crossing in crossed],
            }
        )
        return
    _print_sweep(case, families.sweep(case, families.decades(low, high), family), crossed)
    for path in (output, plot):
        if path is not None:
            say(f"Written to {path}")


def _short(value: float) -> str:
    """Two digits: 2.6e10."""
    return f"{value:.2g}".replace("e+0", "e").replace("e+", "e")


def _flat(row: Sized) -> str:
    return " ".join(f"{name}={value}" for name, value in row.sizes.items())


def _print_sweep(case: Case, rows: list[Sized], crossed: list[Crossing]) -> None:
    counts = sorted({row.T for row in rows})
    at = {(row.family, row.T): _short(row.parameters) for row in rows}
    titles = {row.family: row.title for row in rows}
    say(f"Fewest parameters; keys of {case.S} tokens out of {case.N:,}\n")
    table(
        [(name, *(at[name, T] for T in counts)) for name in titles],
        header=("facts", *(_short(T) for T in counts)),
    )
    for crossing in crossed:
        say(
            f"From {crossing.T:,} facts on, {titles[crossing.winner]} is smaller than "
            f"{titles[crossing.loser]} ({shown(crossing.parameters)} parameters)."
        )
    if not crossed:
        say("No two families cross in this range.")
    say("\n" + _legend())
