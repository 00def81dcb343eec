"""Options that several commands share: how to read a table of facts, and `--json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from byheart.facts import Facts

READING = "Reading the table"

Keys = Annotated[
    str | None,
    typer.Option(
        "--keys",
        metavar="A,B",
        help="Key columns, in order. Default: all but answer and weights.",
        rich_help_panel=READING,
    ),
]
Answer = Annotated[
    str | None,
    typer.Option(
        "--answer",
        metavar="NAME",
        help="Answer column. Default: the last.",
        rich_help_panel=READING,
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="NAME",
        help="Column with the weight (prior) of each fact.",
        rich_help_panel=READING,
    ),
]
Melt = Annotated[
    bool,
    typer.Option(
        "--melt",
        help="A wide table: every other column is a relation, facts are (key, column) -> cell.",
        rich_help_panel=READING,
    ),
]
Empty = Annotated[
    str,
    typer.Option(
        "--empty",
        metavar="error|skip|token",
        help="What an empty cell is.",
        rich_help_panel=READING,
    ),
]
Pad = Annotated[
    bool,
    typer.Option("--pad", help="JSONL: pad unequal lengths on the left.", rich_help_panel=READING),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Folder = Annotated[str, typer.Argument(metavar="DIR", help="A memory folder (`byheart build`).")]


def read(source: str, **options: Any) -> Facts:
    """`read_facts` with the options as the command line spells them."""
    from byheart.facts import read_facts

    keys = options.pop("keys")
    return read_facts(source, keys=None if keys is None else keys.split(","), **options)
