"""`byheart size`: the smallest model of every family for given facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from byheart.cli import _options as opt
from byheart.cli._options import grouped, guarded, option, with_flags
from byheart.cli._show import emit, say, table
from byheart.cli.bound import FILES, SIZES, check_files, read_or_count, write_sweep
from byheart.errors import ByheartError

if TYPE_CHECKING:
    from byheart.facts import Facts
    from byheart.theory import Case
    from byheart.theory.candidates import Crossing, Sized

PER_DECADE = 4  # points of a sweep that a plot draws a smooth line through
PRACTICAL = "Practical: float32 weights that `byheart build` makes, or that training reaches"
THEORETICAL = "Theoretical: longer numbers, vectors with real labels, or a limit"
LEGEND = (
    "Trained is a law measured on whole language models, embeddings included: elsewhere an "
    "extrapolation.\nAttention-only, sharded and multi-head are exact counts; `build` adds 5 % of "
    "heads. Associative is a\nrule of thumb. Attention-only with d = 2 is too ill-conditioned for "
    "float32. Multi-head reads vectors,\nwhich are not counted. sqrt(T) as published has the "
    "constants of Lemma C.1, dense; sparse counts nonzero\nparameters, its low bits expected. Both "
    "have weights of more than 32 bits, so they may lie below the\ninformation limit, which is for "
    "--bits."
)


@guarded
@grouped("files", FILES)
def size(
    files: opt.Given,
    facts: str | None = option(None, "A table of facts, or their number.", "FILE|N"),
    vocab: int | None = option(None, "Tokens in the vocabulary.", "N", parser=opt.whole),
    length: int | None = option(None, "Tokens in a key.", "N", parser=opt.whole),
    answers: int | None = option(
        None, "Different answers. Default: --vocab.", "N", parser=opt.whole
    ),
    bits: int = option(32, "Bits of a parameter, for the information limit."),
    family: list[str] | None = option(
        None, "Only this one (sqrt, sharded, ...); repeatable.", "NAME"
    ),
    sweep: str | None = option(None, "From so many facts to so many.", "1e2:1e9"),
) -> None:
    """The fewest parameters for your facts, family by family, and where families cross.

    byheart size --facts 100000 --vocab 5000 --length 2

    byheart size --vocab 50000 --length 2 --sweep 1e2:1e9 --plot size.png
    """
    from byheart.theory.candidates import choose, facts_case

    choose(family)
    if (facts is None) == (sweep is None):
        raise ByheartError("give --facts FILE or N, or --sweep FIRST:LAST (not both).")
    if sweep is None and files:
        raise ByheartError("-o and --plot are for --sweep: for instance --sweep 1e2:1e9.")
    if sweep is not None:
        low, high = _interval(sweep)
        case = facts_case(None, high, vocab, length, answers, bits=bits)
        _sweep(case, low, high, family, files)
        return
    given = read_or_count(facts)
    if isinstance(given, int):
        case = facts_case(None, given, vocab, length, answers, bits=bits)
    else:
        sizes = {"--vocab": vocab, "--length": length, "--answers": answers}
        for name, value in sizes.items():
            if value is not None:
                raise ByheartError(f"{name} is read from {facts}: leave it out.")
        case = facts_case(given, None, None, None, bits=bits)
    _one(case, family, None if isinstance(given, int) else given)


def _interval(text: str) -> tuple[int, int]:
    low, colon, high = text.partition(":")
    if not colon:
        raise ByheartError(f"expected --sweep FIRST:LAST, for instance 1e2:1e9, found {text!r}")
    first, last = opt.count(low, "sweep"), opt.count(high, "sweep")
    if last < first:
        raise ByheartError(f"--sweep {text}: the last number is below the first.")
    return first, last


def _one(case: Case, family: list[str] | None, facts: Facts | None) -> None:
    from byheart.theory import candidates

    rows = candidates.Sizes(candidates.sizes(case, candidates.choose(family)))
    build = _built(case, facts)
    source = "as given: generic keys and last tokens are assumed"
    if facts is not None:
        source = f"read from the table, which has {facts.last_tokens:,} different last tokens"
    emit({**_question(case), "source": source, "rows": [row.to_json() for row in rows],
          "build": build})  # fmt: skip
    keys = f"keys of {case.S} tokens out of {case.N:,}"
    say(f"{case.T:,} facts: {keys}, {case.answer_count:,} answers")
    say(f"(Sizes {source}.)\n")
    for title, practical in ((PRACTICAL, True), (THEORETICAL, False)):
        if chosen := rows.practical(practical):
            say(title)
            table(*map(rows.cells, chosen), header=rows.header)
            for row in chosen:
                say(f" {row.title} ({_source(row)}): {row.note}")
            say()
    say(f"{LEGEND}\n")
    _say_built(build)


def _source(row: Sized) -> str:
    """The bound by its id; a measured law by its authors too."""
    from byheart.theory.summary import measured_by

    return f"{row.bound}: {measured_by(row.bound)}" if row.family == "trained" else row.bound


def _built(case: Case, facts: Facts | None) -> dict[str, Any]:
    """What `byheart build` would make of these facts, or why it would not."""
    from byheart.construct.choice import Counts, preview

    counts = Counts(case["T"], case["N"], case["S"], range(case.answer_count))
    try:
        made = preview(counts if facts is None else facts)
    except ByheartError as error:
        return {"refused": with_flags(str(error), {*SIZES, "dtype"})}
    spec = {"family": made.spec.family, **made.spec.to_json()}
    numbers = {"margin": made.margin, "margin_exact": made.exact, "dtype": made.dtype}
    words = str(made.spec).partition(", λ=")[0]  # λ is chosen when W_O is known
    sizes = {"method": made.method, "spec": spec, "words": words,
             "parameters": made.spec.parameters}  # fmt: skip
    return {**sizes, **numbers, "differs": list(made.differs)}


def _say_built(build: dict[str, Any]) -> None:
    if "refused" in build:
        say(f"`byheart build` would refuse them: {build['refused']}")
        return
    margin = f"margin {'' if build['margin_exact'] else 'near '}{build['margin']:.2g}"
    say("The theorems count real numbers. `byheart build` stores floats, and would take\n"
        f" {build['words']}\n"
        f" {build['parameters']:,} parameters, {margin}, {build['dtype']}")  # fmt: skip
    for reason in build["differs"]:
        say(f" - {reason}")


def _question(case: Case) -> dict[str, int | None]:
    return {"facts": case.T, "vocabulary": case.N, "length": case.S, "answers": case.answers}


def _sweep(case: Case, low: int, high: int, family: list[str] | None, files: opt.Given) -> None:
    from byheart.theory import plots
    from byheart.theory.candidates import crossings, decades, sweep

    check_files(files)
    crossed = crossings(case, low, high, family)
    rows = sweep(case, decades(low, high, PER_DECADE), family)
    flat = [row.to_json() | {"sizes": " ".join(f"{k}={v}" for k, v in row.sizes.items())}
            for row in rows]  # fmt: skip
    write_sweep(files, "T", flat, lambda: plots.size_figure(rows, crossed))
    records = {"rows": [row.to_json() for row in rows], "crossings": [*map(vars, crossed)]}
    emit({**_question(case), **records})
    _print_sweep(case, sweep(case, decades(low, high), family), crossed)
    for path in files.values():
        say(f"Written to {path}")


def _short(value: float) -> str:
    """Two digits: 2.6e10."""
    return f"{value:.2g}".replace("e+0", "e").replace("e+", "e")


def _print_sweep(case: Case, rows: list[Sized], crossed: list[Crossing]) -> None:
    from byheart.theory.registry import shown

    counts = sorted({row.T for row in rows})
    at = {(row.family, row.T): _short(row.parameters) for row in rows}
    titles = {row.family: row.title for row in rows}
    say(f"Fewest parameters; keys of {case.S} tokens out of {case.N:,}\n")
    practical = {row.family: row.practical for row in rows}
    for title, wanted in ((PRACTICAL, True), (THEORETICAL, False)):
        names = [name for name in titles if practical[name] is wanted]
        if names:
            say(title)
            lines = ((titles[name], *(at[name, T] for T in counts)) for name in names)
            table(*lines, header=("facts", *(_short(T) for T in counts)))
    for crossing in crossed:
        say(
            f"From {crossing.T:,} facts on, {titles[crossing.winner]} is smaller than "
            f"{titles[crossing.loser]} ({shown(crossing.parameters)} parameters)."
        )
    if not crossed:
        say("No two families cross in this range.")
    say(f"\n{LEGEND}")
