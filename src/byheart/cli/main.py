"""`byheart`: the command and its subcommands."""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module

import typer

from byheart._plugins import PluginWarning
from byheart._version import __version__
from byheart.cli._show import emit_error, for_programs, parsing, printable

# Command -> the module of its function. A command is imported when it is asked for, so that asking
# a memory does not wait for what only building needs.
COMMANDS = {
    "build": "build", "recall": "recall", "certify": "certify", "facts": "facts", "bound": "bound",
    "size": "size", "owner": "recall", "export": "export", "import": "build", "edit": "certify",
    "train": "build", "capacity": "capacity", "reproduce": "reproduce", "encoder": "facts",
    "kruskal": "measure", "heads": "measure", "audit": "measure", "precision": "measure",
    "report": "export", "explore": "export",
}  # fmt: skip
HELP = """Turn a table of facts into a Transformer that recalls every one of them, and prove it.

A first walk, with the countries of the world that ship with byheart:

  byheart facts countries

  byheart build countries -o countries.memory --certify

  byheart recall countries.memory France capital

  byheart certify countries.memory

Your own facts: a CSV file with a header, the answer in the last column. Exit codes: 0 good, 1 a
check failed, 2 wrong use or input."""
_other_warnings = warnings.showwarning


def _show_warning(message: Warning | str, category: type[Warning], *place: object) -> None:
    """What is left out of another package is one line, without the place in byheart."""
    if issubclass(category, PluginWarning):
        print(f"warning: {message}", file=sys.stderr)
    else:
        _other_warnings(message, category, *place)  # type: ignore[arg-type]


warnings.showwarning = _show_warning


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"byheart {__version__}")
        raise typer.Exit


def options(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", callback=_version, is_eager=True
    ),
) -> None:
    """Options before the command's name."""


def make_app(*names: str) -> typer.Typer:
    """The command line with the commands `names`, or with all of them."""
    app = typer.Typer(
        name="byheart",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help=HELP,
    )
    app.callback()(options)
    for name in names or COMMANDS:
        module = import_module(f"byheart.cli.{COMMANDS[name]}")
        function = getattr(module, "import_" if name == "import" else name)
        app.command(name)(function)
    return app


def __getattr__(name: str) -> typer.Typer:
    if name == "app":  # the whole command line, for programs that want it
        return make_app()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main() -> None:
    for size in ("COLUMNS", "LINES"):  # nothing at all is shown on a terminal of width 0
        given = os.environ.get(size, "1")
        if not (given.isascii() and given.isdigit()) or int(given) == 0:
            del os.environ[size]
    asked = COMMANDS.keys() & sys.argv[1:2]
    # More than one command: typer takes the only one of an app for the app itself.
    app = make_app(*(asked | {"recall", "owner"} if asked else ()))
    with parsing():
        run(app)


def run(app: typer.Typer) -> None:
    """Run the command line. What the parser says of wrong use shows a word as the commands do,
    without controls that a terminal obeys; with --json it is one object on stdout too."""
    for_programs.set("--json" in sys.argv)
    try:
        code = app(standalone_mode=False)
    except Exception as error:
        # The parser's own errors, whose class typer does not export, know how to show themselves.
        show = getattr(error, "show", None)
        if show is None:
            raise
        from typer.rich_utils import rich_format_error

        error.message = printable(error.message)  # type: ignore[attr-defined]
        emit_error(error.format_message())  # type: ignore[attr-defined]
        show() if for_programs.get() else rich_format_error(error)  # type: ignore[arg-type]
        code = error.exit_code  # type: ignore[attr-defined]
    sys.exit(code or 0)
