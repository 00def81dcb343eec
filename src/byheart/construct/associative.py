"""The associative memory W = Σ_i w_U(g(i)) w_e(i)^T (slides of 2024; Bietti et al. 2023): no system
is solved, and recall works while the cross-talk of the other facts stays below the margin.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from byheart._progress import Report
from byheart.construct.frames import unembedding
from byheart.construct.methods import Associative
from byheart.construct.outcome import DTYPES, as_stored, check_fits, held, holding
from byheart.facts import Facts
from byheart.models import associative
from byheart.models.construction import AssociativeConstruction
from byheart.models.token_memory import TokenMemory
from byheart.specs import AssociativeSpec

WIDEST = 8192  # the largest width tried: its matrix has half a gigabyte in float64


def associative_weights(facts: Facts, spec: AssociativeSpec, seed: int = 0) -> dict[str, Tensor]:
    """Weights (no model axis, float64) of the associative memory that adds up all facts."""
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
    width = d or 16
    while True:
        spec = AssociativeSpec(N=facts.N, S=facts.S, d=width)
        check_fits(0, spec.parameters, f"an associative memory of width {width:,}")
        progress(f"adding up {facts.T:,} facts in a {width} x {width} matrix")
        weights = associative_weights(facts, spec, seed)
        made = AssociativeConstruction(readout="sum", capacity=width)
        memory = held(as_stored(TokenMemory, spec, weights, dtype, facts, made), facts)
        lost = memory.construction.lost
        if not lost or d is not None or width >= WIDEST:
            break
        width *= 2
    reason = ": the first power of two at which the cross-talk stays below the margin"
    if d is not None or lost:
        reason = ": the largest width tried" if d is None else " as asked"
    construction = replace(memory.construction, why=(f"d = {width}{reason}",))
    return holding(replace(memory, construction=construction), facts)
