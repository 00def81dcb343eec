"""Methods, bounds and studies of other packages, found by their entry points.

A package adds its own in `pyproject.toml`, and byheart lists it beside what it ships:

    [project.entry-points."byheart.methods"]
    hopfield = "my_package.method:Hopfield"
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from byheart.errors import ByheartError

GROUPS = ("byheart.methods", "byheart.bounds", "byheart.studies")


@cache
def plugins(group: str) -> dict[str, EntryPoint]:
    """The entry points of other packages in `group`, by name; nothing is imported yet."""
    return {point.name: point for point in sorted(entry_points(group=group))}


def load_plugin(point: EntryPoint) -> object:
    """What an entry point names; a package that cannot be imported is named in the error."""
    try:
        return point.load()
    except Exception as error:
        package = point.dist.name if point.dist is not None else "a package"
        raise ByheartError(
            f"{point.group}: {point.name!r} of {package} ({point.value}) cannot be loaded: "
            f"{type(error).__name__}: {error}. Mend or uninstall that package."
        ) from error
