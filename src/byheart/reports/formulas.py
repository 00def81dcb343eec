"""The theory as JavaScript: bounds and sizes, translated from their own source."""

from __future__ import annotations

from functools import lru_cache

from byheart.reports.translate import Translation


@lru_cache
def theory_script() -> str:
    """JavaScript that declares `theory.ask(case)` and `theory.sizes(case)`, what makes cases and
    specs; needs templates/python.js in front.

    >>> "theory = " in theory_script()
    True
    """
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
