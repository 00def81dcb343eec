"""One list of specs for every test of the architecture, and small memories to save and ask."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import byheart as bh
from byheart.facts import Facts, Vocabulary
from byheart.models import Memory
from byheart.specs import AssociativeSpec, AttentionOnlySpec

SPECS = [
    AttentionOnlySpec(N=7, S=3, d=4, d_h=4, H=3),
    AttentionOnlySpec(N=7, S=3, d=5, d_h=2, H=3, qk_rank=1),
    AttentionOnlySpec(N=7, S=3, d=4, d_h=2, H=2, qk_rank=6),
    AttentionOnlySpec(N=7, S=4, d=4, d_h=3, H=2, positions="attention"),
    AttentionOnlySpec(N=7, S=4, d=4, d_h=3, H=2, positions="none"),
    AttentionOnlySpec(N=7, S=3, d=4, d_h=4, H=2, scale=True, qk_rank=3),
    AttentionOnlySpec(N=7, S=3, d=4, d_h=4, H=2, skip=False),
    AttentionOnlySpec(N=5, S=1, d=3, d_h=2, H=2),
    AttentionOnlySpec(N=1, S=2, d=1, d_h=1, H=1),
    AttentionOnlySpec(N=7, S=3, d=4, d_h=3, H=2, layers=2),
    AttentionOnlySpec(N=7, S=3, d=4, d_h=3, H=2, layers=2, positions="none", skip=False),
    AttentionOnlySpec(N=7, S=3, d=4, d_h=3, H=2, layers=2, positions="attention", qk_rank=1),
    AttentionOnlySpec(N=7, S=4, d=3, d_h=3, H=2, layers=3, scale=True, positions="attention"),
    AttentionOnlySpec(N=7, S=4, d=3, d_h=2, H=3, layers=3),
    AttentionOnlySpec(N=5, S=1, d=3, d_h=3, H=2, layers=3),
]


def _id(spec: AttentionOnlySpec) -> str:
    options = "".join(
        [
            "" if spec.positions == "input" else f"-{spec.positions}",
            "-scale" if spec.scale else "",
            "" if spec.skip else "-noskip",
        ]
    )
    return f"L{spec.layers}-S{spec.S}-r{spec.qk_rank}of{spec.d_h}{options}"


@pytest.fixture(params=SPECS, ids=_id)
def spec(request: pytest.FixtureRequest) -> AttentionOnlySpec:
    return request.param


@pytest.fixture
def random_weights() -> Callable[..., dict[str, Tensor]]:
    """`random_weights(spec, models, seed)`: float64, with the model axis, scores of order 1."""

    def make(spec: AttentionOnlySpec, models: int = 1, seed: int = 0) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return {
            name: torch.randn(models, *shape, generator=generator, dtype=torch.float64)
            / (1 if name == "W_E" else spec.d**0.5)
            for name, shape in spec.weight_shapes().items()
        }

    return make


def _padded() -> Facts:
    """Keys of one and two tokens, the short one padded on the left."""
    vocabulary, pad_id = Vocabulary(("a", "b", "c")).with_special("<pad>")
    return Facts.make([[pad_id, 0], [0, 1], [1, 0]], [1, 2, 2], vocabulary, pad_id=pad_id)


MEMORIES: dict[str, Callable[[], Memory]] = {
    "attention": lambda: bh.build(bh.random_associations(N=4, S=2, T=6), H=3, d=2, d_h=2),
    "float64": lambda: bh.build(bh.random_associations(N=4, S=2, T=6), dtype="float64"),
    "start token": lambda: bh.build(bh.random_associations(N=4, S=1, T=4)),
    "padded": lambda: bh.build(_padded()),
    "associative": lambda: bh.build(bh.random_associations(N=4, S=2, T=6), "associative"),
}


@pytest.fixture(params=MEMORIES.values(), ids=list(MEMORIES))
def any_memory(request: pytest.FixtureRequest) -> Memory:
    """One memory of every kind that the files must keep apart."""
    return request.param()


@pytest.fixture(scope="session")
def tiny_memory() -> Memory:
    return MEMORIES["attention"]()


@pytest.fixture(scope="session")
def start_memory() -> Memory:
    return MEMORIES["start token"]()


@pytest.fixture(scope="session")
def padded_memory() -> Memory:
    return MEMORIES["padded"]()


@pytest.fixture(scope="session")
def associative_spec() -> AssociativeSpec:
    return AssociativeSpec(N=6, S=2, d=5)
