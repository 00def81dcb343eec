"""Examples in docstrings run; the errors keep their exit codes."""

import doctest
import importlib
import pkgutil

import pytest

import byheart.errors
import byheart.facts

MODULES = [
    "byheart.errors",
    "byheart.facts",
    *(f"byheart.facts.{module.name}" for module in pkgutil.iter_modules(byheart.facts.__path__)),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str):
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_exit_codes():
    for name in ("FactsError", "ConflictError", "CapacityError", "MemoryFileError"):
        error = getattr(byheart.errors, name)
        assert issubclass(error, byheart.errors.ByheartError) and error.exit_code == 2
    assert byheart.errors.CheckFailed.exit_code == 1
    assert issubclass(byheart.errors.ConflictError, byheart.errors.FactsError)
