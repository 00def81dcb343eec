"""`bh.reproduce`: a study by name, from a file, or in hand."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from byheart._progress import Report as Tell
from byheart._progress import quiet
from byheart.errors import ByheartError
from byheart.papers.registry import all_studies, find
from byheart.studies.result import FOLDER, Execution, Selection, StudyResult, results
from byheart.studies.study import Study


def reproduce(
    study: str | os.PathLike[str] | Study,
    profile: str = "quick",
    *,
    seeds: int | Sequence[int] | None = None,
    set: Mapping[str, object] | None = None,
    variant: str | None = None,
    only: str | None = None,
    workers: int | str = 1,
    time_budget: float | None = None,
    progress: Tell = quiet,
    store: str | os.PathLike[str] | None = None,
) -> StudyResult:
    """Run a study, fit, draw, and say what follows; go on where an earlier run was cut off.

    `study`: a name ("dana2025/fig1a"; `byheart reproduce --list` has all), a file that defines
    STUDY, or a `Study`. `profile`: "quick" (minutes), "full" (every point), "paper" (the authors'
    lengths too). `seeds`: how many, or which. `set`: other values of parameters of the grid, as in
    {"d": (12, 16), "H": range(1, 32, 5)}. `only`: cells for which an expression holds ("H<=16").
    `workers`: local processes, or the address of a Dask scheduler. `time_budget`: seconds after
    which nothing new is begun. `store`: the SQLite file that keeps the rows, else
    byheart-studies/PAPER.db.

    >>> import tempfile, pathlib
    >>> store = pathlib.Path(tempfile.mkdtemp()) / "slides.db"
    >>> result = reproduce("slides/associative", seeds=1, set={"d": (16, 32, 64)}, store=store)
    >>> len(result.rows), result.rows[0]["d"], result.finding.verdict in ("undecided", "confirmed")
    (6, 16, False)
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
    execution = Execution(workers, time_budget, progress=progress)
    known = frozenset(one.name for one in all_studies())
    return next(results(studies, selection, execution, store=store, folder=FOLDER, known=known))
