"""What `build`, `train`, `edit` and `import` share: where to, how to prove it, what is shown."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated

import typer

from byheart.cli._flags import with_flags
from byheart.cli._show import emit, key_text, progress, say, table, token_text

if TYPE_CHECKING:
    from byheart._json import Json
    from byheart._progress import Report
    from byheart.facts import Distributions, Facts, FactTable, VectorFacts
    from byheart.models import Memory
    from byheart.pipeline import Stored

LISTED = 20

Output = Annotated[
    str | None,
    typer.Option("-o", "--output", metavar="DIR", help="Default: the facts' name + .memory"),
]
Certify = Annotated[bool, typer.Option("--certify", help="Also prove it.")]
Force = Annotated[
    bool, typer.Option("--force", help="Replace an existing memory folder, atomically.")
]
NoFacts = Annotated[bool, typer.Option("--no-facts", help="Leave the facts out of the folder.")]
Seed = Annotated[int, typer.Option(min=0, max=2**62, help="Same seed, same weights.")]


def store(
    make: Callable[[Report], Memory],
    folder: str,
    *,
    certify: bool,
    force: bool,
    no_facts: bool = False,
    showing: Callable[[], AbstractContextManager[Report]] = progress,
) -> Stored:
    """Make, prove and write a memory, with progress on the terminal."""
    from byheart._folders import check_target
    from byheart.models.folder import MEMORY

    check_target(folder, marker=MEMORY, force=force)  # before torch is loaded

    from byheart import pipeline

    with showing() as tell:
        return pipeline.store(
            make,
            folder,
            force=force,
            with_facts=not no_facts,
            prove=pipeline.proof if certify else None,
            progress=tell,
        )


def show(stored: Stored, as_json: bool, extra: Mapping[str, Json]) -> None:
    """Tell what was made; the exit code is 1 where a fact was lost or not proved."""
    if as_json:
        emit(stored.to_json() | dict(extra))
    else:
        say()
        table([(name, with_flags(text, ["abstain"])) for name, text in stored.rows()])
        description = stored.memory.describe()
        if description.why:
            say()
        for reason in description.why:
            say(f"  - {reason}")
        show_lost(stored.memory)
        say(f"\nWritten to {stored.folder}")
        example = stored.memory.example()
        if example:
            say(ask_line(stored.folder, example))
    if not stored.good:
        raise typer.Exit(1)


def show_lost(memory: Memory) -> None:
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


def folder_of(facts: FactTable, output: str | None, suffix: str = ".memory") -> str:
    """Where a memory of the facts goes unless told otherwise."""
    return f"{facts.name.replace(':', '-')}{suffix}" if output is None else output


def describe_facts(facts: FactTable) -> str:
    """A table of facts in one line."""
    from byheart.facts import Distributions, VectorFacts

    if isinstance(facts, VectorFacts):
        return _examples(facts)
    if isinstance(facts, Distributions):
        return _distributions(facts)
    return _facts(facts)


def _facts(facts: Facts) -> str:
    columns = f" ({', '.join(facts.columns)})" if facts.columns else ""
    words = (
        f"{facts.name}: {facts.T:,} facts, keys of {facts.S} token{'s'[: facts.S > 1]}{columns}, "
    )
    words += f"{facts.N:,} tokens, {len(facts.answer_ids):,} distinct answers"
    if facts.merged:
        words += f"; {facts.merged:,} duplicate rows merged"
    if facts.skipped:
        words += f"; {facts.skipped:,} skipped for an empty cell"
    return words


def _examples(facts: VectorFacts) -> str:
    context = "one shared context" if facts.shared else "own contexts"
    labels = f"{facts.classes} classes" if facts.classes else "scalar labels"
    if not facts.classes and facts.outputs > 1:
        labels = f"labels of {facts.outputs} numbers"
    merged = f"; {facts.merged:,} repeated examples merged" if facts.merged else ""
    return (
        f"{facts.name}: {facts.T:,} examples, {context} of n={facts.n} tokens, d={facts.d}, "
        f"{labels}{merged}"
    )


def _distributions(table: Distributions) -> str:
    return (
        f"{table.name}: {table.T:,} sequences of {table.S} token{'s'[: table.S > 1]}, "
        f"{table.A:,} answers of {table.N:,} tokens, mean entropy "
        f"{float(table.prior @ table.entropy):.3g} nats"
    )


def ask_line(folder: str, key: tuple[str, ...]) -> str:
    """The command that asks a memory for one of its facts."""
    words = " ".join(shlex.quote(token) for token in key)
    dashes = "-- " if any(token.startswith("-") for token in key) else ""
    return f"Ask it:   byheart recall {shlex.quote(folder)} {dashes}{words}"
