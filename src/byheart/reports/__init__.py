"""What people look at: figures (matplotlib) and pages of one self-contained HTML file.

`report` writes the page of a memory, a study or an audit, `explore` the capacity explorer,
`figure` a picture. Nothing below this package knows about it but `cli`.
"""

from typing import TYPE_CHECKING

from byheart._lazy import attach

if TYPE_CHECKING:
    from byheart.reports.figures import FIGURES, figure
    from byheart.reports.write import Written, explore, report

__all__ = ["FIGURES", "Written", "explore", "figure", "report"]
__getattr__, __dir__ = attach(__name__)
