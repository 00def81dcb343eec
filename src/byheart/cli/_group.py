"""Options of commands: one in a line or two, and groups that a command takes as one argument."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import typer

Command = Callable[..., None]
Options = Mapping[str, tuple[object, object]]  # name -> (annotation, default)


Given = dict[str, object]


def option(
    default: object,
    help: str,
    *flags: str,
    metavar: str | None = None,
    min: float | None = None,
    max: float | None = None,
    panel: str | None = None,
    show_default: bool | str = True,
) -> Any:
    """An option as typer declares it: the default of a parameter, or the note of an `Annotated`
    type, whose parameters have the defaults (`...` here). Without flags it is `--its-name`."""
    return typer.Option(
        default,
        *flags,
        help=help,
        metavar=metavar,
        min=min,
        max=max,
        rich_help_panel=panel,
        show_default=show_default,
    )


def argument(metavar: str, help: str, default: object = ...) -> Any:
    """An argument as typer declares it, as `option`."""
    return typer.Argument(default, metavar=metavar, help=help)


def grouped(
    argument: str, options: Options, convert: Callable[[Given], Given] = lambda given: given
) -> Callable[[Command], Command]:
    """A command that takes `options` as one argument: a dict of those that were given."""

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)

        @functools.wraps(command)
        def run(*args: object, **values: object) -> None:
            chosen = {name: values.pop(name) for name in options if name in values}
            given = {name: v for name, v in chosen.items() if v != options[name][1]}
            command(*args, **values, **{argument: convert(given)})

        keyword = inspect.Parameter.KEYWORD_ONLY
        added = [
            inspect.Parameter(name, keyword, default=default, annotation=kind)
            for name, (kind, default) in options.items()
        ]
        kept = [
            p.replace(kind=keyword) for p in signature.parameters.values() if p.name != argument
        ]
        # typer makes the options from the signature and the annotations.
        run.__signature__ = signature.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in (*kept, *added)}
        return run

    return decorate
