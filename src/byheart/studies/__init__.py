"""Studies: named grids of cells with a measurement, a fit, a figure and a verdict; resumable.

`Study` is data; `run` computes what is missing on any engine and keeps it in a store; `fits` has
the laws; the papers' studies are in `byheart.papers`. docs/studies.md: how to add one.
"""

from byheart.studies.cell import Cell, Way
from byheart.studies.fits import choose, fit
from byheart.studies.run import Progress, Report, Stopped, rows_of, run, status
from byheart.studies.store import Store, StoreBusy, StoreError, open_store
from byheart.studies.study import Finding, Row, Study
from byheart.studies.table import export

__all__ = [
    "Cell",
    "Finding",
    "Progress",
    "Report",
    "Row",
    "Stopped",
    "Store",
    "StoreBusy",
    "StoreError",
    "Study",
    "Way",
    "choose",
    "export",
    "fit",
    "open_store",
    "rows_of",
    "run",
    "status",
]
