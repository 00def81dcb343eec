"""Ways to run `byheart` on vectors."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from byheart.cli.main import app


@pytest.fixture
def run() -> Callable[..., Result]:
    """`run("build", path, ...)` in this process; an exception that escapes fails the test."""

    def invoke(*args: object, code: int = 0) -> Result:
        result = CliRunner().invoke(app, [str(arg) for arg in args])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise AssertionError(f"{args}: a traceback for the user") from result.exception
        assert result.exit_code == code, result.output
        return result

    return invoke


@pytest.fixture
def run_json(run: Callable[..., Result]) -> Callable[..., dict[str, Any]]:
    def invoke(*args: object, code: int = 0) -> dict[str, Any]:
        record = json.loads(run(*args, "--json", code=code).stdout, parse_constant=pytest.fail)
        assert isinstance(record, dict)
        return record

    return invoke
