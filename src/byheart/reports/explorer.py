"""The capacity explorer: every bound and every family's size, computed in the page by the theory
itself, translated from its own source."""

from __future__ import annotations

from functools import lru_cache

from byheart.reports.page import Page, render, source
from byheart.reports.translate import Translation

# One attention layer of models that many know, as `byheart bound --hf config.json` reads them.
PRESETS = (
    {"name": "GPT-2 small", "layers": 12,
     "sizes": {"d": 768, "H": 12, "d_h": 64, "n": 1024, "N": 50_257}},
    {"name": "BERT-large", "layers": 24,
     "sizes": {"d": 1024, "H": 16, "d_h": 64, "n": 512, "N": 30_522}},
    {"name": "Llama-3.2-1B", "layers": 16,
     "sizes": {"d": 2048, "H": 32, "d_h": 64, "n": 131_072, "N": 128_256}},
)  # fmt: skip
YOURS = {"d": 64, "H": 32, "d_h": 64, "n": 2, "N": 1000}  # what "yours" begins with
START = {**PRESETS[0]["sizes"], "T": 1000, "reads": "tokens", "shared": False}


def explorer_page() -> Page:
    """The page of the explorer.

    >>> "Capacity explorer" in explorer_page().html
    True
    """
    from byheart.theory import BOUNDS

    theory = source("python.js") + "\n" + theory_script()
    data = {"kind": "explorer", "start": START, "yours": YOURS, "presets": PRESETS}
    return render(
        "explorer.html", ("core.js", "explorer.js"), data,
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
