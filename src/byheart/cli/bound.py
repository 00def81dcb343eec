"""`byheart bound`: what every theorem says about an architecture."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypedDict

from byheart.cli import _options as opt
from byheart.cli._flags import flag, with_flags
from byheart.cli._group import option
from byheart.cli._show import emit, guarded, say, table
from byheart.cli._sizes import Output, Plot, check_files, count, is_count, write_sweep
from byheart.errors import ByheartError, OptionError

if TYPE_CHECKING:
    from byheart.facts import Facts
    from byheart.specs import Spec

SIZES = ("d", "H", "d_h", "n", "N", "layers")


class Question(TypedDict):
    """What is asked besides the architecture."""

    facts: Facts | int | None
    kruskal: int | None
    bits: int


_size = partial(option, None, metavar="N", panel="Sizes")


@guarded
def bound(
    d_model: int | None = _size("Width d."),
    heads: int | None = _size("Heads H."),
    d_head: int | None = _size("Head width d_h. Default: d/H."),
    context: int | None = _size("Positions n (or S)."),
    vocab: int | None = _size("Tokens. Without it the layer reads vectors."),
    layers: int | None = _size("Attention layers. Default: 1."),
    hf: str | None = option(None, "Sizes from a Hugging Face config.json.", metavar="FILE"),
    facts: str | None = option(None, "The facts in question, or their number.", metavar="FILE|N"),
    kruskal: int | None = option(None, "Kruskal rank of the queries, if measured."),
    bits: int = option(32, "Bits of a parameter."),
    explain: str | None = option(None, "One theorem in full; `all` lists them.", metavar="ID"),
    sweep: str | None = option(None, "Vary one size; see -o and --plot.", metavar="heads=1:64"),
    output: Output = None,
    plot: Plot = None,
    as_json: opt.Json = False,
) -> None:
    """What each theorem promises for an architecture, whether it applies, and why not.

    byheart bound --d-model 768 --heads 12 --d-head 64 --context 1024 --vocab 50257

    Theorems about attention describe one bare attention layer of these sizes: layer norms, biases
    and feed-forward layers of a real model are not in them.
    """
    if explain is not None:
        _explain(explain, as_json)
        return
    sizes: dict[str, int | None] = dict(
        zip(SIZES, (d_model, heads, d_head, context, vocab, layers), strict=True)
    )
    if sweep is None and (output or plot):
        raise ByheartError("-o and --plot are for --sweep: for instance --sweep heads=1:64.")
    given = {"sweep": sweep, **sizes}
    others = [flag(name) for name, value in given.items() if value is not None]
    if hf is not None and others:
        raise ByheartError(f"--hf and {others[0]} contradict each other: give one of them.")
    _check_least({**sizes, "kruskal": kruskal, "bits": bits})
    question = Question(facts=_facts(facts), kruskal=kruskal, bits=bits)
    if sweep is not None:
        _sweep(sweep, sizes, question, output, plot, as_json)
    elif hf is not None:
        from byheart.theory.huggingface import read_config

        _answer(read_config(hf), question, as_json)
    else:
        _answer(_layer(sizes), question, as_json)


def _check_least(sizes: dict[str, int | None]) -> None:
    for name, value in sizes.items():
        least = 2 if name == "N" else 1
        if value is not None and value < least:
            why = "With one token there is nothing to tell apart." if name == "N" else ""
            raise OptionError(name, f"a whole number of at least {least}", value, why)


def _layer(sizes: dict[str, int | None]) -> Spec:
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
        raise ByheartError(
            "--layers needs --vocab: without a vocabulary the question is about one layer that "
            "reads vectors."
        )
    return MultiHeadSpec(d=d, n=n, d_h=d_h, H=H)


def _facts(text: str | None) -> Facts | int | None:
    if text is None:
        return None
    if is_count(text):
        return count(text, "facts")
    from byheart.facts import read_facts

    return read_facts(text)


def _answer(spec: Spec, question: Question, as_json: bool) -> None:
    from byheart.theory import Answers, bounds

    named = {*SIZES, *question}
    answers = Answers(
        replace(answer, reason=with_flags(answer.reason, named))
        for answer in bounds(spec, **question)
    )
    if as_json:
        layer = {"family": spec.family, **spec.to_json()}
        rows = [answer.to_json() for answer in answers]
        emit({"spec": layer, "parameters": spec.parameters, "rows": rows})
        return
    say(f"{spec}\n{spec.parameters:,} parameters")
    if spec.family == "transformer":
        say(
            "Theorems about attention speak of one bare attention layer of these sizes: no layer "
            "norm,\nbias or feed-forward layer."
        )
    applied = answers.chosen()
    table([answers.cells(answer) for answer in applied], header=answers.header)
    for answer in applied:
        verdict = {True: "holds the facts", False: "cannot hold the facts", None: ""}[answer.holds]
        note = "; ".join(part for part in (verdict, answer.note) if part)
        if note:
            say(f" {answer.id}: {note}")
    table(
        [(a.id, "no" if a.applies is False else "?", a.reason) for a in answers if not a.applies],
        header=("other theorems", "applies", "why not, or what it needs"),
    )
    say("`byheart bound --explain ID` gives statement, formula, hypotheses and source.")


def _explain(bound_id: str, as_json: bool) -> None:
    from byheart.theory import find
    from byheart.theory.bound import explanation
    from byheart.theory.registry import all_bounds

    if bound_id == "all":
        bounds = all_bounds().values()
        if as_json:
            emit({"bounds": [explanation(bound) for bound in bounds]})
            return
        table(
            [(b.id, b.claim.kind, b.claim.exactness, b.statement.title) for b in bounds],
            header=("theorem", "kind", "exactness", "about"),
        )
        return
    words = explanation(find(bound_id))
    if as_json:
        emit(words)
        return
    for name, value in words.items():
        for line in value if isinstance(value, list) else [value]:
            say(f"{name:12} {line}")


def _sweep(
    text: str,
    sizes: dict[str, int | None],
    question: Question,
    output: str | None,
    plot: str | None,
    as_json: bool,
) -> None:
    from byheart.theory import plots, sweeps

    sweep = sweeps.Sweep.parse(text)
    varied = next(name for name in SIZES if flag(name) == f"--{sweep.name}")
    if sizes[varied] is not None:
        raise ByheartError(f"--{sweep.name} and --sweep {text} contradict each other.")
    if output is None and plot is None and not as_json:
        raise ByheartError("say where the sweep goes: -o out.csv, --plot out.png, or --json.")
    check_files(output, plot)
    points = sweeps.run(sweep, lambda value: _layer({**sizes, varied: value}), **question)
    rows = sweeps.rows(sweep, points)
    write_sweep(output, sweep.name, rows, plot, lambda: plots.sweep_figure(sweep, points))
    if as_json:
        emit({"sweep": sweep.name, "rows": rows})
        return
    for path in filter(None, (output, plot)):
        say(f"Written to {path} ({len(sweep.values):,} values of {sweep.name})")
