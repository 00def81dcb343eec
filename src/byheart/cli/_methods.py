"""Options of the command line from the fields of methods, each refused where it does not belong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import TYPE_CHECKING, Annotated

import typer

from byheart.cli._flags import flag, with_flags

if TYPE_CHECKING:
    from byheart.methods import Method

COMMON = "Every method"


def method_options(methods: Mapping[str, type[Method]]) -> dict[str, tuple[object, object]]:
    """One option for each field of the methods: name -> (annotation, default). Nothing given is
    None (False for switches), so that an option which was given can be told."""
    owners: dict[str, list[tuple[str, Field]]] = {}
    for name, method in methods.items():
        for f in fields(method):
            if "help" in f.metadata:  # others are for Python alone
                owners.setdefault(f.name, []).append((name, f))
    names = {f.name for of in owners.values() for _, f in of} | {"method"}
    return {name: _option(of, len(methods), names) for name, of in owners.items()}


def _option(
    owners: list[tuple[str, Field]], methods: int, names: set[str]
) -> tuple[object, object]:
    field = owners[0][1]
    switch = isinstance(field.default, bool)
    kind = _kind(field)
    off = switch and field.default  # a switch that is on: its option turns it off
    spelled = flag(f"{field.name}=False" if off else field.name)
    option = typer.Option(
        spelled,
        help=with_flags(_help(owners), names),
        metavar=_metavar(owners),
        min=field.metadata.get("min") if kind in (int, float) else None,
        max=field.metadata.get("max") if kind in (int, float) else None,
        rich_help_panel=_panel(owners, methods),
        show_default=False,
    )
    if switch:
        return Annotated[bool, option], False
    return Annotated[kind | None, option], None


def _kind(field: Field) -> type:
    """int, float, str or bool; a number or an address is text."""
    words = str(field.type).replace("|", " ").split()
    for name, kind in (("str", str), ("bool", bool), ("float", float), ("int", int)):
        if name in words:
            return kind
    return str


def _help(owners: list[tuple[str, Field]]) -> str:
    """What the methods say about the option, each once, with its default."""
    said: dict[str, list[str]] = {}
    for name, field in owners:
        text, default = field.metadata["help"], field.default
        if default not in (None, MISSING, "") and not isinstance(default, bool):
            text = f"{text} Default: {default}."
        said.setdefault(text, []).append(name)
    if len(said) == 1:
        return next(iter(said))
    return " ".join(f"{', '.join(names)}: {text}" for text, names in said.items())


def _metavar(owners: list[tuple[str, Field]]) -> str | None:
    choices = dict.fromkeys(c for _, f in owners for c in f.metadata.get("choices") or ())
    return "|".join(choices) or owners[0][1].metadata.get("metavar")


def _panel(owners: list[tuple[str, Field]], methods: int) -> str:
    panel = owners[0][1].metadata.get("panel")
    if panel:
        return panel
    names = [name for name, _ in owners]
    if methods == 1 or len(names) > 3:
        return COMMON
    return f"With --method {' or '.join(names)}"


def given_options(values: Mapping[str, object]) -> dict[str, object]:
    """The options that were given, as the method takes them."""
    given = {name: v for name, v in values.items() if v is not None and v is not False}
    if given.pop("ordered", None):
        given["ordered"] = False
    return given
