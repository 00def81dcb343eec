"""`byheart bound`: what every theorem says about an architecture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from byheart.cli import _options as opt
from byheart.cli._show import emit, guarded, say, table
from byheart.cli._sizes import Output, Plot, check_places, count, is_count, shown, write

if TYPE_CHECKING:
    from byheart.theory import Answer
    from byheart.theory.registry import AnySpec
    from byheart.theory.sweeps import Sweep

SIZES = "Sizes"
SIGNS = {
    "lower bound": ">= ",
    "upper bound": "<= ",
    "necessary size": "<= ",
    "accuracy": ">= ",
    "measurement": "≈ ",
}


def _size(flag: str, text: str) -> Any:
    return typer.Option(flag, metavar="N", help=text, rich_help_panel=SIZES)


@guarded
def bound(
    d_model: Annotated[int | None, _size("--d-model", "Width d.")] = None,
    heads: Annotated[int | None, _size("--heads", "Heads H.")] = None,
    d_head: Annotated[int | None, _size("--d-head", "Head width d_h. Default: d/H.")] = None,
    context: Annotated[int | None, _size("--context", "Positions n (or S).")] = None,
    vocab: Annotated[
        int | None, _size("--vocab", "Tokens. Without it the layer reads vectors.")
    ] = None,
    layers: Annotated[int | None, _size("--layers", "Attention layers. Default: 1.")] = None,
    hf: Annotated[
        str | None,
        typer.Option("--hf", metavar="FILE", help="Sizes from a Hugging Face config.json."),
    ] = None,
    facts: Annotated[
        str | None,
        typer.Option("--facts", metavar="FILE|N", help="The facts in question, or their number."),
    ] = None,
    kruskal: Annotated[
        int | None, typer.Option("--kruskal", help="Kruskal rank of the queries, if measured.")
    ] = None,
    bits: Annotated[int, typer.Option("--bits", help="Bits of a parameter.")] = 32,
    explain: Annotated[
        str | None,
        typer.Option("--explain", metavar="ID", help="One theorem in full; `all` lists them."),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option("--sweep", metavar="heads=1:64", help="Vary one size; see -o and --plot."),
    ] = None,
    output: Output = None,
    plot: Plot = None,
    as_json: opt.Json = False,
) -> None:
    """What each theorem promises for an architecture, whether it applies, and why not.

    byheart bound --d-model 768 --heads 12 --d-head 64 --context 1024 --vocab 50257

    Theorems about attention describe one bare attention layer of these sizes: layer norms, biases
    and feed-forward layers of a real model are not in them.
    """
    from byheart.errors import ByheartError

    flags = {
        "d-model": d_model, "heads": heads, "d-head": d_head, "context": context, "vocab": vocab,
        "layers": layers,
    }  # fmt: skip
    if explain is not None:
        _explain(explain, as_json)
        return
    if sweep is None and (output or plot):
        raise ByheartError("-o and --plot are for --sweep: for instance --sweep heads=1:64.")
    if hf is not None and (sweep or any(value is not None for value in flags.values())):
        given = "--sweep" if sweep else next(f"--{k}" for k, v in flags.items() if v is not None)
        raise ByheartError(f"--hf and {given} contradict each other: give one of them.")
    options = {"facts": _facts(facts), "kruskal": _least("--kruskal", kruskal), "bits": bits}
    if bits < 1:
        raise ByheartError(f"--bits must be at least 1, found {bits}")
    if sweep is not None:
        _sweep(sweep, flags, options, output, plot, as_json)
        return
    spec = _from_config(hf) if hf is not None else _from_flags(flags)
    _answer(spec, options, as_json)


def _from_config(path: str) -> AnySpec:
    from byheart.theory.huggingface import read_config

    return read_config(path)


def _from_flags(flags: dict[str, int | None]) -> AnySpec:
    """A layer that reads tokens where there is a vocabulary, else one that reads vectors."""
    from byheart.errors import ByheartError
    from byheart.specs import AttentionOnlySpec, MultiHeadSpec

    for name, value in flags.items():
        _least(f"--{name}", value, 2 if name == "vocab" else 1)
    d, H, d_h, n = (flags[name] for name in ("d-model", "heads", "d-head", "context"))
    if d is None or H is None or n is None:
        missing = [f"--{name}" for name in ("d-model", "heads", "context") if flags[name] is None]
        raise ByheartError(
            f"{', '.join(missing)} missing: give the sizes of the layer, or --hf config.json."
        )
    if d_h is None:
        if d % H:
            raise ByheartError(f"--d-head missing: {H} heads do not divide the width {d}.")
        d_h = d // H
    N, layers = flags["vocab"], flags["layers"] or 1
    if N is None:
        if layers > 1:
            raise ByheartError(
                "--layers needs --vocab: without a vocabulary the question is about one layer that "
                "reads vectors."
            )
        return MultiHeadSpec(d=d, n=n, d_h=d_h, H=H)
    return AttentionOnlySpec(N=N, S=n, d=d, d_h=d_h, H=H, layers=layers)


def _least(flag: str, value: int | None, least: int = 1) -> int | None:
    from byheart.errors import ByheartError

    if value is not None and value < least:
        why = ": with one token there is nothing to tell apart" if flag == "--vocab" else ""
        raise ByheartError(f"{flag} must be a whole number of at least {least}, found {value}{why}")
    return value


def _facts(text: str | None) -> Any:
    if text is None:
        return None
    if is_count(text):
        return count(text, "--facts")
    from byheart.facts import read_facts

    return read_facts(text)


def _answer(spec: AnySpec, options: dict[str, Any], as_json: bool) -> None:
    from byheart.theory import bounds

    answers = bounds(spec, **options)
    if as_json:
        emit(
            {
                "spec": {"family": spec.family, **spec.to_json()},
                "parameters": spec.parameters,
                "rows": [answer.to_json() for answer in answers],
            }
        )
        return
    say(f"{spec}\n{spec.parameters:,} parameters")
    if spec.family == "transformer":
        say(
            "Theorems about attention speak of one bare attention layer of these sizes: no layer "
            "norm,\nbias or feed-forward layer."
        )
    applied = [a for a in answers if a.applies]
    table(
        [_row(a) for a in applied],
        header=("theorem that applies", "says", "parameters", "facts/p", "bits/p"),
    )
    for answer in applied:
        said = {True: "holds the facts", False: "cannot hold the facts", None: ""}[answer.holds]
        note = "; ".join(part for part in (said, answer.note) if part)
        if note:
            say(f" {answer.id}: {note}")
    table(
        [(a.id, "no" if a.applies is False else "?", a.reason) for a in answers if not a.applies],
        header=("other theorems", "applies", "why not, or what it needs"),
    )
    say("`byheart bound --explain ID` gives statement, formula, hypotheses and source.")


def _row(answer: Answer) -> tuple[str, ...]:
    says = f"{SIGNS.get(answer.kind, '')}{shown(answer.capacity, answer.unit)} {answer.unit}"
    rates = answer.facts_per_parameter, answer.bits_per_parameter
    return (answer.id, says, shown(answer.parameters), *(shown(r) for r in rates))


def _explain(bound_id: str, as_json: bool) -> None:
    from byheart.theory import BOUNDS, find
    from byheart.theory.explain import explanation

    if bound_id == "all":
        if as_json:
            emit({"bounds": [explanation(b) for b in BOUNDS]})
            return
        table(
            [(b.id, b.kind, b.exactness, b.title) for b in BOUNDS],
            header=("theorem", "kind", "exactness", "about"),
        )
        return
    said = explanation(find(bound_id))
    if as_json:
        emit(said)
        return
    for name, value in said.items():
        for line in value if isinstance(value, list) else [value]:
            say(f"{name:12} {line}")


def _sweep(
    text: str,
    flags: dict[str, int | None],
    options: dict[str, Any],
    output: str | None,
    plot: str | None,
    as_json: bool,
) -> None:
    from byheart.errors import ByheartError
    from byheart.theory import sweeps

    wanted: Sweep = sweeps.Sweep.parse(text)
    if flags[wanted.name] is not None:
        raise ByheartError(f"--{wanted.name} and --sweep {text} contradict each other.")
    if output is None and plot is None and not as_json:
        raise ByheartError("say where the sweep goes: -o out.csv, --plot out.png, or --json.")
    check_places(output, plot)
    points = sweeps.run(wanted, lambda value: _from_flags({**flags, wanted.name: value}), **options)
    rows = sweeps.rows(wanted, points)
    if output is not None:
        write(output, sweeps.as_csv(wanted.name, rows))
    if plot is not None:
        from byheart.theory import plots

        plots.save(plots.sweep_figure(wanted, points), plot)
    if as_json:
        emit({"sweep": wanted.name, "rows": rows})
        return
    for path in (output, plot):
        if path is not None:
            say(f"Written to {path} ({len(wanted.values):,} values of {wanted.name})")
