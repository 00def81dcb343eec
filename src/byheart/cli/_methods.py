"""Options of the command line from the fields of methods, each refused where it does not belong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from typing import TYPE_CHECKING, Annotated

import typer

from byheart._plugins import leave_out
from byheart.cli._flags import flag, with_flags
from byheart.methods import BUILT_IN, type_names

if TYPE_CHECKING:
    from byheart.methods import Method

COMMON = "Every method"


def method_options(
    methods: Mapping[str, type[Method]], taken: Iterable[str] = ()
) -> dict[str, tuple[object, object]]:
    """One option for each field of the methods: name -> (annotation, default). Nothing given is
    None (False for switches), so that an option which was given can be told. An option that is
    spelled like another one, or like those of the command (`taken`), is for Python alone."""
    owners: dict[str, list[tuple[str, Field]]] = {}
    meanings: dict[str, tuple[str, type | None]] = {flag(name): ("", None) for name in taken}
    for name, method in methods.items():
        for f in fields(method):
            if "help" not in f.metadata:  # for Python alone
                continue
            meaning = f.name, _kind(f)
            if name not in BUILT_IN and meanings.get(flag(f.name), meaning) != meaning:
                wrong = f"the option {flag(f.name)} of {name} has another meaning already."
                leave_out("byheart.methods", wrong)
                continue
            meanings.setdefault(flag(f.name), meaning)
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
    words = type_names(field)
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


def given_options(
    values: Mapping[str, object], methods: Mapping[str, type[Method]]
) -> dict[str, object]:
    """The options that were given, as the methods take them: a switch that is on is turned off."""
    on = {f.name for method in methods.values() for f in fields(method) if f.default is True}
    given = {name: v for name, v in values.items() if v is not None and v is not False}
    return {name: False if name in on else v for name, v in given.items()}
