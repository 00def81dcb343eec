"""Parameters as the command line spells them: the only place that knows flags."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Where a flag is not its parameter's name with dashes.
FLAGS = {
    "d": "--d-model",
    "H": "--heads",
    "d_h": "--d-head",
    "S": "--length",
    "N": "--vocab",
    "n": "--context",
    "folder": "-o DIR",
    "families": "--family",
    "ordered=False": "--unordered",
    "with_facts=False": "--no-facts",
}


def flag(parameter: str) -> str:
    """The flag of a parameter, or the one that turns a switch off.

    >>> flag("d_h"), flag("shard_size"), flag("trim=False")
    ('--d-head', '--shard-size', '--no-trim')
    """
    name = parameter.removesuffix("=False")
    spelled = ("--" if name == parameter else "--no-") + name.replace("_", "-")
    return FLAGS.get(parameter, spelled)


def with_flags(message: str, parameters: Iterable[str]) -> str:
    """A message of the library with the flags of `parameters` in place of the names that it has
    in backticks; other words in backticks stay as they are.

    >>> with_flags("use a larger `d`, or `dtype=float64`; see `docs`", ["d", "dtype"])
    'use a larger --d-model, or --dtype float64; see `docs`'
    """
    known = set(parameters)

    def spelled(match: re.Match[str]) -> str:
        whole, name, value = match[0], match[1], match[2]
        if name not in known:
            return whole
        if value == "False":
            return flag(whole[1:-1])
        return flag(name) if value in (None, "True") else f"{flag(name)} {value.strip(chr(39))}"

    return re.sub(r"`([A-Za-z_]\w*)(?:=([^`]*))?`", spelled, message)
