"""`make docs`: write docs/coverage.md from the items of the papers.

Every reference is resolved on the way: one that names what does not exist ends the program.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import typer

from byheart.cli.main import make_app
from byheart.errors import ByheartError
from byheart.methods import methods
from byheart.papers import registry
from byheart.papers.coverage import PAPERS, STATUSES, Item, Reference, all_items, counts, items
from byheart.theory.registry import find as find_bound

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs" / "coverage.md"
HEAD = """<!-- Written by `make docs` from src/byheart/papers/items: do not edit. -->

# What of the papers is here

Every theorem, corollary, lemma, remark, construction, figure, table, setting, limitation and open
question of the three papers and of the slides, with the place where it is. *As published*: the
statement, or the setting, is the paper's. *Otherwise*: something else is done, and the last column
says what. *Not done* says why. Every place is checked: a test fails if a line names a bound, a
study, an option, a function, a heading or a test that does not exist. What studies came to is not
said here but in the [table of verdicts](studies/README.md): a figure that is done can have refuted
its claim, and an open question counts as done when it is asked by an experiment, which proves
nothing. "Summary" and "reviews" are published texts about a paper, not the paper. In Python:
`byheart.papers.coverage.all_items()`.
"""
COLUMNS = ("item", "kind", "what it says", "done", "where", "how, or why not")


class Unresolved(Exception):
    """A reference to something that does not exist."""


def bound(name: str) -> str:
    return f"theorems.md#{_slug(find_bound(name).id)}"


def study(name: str) -> str:
    name, _, variant = name.partition(" ")
    found = registry.find(name)
    if len(found) != 1 or (variant and variant not in found[0].variants):
        raise Unresolved
    return f"studies/{found[0].name.replace('/', '-')}.md"


def method(name: str) -> str:
    name, _, chosen = name.partition(".")
    option, _, value = chosen.partition("=")
    kind = methods()[name]
    options = {field.name: field.metadata for field in fields(kind)}
    if option and (option not in options or (value and value not in options[option]["choices"])):
        raise Unresolved
    return _source(kind.__module__)


def python(name: str) -> str:
    """The file that holds the module of a dotted name; a public name's is where it is defined."""
    module, _, rest = name.replace("bh.", "byheart.", 1).partition(".")
    thing: object = import_module(module)
    for part in rest.split("."):
        module = f"{module}.{part}"
        thing = getattr(thing, part) if hasattr(thing, part) else import_module(module)
    return _source(module if isinstance(thing, ModuleType) else getattr(thing, "__module__", ""))


def cli(name: str) -> str:
    command, _, option = name.partition(" ")
    parameters = _commands()[command].params
    if option and not any(option in (*p.opts, *p.secondary_opts) for p in parameters):
        raise Unresolved
    return f"cli.md#byheart-{command}"


def docs(name: str) -> str:
    page, _, anchor = name.partition("#")
    if anchor not in _anchors(ROOT / "docs" / page):
        raise Unresolved
    return name


def test(name: str) -> str:
    path, _, function = name.partition("::")
    if function not in _functions(ROOT / path):
        raise Unresolved
    return f"../{path}"


def file(name: str) -> str:
    if not (ROOT / name).is_file():
        raise Unresolved
    return name.removeprefix("docs/") if name.startswith("docs/") else f"../{name}"


RESOLVERS: dict[str, Callable[[str], str]] = {
    "bound": bound, "study": study, "method": method, "python": python, "cli": cli, "docs": docs,
    "test": test, "file": file,
}  # fmt: skip
MISSING = (Unresolved, ByheartError, LookupError, AttributeError, ImportError, OSError, TypeError,
           ValueError)  # fmt: skip


@cache
def resolve(reference: Reference) -> str:
    """Where a reference leads, from the folder docs."""
    try:
        return RESOLVERS[reference.target](reference.name)
    except MISSING as error:
        wrong = f"{reference.target} {reference.name}: there is no such thing"
        raise Unresolved(f"{wrong} ({type(error).__name__}: {error})") from None


def page() -> str:
    lines = [HEAD, "| | items | as published | otherwise | not done |", "|---|---|---|---|---|"]
    for paper, title in PAPERS.items():
        lines.append(_counted(f"[{title}](#{_slug(title)})", items(paper)))
    lines.append(_counted("all", all_items()))
    for paper, title in PAPERS.items():
        lines += [f"\n## {title}\n", _row(COLUMNS), _row("---" for _ in COLUMNS)]
        lines += [_row(_cells(item)) for item in items(paper)]
    return "\n".join(lines) + "\n"


def _counted(title: str, some: tuple[Item, ...]) -> str:
    number = counts(some)
    return _row((title, str(len(some)), *(str(number[status]) for status in STATUSES)))


def _cells(item: Item) -> tuple[str, ...]:
    where = "<br>".join(f"[{_label(r)}]({resolve(r)})" for r in item.where)
    text = (item.source, item.kind, item.statement, item.status)
    return (*map(_escaped, text), where, _escaped(item.note))


def _label(reference: Reference) -> str:
    """A reference as a reader meets it: a command as it is typed, a test by its name."""
    if reference.target == "cli":
        return f"`byheart {reference.name}`"
    name = reference.name.rpartition("::")[2] if reference.target == "test" else reference.name
    return f"{reference.target} `{name}`"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escaped(text: str) -> str:
    for mark, shown in {"|": "\\|", "<": "&lt;", "*": "\\*"}.items():
        text = text.replace(mark, shown)
    return text


def _source(module: str) -> str:
    file = import_module(module).__file__
    if file is None:
        raise Unresolved
    return f"../{Path(file).relative_to(ROOT).as_posix()}"


@cache
def _commands():
    return typer.main.get_command(make_app()).commands  # type: ignore[attr-defined]


@cache
def _functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@cache
def _anchors(path: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.S)
    return frozenset(map(_slug, re.findall(r"^#+ (.*)$", text, flags=re.M)))


def _slug(heading: str) -> str:
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")


def main() -> None:
    DOCS.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
