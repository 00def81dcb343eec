"""What a memory does: accuracy, margins, and which head carries which answer."""

from byheart.measure.heads import HeadSplit, Owner, head_split, owner
from byheart.measure.recall import accuracy, margin_quantiles

__all__ = ["HeadSplit", "Owner", "accuracy", "head_split", "margin_quantiles", "owner"]
