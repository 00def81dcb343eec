"""A memory in a notebook cell: its description, and below it the memory page in a frame."""

from __future__ import annotations

from contextlib import suppress

from byheart.certificates import certify
from byheart.errors import ByheartError
from byheart.models.memory import Memory
from byheart.reports.memory_page import Budget, memory_page

CELL = 400_000  # bytes of a cell: notebooks keep every output
BUDGET = Budget(
    listed=2_000, bytes=200_000, tokens=80_000, names=20_000, rows=300, columns=128
)  # what stays below CELL with style, script and the escapes of an attribute
FACTS = 5_000  # of larger memories a cell shows the description: it must not keep a reader waiting
WEIGHTS = 2_000_000
FRAME = (
    '<iframe sandbox="allow-scripts" title="memory page" loading="lazy" '
    "style=\"width:100%;height:640px;border:1px solid #8886;border-radius:6px\" srcdoc='{page}'>"
    "</iframe>"
)


def memory_html(memory: Memory) -> str:
    """The description as a table and the page with proof, search and head map, as one cell.

    The frame is a sandbox: the page's own script runs, under the page's own policy, and cannot
    reach the notebook. Memories without facts and large ones have the table alone.

    >>> import byheart as bh
    >>> cell = memory_html(bh.build("elements"))
    >>> cell.startswith("<b>attention-only Transformer"), "head map" in cell, len(cell) < CELL
    (True, True, True)
    """
    table = memory.describe().html()
    facts = memory.facts
    if facts is None or facts.T > FACTS or memory.spec.parameters > WEIGHTS:
        return table
    proof = None
    with suppress(ByheartError):  # a family of another package may have no proof
        proof = certify(memory)
    page = memory_page(memory, BUDGET, proof).html
    cell = table + FRAME.format(page=page.replace("&", "&amp;").replace("'", "&#39;"))
    return cell if len(cell.encode("utf-8")) <= CELL else table
