"""Tables of facts that come with the package."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable

__all__ = ["builtin_file", "builtin_tables"]

TABLES = {
    "countries": "195 countries with capital, continent and currency: (country, relation) -> value",
    "elements": "118 chemical elements with atomic number and name: (symbol, relation) -> value",
}


def builtin_tables() -> dict[str, str]:
    """Name -> one-line description. `read_facts(name)` reads the table.

    Example:
        >>> list(builtin_tables())
        ['countries', 'elements']
    """
    return dict(TABLES)


def builtin_file(name: str) -> Traversable:
    """The CSV file of a built-in table, inside the package."""
    return files("byheart.facts").joinpath("data", f"{name}.csv")
