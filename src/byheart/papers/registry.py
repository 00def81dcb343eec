"""Which studies there are: the papers', those of other packages, those in a file of one's own."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from importlib import import_module, resources

from byheart._plugins import leave_out, plugins
from byheart.errors import ByheartError
from byheart.studies.files import module_of
from byheart.studies.study import Study

# Every module has STUDIES, a tuple of studies whose names begin with the paper's.
MODULES: dict[str, str] = {
    "dana2025": "byheart.papers.dana2025",
    "mahdavi2024": "byheart.papers.mahdavi2024",
    "kajitsuka2025": "byheart.papers.kajitsuka2025",
    "slides": "byheart.papers.slides",
}


@lru_cache
def studies_of(paper: str) -> tuple[Study, ...]:
    """The studies of one paper, in its order."""
    module = MODULES[paper]
    return tuple(
        replace(s, seconds={**measured_seconds().get(s.name, {}), **s.seconds})
        for s in studies_in(import_module(module), module)
    )


@lru_cache
def measured_seconds() -> dict[str, dict[str, float]]:
    """CPU seconds of whole studies by profile, as `tools/write_study_docs.py` took them from a
    store."""
    return json.loads((resources.files("byheart.papers") / "times.json").read_text())


def studies_in(thing: object, where: str) -> tuple[Study, ...]:
    """The studies that an object is or has: a `Study`, several, or a module with STUDY or
    STUDIES."""
    for name in ("STUDIES", "STUDY"):
        thing = getattr(thing, name, thing)
    several = tuple(thing) if isinstance(thing, Iterable) else (thing,)
    studies = tuple(study for study in several if isinstance(study, Study))
    if not studies or len(studies) < len(several):
        raise ByheartError(
            f"{where} has no study: expected STUDY = Study(...), or STUDIES, a list of them "
            "(docs/studies.md shows one)."
        )
    return studies


def plugin_studies() -> list[Study]:
    """The studies of other packages, by the entry points `byheart.studies`."""
    found: dict[str, Study] = {}
    for plugin in plugins("byheart.studies"):
        try:
            studies = studies_in(plugin.value, plugin.source)
        except ByheartError as error:
            leave_out("byheart.studies", str(error))
            continue
        for study in studies:
            if study.name in found or study.paper in MODULES:
                taken = study.paper if study.paper in MODULES else study.name
                wrong = f"{study.name!r} of {plugin.source}: the name {taken!r} is taken already."
                leave_out("byheart.studies", wrong)
            else:
                found[study.name] = study
    return list(found.values())


def all_studies() -> list[Study]:
    return [study for paper in MODULES for study in studies_of(paper)] + plugin_studies()


def find(name: str | os.PathLike[str]) -> list[Study]:
    """The study of this name, all studies of a paper ("dana2025"), of a file ("mine.py"), or all.

    >>> [study.name for study in find("dana2025/fig1a")]
    ['dana2025/fig1a']
    """
    text = os.fspath(name)
    if text.endswith(".py"):
        return list(studies_in(module_of(text), text))
    if text == "all":
        return all_studies()
    paper, _, rest = text.partition("/")
    studies = list(studies_of(paper)) if paper in MODULES else plugin_studies()
    if rest in ("", "all"):
        named = [study for study in studies if study.paper == paper]
    else:
        named = [study for study in studies if text in (study.name, *study.aliases)]
    if named:
        return named
    every = all_studies()
    names = dict.fromkeys([s.name for s in every] + [s.paper for s in every])
    near = difflib.get_close_matches(text, names, n=3, cutoff=0.4)
    raise ByheartError(
        f"there is no study {text!r}. "
        + (f"Did you mean {', '.join(near)}? " if near else "")
        + "`byheart reproduce --list` names all of them; a paper's name runs all of its studies, "
        "and a file (mine.py) those that it defines."
    )
