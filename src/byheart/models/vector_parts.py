"""What the folder of a vector memory holds besides the weights; see `memory_files`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from byheart.facts import VectorFacts
from byheart.models.vector_memory import VectorMemory
from byheart.specs import MultiHeadSpec

CONTEXT = "context"  # beside the weights: a shared context is part of what is evaluated


def tensors_of(memory: VectorMemory) -> dict[str, torch.Tensor]:
    """The weights, and the shared context if there is one."""
    tensors = {name: w.contiguous() for name, w in memory.weights.items()}
    if memory.context is not None:
        tensors[CONTEXT] = torch.tensor(memory.context)
    return tensors


def facts_tensors(facts: VectorFacts) -> dict[str, torch.Tensor]:
    """Query, label, rows, and the contexts unless they are shared."""
    tensors = {"query": torch.tensor(facts.query), "label": torch.tensor(facts.label)}
    tensors["rows"] = torch.tensor(facts.rows.astype(np.int64))
    if not facts.shared:
        tensors[CONTEXT] = torch.tensor(facts.context)
    return tensors


def record_of(memory: VectorMemory) -> dict[str, Any]:
    """The fields of `memory.json` that a vector memory has of its own."""
    facts = memory.facts
    known = None
    if facts is not None:
        known = {
            "count": facts.T,
            "digest": facts.digest(),
            "name": facts.name,
            "classes": facts.classes,
            "merged": facts.merged,
        }
    return {"classes": memory.classes, "facts": known, "vocabulary": []}


def assemble(
    record: dict[str, Any],
    weights: dict[str, torch.Tensor],
    stored: dict[str, torch.Tensor] | None,
) -> VectorMemory:
    """The memory that the files describe; a `ValueError` where they contradict each other."""
    spec = MultiHeadSpec(**record["spec"])
    context = weights.pop(CONTEXT, None)
    E = None if context is None else context.numpy()
    if E is not None and E.shape != (spec.n, spec.d):
        raise ValueError(f"the context has shape {E.shape}, the spec says ({spec.n}, {spec.d})")
    facts = None
    if stored is not None:
        arrays = {name: t.numpy() for name, t in stored.items()}
        own = E if E is not None else arrays[CONTEXT]
        known = record["facts"]
        # Not the checks of `make`: a changed file must still be evaluated, to say what is lost.
        facts = VectorFacts(
            own,
            arrays["query"],
            arrays["label"],
            arrays["rows"],
            known["name"],
            known["classes"],
            known["merged"],
        )
        T = len(facts.rows)
        if facts.query.shape != (T, spec.d) or len(facts.label) != T:
            raise ValueError("facts.safetensors has tables of unequal length")
        if E is None and facts.context.shape != (T, spec.n, spec.d):
            raise ValueError(f"facts.safetensors has contexts of shape {facts.context.shape}")
        if facts.classes is not None and not (
            facts.label.dtype == np.int64
            and (0 <= facts.label).all()
            and (facts.label < facts.classes).all()
        ):
            raise ValueError("facts.safetensors has labels that are no classes")
    return VectorMemory(spec, weights, facts, record["classes"], E, record["construction"])
