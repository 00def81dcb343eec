"""`make docs`: write docs/theorems.md from the registry of bounds. `--check` only compares."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from byheart.theory import BOUNDS, Bound
from byheart.theory.bound import explanation

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs" / "theorems.md"
TESTS = ROOT / "tests" / "theory"
HEAD = """<!-- Written by `make docs` from the registry of bounds: do not edit. -->

# The theorems

What `byheart bound` and `byheart size` know ([how to read them](bounds.md)). A bound answers
with a number only where its hypotheses hold; those marked *assumed* are about data, which sizes do
not tell. "Derived here" marks what the papers do not state. T is always the number of facts
(sequences), N the vocabulary, also where a paper has other letters.
"""
PAPERS = {
    "dana2025": "Dana, Pydi, Chevaleyre 2025: Memorization in Attention-only Transformers",
    "mahdavi2024": "Mahdavi et al. 2024: Memorization Capacity of Multi-Head Attention",
    "kajitsuka2025": "Kajitsuka and Sato 2025: On the Optimal Memorization Capacity",
    "sharded": "Our own construction",
    "limits": "What no layer can exceed",
    "related": "Related results",
    "empirical": "Measurements (not theorems)",
}


def tested_by() -> dict[str, list[str]]:
    """Bound id -> the tests that ask for it by name, in its paper's own files if there are any."""
    found: dict[str, list[tuple[str, str]]] = {bound.id: [] for bound in BOUNDS}
    for path in sorted(TESTS.glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
                continue
            words = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
            for bound_id in found:
                if bound_id in words:
                    found[bound_id].append((path.name, node.name))
    return {
        bound_id: [name for file, name in tests if bound_id.split(".")[0] in file]
        or [name for _, name in tests]
        for bound_id, tests in found.items()
    }


def reference() -> str:
    tests = tested_by()
    lines = [HEAD, f"{len(BOUNDS)} bounds:\n", "| id | kind | exactness | source | test |"]
    lines.append("|---|---|---|---|---|")
    for bound in BOUNDS:
        test = "<br>".join(tests[bound.id])
        cells = (
            f"[{bound.id}](#{_anchor(bound)})",
            bound.claim.kind,
            bound.claim.exactness,
            bound.statement.source,
            test,
        )
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    for paper, title in PAPERS.items():
        lines.append(f"\n## {title}")
        lines += [_section(b) for b in BOUNDS if b.id.startswith(paper + ".")]
    return "\n".join(lines) + "\n"


def _section(bound: Bound) -> str:
    said = explanation(bound)
    lines = [f"\n### {bound.id}\n", f"*{said.pop('about')}.* {said.pop('statement')}\n"]
    lines.append(f"    {said.pop('formula')}\n")
    said.pop("id")
    for name, value in said.items():
        text = "; ".join(value) if isinstance(value, list) else value
        lines.append(f"- {name}: {text}")
    return "\n".join(lines)


def _anchor(bound: Bound) -> str:
    return bound.id.replace(".", "").lower()


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    text = reference()
    if "--check" in sys.argv:
        if not DOCS.exists() or DOCS.read_text(encoding="utf-8") != text:
            sys.exit("docs/theorems.md is out of date: run `make docs`")
        return
    DOCS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
