"""Distributions in the files of a memory folder: two tensors beside the facts, and a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from byheart.facts import Distributions, Facts

DISTRIBUTION_TENSORS = ("support", "probabilities")


def distribution_tensors(table: Distributions | None) -> dict[str, Tensor]:
    """`support (A)` int32 and `probabilities (T, A)` float64; nothing for plain facts."""
    if table is None:
        return {}
    return {
        "support": torch.from_numpy(table.support.astype(np.int32)),
        "probabilities": torch.from_numpy(table.probabilities.copy()),
    }


def distribution_record(table: Distributions | None) -> dict[str, Any] | None:
    """What `memory.json` says about the distributions; null for plain facts."""
    if table is None:
        return None
    return {
        "digest": table.digest(),
        "answers": table.A,
        "smoothing": table.smoothing,
        "never_asked": table.never_asked,
    }


def loaded_distribution(
    facts: Facts, arrays: Mapping[str, np.ndarray], record: Mapping[str, Any] | None
) -> Distributions | None:
    """The table that `distribution_tensors` and `distribution_record` describe."""
    if not arrays and record is None:
        return None
    if record is None or set(arrays) != set(DISTRIBUTION_TENSORS):
        raise ValueError("probabilities are there without their support or record, or missing")
    support, pi = arrays["support"].astype(np.int64), arrays["probabilities"]
    if support.ndim != 1 or pi.shape != (facts.T, len(support)) or not len(support):
        raise ValueError(
            f"probabilities have shape {pi.shape}, expected {facts.T} sequences times "
            f"{support.shape} answers"
        )
    if support.min() < 0 or support.max() >= facts.N:
        raise ValueError("support has token ids outside the vocabulary")
    if not (np.isfinite(pi).all() and (pi >= 0).all()):
        raise ValueError("probabilities are negative or not finite")
    return Distributions(facts, support, pi, record["smoothing"], record["never_asked"])
