"""Audits: the assumptions of the papers, measured on the hidden states of real models.

`audit` is the door; `find_model` says what can be opened; `table_rows` and `audit_figure` show an
audit's JSON record. Needs `pip install 'byheart[hf]'`; nothing is downloaded, ever.
"""

from byheart.audits.audit import Audit, audit
from byheart.audits.models import FoundModel, find_model
from byheart.audits.tables import audit_figure, table_rows

__all__ = ["Audit", "FoundModel", "audit", "audit_figure", "find_model", "table_rows"]
