"""`byheart capacity`: the largest table a model learns, or the smallest model for a table."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import typer

from byheart.cli import _options as opt
from byheart.cli._options import flag, grouped, guarded, option, with_flags
from byheart.cli._show import emit, progress, say, table
from byheart.errors import ByheartError, check_choice
from byheart.training.method import Train

if TYPE_CHECKING:
    from byheart.facts import Facts
    from byheart.training import Capacity, Smallest

SMALL = {"d": 10, "H": 6}  # the sizes here, where `Train` chooses them by its facts
TRAINING = ("model", *SMALL, "d_h", "layers", "width", "steps", "lr", "optimizer", "schedule",
            "batch", "device")  # fmt: skip
_search = partial(option, panel="Search")
TWO_UP = opt.at_least(2)
VARIED = {"heads": "H", "d-head": "d_h", "d-model": "d", "width": "w"}


def _training(name: str) -> tuple[object, object]:
    """The option that a field of `Train` describes."""
    field = Train.__dataclass_fields__[name]
    about, default = field.metadata, SMALL.get(name, field.default)
    kind = int | None if default is None else type(default)
    value = "|".join(about["choices"] or ()) or about["metavar"] or ""
    text = with_flags(about["help"], ["model"])
    return opt.row(kind, default, text, flag(name), value, min=about["min"], panel=about["panel"])


@guarded
@grouped("reading", opt.TABLE)
@grouped("training", {name: _training(name) for name in TRAINING})
def capacity(
    training: opt.Given,
    reading: opt.Given,
    vocab: int | None = option(None, "Tokens N. Default: 50.", panel="Sizes", parser=TWO_UP),
    length: int | None = option(
        None, "Tokens of a key, S. Default: 2.", panel="Sizes", parser=TWO_UP
    ),
    facts: str | None = _search(
        None, "The smallest model for this table, instead of the largest random table.", "FACTS"
    ),
    vary: str = _search("heads", "With --facts: the size searched.", "heads|d-head|d-model|width"),
    seeds: int = _search(
        3, "Random tables, each searched alone. With --facts: starts a size.", min=1
    ),
    restarts: int | None = _search(
        None, "Starts before a table counts as too large.", min=1, show_default="3"
    ),
    threshold: float = _search(1.0, "Share of facts that must be right."),
    resolution: float | None = _search(
        None, "Stop when failure is at most this share above success.", show_default="0.05"
    ),
    workers: str | None = _search(
        None, "K local processes, or the Dask scheduler at ADDRESS.", "K|ADDRESS", show_default="1"
    ),
    seed: int = option(0, "Same seed, same search.", min=0, max=2**31),
) -> None:
    """How many random facts can a model learn by training, and how many bits is that a parameter?

    Doubles and bisects the number of facts for several random tables at once. A run that diverges
    is repeated, not counted; a success above a failure reopens the search and is reported. The
    answer is an interval, beside what the theorems promise without training.
    With --facts: the smallest model that learns this table.
    """
    random = {"--vocab": vocab, "--length": length, "--restarts": restarts,
              "--resolution": resolution, "--workers": workers}  # fmt: skip
    given = ", ".join(name for name, value in random.items() if value is not None)
    if facts is None and reading:
        raise ByheartError(f"{opt.flags(reading)}: for the table of --facts, which is not given.")
    if facts is not None and given:
        own = "the table of --facts has its own size, and --seeds starts at each size"
        raise ByheartError(f"{given}: for random tables; {own}. Leave it out.")
    method = Train(**SMALL | training, seeds=seeds)  # type: ignore[arg-type]
    recipe = method.training().but(keep_best=False)
    shared: opt.Given = {"seeds": seeds, "seed": seed, "device": method.device, "recipe": recipe}
    if facts is not None:
        _smallest(opt.read(facts, reading), method, vary, threshold, shared)
        return

    from byheart.facts import random_associations
    from byheart.training import capacity as search

    # Sizes alone: a vocabulary takes its time, and most that are too large are refused without it.
    small = method.architecture(random_associations(2, 2, 1))
    spec = replace(small, N=vocab or 50, S=length or 2)
    shared |= {"restarts": restarts or 3, "workers": workers or 1}
    shared |= {"resolution": 0.05 if resolution is None else resolution}
    opt.note_kernels(method, spec)
    with progress() as tell:
        found = search(spec, threshold=threshold, progress=tell, **shared)  # type: ignore[arg-type]
    _report(found)
    if found.undecided and not found.facts:
        raise typer.Exit(1)


def _report(found: Capacity) -> None:
    from byheart.theory import bounds
    from byheart.theory.registry import shown

    applied = [a for a in bounds(found.spec) if a.applies and a.capacity is not None]
    rows = [a for a in applied if a.unit == "facts"]
    promised = [{"id": a.id, "kind": a.kind, "facts": a.capacity} for a in rows]
    emit({**found.to_json(), "bounds": promised})
    n = len(found.brackets)
    partly = f"mutual information, {found.threshold:.4g} of the facts right"
    each = partly if found.threshold < 1 else f"log2 {found.spec.N} a fact"
    table(
        ("architecture", str(found.spec)),
        ("parameters", f"{found.parameters:,}"),
        ("facts learned", f"{found.facts:,} (median of {n} table{'s'[: n > 1]})"),
        ("interval", _interval(found)),
        ("facts per parameter", f"{found.per_parameter:.3g}"),
        ("bits per parameter", f"{found.bits_per_parameter:.3g} ({each})"),
        ("training runs", f"{len(found.trials)}, {found.seconds:.0f} s"),
    )
    say()
    for number, b in enumerate(found.brackets, start=1):
        end = "" if b.upper is None else f", {b.upper:,} not"
        end = ", all there are" if b.lower == found.all_facts else end
        say(f"  table {number}: {b.lower:,} learned{end}")
        for failed, passed in b.inversions:
            say(f"    not monotone: {failed:,} failed, yet {passed:,} was learned")
        for T in b.undecided:
            say(f"    undecided: at {T:,} facts every run diverged or crashed")
    for crash in sorted({trial.crash for trial in found.trials if trial.crash is not None}):
        say(f"  crashed: {crash}")
    if found.undecided and not any(trial.crash for trial in found.trials):
        say("  Runs that diverge call for a smaller --lr.")
    if rows:
        say("\nWhat the theorems say of this architecture, without training:")
        signs = {"lower bound": ">=", "upper bound": "<="}
        cells = [(a.id, f"{signs.get(a.kind, '≈')} {shown(a.capacity)}", a.kind) for a in rows]
        table(*cells, header=("bound", "facts", "kind"))


def _interval(found: Capacity) -> str:
    """The seeds' brackets in one: learned by every table, learned by none."""
    low, high = found.interval
    if low == found.all_facts:
        return f"every table learned all {low:,} facts there are"
    if high is not None:
        return f"{low:,} to {high:,}: every table learned {low:,}, none {high:,}"
    if not low:
        return "none: a table was undecided from the start"
    complete = sum(b.lower == found.all_facts for b in found.brackets)
    rest = f": {complete} learned all {found.all_facts:,} there are" if complete else ""
    return f"from {low:,}, which every table learned; no upper end{rest}"


def _smallest(facts: Facts, method: Train, vary: str, threshold: float, shared: opt.Given) -> None:
    from byheart.training import smallest

    check_choice("vary", vary, VARIED)
    if vary == "width" and method.model != "mlp":
        raise ByheartError(f"--vary width is for --model mlp: {method.model} has no hidden layer.")
    spec, size = method.architecture(facts), {"vary": VARIED[vary], "threshold": threshold}
    opt.note_kernels(method, spec)
    with progress() as tell:
        found = smallest(facts, spec, progress=tell, **size, **shared)  # type: ignore[arg-type]
    _report_smallest(found, facts, vary, threshold)
    if found.size is None:
        raise typer.Exit(1)


def _report_smallest(found: Smallest, facts: Facts, vary: str, threshold: float) -> None:
    from byheart.theory.related import memorized_bits

    T, spec = facts.T, found.spec
    per_fact = per_bit = None
    if spec is not None:
        bits = memorized_bits(T, len(facts.answer_ids), threshold)
        per_fact, per_bit = T / spec.parameters, bits / spec.parameters
    per = {"facts_per_parameter": per_fact, "bits_per_parameter": per_bit}
    emit({"facts": T, "threshold": threshold, **found.to_json(), **per})
    what = f"{T:,} facts" if threshold == 1 else f"{threshold:.4g} of the {T:,} facts"
    say(opt.describe_facts(facts))
    rows = []
    for t in found.tried:
        learned = f"{t.passed} of {t.seeds}", f"{t.accuracy:.4f}"
        rows.append((str(t.size), f"{t.parameters:,}", *learned, str(t.diverged)))
    header = (vary, "parameters", "starts that learned", "best accuracy", "diverged")
    table(*rows, header=header)
    say()
    if spec is None or per_fact is None or per_bit is None:
        say(f"None of these sizes learned {what}.")
        return
    failed, sure = found.interval
    words = f"learned {what}"
    words += "" if failed is None else f"; at {failed} no start did"
    words += "" if sure is None else f"; at {sure} every start did"
    answers = f"{len(facts.answer_ids):,} distinct answers"
    table(
        (f"smallest {vary}", f"{found.size:,}: {words}"),
        ("architecture", str(spec)),
        ("parameters", f"{spec.parameters:,}"),
        ("facts per parameter", f"{per_fact:.3g}"),
        ("bits per parameter", f"{per_bit:.3g} ({answers})"),
    )
