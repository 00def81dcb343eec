"""`byheart recall`: ask a memory."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from byheart.cli import _options as opt
from byheart.cli._show import guarded
from byheart.errors import ByheartError

NUMBERS = ("multi-head", "sqrt")  # families whose way of answering is loaded when it is needed


@guarded
def recall(
    folder: opt.Folder,
    tokens: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOKEN...",
            help="The key, one token an argument. Vector memories: the number of an example, or a "
            "file of queries.",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Ask for every fact the memory holds.")
    ] = False,
    top: Annotated[int, typer.Option(min=0, help="How many heads, or answers, to show.")] = 5,
    abstain: Annotated[
        bool,
        typer.Option("--abstain", help="Tell other keys by their fingerprints, without the facts."),
    ] = False,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Show what the model says, even where the key is not stored."),
    ] = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Sharded memories: through all heads of the literal layer; exact memories: every "
            "block in integers.",
        ),
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """Ask the memory in DIR: the answer, its margin, and which heads carried it.

    A key that is not stored is answered `not stored` (exit code 1); --raw shows what the model says
    about it, which means nothing. margin = logit of the answer minus the next best; it is the exact
    sum of what the skip and each head contribute. A memory of distributions shows the top answers
    with their probabilities, recalled and stored.
    """
    if bool(tokens) == everything:
        raise ByheartError("give the tokens of one key, or --all (not both).")
    family = opt.check_memory_folder(folder)["family"]

    from byheart.cli._recall import Asked, ask, ask_all
    from byheart.models import load

    if family in NUMBERS:
        import_module("byheart.cli._recall_numbers")

    memory = load(folder, lazy=not everything and not full)
    asked = Asked(
        tuple(tokens or ()), top=top, abstain=abstain, raw=raw, full=full, as_json=as_json
    )
    good = ask_all(memory, asked) if everything else ask(memory, asked)
    if not good:
        raise typer.Exit(1)
