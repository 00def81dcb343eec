"""A paper's studies: words from `words/PAPER.toml`, grids, analyses and figures from its code;
what several papers' experiments share."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import resources

from byheart.studies import Axes, Cell, Finding, Params, Procedure, Record, Row, Study, figure, laws
from byheart.studies.study import Published

Grid = Callable[[str, str], Sequence[Cell]]
SHARED: Params = {"EXPONENT_RULE": laws.EXPONENT_RULE, "NEAR": laws.NEAR}
PRECISE = 1.1  # a search for the largest number ends when the bracket is this narrow
MOST = 1 << 16  # it does not look further


@lru_cache
def words_of(paper: str) -> Mapping[str, Record]:
    """What a paper's studies say of themselves, by their names."""
    path = resources.files("byheart.papers") / "words" / f"{paper}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


class _Shown(dict[str, object]):
    """What {NAME} stands for: a number of the code, or a text of [common] that may name others."""

    def __init__(self, numbers: Params, common: Mapping[str, str]) -> None:
        super().__init__(numbers)
        self.common = common

    def __missing__(self, name: str) -> str:
        return self.common[name].format_map(self)


def declare(
    name: str, grid: Sequence[Cell] | Grid, analyse: Callable[[list[Row]], Finding],
    axes: Axes | tuple[Axes, ...],
    figure: Callable[[list[Row], Finding], figure.Figure] | None = None, *,
    settings: str | None = None, published: Published | None = None, **numbers: object,
) -> Study:  # fmt: skip
    """The study `name` with its words, in which {NAME} stands for a text that several share, or for
    one of the `numbers`: the rule of a verdict names the constants that the analysis uses.

    >>> declare("mahdavi2024/depth", [], laws.too_few, Axes("layers", "accuracy"), SAME=0.05).title
    'The same heads in one layer or in several'
    """
    paper, _, short = name.partition("/")
    table = words_of(paper)
    words = {**table[short]}
    while "like" in words:
        like = table[words.pop("like")]
        words = {key: value for key, value in like.items() if key != "aliases"} | words
    shown = _Shown({**SHARED, **numbers}, table.get("common", {}))

    def filled(value: object) -> object:
        if isinstance(value, str):
            return value.format_map(shown)
        return tuple(map(filled, value)) if isinstance(value, list) else value

    fields: Record = {"stands_for": "paper"} | {key: filled(v) for key, v in words.items()}
    fields["aliases"] = tuple(f"{paper}/{alias}" for alias in fields.get("aliases", ()))
    lines = fields.get("compared", ())  # four texts, or one with bars between them
    fields["compared"] = tuple(
        tuple(line.split(" | ")) if isinstance(line, str) else line for line in lines
    )
    if settings is not None:
        fields["settings"] = settings
    return Study(name, grid, analyse, axes=axes, figure=figure, published=published, **fields)


def by_profile(
    procedure: Procedure, experiment: str, quick: Params, paper: Params, **settings: object
) -> Grid:
    """A grid: `settings`, and those of the quick profile or of the others."""

    def grid(variant: str, profile: str) -> list[Cell]:
        return procedure.grid(experiment, **settings, **(quick if profile == "quick" else paper))

    return grid


def largest_passing(passes: Callable[[int], bool], start: int, precise: float = PRECISE) -> int:
    """The largest T found with passes(T): doubling from `start`, then bisection to 10 %.

    >>> largest_passing(lambda T: T <= 100, 16) in range(91, 101)
    True
    >>> largest_passing(lambda T: T <= 3, 16)
    3
    """
    low, high = 0, start
    while high <= MOST and passes(high):
        low, high = high, 2 * high
    while high - low > 1 and high > precise * low:
        middle = (low + high) // 2 if low == 0 else round((low * high) ** 0.5)
        middle = min(max(middle, low + 1), high - 1)
        low, high = (middle, high) if passes(middle) else (low, middle)
    return low
