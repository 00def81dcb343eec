"""`byheart bound`: how many facts an architecture holds, and what every theorem says about it."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from byheart.cli import _options as opt
from byheart.cli._options import flag, grouped, guarded, option, with_flags
from byheart.cli._show import emit, for_programs, say, table
from byheart.errors import ByheartError, OptionError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from byheart.facts import Facts
    from byheart.specs import Spec

UNSAID_VOCABULARY = 50_257  # GPT-2's, where only the number of parameters is given
SIZES = ("d", "H", "d_h", "n", "N", "layers")
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
    answers: int | None


_size = partial(option, None, panel="Sizes", parser=opt.whole)


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
    parameters: int | None = _size("Parameters, if no more is known: 1B, 50M.", "N"),
    answers: int | None = _size("Different answers. Default: those of --facts, else --vocab.", "N"),
    hf: str | None = option(None, "Sizes from a Hugging Face config.json.", "FILE"),
    facts: str | None = option(None, "The facts in question, or their number.", "FILE|N"),
    kruskal: int | None = option(None, "Kruskal rank of the queries, if measured."),
    bits: int = option(32, "Bits of a parameter."),
    explain: str | None = option(None, "One theorem in full; `all` lists them.", "ID"),
    sweep: str | None = option(None, "Vary one size; see -o and --plot.", "heads=1:64"),
    everything: bool = opt.switch("Also the theorems that do not apply, and why not.", "--all"),
) -> None:
    """How many facts a model holds: trained, guaranteed by theorems, at most.

    byheart bound --hf config.json --facts 50k

    byheart bound --parameters 1B --answers 1000

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
    if parameters is not None:
        more = ["--hf"] * (hf is not None) + [name for name in others if name != flag("N")]
        if more:
            raise ByheartError(f"--parameters and {more[0]} contradict each other: give one.")
    options = {"kruskal": kruskal, "bits": bits, "answers": answers, "parameters": parameters}
    for name, value in {**sizes, **options}.items():
        least = 2 if name in ("N", "answers") else 1
        if value is not None and not least <= value <= LARGEST:
            why = "With one token there is nothing to tell apart." if value == 1 else ""
            most = " and below 2^63" if value > LARGEST else ""
            raise OptionError(name, f"a whole number of at least {least}{most}", value, why)
    question = Question(facts=read_or_count(facts), kruskal=kruskal, bits=bits, answers=answers)
    if sweep is not None:
        _bound_sweep(sweep, sizes, question, files)
    elif hf is not None:
        from byheart.theory.huggingface import read_config

        _answer(read_config(hf), question, everything)
    elif parameters is not None:
        from byheart.specs import LanguageModelSpec

        _answer(LanguageModelSpec(vocab or UNSAID_VOCABULARY, parameters), question, everything)
    else:
        _answer(_layer(sizes), question, everything)


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


def read_or_count(text: str | None) -> Facts | int | None:
    """A table of facts, or their number."""
    if text is None:
        return None
    looks = text.strip()[:1]
    if looks in "-+" or (looks.isdigit() and not os.path.exists(text)):  # a number, not a file
        return opt.count(text, "facts")
    from byheart.facts import read_facts

    return read_facts(text)


def _answer(spec: Spec, question: Question, everything: bool) -> None:
    from byheart.theory import Answers, bounds, summary

    named = {*SIZES, *question}
    answers = Answers(
        replace(answer, reason=with_flags(answer.reason, named))
        for answer in bounds(spec, **question)
    )
    facts = question["facts"]
    T = facts if facts is None or isinstance(facts, int) else int(facts.T)
    words = [with_flags(sentence, {"all"}) for sentence in summary.sentences(answers, T)]
    layer = {"family": spec.family, **spec.to_json()}
    rows = [answer.to_json() for answer in answers]
    emit({"answer": words, "spec": layer, "parameters": spec.parameters, "rows": rows})
    say(f"{spec}\n{spec.parameters:,} parameters\n")
    for sentence in words:
        say(textwrap.fill(sentence, 100))
    say()
    applied = answers.chosen()
    table(*map(answers.cells, applied), header=answers.header)
    for answer in applied:
        verdict = VERDICTS[answer.holds]
        note = "; ".join(part for part in (verdict, answer.note) if part)
        if note:
            say(f" {answer.id}: {note}")
    if spec.family == "transformer":
        say(" Theorems about attention speak of one bare attention layer of these sizes: no layer "
            "norm,\n bias or feed-forward layer.")  # fmt: skip
    others = [a for a in answers if not a.applies]
    if everything:
        table(
            *((a.id, "no" if a.applies is False else "?", a.reason) for a in others),
            header=("other theorems", "applies", "why not, or what it needs"),
        )
    elif others:
        say(f"{len(others)} other theorems do not apply, or need more than sizes: --all says why.")
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
    check_files(files)
    points = sweeps.run(sweep, lambda value: _layer({**sizes, varied: value}), **question)
    rows = sweeps.rows(sweep, points)
    write_sweep(files, sweep.name, rows, lambda: plots.sweep_figure(sweep, points))
    emit({"sweep": sweep.name, "rows": rows})
    for path in files.values():
        say(f"Written to {path} ({len(sweep.values):,} values of {sweep.name})")


def check_files(files: opt.Given) -> None:
    """Refuse files that could not be written, before any work."""
    folder = Path(str(files.get("output", ""))).parent
    if not os.path.isdir(folder):
        raise ByheartError(f"{files['output']} cannot be written: there is no folder {folder}.")
    if "plot" in files:
        from byheart.theory.plots import check_path

        check_path(str(files["plot"]))


def write_sweep(
    files: opt.Given, first: str, rows: Sequence[dict[str, object]], figure: Callable[[], Figure]
) -> None:
    """The rows as CSV, the column `first` in front, and the figure, each whole or not at all."""
    from byheart._folders import save_file
    from byheart.theory import plots, sweeps

    if "output" in files:
        save_file(Path(str(files["output"])), sweeps.as_csv(first, rows))
    if "plot" in files:
        plots.save(figure(), str(files["plot"]))
