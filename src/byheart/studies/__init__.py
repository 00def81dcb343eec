"""Studies: named grids of cells with a measurement, a fit, a figure and a verdict; resumable.

`Study` is data; `run` computes what is missing on any engine and keeps it in a store; `fits` and
`laws` have the fits and verdicts; `StudyResult` is what a study found; the papers' studies are in
`byheart.papers`. docs/studies.md: how to add one.
"""

from byheart.studies.cell import Cell, Jobs, Measurements, Params, Procedure, together
from byheart.studies.fits import choose, fit
from byheart.studies.result import Execution, Selection, StudyResult, export, results
from byheart.studies.run import Progress, Report, Stopped, duration, rows_of, run, status
from byheart.studies.store import Store, StoreBusy, StoreError, open_store
from byheart.studies.study import Axes, Claim, Finding, Published, Record, Row, Study, Verdict

__all__ = [
    "Axes", "Cell", "Claim", "Execution", "Finding", "Jobs", "Measurements", "Params", "Procedure",
    "Progress", "Published", "Record", "Report", "Row", "Selection", "Stopped", "Store",
    "StoreBusy", "StoreError", "Study", "StudyResult", "Verdict", "choose", "duration", "export",
    "fit", "open_store", "results", "rows_of", "run", "status", "together",
]  # fmt: skip
