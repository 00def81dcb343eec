"""For all tests: the command line is put together once, not at every call."""

from collections.abc import Iterator
from functools import lru_cache

import hypothesis
import pytest
import typer.testing
from typer.main import get_command

# Where a test does not say how many examples it draws.
hypothesis.settings.register_profile("default run", max_examples=50)
hypothesis.settings.load_profile("default run")


@pytest.fixture(scope="session", autouse=True)
def one_command_line() -> Iterator[None]:
    """`CliRunner.invoke(app, ...)` makes every command of `app` with its options anew, which takes
    longer than most calls do. The same app has the same commands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", lru_cache(get_command))
        yield
