"""`byheart localise`: which attribution method finds the heads that hold a fact?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from byheart.cli import _options as opt
from byheart.cli._options import guarded, option, switch
from byheart.cli._show import emit, progress, say
from byheart.errors import ByheartError, check_choice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from byheart.studies import Row, StudyResult

FIGURE = "localise.png"  # beside the store
_running = partial(option, panel="Running")
_memory = partial(option, panel="A memory of your own")


@guarded
def localise(
    methods: str | None = option(None, "Which of byheart's methods. Default: all.", "A,B,..."),
    method: list[str] | None = option(
        None,
        "A method of your own beside them, module:function or file.py:function (repeat it).",
        "--method",
        "PLACE",
    ),
    disguises: str | None = option(None, "Which disguises. Default: all.", "A,B,..."),
    list_names: bool = switch("The methods and disguises in words.", "--list"),
    facts: int | None = _running(None, "Facts a memory; with --memory facts asked.", min=1),
    seeds: int | None = _running(None, "Memories of each kind. Default: 3.", min=1, max=1000),
    profile: str = _running("paper", "quick: small memories, other seeds.", "quick|paper"),
    workers: str = _running("1", "N processes, or a Dask scheduler, tcp://HOST:PORT.", "N|ADDRESS"),
    fresh: bool = _running(False, "Take no recorded rows: compute all of them.", "--fresh"),
    store: Path | None = _running(
        None, "The SQLite file. Default: byheart-studies/localise.db.", "FILE"
    ),
    memory: str | None = _memory(
        None, "Ask for the facts of this memory, whose owners are known (sharded).", "DIR"
    ),
    seed: int = _memory(0, "With --memory: of the facts asked and of draws.", min=0),
    output: str | None = option(
        None, "The figure: .png, .svg or .pdf. Default: beside the store.", "-o", "--output", "FILE"
    ),
) -> None:
    """Send attribution methods into memories whose owners are known: who finds the heads?

    Every fact of these memories is held by known heads, hidden by a disguise: a rotated stream,
    layers of distractors, copies. A method gives a score to every head; the table has its average
    precision against the owners (1: every owner before all others) with the 95 % interval over
    memories, and the passes through the model that it takes a fact. Rows that come with byheart are
    not computed again (docs/localise.md).
    """
    from byheart.theory.plots import check_path

    if output is not None:
        check_path(output)
    check_choice("profile", profile, ("quick", "paper"))
    if list_names:
        _list()
        return
    chosen = _names(methods, method or [])
    if memory is not None:
        refused = {"disguises": disguises, "seeds": seeds, "store": store, "fresh": fresh or None}
        for name, value in refused.items():
            if value is not None:
                raise ByheartError(f"{opt.flag(name)} is for byheart's memories, not for --memory.")
        _mark(memory, chosen, facts, seed, output)
        return
    from byheart.interpret.benchmark import localise as run

    with progress("localise", eager=True) as tell:
        result = run(
            chosen, disguises=_split(disguises), facts=facts, seeds=seeds, profile=profile,
            workers=workers, fresh=fresh, progress=tell, store=store,
        )  # fmt: skip
    _show(result, output)
    if result.failed:
        raise typer.Exit(1)


def _split(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def _names(methods: str | None, own: Sequence[str]) -> list[str]:
    from byheart.interpret.attribution import METHODS

    named = _split(methods)
    return [*(list(METHODS) if named is None else named), *own]


def _list() -> None:
    from byheart.interpret.attribution import METHODS
    from byheart.interpret.hiding import HIDINGS

    methods = {name: _first_sentence(method.__doc__) for name, method in METHODS.items()}
    disguises = {name: hiding.words for name, hiding in HIDINGS.items()}
    emit({"methods": methods, "disguises": disguises})
    for title, words in (("methods", methods), ("disguises", disguises)):
        say(f"{title}")
        for name, text in words.items():
            say(f"  {name:12} {text}")


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").split())


def _show(result: StudyResult, output: str | None) -> None:
    from byheart.studies import figure
    from byheart.studies.result import claim_lines

    assert result.store is not None
    target = output or str(result.store.parent / FIGURE)
    figure.save(result.figure, target)
    run = result.run
    computed = {"computed": run.computed, "run_seconds": run.seconds} if run is not None else {}
    emit({**result.to_json(), **computed, "figure": target})
    _table(result.rows)
    for line in claim_lines(result.finding):
        say(f"  {line}")
    for row in result.failed[:3]:
        say(f"  failed: {row['method']}, {row['disguise']}, seed {row.seed}: {row.error}")
    said = f", {run.computed} computed now in {run.seconds:.0f} s" if run is not None else ""
    say(f"\n{len(result.rows)} rows in {result.place}{said}; figure {target}")


def _table(rows: list[Row]) -> None:
    """Methods down, disguises across."""
    from byheart.interpret.tables import by_method, lines

    if not rows:
        return
    shown = lines(by_method(rows))
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for line in shown:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        say("  ".join(cells).rstrip())
    say("\naverage precision; passes: forward (+ backward) passes through the model a fact\n")


def _mark(
    folder: str, methods: list[str], asked: int | None, seed: int, output: str | None
) -> None:
    from byheart.interpret.benchmark import marked
    from byheart.interpret.tables import MEASURES, across, by_method, draw
    from byheart.studies import Finding, figure

    memory = opt.load_memory(folder)
    with progress("localise", eager=True) as tell:
        rows = marked(memory, methods, asked, seed, name=Path(folder).name, progress=tell)
    found = by_method(rows)
    record = {name: across(found, name) for name in MEASURES}
    emit({"memory": folder, "facts": len({row.seed for row in rows}), **record, "figure": output})
    _table(rows)
    if output is not None:
        figure.save(draw(rows, Finding("")), output)
        say(f"Drawn to {output}")
