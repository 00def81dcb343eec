"""The facts of a memory on disk: tensors, and what `memory.json` says about them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from byheart._json import Json
from byheart.facts import Distributions, Facts, VectorFacts, Vocabulary
from byheart.models.folder import FACTS, Files, Record
from byheart.specs import MultiHeadSpec

CONTEXT = "context"  # beside the weights: a shared context is part of what is evaluated
TABLE = ("support", "probabilities")  # the tensors of distributions


def facts_tensors(facts: Facts, distribution: Distributions | None) -> dict[str, Tensor]:
    """`tokens`, `answers` and `rows` int32, `prior` float64; for distributions `support (A)` int32
    and `probabilities (T, A)` float64 besides."""
    arrays = {"tokens": facts.tokens, "answers": facts.answers, "rows": facts.rows}
    tensors = {k: torch.from_numpy(a.astype(np.int32)) for k, a in arrays.items()}
    tensors["prior"] = torch.from_numpy(facts.prior.copy())
    if distribution is not None:
        tensors["support"] = torch.from_numpy(distribution.support.astype(np.int32))
        tensors["probabilities"] = torch.from_numpy(distribution.probabilities.copy())
    return tensors


def facts_record(facts: Facts) -> dict[str, Json]:
    """What `memory.json` says about the facts."""
    return {
        "count": facts.T,
        "vocabulary": facts.N,
        "digest": facts.digest(),
        "name": facts.name,
        "columns": None if facts.columns is None else list(facts.columns),
        "answer_column": facts.answer_column,
        "merged": facts.merged,
        "skipped": facts.skipped,
    }


def facts_from(record: Record, files: Files, vocabulary: Vocabulary) -> Facts | None:
    """The facts in a folder; None where they were left out."""
    tensors = files.get(FACTS)
    if not isinstance(tensors, dict):
        return None
    about = record["facts"]
    size = about["vocabulary"]
    arrays = {name: tensors[name].numpy() for name in ("tokens", "answers", "prior", "rows")}
    facts = Facts(
        arrays["tokens"],
        arrays["answers"],
        prior=arrays["prior"],
        rows=arrays["rows"],
        vocabulary=Vocabulary(vocabulary.tokens[:size]),
        name=about["name"],
        columns=None if about["columns"] is None else tuple(about["columns"]),
        answer_column=about["answer_column"],
        merged=about["merged"],
        skipped=about["skipped"],
        pad_id=record["pad_id"],
    )
    if facts.tokens.ndim != 2 or not len(facts.tokens) == len(facts.answers) == len(facts.prior):
        raise ValueError(f"{FACTS} has tables of unequal length")
    if facts.tokens.min() < 0 or facts.answers.min() < 0:
        raise ValueError(f"{FACTS} has negative token ids")
    if max(facts.tokens.max(), facts.answers.max()) >= size:
        raise ValueError(f"{FACTS} has token ids outside the vocabulary")
    return facts


def distribution_record(table: Distributions | None) -> dict[str, Json] | None:
    """What `memory.json` says about the distributions."""
    if table is None:
        return None
    return {
        "digest": table.digest(),
        "answers": table.A,
        "smoothing": table.smoothing,
        "never_asked": table.never_asked,
    }


def distribution_from(facts: Facts | None, record: Record, files: Files) -> Distributions | None:
    """The distributions in a folder; None where the facts were left out."""
    tensors = files.get(FACTS)
    arrays = {k: tensors[k].numpy() for k in TABLE if isinstance(tensors, dict) and k in tensors}
    about = record.get("distribution")
    if facts is None or (not arrays and about is None):
        return None
    if about is None or set(arrays) != set(TABLE):
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
    return Distributions(facts, support, pi, about["smoothing"], about["never_asked"])


def vector_facts_from(
    about: Record, tensors: Mapping[str, Tensor], spec: MultiHeadSpec, context: np.ndarray | None
) -> VectorFacts:
    """The examples of a folder. Not the checks of `VectorFacts.make`: a changed file must still be
    evaluated, to say what is lost."""
    arrays = {name: t.numpy() for name, t in tensors.items()}
    facts = VectorFacts(
        context if context is not None else arrays[CONTEXT],
        arrays["query"],
        arrays["label"],
        arrays["rows"],
        about["name"],
        about["classes"],
        about["merged"],
    )
    T = len(facts.rows)
    if facts.query.shape != (T, spec.d) or len(facts.label) != T:
        raise ValueError(f"{FACTS} has tables of unequal length")
    if context is None and facts.context.shape != (T, spec.n, spec.d):
        raise ValueError(f"{FACTS} has contexts of shape {facts.context.shape}")
    if facts.classes is not None and not (
        facts.label.dtype == np.int64
        and (0 <= facts.label).all()
        and (facts.label < facts.classes).all()
    ):
        raise ValueError(f"{FACTS} has labels that are no classes")
    return facts


def tensors_in(content: dict[str, Tensor] | bytes) -> dict[str, Tensor]:
    """The tensors of a file; a ValueError if it holds something else."""
    if isinstance(content, bytes):
        raise ValueError("a file of tensors was expected")
    return content
