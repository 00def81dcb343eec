"""What a memory does: accuracy, margins, which head carries which answer, ranks of its inputs."""

from byheart.measure.heads import HeadSplit, Owner, head_split, owner
from byheart.measure.kruskal import KruskalReport, kruskal_rank, kruskal_report
from byheart.measure.rank import exact_rank, numerical_rank
from byheart.measure.recall import accuracy, margin_quantiles
from byheart.measure.specialisation import HeadStatistics, head_statistics

__all__ = [
    "HeadSplit",
    "HeadStatistics",
    "KruskalReport",
    "Owner",
    "accuracy",
    "exact_rank",
    "head_split",
    "head_statistics",
    "kruskal_rank",
    "kruskal_report",
    "margin_quantiles",
    "numerical_rank",
    "owner",
]
