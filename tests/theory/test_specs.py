"""One suite for every spec: it prints itself, survives JSON, and counts what it describes."""

import json
import math
from dataclasses import replace

import pytest

from byheart import specs
from byheart.specs import ExactSpec, LanguageModelSpec, ShardedSpec, TransformerSpec

# They count what is not stored as it is.
SHARED = (ShardedSpec, ExactSpec, LanguageModelSpec, TransformerSpec)


def test_the_list_in_conftest_is_complete(every_spec):
    public = [getattr(specs, name) for name in specs.__all__]
    assert {type(spec) for spec in every_spec} == {c for c in public if hasattr(c, "family")}
    assert len({spec.family for spec in every_spec}) == len(every_spec) == 12


def test_a_spec_is_hashable_prints_itself_and_survives_json(spec):
    again = type(spec).from_json(json.loads(json.dumps(spec.to_json())))
    assert again == spec and hash(again) == hash(spec) and {again: 1}[spec] == 1
    assert "\n" not in str(spec) and ": " in str(spec) and str(again) == str(spec)
    assert spec.row_bytes(8) == 2 * spec.row_bytes(4) > 0


def test_the_closed_form_counts_the_weights(spec):
    shapes = spec.weight_shapes()
    if not isinstance(spec, SHARED):
        assert sum(math.prod(shape) for shape in shapes.values()) == spec.parameters
    assert all(size >= 1 for shape in shapes.values() for size in shape)


@pytest.mark.parametrize("value", [-(10**19), 1.5, "3", True])
def test_every_size_is_checked_by_its_type(spec, value):
    sizes = [n for n, v in spec.to_json().items() if isinstance(v, int) and not isinstance(v, bool)]
    for name in sizes:
        with pytest.raises(ValueError, match=f"^{name} must be a whole number >= "):
            replace(spec, **{name: value})


def test_another_package_can_subclass(LookUp):
    spec = LookUp(N=7)
    assert str(spec) == "look-up table: N=7" and LookUp.from_json(spec.to_json()) == spec
    assert (spec.weight_shapes(), spec.row_bytes(4)) == ({}, 28)
    with pytest.raises(ValueError, match="order must be true or false, found 'yes'"):
        LookUp(N=7, order="yes")  # pyright: ignore[reportArgumentType]
