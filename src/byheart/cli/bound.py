"""`byheart bound` and `byheart size`: what every theorem says about an architecture, and the
smallest model of every family for given facts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from byheart.cli import _options as opt
from byheart.cli._options import flag, grouped, guarded, option, with_flags
from byheart.cli._show import emit, for_programs, say, table
from byheart.errors import ByheartError, OptionError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from byheart.facts import Facts
    from byheart.specs import Spec
    from byheart.theory import Case
    from byheart.theory.candidates import Crossing, Sized

SIZES = ("d", "H", "d_h", "n", "N", "layers")
PER_DECADE = 4  # points of a sweep that a plot draws a smooth line through
LEGEND = (
    "Exact counts, except: sqrt(T) as published has the constants of Lemma C.1, dense; sqrt(T)"
    "\nsparse counts nonzero parameters, its low bits expected. Both have weights of more than "
    "32 bits,\nso they may lie below the information limit, which is for --bits. Associative is a "
    "rule of thumb."
)
VERDICTS = {True: "holds the facts", None: "",
            False: "cannot hold so many facts with random answers"}  # fmt: skip
FILES = {
    "output": opt.row(str | None, None, "CSV of the sweep.", "-o", "--output", "FILE"),
    "plot": opt.row(str | None, None, "Plot: png, svg or pdf.", "FILE"),
}


Sizes = dict[str, int | None]


class Question(TypedDict):
    """What is asked besides the architecture."""

    facts: Facts | int | None
    kruskal: int | None
    bits: int


_size = partial(option, None, panel="Sizes")


@guarded
@grouped("files", FILES)
def bound(
    files: opt.Given,
    d_model: int | None = _size("Width d.", "N"),
    heads: int | None = _size("Heads H.", "N"),
    d_head: int | None = _size("Head width d_h. Default: d/H.", "N"),
    context: int | None = _size("Positions n (or S).", "N"),
    vocab: int | None = _size("Tokens. Without it the layer reads vectors.", "N"),
    layers: int | None = _size("Attention layers. Default: 1.", "N"),
    hf: str | None = option(None, "Sizes from a Hugging Face config.json.", "FILE"),
    facts: str | None = option(None, "The facts in question, or their number.", "FILE|N"),
    kruskal: int | None = option(None, "Kruskal rank of the queries, if measured."),
    bits: int = option(32, "Bits of a parameter."),
    explain: str | None = option(None, "One theorem in full; `all` lists them.", "ID"),
    sweep: str | None = option(None, "Vary one size; see -o and --plot.", "heads=1:64"),
) -> None:
    """What each theorem promises for an architecture, whether it applies, and why not.

    byheart bound --d-model 768 --heads 12 --d-head 64 --context 1024 --vocab 50257

    Theorems about attention describe one bare attention layer of these sizes: layer norms, biases
    and feed-forward layers of a real model are not in them.
    """
    from byheart.specs.base import LARGEST

    if explain is not None:
        _explain(explain)
        return
    values = (d_model, heads, d_head, context, vocab, layers)
    sizes: Sizes = dict(zip(SIZES, values, strict=True))
    if sweep is None and files:
        raise ByheartError("-o and --plot are for --sweep: for instance --sweep heads=1:64.")
    others = [flag(k) for k, value in {"sweep": sweep, **sizes}.items() if value is not None]
    if hf is not None and others:
        raise ByheartError(f"--hf and {others[0]} contradict each other: give one of them.")
    for name, value in {**sizes, "kruskal": kruskal, "bits": bits}.items():
        least = 2 if name == "N" else 1
        if value is not None and not least <= value <= LARGEST:
            why = "With one token there is nothing to tell apart." if value == 1 else ""
            most = " and below 2^63" if value > LARGEST else ""
            raise OptionError(name, f"a whole number of at least {least}{most}", value, why)
    question = Question(facts=_facts(facts), kruskal=kruskal, bits=bits)
    if sweep is not None:
        _bound_sweep(sweep, sizes, question, files)
    elif hf is not None:
        from byheart.theory.huggingface import read_config

        _answer(read_config(hf), question)
    else:
        _answer(_layer(sizes), question)


def _layer(sizes: Sizes) -> Spec:
    """A layer that reads tokens where there is a vocabulary, else one that reads vectors."""
    from byheart.specs import AttentionOnlySpec, MultiHeadSpec

    d, H, d_h, n, N, layers = (sizes[name] for name in SIZES)
    if d is None or H is None or n is None:
        missing = ", ".join(flag(name) for name in ("d", "H", "n") if sizes[name] is None)
        raise ByheartError(f"{missing} missing: give the sizes of the layer, or --hf config.json.")
    if d_h is None:
        if d % H:
            raise ByheartError(f"--d-head missing: {H} heads do not divide the width {d}.")
        d_h = d // H
    if N is not None:
        return AttentionOnlySpec(N=N, S=n, d=d, d_h=d_h, H=H, layers=layers or 1)
    if (layers or 1) > 1:
        raise ByheartError("--layers needs --vocab: without a vocabulary, one layer reads vectors.")
    return MultiHeadSpec(d=d, n=n, d_h=d_h, H=H)


def _facts(text: str | None) -> Facts | int | None:
    if text is None:
        return None
    looks = text.strip()[:1]
    if looks in "-+" or (looks.isdigit() and not os.path.exists(text)):  # a number, not a file
        return count(text, "facts")
    from byheart.facts import read_facts

    return read_facts(text)


def _answer(spec: Spec, question: Question) -> None:
    from byheart.theory import Answers, bounds

    named = {*SIZES, *question}
    answers = Answers(
        replace(answer, reason=with_flags(answer.reason, named))
        for answer in bounds(spec, **question)
    )
    layer = {"family": spec.family, **spec.to_json()}
    rows = [answer.to_json() for answer in answers]
    emit({"spec": layer, "parameters": spec.parameters, "rows": rows})
    say(f"{spec}\n{spec.parameters:,} parameters")
    if spec.family == "transformer":
        say("Theorems about attention speak of one bare attention layer of these sizes: no layer "
            "norm,\nbias or feed-forward layer.")  # fmt: skip
    applied = answers.chosen()
    table(*map(answers.cells, applied), header=answers.header)
    for answer in applied:
        verdict = VERDICTS[answer.holds]
        note = "; ".join(part for part in (verdict, answer.note) if part)
        if note:
            say(f" {answer.id}: {note}")
    others = [a for a in answers if not a.applies]
    table(
        *((a.id, "no" if a.applies is False else "?", a.reason) for a in others),
        header=("other theorems", "applies", "why not, or what it needs"),
    )
    say("`byheart bound --explain ID` gives statement, formula, hypotheses and source.")


def _explain(bound_id: str) -> None:
    from byheart.theory import find
    from byheart.theory.bound import explanation
    from byheart.theory.registry import all_bounds

    bounds = all_bounds().values() if bound_id == "all" else [find(bound_id)]
    words = [explanation(bound) for bound in bounds]
    emit({"bounds": words} if bound_id == "all" else words[0])
    if bound_id == "all":
        rows = [(b.id, b.claim.kind, b.claim.exactness, b.statement.title) for b in bounds]
        table(*rows, header=("theorem", "kind", "exactness", "about"))
    else:
        for name, value in words[0].items():
            for line in value if isinstance(value, list) else [value]:
                say(f"{name:12} {line}")


def _bound_sweep(text: str, sizes: Sizes, question: Question, files: opt.Given) -> None:
    from byheart.theory import plots, sweeps

    sweep = sweeps.Sweep.parse(text)
    varied = next(name for name in SIZES if flag(name) == f"--{sweep.name}")
    if sizes[varied] is not None:
        raise ByheartError(f"--{sweep.name} and --sweep {text} contradict each other.")
    if not files and not for_programs.get():
        raise ByheartError("say where the sweep goes: -o out.csv, --plot out.png, or --json.")
    _check_files(files)
    points = sweeps.run(sweep, lambda value: _layer({**sizes, varied: value}), **question)
    rows = sweeps.rows(sweep, points)
    _write_sweep(files, sweep.name, rows, lambda: plots.sweep_figure(sweep, points))
    emit({"sweep": sweep.name, "rows": rows})
    for path in files.values():
        say(f"Written to {path} ({len(sweep.values):,} values of {sweep.name})")


@guarded
@grouped("files", FILES)
def size(
    files: opt.Given,
    facts: str | None = option(None, "A table of facts, or their number.", "FILE|N"),
    vocab: int | None = option(None, "Tokens in the vocabulary."),
    length: int | None = option(None, "Tokens in a key."),
    answers: int | None = option(None, "Different answers. Default: --vocab."),
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
    given = _facts(facts)
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
    first, last = count(low, "sweep"), count(high, "sweep")
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
    table(*map(rows.cells, rows), header=rows.header)
    for row in rows:
        say(f" {row.title} ({row.bound}): {row.note}")
    say(f"{LEGEND}\n")
    _say_built(build)


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


def _question(case: Case) -> Sizes:
    return {"facts": case.T, "vocabulary": case.N, "length": case.S, "answers": case.answers}


def _sweep(case: Case, low: int, high: int, family: list[str] | None, files: opt.Given) -> None:
    from byheart.theory import plots
    from byheart.theory.candidates import crossings, decades, sweep

    _check_files(files)
    crossed = crossings(case, low, high, family)
    rows = sweep(case, decades(low, high, PER_DECADE), family)
    flat = [row.to_json() | {"sizes": " ".join(f"{k}={v}" for k, v in row.sizes.items())}
            for row in rows]  # fmt: skip
    _write_sweep(files, "T", flat, lambda: plots.size_figure(rows, crossed))
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
    table(
        *((name, *(at[name, T] for T in counts)) for name in titles),
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


def count(text: str, parameter: str) -> int:
    """A whole number >= 1, written 100000, 100_000, 100,000 or 1e5.

    >>> count("1e5", "facts"), count("25_000", "facts")
    (100000, 25000)
    """
    plain = text.replace("_", "").replace(",", "").strip()
    try:
        value = int(plain) if plain.isdigit() else float(plain)
        value = int(value) if value == int(value) else 0
    except (ValueError, OverflowError):
        value = 0
    if value < 1:
        raise OptionError(parameter, "a whole number of at least 1", text)
    return value


def _check_files(files: opt.Given) -> None:
    """Refuse files that could not be written, before any work."""
    folder = Path(str(files.get("output", ""))).parent
    if not os.path.isdir(folder):
        raise ByheartError(f"{files['output']} cannot be written: there is no folder {folder}.")
    if "plot" in files:
        from byheart.theory.plots import check_path

        check_path(str(files["plot"]))


def _write_sweep(
    files: opt.Given, first: str, rows: Sequence[dict[str, object]], figure: Callable[[], Figure]
) -> None:
    """The rows as CSV, the column `first` in front, and the figure, each whole or not at all."""
    from byheart._folders import save_file
    from byheart.theory import plots, sweeps

    if "output" in files:
        save_file(Path(str(files["output"])), sweeps.as_csv(first, rows))
    if "plot" in files:
        plots.save(figure(), str(files["plot"]))
