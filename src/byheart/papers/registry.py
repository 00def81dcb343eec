"""Which studies there are: the papers', those of other packages, those in a file of one's own;
`bh.reproduce` runs one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import import_module, resources
from typing import cast

from byheart._plugins import leave_out, plugins
from byheart._progress import Report as Tell
from byheart._progress import quiet
from byheart.errors import ByheartError, did_you_mean
from byheart.studies.result import FOLDER, Execution, Selection, StudyResult, results
from byheart.studies.study import Study
from byheart.studies.work import module_of

PAPERS = ("dana2025", "mahdavi2024", "kajitsuka2025", "slides")
# Every module has STUDIES, a tuple of studies whose names begin with the paper's.
MODULES = {paper: f"byheart.papers.{paper}" for paper in PAPERS}
# byheart's own studies, of no paper
OWN = {"localise": "byheart.interpret.benchmark", "editing": "byheart.interpret.edit_study"}


@lru_cache
def studies_of(paper: str) -> tuple[Study, ...]:
    """The studies of one paper, or byheart's own, in order, with the CPU seconds of whole profiles
    that `tools/write_study_docs.py` took from a store."""
    module = MODULES.get(paper) or OWN[paper]
    seconds = json.loads((resources.files("byheart.papers") / "times.json").read_text())
    return tuple(
        replace(study, seconds={**seconds.get(study.name, {}), **study.seconds})
        for study in studies_in(import_module(module), module)
    )


def studies_in(thing: object, where: str) -> tuple[Study, ...]:
    """The studies that an object is or has: a `Study`, several, or a module with STUDY or
    STUDIES."""
    for name in ("STUDIES", "STUDY"):
        thing = getattr(thing, name, thing)
    is_one = not isinstance(thing, Iterable)
    several = (thing,) if is_one else tuple(cast("Iterable[object]", thing))
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
            taken = study.paper if study.paper in (*MODULES, *OWN) else study.name
            if taken in (*MODULES, *OWN, *found):
                wrong = f"{study.name!r} of {plugin.source}: the name {taken!r} is taken already."
                leave_out("byheart.studies", wrong)
            else:
                found[study.name] = study
    return list(found.values())


def all_studies() -> list[Study]:
    return [study for paper in (*MODULES, *OWN) for study in studies_of(paper)] + plugin_studies()


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
    studies = list(studies_of(paper)) if paper in (*MODULES, *OWN) else plugin_studies()
    if rest in ("", "all"):
        named = [study for study in studies if study.paper == paper]
    else:
        named = [study for study in studies if text in (study.name, *study.aliases)]
    if named:
        return named
    names = dict.fromkeys(name for study in all_studies() for name in (study.name, study.paper))
    raise ByheartError(
        f"there is no study {text!r}. `byheart reproduce --list` names all of them; a paper's name "
        "runs all of its studies, and a file (mine.py) those that it defines. "
        f"{did_you_mean(text, names)}".rstrip()
    )


def reproduce(
    study: str | os.PathLike[str] | Study, profile: str | None = None, *,
    seeds: int | Sequence[int] | None = None, set: Mapping[str, object] | None = None,
    variant: str | None = None, only: str | None = None, workers: int | str = 1,
    time_budget: float | None = None, progress: Tell = quiet,
    store: str | os.PathLike[str] | None = None, recorded: bool = False,
) -> StudyResult:  # fmt: skip
    """Run a study, fit, draw, and say what follows; go on where an earlier run was cut off.

    `study`: a name ("dana2025/fig1a"; `byheart reproduce --list` has all), a file that defines
    STUDY, or a `Study`. `profile`: "quick" (a trend in minutes; the default), "paper" (the authors'
    settings), "part" (a stated share of them). `recorded`: the rows that come with byheart, the
    most faithful profile there is; nothing is computed. `seeds`: how many, or which. `set`: other
    values of parameters, as in {"d": (12, 16), "H": range(1, 32, 5)}. `only`: cells for which an
    expression holds ("H<=16"). `workers`: local processes, or a Dask scheduler. `time_budget`:
    seconds after which nothing new is begun. `store`: the SQLite file that keeps the rows, else
    byheart-studies/PAPER.db.

    >>> import tempfile, pathlib
    >>> store = pathlib.Path(tempfile.mkdtemp()) / "slides.db"
    >>> result = reproduce("slides/associative", seeds=1, set={"d": (16, 32)}, store=store)
    >>> len(result.rows), result.rows[0]["d"], result.finding.verdict in ("undecided", "confirmed")
    (12, 16, False)
    """
    studies = [study] if isinstance(study, Study) else find(study)
    if len(studies) > 1:
        names = ", ".join(one.name for one in studies)
        raise ByheartError(f"{study} has {len(studies)} studies: name one of {names}.")
    values: dict[str, Sequence[object]] = {
        name: value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        for name, value in (set or {}).items()
    }
    selection = Selection(profile, variant, only, seeds, values)
    rows = "recorded" if recorded else "missing"
    execution = Execution(workers, time_budget, progress=progress, rows=rows)
    known = frozenset(one.name for one in all_studies())
    return next(results(studies, selection, execution, store=store, folder=FOLDER, known=known))
