"""`byheart report` and `byheart explore`: pages and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from byheart.cli import _options as opt
from byheart.cli._show import emit, guarded, say, token_text
from byheart.errors import ByheartError

PICTURES = (".svg", ".png", ".pdf")
Open = Annotated[bool, typer.Option("--open", help="Show it in the browser.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that byheart did not write.")]


@guarded
def report(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR|STUDY.db|AUDIT.json...",
            help="Memory folders, studies, audits. Several give an index and a page each.",
        ),
    ],
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", help="Page (.html) or picture to write."),
    ] = "report.html",
    figure: Annotated[
        str | None,
        typer.Option(
            "--figure",
            metavar="NAME",
            help="Draw one picture instead (-o FILE.svg, .png or .pdf). Memories: head-map, "
            "ablation, margins, attention, capacity, condition, kl; studies: their names; audits: "
            "layers.",
        ),
    ] = None,
    show: Open = False,
    force: Force = False,
    as_json: opt.Json = False,
) -> None:
    """Write one self-contained page that shows a memory, a study or an audit.

    It opens from disk without network: facts to search, the certificate in plain words, which head
    carries which fact, margins, capacity, architecture. With --figure: one picture.
    """
    if figure is not None:
        if len(sources) != 1:
            raise ByheartError(f"--figure draws one input, found {len(sources)}.")
        from byheart.reports import figure as draw

        draw(sources[0], figure, output)
        if as_json:
            emit({"pages": [], "figure": figure, "path": output})
        else:
            say(f"Drawn to {output}")
        return
    if Path(output).suffix.lower() in PICTURES:
        raise ByheartError(
            f"{output} is a picture: say which (--figure NAME), or give -o FILE.html."
        )

    from byheart.reports import report as write

    pages = write(tuple(sources), output, force=force)
    if as_json:
        emit({"pages": [page.to_json() for page in pages], "figure": None, "path": output})
    else:
        for page in pages:
            say(f"{page.path}  {token_text(page.title)} ({page.kind}, {page.bytes / 1e6:.2f} MB)")
    if show:
        _open(Path(output), as_json)


@guarded
def explore(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")
    ] = "explorer.html",
    show: Annotated[bool, typer.Option("--open/--no-open", help="Show it in the browser.")] = True,
    force: Force = False,
    as_json: opt.Json = False,
) -> None:
    """Write and open the capacity explorer: move sizes, see what every theorem says at once.

    The formulas in the page are the functions of `byheart bound` and `byheart size`, translated.
    """
    from byheart.reports import explore as write

    page = write(output, force=force)
    if as_json:
        emit({"pages": [page.to_json()], "path": output})
    else:
        say(f"{page.path}  {page.title} ({page.bytes / 1e6:.2f} MB)")
    if show:
        _open(Path(output), as_json)


def _open(path: Path, quiet: bool) -> None:
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()) and not quiet:
        say("There is no browser here: open the file yourself.")
