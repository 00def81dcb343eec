"""Audits: the assumptions of the papers, measured on the hidden states of real models.

`audit` measures; `audit_heads` says what the heads of a language model have by heart; `find_model`
says what can be opened; `table_rows` and `audit_figure`, `head_rows` and `heads_figure` show their
JSON records. Needs `pip install 'byheart[hf]'`; nothing is downloaded, ever.
"""

from typing import TYPE_CHECKING

from byheart._lazy import attach

if TYPE_CHECKING:
    from byheart.audits.head_tables import head_rows, heads_figure
    from byheart.audits.heads import HeadAudit, audit_heads
    from byheart.audits.models import FoundModel, find_model
    from byheart.audits.run import Audit, audit
    from byheart.audits.settings import AuditSettings, HeadSettings
    from byheart.audits.tables import audit_figure, table_rows

__all__ = [
    "Audit",
    "AuditSettings",
    "FoundModel",
    "HeadAudit",
    "HeadSettings",
    "audit",
    "audit_figure",
    "audit_heads",
    "find_model",
    "head_rows",
    "heads_figure",
    "table_rows",
]
__getattr__, __dir__ = attach(__name__)
