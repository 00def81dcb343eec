"""Methods, memories, bounds and studies of other packages, found by their entry points.

A package names its own in `pyproject.toml` (docs/extending.md), and byheart lists them beside what
it ships. A package that is broken is named in a warning and left out.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from byheart.errors import ByheartError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class PluginWarning(UserWarning):
    """Something of another package that is left out, and why."""


@dataclass(frozen=True)
class Plugin:
    """What an entry point names, with the `source` that messages give: package and path."""

    name: str
    source: str
    value: object


def points(group: str) -> list[EntryPoint]:
    """The entry points of other packages in `group`; nothing of them is imported."""
    from importlib.metadata import entry_points  # slow: many commands need no other package

    return sorted(entry_points(group=group), key=lambda point: (source_of(point), point.name))


@cache
def plugins(group: str) -> tuple[Plugin, ...]:
    """What other packages add to `group`, without those that cannot be loaded."""
    found: list[Plugin] = []
    for point in points(group):
        try:
            found.append(Plugin(point.name, source_of(point), load_plugin(point)))
        except ByheartError as error:
            leave_out(group, str(error))
    return tuple(found)


def source_of(point: EntryPoint) -> str:
    """The package of an entry point, and what it names.

    >>> from importlib.metadata import EntryPoint
    >>> source_of(EntryPoint("hopfield", "my_package.method:Hopfield", "byheart.methods"))
    'a package (hopfield = my_package.method:Hopfield)'
    """
    package = point.dist.name if point.dist is not None else "a package"
    return f"{package} ({point.name} = {point.value})"


def load_plugin(point: EntryPoint) -> object:
    """What an entry point names; a package that cannot be imported is named in the error."""
    try:
        return point.load()
    except Exception as error:  # whatever another package raises
        raise ByheartError(
            f"{source_of(point)} cannot be loaded: {type(error).__name__}: {error}. Mend or "
            "uninstall that package."
        ) from error


def leave_out(group: str, reason: str) -> None:
    """Warn that something of another package is left out."""
    warnings.warn(f"{group}: {reason} It is left out.", PluginWarning, stacklevel=3)
