"""The associative memory W = Σ_i w_U(g(i)) w_e(i)^T (slides of 2024; Bietti et al. 2023).

No system is solved: recall works while the cross-talk of the other T - 1 facts stays below the
margin, which with random embeddings holds for T of order d. The baseline for the other ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

from byheart.construct.frames import frame
from byheart.facts import Facts
from byheart.models import associative
from byheart.specs import AssociativeSpec


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
    W_U = torch.zeros(spec.d, spec.N, dtype=torch.float64)
    answers = torch.from_numpy(facts.answer_ids.copy())
    W_U[:, answers] = frame(len(answers), spec.d, seed).T
    tokens, right = torch.tensor(facts.tokens), torch.tensor(facts.answers)
    keys = associative.keys(spec, {"W_E": W_E[None]}, tokens)[0]
    return {"W_E": W_E, "W": keys.T @ W_U[:, right].T, "W_U": W_U}
