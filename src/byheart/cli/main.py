"""`byheart`: the command and its subcommands."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from importlib import import_module

import typer

from byheart._plugins import PluginWarning
from byheart._version import __version__
from byheart.cli._show import (
    SIGNALLED,
    emit_error,
    for_programs,
    in_command,
    interrupted,
    parsing,
    printable,
)

# Command -> the module of its function. A command is imported when it is asked for, so that asking
# a memory does not wait for what only building needs.
COMMANDS = {
    "build": "build", "recall": "recall", "certify": "certify", "facts": "facts", "bound": "bound",
    "size": "size", "owner": "recall", "export": "export", "import": "build", "edit": "certify",
    "train": "build", "capacity": "capacity", "reproduce": "reproduce", "encoder": "facts",
    "kruskal": "measure", "heads": "measure", "audit": "measure", "precision": "measure",
    "report": "export", "explore": "export", "disguise": "disguise", "localise": "localise",
    "edits": "edits",
}  # fmt: skip
HELP = """Turn a table of facts into a Transformer that recalls every one of them, and prove it.

A first walk, with the countries of the world that ship with byheart:

  byheart facts countries

  byheart build countries -o countries.memory --certify

  byheart recall countries.memory France capital

  byheart certify countries.memory

Your own facts: a CSV file with a header, the answer in the last column. Exit codes: 0 good, 1 a
check failed, 2 wrong use or input."""
TRY = """\
byheart turns a table of facts into a Transformer that recalls every one of them, and proves it.

Three things to try:

  byheart build countries -o countries.memory --certify    585 facts about countries, with a proof
  byheart recall countries.memory France capital           ask it, and see which heads answered
  byheart reproduce dana2025/demo --recorded               a paper's scaling law, with a verdict

byheart --help lists all commands, byheart COMMAND --help explains one.
byheart --install-completion teaches your shell to complete them."""
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
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", callback=_version, is_eager=True
    ),
) -> None:
    """Options before the command's name; without one, something to try."""
    if context.invoked_subcommand is None:
        typer.echo(TRY)


def make_app(*names: str) -> typer.Typer:
    """The command line with the commands `names`, or with all of them."""
    app = typer.Typer(
        name="byheart",
        invoke_without_command=True,
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
    """The command line of this process. Ctrl-C ends it with one sentence also before a command has
    begun: its modules take a moment to load."""
    try:
        _main()
    except KeyboardInterrupt:
        sys.exit(interrupted())
    finally:  # pressed again while the interpreter ends: there is nothing left to interrupt
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _main() -> None:
    for size in ("COLUMNS", "LINES"):  # nothing at all is shown on a terminal of width 0
        given = os.environ.get(size, "1")
        if not (given.isascii() and given.isdigit()) or int(given) == 0:
            del os.environ[size]
    words = completed_words() or sys.argv[1:]
    asked = COMMANDS.keys() & words[:1]
    # More than one command: typer takes the only one of an app for the app itself.
    app = make_app(*(asked | {"recall", "owner"} if asked or not words else ()))
    with parsing():
        run(app)


def completed_words() -> list[str]:
    """The words after `byheart` on a line that a shell wants completed, as bash, zsh and fish hand
    them over; there are none otherwise. Of an unfinished line only the first word counts here."""
    line = os.environ.get("COMP_WORDS", os.environ.get("_TYPER_COMPLETE_ARGS", ""))
    return [*line.split()[1:], ""] if "_BYHEART_COMPLETE" in os.environ else []


def run(app: typer.Typer) -> None:
    """Run the command line. What the parser says of wrong use shows a word as the commands do,
    without controls that a terminal obeys; with --json it is one object on stdout too."""
    for_programs.set("--json" in sys.argv)
    try:
        code = app(standalone_mode=False)
        if code == SIGNALLED + signal.SIGINT and not in_command.get():  # the parser's own way
            code = interrupted()
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
