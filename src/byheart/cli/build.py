"""`byheart build`, `byheart train`, `byheart import`: facts, or weights, -> memory folder. Options
come from the fields of the methods, each refused where it does not belong."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from byheart._plugins import leave_out
from byheart.cli import _options as opt
from byheart.cli._options import argument, flag, grouped, guarded, option, with_flags
from byheart.cli._show import emit, key_text, progress, reasons, say, table, token_text
from byheart.errors import ByheartError, MemoryFileError, check_choice
from byheart.methods import BUILT_IN, Method, methods, refuse_foreign, resolve, type_names
from byheart.training.method import Train

if TYPE_CHECKING:
    from byheart._json import Json
    from byheart._progress import Report
    from byheart.certificates import Certificate
    from byheart.facts import Facts, FactTable
    from byheart.models import Memory

    Extra = Callable[[Memory], dict[str, Json]]  # what JSON has besides the description
LISTED = 20
BUILDING = dict(methods())
TRAINING = {"train": BUILDING.pop("train")}
WRITING = {
    "seed": opt.row(int, 0, "Same seed, same weights.", min=0, max=2**62),
    "certify": opt.row(bool, False, "Also prove it.", "--certify"),
    "force": opt.row(bool, False, "Replace an existing memory folder, atomically.", "--force"),
    "no_facts": opt.row(bool, False, "Leave the facts out of the folder.", "--no-facts"),
}
OWN = ("source", "output", "method", "as_json", "json", "help", *WRITING, *opt.ANY_TABLE)
VECTORS = (
    "Vectors: a .safetensors or .npz file, vectors:T=621,n=32,d=64,context=fixed,seed=42, or "
    "digits:T=500."
)


def _folder(suffix: str) -> Any:
    return option(None, f"Default: the facts' name + .{suffix}", "-o", "--output", "DIR")


def method_options(methods: Mapping[str, type[Method]], taken: Iterable[str] = ()) -> opt.Options:
    """One option for each field of the methods: name -> (annotation, default). Nothing given is
    None (False for switches), so that an option which was given can be told. An option that is
    spelled like another one, or like those of the command (`taken`), is for Python alone."""
    owners: dict[str, list[tuple[str, Field]]] = {}
    meanings: dict[str, tuple[str, type | None]] = {flag(name): ("", None) for name in taken}
    for name, method in methods.items():
        for f in fields(method):
            if "help" not in f.metadata:  # for Python alone
                continue
            meaning = f.name, _kind(f)
            if name not in BUILT_IN and meanings.get(flag(f.name), meaning) != meaning:
                wrong = f"the option {flag(f.name)} of {name} has another meaning already."
                leave_out("byheart.methods", wrong)
                continue
            meanings.setdefault(flag(f.name), meaning)
            owners.setdefault(f.name, []).append((name, f))
    names = {*owners, "method"}
    return {name: _option(of, len(methods), names) for name, of in owners.items()}


def _option(owners: list[tuple[str, Field]], count: int, names: set[str]) -> tuple[object, object]:
    """What the methods say about an option, each once, with its default."""
    said: dict[str, list[str]] = {}
    for name, f in owners:
        text, default = f.metadata["help"], f.default
        if default not in (None, MISSING, "") and not isinstance(default, bool):
            text = f"{text} Default: {default}."
        said.setdefault(text, []).append(name)
    texts = [text if len(said) == 1 else f"{', '.join(by)}: {text}" for text, by in said.items()]
    field, kind = owners[0][1], _kind(owners[0][1])
    about = field.metadata
    choices = dict.fromkeys(c for _, f in owners for c in f.metadata.get("choices") or ())
    switch = isinstance(field.default, bool)
    off = switch and field.default  # a switch that is on: its option turns it off
    others = f"With --method {' or '.join(name for name, _ in owners)}"
    return opt.row(
        bool if switch else kind | None,
        False if switch else None,
        with_flags(" ".join(texts), names),
        flag(f"{field.name}=False" if off else field.name),
        "|".join(choices) or about.get("metavar") or "",
        min=about.get("min") if kind in (int, float) else None,
        max=about.get("max") if kind in (int, float) else None,
        panel=about.get("panel") or ("Every method" if count == 1 or len(owners) > 3 else others),
        show_default=False,
    )


def _kind(field: Field) -> type:
    """int, float, str or bool; a number or an address is text."""
    words = type_names(field)
    return next((kind for kind in (str, bool, float, int) if kind.__name__ in words), str)


def given_options(values: opt.Given, methods: Mapping[str, type[Method]]) -> opt.Given:
    """The options that were given, as the methods take them: a switch that is on is turned off."""
    on = {f.name for method in methods.values() for f in fields(method) if f.default is True}
    return {name: False if name in on else v for name, v in values.items()}


@guarded
@grouped("reading", opt.ANY_TABLE)
@grouped("options", method_options(BUILDING, OWN))
@grouped("writing", WRITING)
def build(
    writing: opt.Given,
    options: opt.Given,
    reading: opt.Given,
    source: Annotated[str, argument("FACTS", f"{opt.TABLES} {VECTORS}")],
    output: str | None = _folder("memory"),
    method: str = option(
        "auto",
        "auto: one dense layer below 2,000 facts, shards above, multihead for vectors, "
        "distribution where keys have several right answers. "
        + " ".join(f"{name}: {m.summary}." for name, m in BUILDING.items()),
        "|".join(["auto", *BUILDING]),
    ),
) -> None:
    """Turn FACTS into a Transformer that recalls every one of them, without training.

    The weights are solved for, then every fact is recalled from them as they are stored. Nothing
    is written unless that succeeds (only a convex read-out may lose facts: it lists them, keeps
    the others, and the exit code is 1). With --distribution, --on-conflict distribution or
    --ngram, keys have several right answers, and the memory's softmax follows them.
    """
    given = given_options(options, BUILDING)
    wanted: str | Method = method
    if method == "train":
        raise ByheartError("training has a command of its own: `byheart train FACTS`.")
    if method != "auto":  # what is wrong is refused before anything is read
        check_choice("method", method, ["auto", *BUILDING])
        refuse_foreign(BUILDING[method], given)
        wanted, given = BUILDING[method](**given), {}  # type: ignore[arg-type]
    facts = opt.read_any(source, reading)
    chosen, reason = resolve(wanted, facts, given)

    def extra(memory: Memory) -> dict[str, Json]:
        record = memory.construction.to_json()
        abstain = record.get("abstain", record.get("unknown"))  # how sure "unknown" is
        return {"merged": getattr(facts, "merged", 0), "abstain": abstain}

    _from_facts(partial(chosen.build, reason=reason), facts, output, ".memory", writing, extra)


@guarded
@grouped("reading", opt.TABLE)
@grouped("options", method_options(TRAINING))
@grouped("writing", WRITING)
def train(
    writing: opt.Given,
    options: opt.Given,
    reading: opt.Given,
    source: Annotated[str, argument("FACTS", opt.TABLES)],
    output: str | None = _folder("trained"),
    plot: opt.Curves = None,
) -> None:
    """Train a Transformer on FACTS until it recalls every one, and write it like a built one.

    Several starts are trained together, by full batches unless --batch is given, and stop when all
    facts are right. Facts that even the best does not recall are listed; the memory then holds
    the others, and the exit code is 1. Nothing is guaranteed before `--certify`.
    """
    method = Train(**given_options(options, TRAINING))  # type: ignore[arg-type]
    if plot is not None:
        from byheart.theory.plots import check_path

        check_path(plot)
    facts = opt.read(source, reading)

    def extra(memory: Memory) -> dict[str, Json]:
        if plot is not None:
            from byheart.reports import figure

            figure(memory, "training", plot)
        made, each = memory.construction, memory.construction.recalled / memory.spec.parameters
        return {"promised": made.capacity, "facts_per_parameter": each, "merged": facts.merged}

    def noted(facts: Facts, seed: int, progress: Report) -> Memory:
        opt.note_kernels(method, method.architecture(facts))
        return method.build(facts, seed, progress)

    _from_facts(noted, facts, output, ".trained", writing, extra, "training")


@guarded
@grouped("writing", {name: WRITING[name] for name in ("certify", "force")})
def import_(
    writing: opt.Given,
    folder: str = argument("FOLDER", "One of `byheart export --to torch` or transformer-lens."),
    output: str = option(..., "The memory folder to write.", "-o", "--output", "DIR"),
    weights: str | None = option(
        None, "Another .safetensors file with the same names, for instance after training.", "FILE"
    ),
    facts: str | None = option(None, "The facts it should hold. Default: as in FOLDER.", "FILE"),
) -> None:
    """Turn an attention-only model into a memory that can be asked, measured and certified.

    The weights are those of an export, or of the same model after training in torch or
    TransformerLens; biases are folded in exactly, LayerNorm and feed-forward layers are refused.
    """
    if not os.path.isdir(folder):
        raise MemoryFileError(
            f"{folder}: no such folder. `byheart export DIR --to torch -o {folder}` makes one."
        )

    from byheart.exports import import_memory

    table = None if facts is None else opt.read(facts, {})

    def extra(memory: Memory) -> dict[str, Json]:
        made = None if memory.facts is None else memory.construction
        return {"facts": made and made.facts, "recalled": made and made.recalled}

    store(lambda _: import_memory(folder, weights=weights, facts=table), output, writing, extra)


def _from_facts(
    build: Callable[..., Memory], facts: FactTable, output: str | None, suffix: str,
    writing: opt.Given, extra: Extra, counted: str = "",
) -> None:  # fmt: skip
    folder = f"{facts.name.replace(':', '-')}{suffix}" if output is None else output
    say(opt.describe_facts(facts))
    make = partial(build, facts, writing.get("seed", 0))
    store(make, folder, writing, extra, counted)


def store(
    make: Callable[[Report], Memory],
    folder: str,
    writing: opt.Given,
    extra: Extra,
    counted: str = "",
) -> None:
    """Make, prove, write and show a memory, with progress on the terminal."""
    from byheart._folders import check_target
    from byheart.models.folder import MEMORY

    force, with_facts = "force" in writing, "no_facts" not in writing
    check_target(folder, marker=MEMORY, force=force)  # before torch is loaded

    from byheart import pipeline

    prove = pipeline.proof if "certify" in writing else None
    with progress(counted) as tell:
        memory, certificate = pipeline.store(
            make, folder, force=force, with_facts=with_facts, prove=prove, progress=tell
        )
    show(memory, certificate, folder, extra(memory))


def show(
    memory: Memory, certificate: Certificate | None, folder: str, extra: dict[str, Json]
) -> None:
    """Tell what was made; the exit code is 1 where a fact was lost or not proved."""
    description, proof, rows = memory.describe(), None, []
    if certificate is not None:
        proof, rows = certificate.brief(), [("certificate", certificate.summary())]
    emit({**description.record, "path": folder, "certificate": proof, **extra})
    say()
    table(*((name, with_flags(text, ["abstain"])) for name, text in (*description.rows, *rows)))
    reasons(description.why)
    _show_lost(memory)
    say(f"\nWritten to {folder}")
    key = memory.example()
    if key:
        words = " ".join(shlex.quote(token) for token in key)
        dashes = "-- " if any(token.startswith("-") for token in key) else ""
        say(f"Ask it:   byheart recall {shlex.quote(folder)} {dashes}{words}")
    if memory.construction.lost or (certificate is not None and not certificate.certified):
        raise typer.Exit(1)


def _show_lost(memory: Memory) -> None:
    """List the facts that a memory does not hold, and what to do."""
    made = memory.construction
    if not made.lost:
        return
    say(f"\nLOST {len(made.lost):,} {made.unit}; the memory holds the other {made.recalled:,}:")
    for fact in made.lost[:LISTED]:
        key = f": {key_text(fact.key)}" if fact.key else ""
        say(f"  row {fact.row}{key} -> {token_text(str(fact.answer))}")
    if len(made.lost) > LISTED:
        say(f"  ... and {len(made.lost) - LISTED:,} more (--json lists all)")
    say(with_flags(f"Use {made.remedy} to hold all of them.", ("H", "d", "steps")))
