"""The capacity explorer: every bound and every family's size, computed in the page by the theory
itself, translated from its own source."""

from __future__ import annotations

from functools import lru_cache

from byheart.reports.page import Page, render, source
from byheart.reports.translate import Translation

START = {"d": 64, "H": 32, "d_h": 64, "n": 2, "N": 1000, "T": 2000}


def explorer_page() -> Page:
    """The page of the explorer.

    >>> "Capacity explorer" in explorer_page().html
    True
    """
    from byheart.theory import BOUNDS

    theory = source("python.js") + "\n" + theory_script()
    return render(
        "explorer.html", ("core.js", "explorer.js"), {"kind": "explorer", "start": START},
        extra=theory, title="Capacity explorer", rows=BOUNDS,
    )  # fmt: skip


@lru_cache
def theory_script() -> str:
    """JavaScript that declares `theory`: `ask(case)`, `sizes(case)`, what makes cases and specs;
    needs templates/python.js in front."""
    from byheart.specs import AttentionOnlySpec, MultiHeadSpec
    from byheart.specs.base import check_fields
    from byheart.theory.candidates import facts_case, sizes
    from byheart.theory.case import case_of
    from byheart.theory.registry import BOUNDS, ask

    translation = Translation(skipped=[check_fields])  # the page's inputs are checked already
    public = (AttentionOnlySpec, MultiHeadSpec, case_of, ask, facts_case, sizes)
    names = {item.__name__: translation.value(item) for item in public}
    names["BOUNDS"] = translation.value(BOUNDS)
    listed = ", ".join(f"{key}: {value}" for key, value in names.items())
    return f"{translation.text()}\nconst theory = {{{listed}}};"
