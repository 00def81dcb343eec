"""`byheart capacity`: the largest table a model learns, or the smallest model for a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from byheart.cli import _options as opt
from byheart.cli import _training as tr
from byheart.cli._show import emit, guarded, progress, say, table
from byheart.cli._sizes import shown
from byheart.errors import ByheartError

if TYPE_CHECKING:
    from byheart.training import Capacity, Smallest

SEARCH = "Search"
VARIED = {"heads": "H", "d-head": "d_h", "d-model": "d", "width": "w"}


@guarded
def capacity(
    model: tr.Model = "attention",
    vocab: Annotated[
        int | None,
        typer.Option(min=2, help="Tokens N. Default: 50.", rich_help_panel=tr.SIZES),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(min=2, help="Tokens of a key, S. Default: 2.", rich_help_panel=tr.SIZES),
    ] = None,
    d_model: tr.DModel = 10,
    heads: tr.Heads = 6,
    d_head: tr.DHead = None,
    layers: tr.Layers = 1,
    width: tr.Width = None,
    facts: Annotated[
        str | None,
        typer.Option(
            "--facts",
            metavar="FACTS",
            help="The smallest model for this table, instead of the largest random table.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    vary: Annotated[
        str,
        typer.Option(
            metavar="heads|d-head|d-model|width",
            help="With --facts: the size to search for.",
            rich_help_panel=SEARCH,
        ),
    ] = "heads",
    seeds: Annotated[
        int,
        typer.Option(min=1, help="Random tables, each searched by itself.", rich_help_panel=SEARCH),
    ] = 3,
    restarts: Annotated[
        int,
        typer.Option(
            min=1, help="Starts before a table counts as too large.", rich_help_panel=SEARCH
        ),
    ] = 1,
    threshold: Annotated[
        float, typer.Option(help="Share of facts that must be right.", rich_help_panel=SEARCH)
    ] = 1.0,
    resolution: Annotated[
        float, typer.Option(help="Width of the final brackets.", rich_help_panel=SEARCH)
    ] = 0.05,
    steps: tr.Steps = 3000,
    lr: tr.Rate = 0.02,
    optimizer: tr.Optimizer = "adam",
    schedule: tr.ScheduleName = "cosine",
    batch: tr.Batch = None,
    device: tr.Device = "cpu",
    workers: Annotated[
        str,
        typer.Option(
            metavar="K|ADDRESS",
            help="Train on K local processes, or on the Dask scheduler at ADDRESS.",
            rich_help_panel=SEARCH,
        ),
    ] = "1",
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="Same seed, same search.")] = 0,
    keys: opt.Keys = None,
    answer: opt.Answer = None,
    as_json: opt.Json = False,
) -> None:
    """How many random facts can a model learn by training, and how many bits is that a parameter?

    Doubles and bisects the number of facts for several random tables at once. A run that diverges
    is repeated, not counted; a success above a failure reopens the search and is reported. The
    answer is an interval, beside what the theorems promise without training.
    With --facts: the smallest model that learns this table.
    """
    tr.check_device(device)
    how = tr.recipe(steps, lr, optimizer, schedule, batch)
    if facts is not None:
        _smallest(
            opt.read(facts, keys=keys, answer=answer, weights=None, melt=False, empty="error",
                     pad=False),
            model, d_model, d_head, heads, layers, width, vary, seeds, threshold, how, seed,
            device, as_json,
        )  # fmt: skip
        return

    from byheart.facts import random_associations
    from byheart.training import capacity as search
    from byheart.training import training_spec

    N, S = vocab or 50, length or 2
    some = random_associations(N, S, 1)
    spec = training_spec(some, model, d=d_model, H=heads, d_h=d_head, layers=layers, width=width)
    with progress() as tell:
        found = search(
            spec,
            seeds=seeds,
            threshold=threshold,
            resolution=resolution,
            restarts=restarts,
            recipe=how,
            seed=seed,
            workers=workers,
            device=device,
            progress=tell,
        )
    _report(found, as_json)


def _report(found: Capacity, as_json: bool) -> None:
    from byheart.theory import bounds

    rows = [
        a for a in bounds(found.spec) if a.applies and a.capacity is not None and a.unit == "facts"
    ]
    if as_json:
        promised = [{"id": a.id, "kind": a.kind, "facts": a.capacity} for a in rows]
        emit({**found.to_json(), "bounds": promised})
        return
    low, high = found.interval
    least = "at least " if high is None else ""
    upper = f"all {found.all_facts:,} there are" if high is None else f"{high:,} were not"
    lines = [
        ("architecture", str(found.spec)),
        ("parameters", f"{found.parameters:,}"),
        ("facts learned", f"{least}{found.facts:,} (median of {len(found.brackets)} tables)"),
        ("interval", f"{low:,} were learned by every table; {upper}"),
        ("facts per parameter", f"{found.per_parameter:.3g}"),
        ("bits per parameter", f"{found.bits_per_parameter:.3g} (log2 {found.spec.N} a fact)"),
        ("training runs", f"{len(found.trials)}, {found.seconds:.0f} s"),
    ]
    table(lines)
    say()
    for number, b in enumerate(found.brackets, start=1):
        upper = "nothing larger exists" if b.upper is None else f"{b.upper:,} was not"
        say(f"  table {number}: {b.lower:,} learned, {upper}")
        for failed, passed in b.inversions:
            say(f"    not monotone: {failed:,} failed, yet {passed:,} was learned")
    if found.undecided:
        say(f"  {found.undecided} trials diverged each time they were repeated: undecided")
    if rows:
        say()
        signs = {"lower bound": ">=", "upper bound": "<="}
        table(
            [(a.id, f"{signs.get(a.kind, '≈')} {shown(a.capacity)}", a.kind) for a in rows],
            ("bound", "facts", "kind"),
        )


def _smallest(
    facts: Any, model: str, d: int | None, d_h: int | None, H: int | None, layers: int,
    width: int | None, vary: str, starts: int, threshold: float, how: Any, seed: int,
    device: str, as_json: bool,
) -> None:  # fmt: skip
    from byheart.training import smallest, training_spec

    if vary not in VARIED:
        raise ByheartError(f"--vary must be one of {', '.join(VARIED)}, found {vary!r}")
    if vary == "width" and model != "mlp":
        raise ByheartError(f"--vary width belongs to --model mlp: {model} has no hidden layer.")
    spec = training_spec(facts, model, d=d, H=H, d_h=d_h, layers=layers, width=width)
    with progress() as tell:
        found = smallest(
            facts,
            spec,
            vary=VARIED[vary],
            starts=starts,
            threshold=threshold,
            recipe=how,
            seed=seed,
            device=device,
            progress=tell,
        )
    _report_smallest(found, facts.T, vary, as_json)
    if found.size is None:
        raise typer.Exit(1)


def _report_smallest(found: Smallest, T: int, vary: str, as_json: bool) -> None:
    if as_json:
        emit({"facts": T, **found.to_json()})
        return
    rows = [
        (
            str(row["size"]),
            f"{row['parameters']:,}",
            f"{row['passed']} of {row['starts']}",
            f"{row['accuracy']:.4f}",
            str(row["diverged"]),
        )
        for row in found.tried
    ]
    table(rows, (vary, "parameters", "starts that learned all", "best accuracy", "diverged"))
    say()
    if found.size is None:
        say(f"No size up to {found.tried[-1]['size']} learned the {T:,} facts.")
        return
    failed, sure = found.interval
    say(f"Smallest {vary} that learned all {T:,} facts: {found.size}")
    say(f"No start succeeded at {failed or 'no size tried'}; every start did at {sure or 'none'}.")
    say(str(found.spec))
