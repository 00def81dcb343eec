"""What a memory does: accuracy, margins, and which head carries which answer."""

from byheart.measure.heads import HeadSplit, head_split
from byheart.measure.recall import accuracy, margin_quantiles

__all__ = ["HeadSplit", "accuracy", "head_split", "margin_quantiles"]
