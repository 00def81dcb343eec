"""Which studies there are: one line a paper, imported when first asked for."""

from __future__ import annotations

import difflib
import json
from dataclasses import replace
from functools import lru_cache
from importlib import import_module, resources

from byheart.errors import ByheartError
from byheart.studies.study import Study

# Every module has STUDIES, a tuple of studies whose names begin with the paper's.
MODULES: dict[str, str] = {
    "dana2025": "byheart.papers.dana2025",
    "mahdavi2024": "byheart.papers.mahdavi2024",
    "kajitsuka2025": "byheart.papers.kajitsuka2025",
    "slides": "byheart.papers.slides",
}


def papers() -> tuple[str, ...]:
    return tuple(MODULES)


@lru_cache
def studies_of(paper: str) -> tuple[Study, ...]:
    """The studies of one paper, in its order."""
    found = tuple(import_module(MODULES[paper]).STUDIES)
    known = measured()
    return tuple(replace(s, seconds={**known.get(s.name, {}), **s.seconds}) for s in found)


@lru_cache
def measured() -> dict[str, dict[str, float]]:
    """CPU seconds of whole studies by profile, as `tools/write_study_docs.py` took them from a
    store."""
    return json.loads((resources.files("byheart.papers") / "times.json").read_text())


def all_studies() -> list[Study]:
    return [study for paper in MODULES for study in studies_of(paper)]


def find(name: str) -> list[Study]:
    """The study of this name, or all studies of a paper ("dana2025"), or all ("all").

    >>> [study.name for study in find("dana2025/fig1a")]
    ['dana2025/fig1a']
    """
    if name == "all":
        return all_studies()
    paper, _, rest = name.partition("/")
    if paper in MODULES:
        of_paper = studies_of(paper)
        if rest in ("", "all"):
            return list(of_paper)
        found = [study for study in of_paper if name in (study.name, *study.aliases)]
        if found:
            return found
    names = [study.name for study in all_studies()]
    near = difflib.get_close_matches(name, [*names, *MODULES], n=3, cutoff=0.4)
    raise ByheartError(
        f"there is no study {name!r}. "
        + (f"Did you mean {', '.join(near)}? " if near else "")
        + "`byheart reproduce --list` names all of them; a paper's name runs all of its studies."
    )
