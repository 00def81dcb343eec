"""Helpers of the theory tests."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import settings

from byheart.specs import (
    AssociativeSpec,
    AttentionOnlySpec,
    DeepMultiHeadSpec,
    ExactSpec,
    FeedForwardTransformerSpec,
    LanguageModelSpec,
    MLPTransformerSpec,
    MultiHeadSpec,
    SequenceEncoderSpec,
    ShardedSpec,
    SharedBottleneckSpec,
    Spec,
    TransformerSpec,
)
from byheart.theory.bound import Answer
from byheart.theory.case import case_of
from byheart.theory.registry import find

# A busy machine may take longer over an example than Hypothesis expects of an idle one.
settings.register_profile("theory", deadline=None)
settings.load_profile("theory")


@pytest.fixture(scope="session")
def ask() -> Callable[..., Answer]:
    """One bound asked about one spec: `ask("dana2025.corollary1", spec, facts=...)`."""

    def one(bound_id: str, spec: Spec, facts=None, **options) -> Answer:
        return find(bound_id).answer(case_of(spec, facts, **options))

    return one


ALL = [
    AssociativeSpec(N=10, S=2, d=64),
    AttentionOnlySpec(N=50, S=2, d=10, d_h=5, H=9, layers=2, qk_rank=3),
    DeepMultiHeadSpec(d=16, n=8, d_h=16, H=4, layers=2, d_out=10),
    ExactSpec(N=9, S=2, classes=3, ordered=True, ff1="hash", m=3, parameters=200, dense=600,
              distinct=90, depth=50, width=3, max_bits=30, total_bits=2000),
    FeedForwardTransformerSpec(d=4, n=10, m=14, q=14, blocks=4),
    LanguageModelSpec(N=50257, parameters=10**9),
    MLPTransformerSpec(N=50, S=2, d=10, d_h=10, H=3, w=40),
    MultiHeadSpec(d=8, n=4, d_h=8, H=5, d_out=3, embed=True, decoder=True),
    SequenceEncoderSpec(T=100, N=10, d=2),
    ShardedSpec(N=51, S=2, d_g=16, d_h=16, H=70, groups=10, shards=10, lam=64.0, s1=0.25),
    SharedBottleneckSpec(N=50, S=2, d=10, d_h=5, H=20),
    TransformerSpec(d=768, H=12, d_h=64, S=1024, N=50257, layers=12, d_ff=3072, bias=True),
]  # fmt: skip


@dataclass(frozen=True)
class LookUpSpec(Spec):
    """A spec as another package writes it."""

    N: int
    order: bool = False

    family, title, printed = "look-up", "look-up table", ("N",)

    @property
    def parameters(self) -> int:
        return self.N


@pytest.fixture
def every_spec() -> list[Spec]:
    """One spec of each class."""
    return ALL


@pytest.fixture(params=ALL, ids=lambda spec: spec.family)
def spec(request) -> Spec:
    """Each of them in turn."""
    return request.param


@pytest.fixture
def LookUp() -> type[LookUpSpec]:
    return LookUpSpec
