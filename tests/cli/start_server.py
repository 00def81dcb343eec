"""A Python that has loaded what byheart's command line is written with, and nothing of byheart: it
forks for every start, so that each has a process of its own and typer is not loaded every time.

A line of JSON on stdin is a start (arguments, folder, environment, files for what it says); the
line on stdout that answers is its exit code as the system gives it.
"""

import contextlib
import importlib
import json
import os
import sys
from typing import TypedDict

LIBRARIES = "typer.main", "typer.rich_utils", "typer._adapters", "importlib.metadata", "csv"


class Request(TypedDict):
    args: list[str]
    folder: str
    environment: dict[str, str]
    stdout: str
    stderr: str


def start(request: Request) -> None:
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for number, name in enumerate((os.devnull, request["stdout"], request["stderr"])):
        file = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(file, number)
        os.close(file)
    sys.argv = ["byheart", *request["args"]]
    from byheart.cli.main import main

    try:
        main()
    except SystemExit as error:
        print("\nLOADED", error.code or 0, *sys.modules)


def serve() -> None:
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):  # another typer may be arranged otherwise
            importlib.import_module(name)
    assert not any(name.startswith("byheart") for name in sys.modules)
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()
        if child == 0:
            start(json.loads(line))
            return
        _, status = os.waitpid(child, 0)
        print(status, flush=True)


if __name__ == "__main__":
    serve()
