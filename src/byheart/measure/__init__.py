"""What a memory does: accuracy, margins, which head carries which answer, ranks of its inputs."""

from typing import TYPE_CHECKING

from byheart._lazy import attach

if TYPE_CHECKING:
    from byheart.measure.ablation import lost_with_each, lost_without
    from byheart.measure.kruskal import KruskalReport, kruskal_rank, kruskal_report
    from byheart.measure.precision import (
        Losses,
        accuracy,
        encoder_bounds,
        losses,
        margin_quantiles,
        memory_losses,
    )
    from byheart.measure.rank import exact_rank, numerical_rank
    from byheart.measure.specialisation import HeadStatistics, head_statistics

__all__ = [
    "HeadStatistics",
    "KruskalReport",
    "Losses",
    "accuracy",
    "encoder_bounds",
    "exact_rank",
    "head_statistics",
    "kruskal_rank",
    "kruskal_report",
    "losses",
    "lost_with_each",
    "lost_without",
    "margin_quantiles",
    "memory_losses",
    "numerical_rank",
]
__getattr__, __dir__ = attach(__name__)
