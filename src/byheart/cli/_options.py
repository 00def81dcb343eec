"""Options that several commands share: how to read a table of facts, and `--json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from byheart.cli._flags import flag, with_flags
from byheart.cli._group import Command, Options, argument, grouped, option
from byheart.cli._show import warn

if TYPE_CHECKING:
    from byheart.facts import Facts, FactTable

_reading = partial(option, panel="Reading the table")

Keys = Annotated[
    str | None,
    _reading(
        ..., "Key columns, in order. Default: all but answer and weights.", "--keys", metavar="A,B"
    ),
]
Answer = Annotated[
    str | None, _reading(..., "Answer column. Default: the last.", "--answer", metavar="NAME")
]
Weights = Annotated[
    str | None,
    _reading(..., "Column with the weight (prior) of each fact.", "--weights", metavar="NAME"),
]
Melt = Annotated[
    bool,
    _reading(
        ...,
        "A wide table: every other column is a relation, facts are (key, column) -> cell.",
        "--melt",
    ),
]
Header = Annotated[
    bool | None,
    _reading(
        ...,
        "CSV, TSV: whether the first row names the columns. Default: it does, and is "
        "mentioned if it looks like a fact.",
        "--header/--no-header",
    ),
]
Trim = Annotated[
    bool | None,
    _reading(
        ...,
        "Whether to leave out the blanks around cells. Default: in CSV and TSV.",
        "--trim/--no-trim",
    ),
]
Empty = Annotated[
    str, _reading(..., "What an empty cell is.", "--empty", metavar="error|skip|token")
]
Pad = Annotated[bool, _reading(..., "JSONL: pad unequal lengths on the left.", "--pad")]
_several = partial(option, panel="Several right answers (docs/distributions.md)")
Distribution = Annotated[
    bool,
    _several(
        ...,
        'Keys have distributions: JSONL with "output": {token: probability}, or a recipe '
        "random:kind=gauss,N=20,tau=1.",
        "--distribution",
    ),
]
OnConflict = Annotated[
    str,
    _several(
        ...,
        "Rows with one key and different answers: an error, or counted as a distribution.",
        "--on-conflict",
        metavar="error|distribution",
    ),
]
Normalise = Annotated[
    bool, _several(..., "Scale rows whose probabilities do not sum to 1.", "--normalise")
]
Smooth = Annotated[
    float | None,
    _several(
        ...,
        "(π + δ)/(1 + A·δ) over the A answers; default 0. With --ngram the weight α of the "
        "words' own frequencies; default 1.",
        "--smooth",
        min=0.0,
        metavar="δ",
    ),
]
Ngram = Annotated[
    int | None,
    _several(
        ...,
        "FACTS is a text: next-word distributions after n - 1 words.",
        "--ngram",
        metavar="n",
        min=2,
    ),
]
Contexts = Annotated[
    int, _several(..., "With --ngram: how many of the most frequent contexts.", "--contexts", min=1)
]
TABLES = (
    "A .csv, .tsv, .jsonl or .parquet file; a built-in table: countries, elements; or "
    "random:N=50,S=2,T=1000,seed=0."
)
Tokens = Annotated[str, argument("FACTS", TABLES)]
Source = Annotated[
    str,
    argument(
        "FACTS",
        f"{TABLES} Vectors: a .safetensors or .npz file, "
        "vectors:T=621,n=32,d=64,context=fixed,seed=42, or digits:T=500.",
    ),
]
Json = Annotated[bool, option(..., "Print one JSON object instead of tables.", "--json")]
Folder = Annotated[str, argument("DIR", "A memory folder (`byheart build`).")]

# Options of `byheart.facts.read_facts` and of `as_facts`, with their defaults.
TABLE = {"keys": (Keys, None), "answer": (Answer, None), "weights": (Weights, None),
         "melt": (Melt, False), "header": (Header, None), "trim": (Trim, None),
         "empty": (Empty, "error"), "pad": (Pad, False)}  # fmt: skip
ANY_TABLE = {"distribution": (Distribution, False), "on_conflict": (OnConflict, "error"),
             "normalise": (Normalise, False), "smooth": (Smooth, None), "ngram": (Ngram, None),
             "contexts": (Contexts, 5000)} | TABLE  # fmt: skip

Given = dict[str, object]
"""The options of reading that were given, as `as_facts` takes them; others have their defaults."""


def reading(options: Options = TABLE) -> Callable[[Command], Command]:
    """A command that takes the options of reading as one argument `reading`, a `Given`."""

    def split_keys(given: Given) -> Given:
        if isinstance(given.get("keys"), str):
            given["keys"] = str(given["keys"]).split(",")
        return given

    return grouped("reading", options, split_keys)


def check_memory_folder(folder: str) -> Mapping[str, Any]:
    """The description of a memory; a folder that is none is refused before torch is loaded."""
    from byheart.models.folder import read_record

    return read_record(folder)


def read(source: str, given: Given) -> Facts:
    """Facts with one answer each; what they note is said on stderr."""
    from byheart.facts import read_facts

    facts = read_facts(source, **given)  # type: ignore[arg-type]
    _tell(facts)
    return facts


def read_any(source: str, given: Given) -> FactTable:
    """Facts of any kind; what they note is said on stderr."""
    from byheart.facts import Distributions, Facts, as_facts

    table = as_facts(source, **given)  # type: ignore[arg-type]
    if isinstance(table, (Facts, Distributions)):
        _tell(table.facts if isinstance(table, Distributions) else table)
    return table


def _tell(facts: Facts) -> None:
    for note in facts.notes:
        warn(f"{facts.name}: {with_flags(note, ANY_TABLE)}")


def flags(given: Given) -> str:
    """The options that were given, as they are typed: `--keys, --melt`."""
    return ", ".join(flag(name) for name in given)
