"""Options that several commands share: how to read a table of facts, and `--json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from byheart.facts import Distributions, Facts

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
SEVERAL = "Several right answers (docs/distributions.md)"
Distribution = Annotated[
    bool,
    typer.Option(
        "--distribution",
        help='Keys have distributions: JSONL with "output": {token: probability}, or a recipe '
        "random:kind=gauss,N=20,tau=1.",
        rich_help_panel=SEVERAL,
    ),
]
OnConflict = Annotated[
    str,
    typer.Option(
        "--on-conflict",
        metavar="error|distribution",
        help="Rows with one key and different answers: an error, or counted as a distribution.",
        rich_help_panel=SEVERAL,
    ),
]
Normalise = Annotated[
    bool,
    typer.Option(
        "--normalise",
        help="Scale rows whose probabilities do not sum to 1.",
        rich_help_panel=SEVERAL,
    ),
]
Smooth = Annotated[
    float | None,
    typer.Option(
        "--smooth",
        min=0.0,
        metavar="δ",
        help="(π + δ)/(1 + A·δ) over the A answers; default 0. With --ngram the weight α of the "
        "words' own frequencies; default 1.",
        rich_help_panel=SEVERAL,
    ),
]
Ngram = Annotated[
    int | None,
    typer.Option(
        "--ngram",
        metavar="n",
        min=2,
        help="FACTS is a text: next-word distributions after n - 1 words.",
        rich_help_panel=SEVERAL,
    ),
]
Contexts = Annotated[
    int,
    typer.Option(
        "--contexts",
        min=1,
        help="With --ngram: how many of the most frequent contexts.",
        rich_help_panel=SEVERAL,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Folder = Annotated[str, typer.Argument(metavar="DIR", help="A memory folder (`byheart build`).")]


def read(source: str, **options: Any) -> Facts:
    """`read_facts` with the options as the command line spells them."""
    from byheart.facts import read_facts

    keys = options.pop("keys")
    return read_facts(source, keys=None if keys is None else keys.split(","), **options)


def asks_for_distributions(distribution: bool, on_conflict: str, ngram: int | None) -> bool:
    """Whether the options ask for distributions; an unknown `--on-conflict` is refused."""
    from byheart.errors import FactsError

    if on_conflict not in ("error", "distribution"):
        raise FactsError(f"--on-conflict is error or distribution, found {on_conflict!r}.")
    return distribution or on_conflict == "distribution" or ngram is not None


def read_distributions(source: str, **options: Any) -> Distributions:
    """`read_distributions` with the options as the command line spells them."""
    from byheart.errors import FactsError
    from byheart.facts import read_distributions as read_table

    if options.pop("melt"):
        raise FactsError("--melt reads one answer a cell: leave it out with distributions.")
    keys = options.pop("keys")
    return read_table(source, keys=None if keys is None else keys.split(","), **options)
