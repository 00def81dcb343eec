"""Audits: the assumptions of the papers, measured on the hidden states of real models.

`audit` measures; `find_model` says what can be opened; `table_rows` and `audit_figure` show an
audit's JSON record. Needs `pip install 'byheart[hf]'`; nothing is downloaded, ever.
"""

from typing import TYPE_CHECKING

from byheart._lazy import attach

if TYPE_CHECKING:
    from byheart.audits.models import FoundModel, find_model
    from byheart.audits.run import Audit, audit
    from byheart.audits.settings import AuditSettings
    from byheart.audits.tables import audit_figure, table_rows

__all__ = [
    "Audit",
    "AuditSettings",
    "FoundModel",
    "audit",
    "audit_figure",
    "find_model",
    "table_rows",
]
__getattr__, __dir__ = attach(__name__)
