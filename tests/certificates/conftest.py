"""The paper's formula in 200-bit arithmetic, and random memories to evaluate with it."""

from collections.abc import Callable
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor

from byheart.facts import Facts, Vocabulary
from byheart.models import TokenMemory
from byheart.models.construction import ImportedConstruction
from byheart.specs import AssociativeSpec, AttentionOnlySpec

BITS = 200
Number = Any  # mpmath.mpf, which has no type that a checker knows
Numbers = list[list[Number]]


def _numbers(w: Tensor) -> Numbers:
    return [[mpmath.mpf(v) for v in row] for row in w.double().tolist()]


def _times(x: list[Number], W: Numbers) -> list[Number]:
    """x W, one sum of products for each column."""
    return [mpmath.fsum(x[i] * W[i][j] for i in range(len(x))) for j in range(len(W[0]))]


def _attention_only(spec: AttentionOnlySpec, w: dict[str, Tensor], t: list[int]) -> list[Number]:
    """T(t) = W_U (x_S + Σ_h W_O^h W_V^h Σ_s softmax_s(x_S^T W_QK^h x_s) x_s), literally."""
    x = [list(_numbers(w["W_E"][token][None])[0]) for token in t]
    if spec.positions == "input":
        pos = _numbers(w["W_pos"])
        x = [
            [a + b for a, b in zip(x_s, pos_s, strict=True)]
            for x_s, pos_s in zip(x, pos, strict=True)
        ]
    total = list(x[-1]) if spec.skip else [mpmath.mpf(0)] * spec.d
    for h in range(spec.H):
        W_Q, W_K, W_V, W_O = (_numbers(w[name][0, h]) for name in ("W_Q", "W_K", "W_V", "W_O"))
        q = _times(x[-1], W_Q)
        raw = [mpmath.fsum(a * b for a, b in zip(q, _times(x_s, W_K), strict=True)) for x_s in x]
        if spec.scale:
            raw = [r / mpmath.sqrt(spec.qk_rank) for r in raw]
        e = [mpmath.exp(r - max(raw)) for r in raw]
        a = [v / mpmath.fsum(e) for v in e]
        A = [mpmath.fsum(a[s] * x[s][i] for s in range(spec.S)) for i in range(spec.d)]
        out = _times(_times(A, W_V), W_O)
        total = [p + q for p, q in zip(total, out, strict=True)]
    return _times(total, _numbers(w["W_U"]))


def _associative(spec: AssociativeSpec, w: dict[str, Tensor], t: list[int]) -> list[Number]:
    key = [mpmath.mpf(1)] * spec.d
    for s, token in enumerate(t):
        key = [a * mpmath.mpf(b) for a, b in zip(key, w["W_E"][s, token].tolist(), strict=True)]
    key = [v / mpmath.sqrt(spec.d) for v in key]
    return _times(_times(key, _numbers(w["W"])), _numbers(w["W_U"]))


@pytest.fixture(scope="session")
def true_logits() -> Callable[..., Numbers]:
    """`true_logits(spec, weights, tokens)`: at 200 bits, off by less than 2^-100 of its terms."""

    def evaluate(spec, weights, tokens) -> Numbers:
        rows = torch.as_tensor(tokens).tolist()
        with mpmath.workprec(BITS):
            if isinstance(spec, AttentionOnlySpec):
                return [_attention_only(spec, weights, t) for t in rows]
            return [_associative(spec, weights, t) for t in rows]

    return evaluate


@pytest.fixture(scope="session")
def true_margins(true_logits) -> Callable[..., list[Number]]:
    """T_g - max_{j != g} T_j at 200 bits."""

    def evaluate(spec, weights, tokens, right) -> list[Number]:
        with mpmath.workprec(BITS):
            return [
                row[g] - max(v for j, v in enumerate(row) if j != g)
                for row, g in zip(true_logits(spec, weights, tokens), list(right), strict=True)
            ]

    return evaluate


@pytest.fixture(scope="session")
def random_weights() -> Callable[..., dict[str, Tensor]]:
    """`random_weights(spec, seed, scales)`: Gaussian, each weight times its own scale."""

    def make(spec, seed: int, scales: dict[str, float] | None = None) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return {
            name: torch.randn(shape, generator=generator, dtype=torch.float64)
            * (1.0 if scales is None else scales[name])
            for name, shape in spec.weight_shapes().items()
        }

    return make


@pytest.fixture(scope="session")
def make_memory() -> Callable[..., TokenMemory]:
    """`make_memory(spec, weights, vocabulary, facts)`: a memory with weights from anywhere."""

    def make(spec, weights, vocabulary: Vocabulary, facts: Facts | None = None) -> TokenMemory:
        made = ImportedConstruction(source="weights")
        return TokenMemory(
            spec=spec, weights=weights, vocabulary=vocabulary, construction=made, facts=facts
        )

    return make


@pytest.fixture(scope="session")
def random_memory(random_weights, make_memory) -> Callable[..., TokenMemory]:
    """A memory with random weights, whose facts are what it says by itself."""

    def make(spec, seed: int, T: int = 6) -> TokenMemory:
        weights = random_weights(spec, seed)
        vocabulary = Vocabulary(tuple(f"t{i}" for i in range(spec.N)))
        memory = make_memory(spec, weights, vocabulary)
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(spec.N, (T, spec.S), generator=generator).unique(dim=0)
        facts = Facts.make(tokens.numpy(), memory.answers(tokens).numpy(), vocabulary)
        return make_memory(spec, weights, vocabulary, facts)

    return make
