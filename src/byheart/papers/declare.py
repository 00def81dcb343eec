"""A paper's studies: words from `words/PAPER.toml`, grids, analyses and figures from its code."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING

from byheart.studies import laws
from byheart.studies.cell import Cell, Params
from byheart.studies.study import Axes, Finding, Record, Row, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARED: Params = {"EXPONENT_RULE": laws.EXPONENT_RULE, "NEAR": laws.NEAR, "WIDE": laws.WIDE}


@lru_cache
def words_of(paper: str) -> Mapping[str, Record]:
    """What a paper's studies say of themselves, by their names."""
    path = resources.files("byheart.papers") / "words" / f"{paper}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def declare(
    name: str,
    grid: Sequence[Cell] | Callable[[str, str], Sequence[Cell]],
    analyse: Callable[[list[Row]], Finding],
    axes: Axes | tuple[Axes, ...],
    figure: Callable[[list[Row], Finding], Figure] | None = None,
    *,
    settings: str | None = None,
    **numbers: object,
) -> Study:
    """The study `name` with its words, in which {NAME} stands for a text that several share, or for
    one of the `numbers`: the rule of a verdict names the constants that the analysis uses.

    >>> declare("slides/associative", [], laws.too_few, Axes("d", "T"), FEW=16).source
    'slides of June 2024, associative memory'
    """
    paper, _, short = name.partition("/")
    table = words_of(paper)
    words = {**table[short]}
    while "like" in words:
        like = table[words.pop("like")]
        words = {key: value for key, value in like.items() if key != "aliases"} | words
    common = {key: text.format() for key, text in table.get("common", {}).items()}
    shown = {**SHARED, **common, **numbers}

    def filled(value: object) -> object:
        if isinstance(value, str):
            return value.format(**shown)
        return tuple(map(filled, value)) if isinstance(value, list) else value

    fields: Record = {key: filled(value) for key, value in words.items()}
    fields["aliases"] = tuple(f"{paper}/{alias}" for alias in fields.get("aliases", ()))
    if settings is not None:
        fields["settings"] = settings
    return Study(name, grid, analyse, axes=axes, figure=figure, **fields)
