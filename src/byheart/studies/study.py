"""A study: a named grid of cells with a measurement, a fit, a figure and a verdict by rule."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from byheart.errors import OptionError, check_choice, did_you_mean
from byheart.studies.cell import Cell, Params, Value, stacks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Verdict = Literal["confirmed", "not confirmed", "artefact", "undecided"]
Profile = Literal["quick", "full", "paper"]
PROFILES: tuple[Profile, ...] = ("quick", "full", "paper")
SEEDS = {"quick": 2, "full": 5, "paper": 5}
Record = dict[str, Value]
"""One line of a table: names and numbers or text."""


@dataclass(frozen=True)
class Row:
    """One (cell, seed): parameters and measurements, `row["H"]` finds either.

    `error` is set, and there are no measurements, where the cell failed.
    """

    study: str
    experiment: str
    variant: str
    cell: str
    seed: int
    params: Params
    measurements: Params
    error: str | None = None
    seconds: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)
    device: str = "cpu"
    threads: int = 1
    stack: int = 1

    def __getitem__(self, name: str) -> Value:
        for values in (self.measurements, self.params):
            if name in values:
                return values[name]
        if name in ("study", "experiment", "variant", "cell", "seed", "seconds"):
            return getattr(self, name)
        names = sorted({*self.measurements, *self.params})
        raise KeyError(f"a row has no {name!r}; it has {', '.join(names)}")

    def get(self, name: str, default: Value = None) -> Value:
        try:
            return self[name]
        except KeyError:
            return default


@dataclass(frozen=True)
class Finding:
    """What the rows say: the verdict, the sentence that follows from the numbers, the numbers.

    `numbers` maps a name to a number or to {"estimate", "low", "high"}; `tables` are lists of
    flat dicts (the fits with their alternatives, for instance), shown in this order.
    """

    verdict: Verdict
    sentence: str
    numbers: Params = field(default_factory=dict)
    tables: Mapping[str, Sequence[Params]] = field(default_factory=dict)

    def to_json(self) -> Record:
        tables = {name: [dict(r) for r in rows] for name, rows in self.tables.items()}
        said = {"verdict": self.verdict, "sentence": self.sentence}
        return {**said, "numbers": dict(self.numbers), "tables": tables}

    @classmethod
    def from_json(cls, record: Params) -> Finding:
        return cls(record["verdict"], record["sentence"], record["numbers"], record["tables"])


@dataclass(frozen=True)
class Axes:
    """What one panel of a study's figure shows: y against x, a line for each value of `by`.

    `x`, `y` and `by` name parameters or measurements; `where` is the experiment whose rows are
    shown (all, unless given); `bound` a measurement that a theorem promises of y, drawn dashed;
    `log` is "x", "y" or "xy"; `bottom` and `top` are ends of the y axis; `label` is a format of
    {name} and {value}.
    """

    x: str
    y: str
    by: str | None = None
    x_label: str = ""
    y_label: str = ""
    log: str = ""
    bottom: float | None = None
    top: float | None = None
    label: str = "{name} = {value}"
    where: str | None = None
    bound: str | None = None


@dataclass(frozen=True)
class Study:
    """A figure or table by name, "paper/figure"; docs/studies.md says how to write one.

    `grid`: the cells, or `grid(variant, profile)`; `analyse(rows)`: fit and verdict by the `rule`;
    `axes`: what the figure shows, a panel each, or `figure(rows, finding)` that draws it. Rows that
    failed are handed to neither; both must cope with a part of the grid. `variants`: the first is
    the default; `seeds`: how many for each profile; `seconds`: CPU seconds by profile, where they
    were measured as a whole. `source`, `claim`, `measurement`, `settings` (what a reader must know
    of the grid and the training) and `disagreements` (of paper, code and data) are words.
    """

    name: str
    grid: Sequence[Cell] | Callable[[str, str], Sequence[Cell]]
    analyse: Callable[[list[Row]], Finding]
    title: str = ""
    source: str = ""
    claim: str = ""
    measurement: str = ""
    rule: str = ""
    axes: Axes | tuple[Axes, ...] = ()
    figure: Callable[[list[Row], Finding], Figure] | None = None
    variants: tuple[str, ...] = ("as-coded",)
    seeds: Mapping[str, int] = field(default_factory=lambda: dict(SEEDS))
    settings: str = ""
    disagreements: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.title:
            object.__setattr__(self, "title", self.name)

    @property
    def paper(self) -> str:
        return self.name.partition("/")[0]

    def chosen_variants(self, variant: str | None) -> tuple[str, ...]:
        """The variants to run: the one named, or all of them ("all" or None)."""
        if variant is None or variant == "all":
            return self.variants
        check_choice("variant", variant, [*self.variants, "all"])
        return (variant,)

    def seed_numbers(self, profile: str, seeds: int | Sequence[int] | None) -> Sequence[int]:
        """Which seeds: those given, or so many, or as many as the profile has."""
        if seeds is not None and not isinstance(seeds, int):
            return list(seeds)
        return range(self.seeds.get(profile, SEEDS["full"]) if seeds is None else seeds)

    def cells(self, variant: str, profile: str) -> list[Cell]:
        """The cells of one variant, each once."""
        cells = self.grid(variant, profile) if callable(self.grid) else self.grid
        return list({(c.hash, c.experiment): c for c in cells}.values())

    def parameter_names(self, profile: str, variant: str | None = None) -> set[str]:
        """The parameters that cells of one variant, or of all, have in a profile."""
        variants = self.chosen_variants(variant)
        return {name for v in variants for cell in self.cells(v, profile) for name in cell.params}

    def with_values(self, values: Mapping[str, Sequence[object]]) -> Study:
        """The study on another grid: each of these parameters takes the values given, in every
        combination; what follows from it follows. A cell without a parameter keeps what it has."""
        every = (c for p in PROFILES for v in self.variants for c in self.cells(v, p))
        known = sorted(set().union(*(cell.settable for cell in every)))
        for name in values:
            if name not in known:
                expected = f"values of parameters of {self.name} ({', '.join(known)})"
                raise OptionError("set", expected, name, did_you_mean(name, known))

        def grid(variant: str, profile: str) -> list[Cell]:
            cells = []
            for cell in self.cells(variant, profile):
                names = [name for name in values if name in cell.settable]
                for choice in itertools.product(*(values[name] for name in names)):
                    cells.append(cell.with_settings(dict(zip(names, choice, strict=True))))
            return cells

        return replace(self, grid=grid)

    def draw(self, rows: list[Row], finding: Finding) -> Figure:
        """The study's figure: its own, or that of its axes, or of axes that suit the rows."""
        if self.figure is not None:
            return self.figure(rows, finding)
        from byheart.studies.figure import draw_axes

        return draw_axes(self.title, self.panels(rows), rows)

    def panels(self, rows: Sequence[Row]) -> tuple[Axes, ...]:
        """The axes of the figure's panels; without any, those that suit the rows."""
        from byheart.studies.figure import suitable

        axes = (self.axes,) if isinstance(self.axes, Axes) else self.axes
        return axes or (suitable(rows),)

    def estimate(self, profile: str) -> tuple[float, str]:
        """CPU seconds of all variants, and whether "measured" or "estimated"."""
        if profile in self.seconds:
            return self.seconds[profile], "measured"
        cells = [cell for v in self.variants for cell in self.cells(v, profile)]
        planned = stacks(cells, self.seed_numbers(profile, None))
        return sum(job.cell.seconds for jobs in planned for job in jobs), "estimated"
