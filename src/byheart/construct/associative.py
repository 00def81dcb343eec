"""The associative memory W = Σ_i w_U(g(i)) w_e(i)^T (slides of 2024; Bietti et al. 2023).

No system is solved: recall works while the cross-talk of the other T - 1 facts stays below the
margin, which with random embeddings holds for T of order d. The baseline for the other ones.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from byheart._progress import Report
from byheart.construct.frames import check_width, unembedding
from byheart.construct.methods import Associative
from byheart.construct.outcome import DTYPES, as_stored, check_fits, held, holding, weight_bytes
from byheart.facts import Facts
from byheart.models import associative
from byheart.models.construction import AssociativeConstruction
from byheart.models.token_memory import TokenMemory
from byheart.specs import AssociativeSpec

WIDEST = 8192  # the largest width tried: its matrix has half a gigabyte in float64


def associative_weights(facts: Facts, spec: AssociativeSpec, seed: int = 0) -> dict[str, Tensor]:
    """Weights (no model axis, float64) of the associative memory that adds up all facts.

    >>> from byheart.facts import random_associations
    >>> facts = random_associations(N=8, S=1, T=8)
    >>> weights = associative_weights(facts, AssociativeSpec(N=8, S=1, d=32))
    >>> sorted((name, tuple(w.shape)) for name, w in weights.items())
    [('W', (32, 32)), ('W_E', (1, 8, 32)), ('W_U', (32, 8))]
    """
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, (spec.S, spec.N, spec.d), generator=generator)
    W_E = (2 * signs - 1).to(torch.float64)
    _, W_U = unembedding(facts.answer_ids, spec.d, spec.N, seed)
    tokens, right = torch.tensor(facts.tokens), torch.tensor(facts.answers)
    keys = associative.keys(spec, {"W_E": W_E[None]}, tokens)[0]
    return {"W_E": W_E, "W": keys.T @ W_U[:, right].T, "W_U": W_U}


def associative_memory(
    facts: Facts, options: Associative, seed: int, progress: Report
) -> TokenMemory:
    """The Hebbian sum; without `d`, the width is doubled until every fact is recalled."""
    d, dtype = options.d, DTYPES[options.dtype]
    check_width(d, len(facts.answer_ids))
    width = d or 16
    while True:
        spec = AssociativeSpec(N=facts.N, S=facts.S, d=width)
        check_fits(weight_bytes(spec.parameters), f"an associative memory of width {width:,}")
        progress(f"adding up {facts.T:,} facts in a {width} x {width} matrix")
        weights = associative_weights(facts, spec, seed)
        made = AssociativeConstruction(readout="sum", capacity=width)
        memory = held(as_stored(TokenMemory, spec, weights, dtype, facts, made), facts)
        lost = memory.construction.lost
        if not lost or d is not None or width >= WIDEST:
            break
        width *= 2
    reason = f"d = {width}: the first power of two at which the cross-talk stays below the margin"
    if d is not None:
        reason = f"d = {width} as asked"
    elif lost:
        reason = f"d = {width}: the largest width tried"
    construction = replace(memory.construction, why=(reason,))
    return holding(replace(memory, construction=construction), facts)
