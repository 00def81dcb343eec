"""`byheart`: the command and its subcommands."""

from __future__ import annotations

import sys

import typer

from byheart._version import __version__
from byheart.cli._show import emit
from byheart.cli.audit import audit
from byheart.cli.bound import bound
from byheart.cli.build import build
from byheart.cli.capacity import capacity
from byheart.cli.certify import certify
from byheart.cli.edit import edit
from byheart.cli.encoder import encoder
from byheart.cli.export import export
from byheart.cli.facts import facts
from byheart.cli.heads import heads
from byheart.cli.import_ import import_
from byheart.cli.kruskal import kruskal
from byheart.cli.owner import owner
from byheart.cli.precision import precision
from byheart.cli.recall import recall
from byheart.cli.report import explore, report
from byheart.cli.reproduce import reproduce
from byheart.cli.size import size
from byheart.cli.train import train

app = typer.Typer(
    name="byheart",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Turn a table of facts into a Transformer that recalls every one of them, and prove it."
        "\n\nA first walk, with the countries of the world that ship with byheart:"
        "\n\n  byheart facts countries"
        "\n\n  byheart build countries -o countries.memory --certify"
        "\n\n  byheart recall countries.memory France capital"
        "\n\n  byheart certify countries.memory"
        "\n\nYour own facts: a CSV file with a header, the answer in the last column."
        " Exit codes: 0 good, 1 a check failed, 2 wrong use or input."
    ),
)
app.command()(build)
app.command()(recall)
app.command()(certify)
app.command()(facts)
app.command()(bound)
app.command()(size)
app.command()(owner)
app.command()(export)
app.command("import")(import_)
app.command()(edit)
app.command()(train)
app.command()(capacity)
app.command()(reproduce)
app.command()(encoder)
app.command()(kruskal)
app.command()(heads)
app.command()(audit)
app.command()(precision)
app.command()(report)
app.command()(explore)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"byheart {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", callback=_version, is_eager=True
    ),
) -> None:
    """Options before the command's name."""


def main() -> None:
    if "--json" not in sys.argv:
        app()
        return
    try:
        code = app(standalone_mode=False)
    except Exception as error:
        # The parser's own errors, whose class typer does not export, know how to show themselves.
        show = getattr(error, "show", None)
        if show is None:
            raise
        emit({"error": error.format_message()})  # type: ignore[attr-defined]
        show()
        code = error.exit_code  # type: ignore[attr-defined]
    sys.exit(code or 0)
