"""What of the papers is here: every item of theirs, where it is, what is done otherwise or not.

An item is a statement, a construction, a figure, a table, a setting, a limitation or a question.
`items/PAPER.toml` lists them; `tools/write_coverage_docs.py` resolves every reference and writes
docs/coverage.md.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Literal, get_args

from byheart.errors import ByheartError, check_choice

Kind = Literal[
    "definition", "assumption", "theorem", "proposition", "corollary", "lemma", "remark",
    "construction", "mechanism", "result", "figure", "table", "setting", "disagreement",
    "limitation", "open question", "check",
]  # fmt: skip
Status = Literal["as published", "otherwise", "not done"]
Target = Literal["bound", "study", "method", "python", "cli", "docs", "test", "file"]
KINDS: tuple[Kind, ...] = get_args(Kind)
STATUSES: tuple[Status, ...] = get_args(Status)
TARGETS: tuple[Target, ...] = get_args(Target)

# File of items -> heading; the last one is about what stands beside the papers.
PAPERS = {
    "dana2025": "Dana, Pydi, Chevaleyre 2025: Memorization in Attention-only Transformers",
    "slides": "Dana 2024: slides of the talk of June 13, 2024",
    "mahdavi2024": "Mahdavi, Liao, Thrampoulidis 2024: Capacity of Multi-Head Attention",
    "kajitsuka2025": "Kajitsuka, Sato 2025: On the Optimal Memorization Capacity of Transformers",
    "around": "Around the papers",
}


@dataclass(frozen=True)
class Reference:
    """One place where an item is, written "target name" in the files of items.

    | target | name |
    |---|---|
    | bound | id in the registry of bounds |
    | study | name, and a variant of it if one is meant: `dana2025/fig1a as-published` |
    | method | name, an option of it, a value of that: `multihead.proof=literal` |
    | python | `bh.build`, or a dotted name: `byheart.theory.dana2025.phi` |
    | cli | command, and its option: `audit --queries` |
    | docs | page under docs/ with the anchor of a heading: `attention-only.md#the-solve` |
    | test | `tests/theory/test_registry.py::test_bad_questions` |
    | file | path in the repository |

    >>> Reference.parse("study dana2025/fig1a as-published")
    Reference(target='study', name='dana2025/fig1a as-published')
    """

    target: Target
    name: str

    @classmethod
    def parse(cls, text: str) -> Reference:
        target, _, name = text.partition(" ")
        if target not in TARGETS or not name.strip():
            expected = f"expected one of {', '.join(TARGETS)} and a name"
            raise ByheartError(f"{text!r} is no reference: {expected}.")
        return cls(target, name.strip())


@dataclass(frozen=True)
class Item:
    """One item of a paper: what it says in one sentence, where it is here, and how far it is done.

    What is done has a place; what is done otherwise says how, what is not done why (`note`).
    """

    paper: str
    id: str
    source: str
    kind: Kind
    statement: str
    status: Status
    where: tuple[Reference, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        check_choice("status", self.status, STATUSES)
        if not (self.source and self.statement):
            raise ByheartError(f"{self.name} needs `source` and `statement`.")
        if self.status != "not done" and not self.where:
            raise ByheartError(f"{self.name} is {self.status}: `where` must say where it is.")
        if self.status != "as published" and not self.note:
            raise ByheartError(f"{self.name} is {self.status}: `note` must say how or why.")

    @property
    def name(self) -> str:
        return f"{self.paper}.{self.id}"

    @classmethod
    def read(cls, paper: str, id: str, record: Mapping[str, object]) -> Item:
        """An item from its table in a file; fields that it does not have are refused by name."""
        known = {field.name for field in fields(cls)} - {"paper", "id"}
        missing = {"source", "kind", "statement", "status"} - record.keys()
        if missing or record.keys() - known:
            wrong = ", ".join(sorted(missing | (record.keys() - known)))
            raise ByheartError(f"{paper}.{id}: fields missing or unknown: {wrong}.")
        texts = {key: str(value) for key, value in record.items() if key != "where"}
        where = record.get("where", [])
        if not isinstance(where, list):
            raise ByheartError(f"{paper}.{id}: `where` must be a list.")
        references = tuple(Reference.parse(str(text)) for text in where)
        return cls(paper, id, where=references, **texts)  # type: ignore[arg-type]


@cache
def items(paper: str) -> tuple[Item, ...]:
    """The items of one file, in its order.

    >>> items("dana2025")[0].source
    'the setting, the model'
    """
    path = resources.files("byheart.papers") / "items" / f"{paper}.toml"
    records = tomllib.loads(path.read_text(encoding="utf-8"))
    return tuple(Item.read(paper, id, record) for id, record in records.items())


def all_items() -> tuple[Item, ...]:
    return tuple(item for paper in PAPERS for item in items(paper))


def counts(some: tuple[Item, ...]) -> dict[Status, int]:
    """How many items are done as published, otherwise, and not."""
    return {status: sum(item.status == status for item in some) for status in STATUSES}
