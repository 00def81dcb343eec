"""`byheart size`: the smallest model of every family for given facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byheart.cli import _options as opt
from byheart.cli._group import option
from byheart.cli._show import emit, guarded, say, table
from byheart.cli._sizes import Output, Plot, check_files, count, is_count, write_sweep
from byheart.errors import ByheartError

if TYPE_CHECKING:
    from byheart.theory import Case
    from byheart.theory.candidates import Crossing, Sized

PER_DECADE = 4  # points of a sweep that a plot draws a smooth line through
LEGEND = (
    "Exact counts, except: sqrt(T) as published has the constants of Lemma C.1, dense; sqrt(T)"
    "\nsparse counts nonzero parameters, its low bits expected. Both have weights of more than "
    "32 bits,\nso they may lie below the information limit, which is for --bits."
)


@guarded
def size(
    facts: str | None = option(None, "A table of facts, or their number.", metavar="FILE|N"),
    vocab: int | None = option(None, "Tokens in the vocabulary."),
    length: int | None = option(None, "Tokens in a key."),
    answers: int | None = option(None, "Different answers. Default: --vocab."),
    bits: int = option(32, "Bits of a parameter, for the information limit."),
    family: list[str] | None = option(
        None, "Only this one (sqrt, sharded, ...); may be repeated.", metavar="NAME"
    ),
    sweep: str | None = option(None, "From so many facts to so many.", metavar="1e2:1e9"),
    output: Output = None,
    plot: Plot = None,
    as_json: opt.Json = False,
) -> None:
    """The fewest parameters for your facts, family by family, and where families cross.

    byheart size --facts 100000 --vocab 5000 --length 2

    byheart size --vocab 50000 --length 2 --sweep 1e2:1e9 --plot size.png
    """
    from byheart.theory.candidates import choose, facts_case

    choose(family)
    if (facts is None) == (sweep is None):
        raise ByheartError("give --facts FILE or N, or --sweep FIRST:LAST (not both).")
    if sweep is None and (output or plot):
        raise ByheartError("-o and --plot are for --sweep: for instance --sweep 1e2:1e9.")
    if sweep is not None:
        low, high = _interval(sweep)
        case = facts_case(None, high, vocab, length, answers, bits=bits)
        _sweep(case, low, high, family, output, plot, as_json)
    elif facts is not None and is_count(facts):
        T = count(facts, "facts")
        _one(facts_case(None, T, vocab, length, answers, bits=bits), family, as_json)
    elif facts is not None:
        from byheart.facts import read_facts

        sizes = {"--vocab": vocab, "--length": length, "--answers": answers}
        for flag, value in sizes.items():
            if value is not None:
                raise ByheartError(f"{flag} is read from {facts}: leave it out.")
        _one(facts_case(read_facts(facts), None, None, None, bits=bits), family, as_json)


def _interval(text: str) -> tuple[int, int]:
    low, colon, high = text.partition(":")
    if not colon:
        raise ByheartError(f"expected --sweep FIRST:LAST, for instance 1e2:1e9, found {text!r}")
    first, last = count(low, "sweep"), count(high, "sweep")
    if last < first:
        raise ByheartError(f"--sweep {text}: the last number is below the first.")
    return first, last


def _one(case: Case, family: list[str] | None, as_json: bool) -> None:
    from byheart.theory.candidates import Sizes, choose, sizes

    rows = Sizes(sizes(case, choose(family)))
    if as_json:
        emit({**_question(case), "rows": [row.to_json() for row in rows]})
        return
    keys = f"keys of {case.S} tokens out of {case.N:,}"
    say(f"{case.T:,} facts: {keys}, {case.answer_count:,} answers\n")
    table([rows.cells(row) for row in rows], header=rows.header)
    for row in rows:
        say(f" {row.title} ({row.bound}): {row.note}")
    say(LEGEND)


def _question(case: Case) -> dict[str, int | None]:
    return {"facts": case.T, "vocabulary": case.N, "length": case.S, "answers": case.answers}


def _sweep(
    case: Case,
    low: int,
    high: int,
    family: list[str] | None,
    output: str | None,
    plot: str | None,
    as_json: bool,
) -> None:
    from byheart.theory import plots
    from byheart.theory.candidates import crossings, decades, sweep

    check_files(output, plot)
    crossed = crossings(case, low, high, family)
    rows = sweep(case, decades(low, high, PER_DECADE), family)
    flat = [{**row.to_json(), "sizes": _flat(row)} for row in rows]
    write_sweep(output, "T", flat, plot, lambda: plots.size_figure(rows, crossed))
    if as_json:
        records = {"rows": [row.to_json() for row in rows], "crossings": [*map(vars, crossed)]}
        emit({**_question(case), **records})
        return
    _print_sweep(case, sweep(case, decades(low, high), family), crossed)
    for path in filter(None, (output, plot)):
        say(f"Written to {path}")


def _short(value: float) -> str:
    """Two digits: 2.6e10."""
    return f"{value:.2g}".replace("e+0", "e").replace("e+", "e")


def _flat(row: Sized) -> str:
    return " ".join(f"{name}={value}" for name, value in row.sizes.items())


def _print_sweep(case: Case, rows: list[Sized], crossed: list[Crossing]) -> None:
    from byheart.theory.registry import shown

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
    say(f"\n{LEGEND}")
