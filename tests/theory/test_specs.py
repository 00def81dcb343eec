"""One suite for every spec: it prints itself, survives JSON, and counts what it describes."""

import json
import math
from dataclasses import dataclass, replace

import pytest

from byheart import specs
from byheart.specs import (
    AssociativeSpec,
    AttentionOnlySpec,
    DeepMultiHeadSpec,
    ExactSpec,
    FeedForwardTransformerSpec,
    MLPTransformerSpec,
    MultiHeadSpec,
    SequenceEncoderSpec,
    ShardedSpec,
    SharedBottleneckSpec,
    Spec,
    TransformerSpec,
)

ALL = [
    AssociativeSpec(N=10, S=2, d=64),
    AttentionOnlySpec(N=50, S=2, d=10, d_h=5, H=9, layers=2, qk_rank=3),
    DeepMultiHeadSpec(d=16, n=8, d_h=16, H=4, layers=2, d_out=10),
    ExactSpec(N=9, S=2, classes=3, ordered=True, ff1="hash", m=3, parameters=200, dense=600,
              distinct=90, depth=50, width=3, max_bits=30, total_bits=2000),
    FeedForwardTransformerSpec(d=4, n=10, m=14, q=14, blocks=4),
    MLPTransformerSpec(N=50, S=2, d=10, d_h=10, H=3, w=40),
    MultiHeadSpec(d=8, n=4, d_h=8, H=5, d_out=3, embed=True, decoder=True),
    SequenceEncoderSpec(T=100, N=10, d=2),
    ShardedSpec(N=51, S=2, d_g=16, d_h=16, H=70, groups=10, shards=10, lam=64.0, s1=0.25),
    SharedBottleneckSpec(N=50, S=2, d=10, d_h=5, H=20),
    TransformerSpec(d=768, H=12, d_h=64, S=1024, N=50257, layers=12, d_ff=3072, bias=True),
]  # fmt: skip
SHARED = (ShardedSpec, ExactSpec, TransformerSpec)  # count what is not stored as it is


def test_the_list_above_is_complete():
    public = [getattr(specs, name) for name in specs.__all__]
    assert {type(spec) for spec in ALL} == {c for c in public if hasattr(c, "family")}
    assert len({spec.family for spec in ALL}) == len(ALL) == 11


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: spec.family)
def test_a_spec_is_hashable_prints_itself_and_survives_json(spec):
    again = type(spec).from_json(json.loads(json.dumps(spec.to_json())))
    assert again == spec and hash(again) == hash(spec) and {again: 1}[spec] == 1
    assert "\n" not in str(spec) and ": " in str(spec) and str(again) == str(spec)
    assert spec.row_bytes(8) == 2 * spec.row_bytes(4) > 0


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: spec.family)
def test_the_closed_form_counts_the_weights(spec):
    shapes = spec.weight_shapes()
    if not isinstance(spec, SHARED):
        assert sum(math.prod(shape) for shape in shapes.values()) == spec.parameters
    assert all(size >= 1 for shape in shapes.values() for size in shape)


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: spec.family)
@pytest.mark.parametrize("value", [-(10**19), 1.5, "3", True])
def test_every_size_is_checked_by_its_type(spec, value):
    sizes = [n for n, v in spec.to_json().items() if isinstance(v, int) and not isinstance(v, bool)]
    for name in sizes:
        with pytest.raises(ValueError, match=f"^{name} must be a whole number >= "):
            replace(spec, **{name: value})


@dataclass(frozen=True)
class LookUp(Spec):
    """A spec as another package writes it."""

    N: int
    order: bool = False

    family, title, printed = "look-up", "look-up table", ("N",)

    @property
    def parameters(self) -> int:
        return self.N


def test_another_package_can_subclass():
    spec = LookUp(N=7)
    assert str(spec) == "look-up table: N=7" and LookUp.from_json(spec.to_json()) == spec
    assert (spec.weight_shapes(), spec.row_bytes(4)) == ({}, 28)
    with pytest.raises(ValueError, match="order must be true or false, found 'yes'"):
        LookUp(N=7, order="yes")  # pyright: ignore[reportArgumentType]
