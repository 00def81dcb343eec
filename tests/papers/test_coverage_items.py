"""Every item of the papers has a line, and no line names what does not exist."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from byheart.errors import ByheartError
from byheart.papers.coverage import KINDS, PAPERS, STATUSES, Item, Reference, all_items, counts
from byheart.papers.registry import MODULES, studies_of
from byheart.theory import BOUNDS

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "write_coverage_docs.py"
GOOD = {"source": "Theorem 1", "kind": "theorem", "statement": "It holds.",
        "status": "as published", "where": ["bound dana2025.theorem1"]}  # fmt: skip


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_coverage_docs", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def named() -> dict[str, set[str]]:
    """Target -> the names that items refer to."""
    references = [reference for item in all_items() for reference in item.where]
    return {
        target: {r.name for r in references if r.target == target}
        for target in {r.target for r in references}
    }


def test_every_reference_leads_somewhere(tool: ModuleType):
    wrong = []
    for item in all_items():
        for reference in item.where:
            try:
                link = tool.resolve(reference)
            except tool.Unresolved as error:
                wrong.append(f"{item.name}: {error}")
                continue
            path = (ROOT / "docs" / link.partition("#")[0]).resolve()
            # Pages of studies are written with their rows.
            if reference.target != "study" and not path.is_file():
                wrong.append(f"{item.name}: {reference.target} {reference.name} has no file {path}")
    assert wrong == []


def test_the_page_is_up_to_date(tool: ModuleType):
    assert tool.DOCS.read_text(encoding="utf-8") == tool.page(), "run `make docs`"


def test_every_bound_is_named_by_an_item(named: dict[str, set[str]]):
    assert {bound.id for bound in BOUNDS} - named["bound"] == set()


def test_every_study_is_named_by_an_item(named: dict[str, set[str]]):
    studies = {study.name for paper in MODULES for study in studies_of(paper)}
    assert studies - {name.split(" ")[0] for name in named["study"]} == set()


def test_kinds_and_statuses_are_all_in_use():
    assert {item.kind for item in all_items()} == set(KINDS)
    assert {item.status for item in all_items()} == set(STATUSES)


def test_every_paper_has_items_that_are_counted_once():
    items = all_items()
    assert len({item.name for item in items}) == len(items)
    assert {item.paper for item in items} == PAPERS.keys()
    assert sum(counts(items).values()) == len(items)


def test_no_paper_has_two_items_of_one_source_and_kind():
    seen = [(item.paper, item.source, item.kind) for item in all_items()]
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(
    "text",
    ["bound dana2025.theorem9", "study dana2025/fig99", "study dana2025/fig1a as-dreamt",
     "study dana2025", "method sharpened", "method multihead.prove", "method multihead.proof=words",
     "method multihead.H=3", "python bh.forget", "python byheart.theory.dana2025.psi",
     "python byheart.theories", "python byheart.papers.coverage.PAPERS", "cli forget",
     "cli audit --loudly", "docs models.md#nowhere", "docs nowhere.md#the-map",
     "test tests/test_layout.py::test_nothing", "test tests/test_nowhere.py::test_it", "file docs"],
)  # fmt: skip
def test_what_does_not_exist_is_refused(tool: ModuleType, text: str):
    with pytest.raises(tool.Unresolved, match="there is no such thing"):
        tool.resolve(Reference.parse(text))


@pytest.mark.parametrize(
    ("change", "message"),
    [({"kind": "rumour"}, "kind"), ({"status": "nearly"}, "status"),
     ({"where": []}, "`where` must say where"), ({"where": "bound x"}, "must be a list"),
     ({"where": ["rumour x"]}, "is no reference"), ({"where": ["bound"]}, "is no reference"),
     ({"status": "otherwise"}, "`note` must say how"), ({"statement": ""}, "needs `source`"),
     ({"status": "not done", "where": []}, "`note` must say how or why"),
     ({"weher": []}, "unknown: weher")],
)  # fmt: skip
def test_items_that_say_too_little_are_refused(change: dict[str, object], message: str):
    Item.read("dana2025", "theorem1", GOOD)
    with pytest.raises(ByheartError, match=message):
        Item.read("dana2025", "theorem1", {**GOOD, **change})
