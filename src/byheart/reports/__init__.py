"""What people look at: figures (matplotlib) and pages of one self-contained HTML file.

`report` writes the page of a memory, a study or an audit, `explore` the capacity explorer,
`figure` a picture. Nothing below this package knows about it but `cli`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from byheart.reports.figures import FIGURES, figure
    from byheart.reports.write import Written, explore, report

__all__ = ["FIGURES", "Written", "explore", "figure", "report"]


def __getattr__(name: str) -> Any:
    if name in ("FIGURES", "figure"):
        return getattr(import_module("byheart.reports.figures"), name)
    if name in __all__:
        return getattr(import_module("byheart.reports.write"), name)
    raise AttributeError(f"module 'byheart.reports' has no attribute {name!r}")
