"""The capacity explorer: every bound and every family's size, computed in the page."""

from __future__ import annotations

from byheart.reports.formulas import theory_script
from byheart.reports.page import Page, render, source

START = {"d": 64, "H": 32, "d_h": 64, "n": 2, "N": 1000, "T": 2000}


def explorer_page() -> Page:
    """The page of the explorer, with the theory translated from its source.

    >>> "Capacity explorer" in explorer_page().html
    True
    """
    from byheart.theory import BOUNDS

    theory = source("python.js") + "\n" + theory_script()
    return render(
        "explorer.html", ("core.js", "explorer.js"), {"kind": "explorer", "start": START},
        extra=theory, title="Capacity explorer", rows=BOUNDS,
    )  # fmt: skip
