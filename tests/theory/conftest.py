"""Helpers of the theory tests."""

from collections.abc import Callable

import pytest
from hypothesis import settings

from byheart.theory.bound import Answer
from byheart.theory.registry import AnySpec, case_of, find

# A busy machine may take longer over an example than Hypothesis expects of an idle one.
settings.register_profile("theory", deadline=None)
settings.load_profile("theory")


@pytest.fixture(scope="session")
def ask() -> Callable[..., Answer]:
    """One bound asked about one spec: `ask("dana2025.corollary1", spec, facts=...)`."""

    def one(bound_id: str, spec: AnySpec, facts=None, **options) -> Answer:
        return find(bound_id).answer(case_of(spec, facts, **options))

    return one
