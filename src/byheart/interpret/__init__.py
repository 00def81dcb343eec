"""Experiments of interpretability on memories in which the truth is known: which heads hold a fact,
and every other fact there is.

`localise` runs the benchmark of attribution methods (disguises x methods x seeds), `evaluate` marks
one method on one memory; a method is a function `(model: Subject, key, answer) -> scores`
(docs/localise.md). `edits` has the benchmark of editors (docs/edits.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from byheart._lazy import attach

if TYPE_CHECKING:
    from byheart.interpret.attribution import METHODS
    from byheart.interpret.benchmark import STUDY, localise
    from byheart.interpret.evaluation import Evaluation, Truth, evaluate, truth
    from byheart.interpret.loading import Attribution, method_named
    from byheart.interpret.scores import average_precision, misplaced, precision_at_k
    from byheart.interpret.subject import Run, Subject

__all__ = [
    "METHODS", "STUDY", "Attribution", "Evaluation", "Run", "Subject", "Truth",
    "average_precision", "evaluate", "localise", "method_named", "misplaced", "precision_at_k",
    "truth",
]  # fmt: skip
__getattr__, __dir__ = attach(__name__)
