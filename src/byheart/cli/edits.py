"""`byheart edits`: the editing benchmark, on a memory of your own or on those it makes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from byheart.cli import _options as opt
from byheart.cli._options import guarded, option
from byheart.cli._show import emit, progress, say, table
from byheart.errors import ByheartError, OptionError

if TYPE_CHECKING:
    from byheart._progress import Report
    from byheart.interpret.edit_table import EditBenchmark
    from byheart.models import Memory


@guarded
def edits(
    folder: str | None = typer.Argument(
        None, metavar="[DIR]", help="A memory of your own. Default: memories of random facts."
    ),
    memory: str | None = option(
        None, "Which memories are made. Default: all three.", "sharded|dense|trained"
    ),
    facts: int | None = option(
        None, "Facts of each. Default: 12,000, 1,200 and 1,500.", parser=opt.at_least(10)
    ),
    editors: str | None = option(
        None,
        "Some editors, with commas: shards, rank-one, rank-one-sampled, least-squares, null-space, "
        "fine-tune, fine-tune-mixed, or your own as module:function. Default: all that fit.",
        "NAME,...",
    ),
    counts: str = option("1,10,100,1000", "How many facts are edited, with commas.", "N,..."),
    seeds: int = option(1, "So many draws of edits, and of the facts where they are made.", min=1),
    output: Path | None = option(
        None, "Also draw it: .png, .svg or .pdf.", "--output", "-o", "FILE"
    ),
) -> None:
    """Edit facts of a memory with several editors, and count every other fact that is lost.

    Exact shard edits beside ROME's rank-one edits, MEMIT's least squares, AlphaEdit's null space
    and fine-tuning. A function `editor(memory, edits) -> memory` of your own is measured the same
    way.
    The rows behind docs/edits.md: `byheart reproduce editing/damage --recorded`.
    """
    if folder is not None and (memory is not None or facts is not None):
        raise ByheartError("--memory and --facts say which memories are made: DIR is one already.")
    names = None if editors is None else [name.strip() for name in editors.split(",")]
    numbers = [opt.count(text, "counts") for text in counts.split(",")]
    if output is not None and output.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise OptionError("output", "a file that ends in .png, .svg or .pdf", str(output))
    if folder is not None:
        opt.check_memory_folder(folder)

    from byheart.interpret.edit_table import SIZES, EditBenchmark
    from byheart.interpret.edits import benchmark_memory, editors_of
    from byheart.models import load
    from byheart.studies import figure

    if memory is not None and memory not in SIZES:
        raise OptionError("memory", f"one of {', '.join(SIZES)}", memory)
    kinds = SIZES if memory is None else (memory,)
    if names is not None:
        editors_of(names)  # refused before any memory is made
    result, own = EditBenchmark(()), None if folder is None else load(folder)
    with progress() as tell:
        for seed in range(seeds):
            if folder is not None and own is not None:
                result += _measured(own, folder, names, numbers, seed, tell)
                continue
            for kind in kinds:
                tell(f"{kind}: a memory, seed {seed}")
                made = benchmark_memory(kind, facts, seed)
                result += _measured(made, kind, names, numbers, seed, tell)
    if not result.rows:
        raise ByheartError("no editor was measured: shards needs a sharded memory.")
    if output is not None:
        figure.save(result.figure, output)
    emit({"rows": [asdict(row) for row in result.rows], "figure": output and str(output)})
    header, body = result.table()
    several = len({row.memory for row in result.rows}) > 1  # of one memory the name is known
    left_out = ("facts",) if several else ("facts", "memory")
    shown = [i for i, name in enumerate(header) if name not in left_out]
    table(*(tuple(line[i] for i in shown) for line in body), header=tuple(header[i] for i in shown))
    say("\nFalls are those of the others' margins, by the median margin before the edits.")
    if output is not None:
        say(f"figure: {output}")


def _measured(memory: Memory, name: str, names: list[str] | None, counts: list[int], seed: int,
              tell: Report) -> EditBenchmark:  # fmt: skip
    """The benchmark of one memory; of several, those editors that fit."""
    from byheart.interpret.edit_table import EditBenchmark
    from byheart.interpret.edits import EDITORS, edit_benchmark, fitting

    chosen = names
    if names is not None:
        left_out = EDITORS.keys() - fitting(memory).keys()
        chosen = [editor for editor in names if editor not in left_out]
        if not chosen:
            return EditBenchmark(())
    return edit_benchmark(memory, chosen, counts=counts, seed=seed, name=name, progress=tell)
