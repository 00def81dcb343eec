"""A study: a named grid of cells with a measurement, a fit, a figure and a verdict by rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from byheart.errors import ByheartError
from byheart.studies.cell import Cell, stacks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Verdict = Literal["confirmed", "not confirmed", "artefact", "undecided"]
Profile = Literal["quick", "full", "paper"]
PROFILES: tuple[Profile, ...] = ("quick", "full", "paper")


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
    params: Mapping[str, Any]
    measurements: Mapping[str, Any]
    error: str | None = None
    seconds: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)
    device: str = "cpu"
    threads: int = 1
    stack: int = 1

    def __getitem__(self, name: str) -> Any:
        if name in self.measurements:
            return self.measurements[name]
        if name in self.params:
            return self.params[name]
        if name in ("study", "experiment", "variant", "cell", "seed", "seconds"):
            return getattr(self, name)
        known = sorted({*self.measurements, *self.params})
        raise KeyError(f"a row has no {name!r}; it has {', '.join(known)}")

    def get(self, name: str, default: Any = None) -> Any:
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
    numbers: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "sentence": self.sentence,
            "numbers": dict(self.numbers),
            "tables": {name: [dict(r) for r in rows] for name, rows in self.tables.items()},
        }


@dataclass(frozen=True)
class Study:
    """A figure or table by name.

    `name`: "paper/figure"; `title`; `source`: where it is in the paper; `claim`: what the paper
    says of it; `grid(variant, profile)`: the cells; `measurement`: what is measured, in words;
    `analyse(rows)`: fit and verdict, `rule` being the rule of the verdict in words;
    `draw(rows, finding)`: the figure; `variants`: the first is the default; `seeds`: how many for
    each profile; `settings`: what a reader must know of the grid and the training;
    `disagreements`: where paper, code and data differ; `seconds`: CPU seconds by profile, where
    they were measured as a whole (estimated from the cells otherwise); `aliases`: other names.
    Rows that failed are not handed to `analyse` and `draw`; both must cope with a part of the grid.
    """

    name: str
    title: str
    source: str
    claim: str
    measurement: str
    rule: str
    grid: Callable[[str, str], Sequence[Cell]]
    analyse: Callable[[list[Row]], Finding]
    draw: Callable[[list[Row], Finding], Figure]
    variants: tuple[str, ...] = ("as-coded",)
    seeds: Mapping[str, int] = field(default_factory=lambda: {"quick": 2, "full": 5, "paper": 5})
    settings: str = ""
    disagreements: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()

    @property
    def paper(self) -> str:
        return self.name.partition("/")[0]

    @property
    def default_variant(self) -> str:
        return self.variants[0]

    def chosen_variants(self, variant: str | None) -> tuple[str, ...]:
        """The variants to run: the one named, or all of them ("all" or None)."""
        if variant in (None, "all"):
            return self.variants
        if variant not in self.variants:
            raise ByheartError(
                f"--variant {variant}: {self.name} has {', '.join(self.variants)} (or all)."
            )
        return (str(variant),)

    def cells(self, variant: str, profile: str) -> list[Cell]:
        """The cells of one variant, each once."""
        found = {(c.hash, c.experiment): c for c in self.grid(variant, profile)}
        return list(found.values())

    def estimate(self, profile: str) -> tuple[float, str]:
        """CPU seconds of all variants, and whether "measured" or "estimated"."""
        if profile in self.seconds:
            return self.seconds[profile], "measured"
        number = self.seeds.get(profile, 5)
        cells = [cell for v in self.variants for cell in self.cells(v, profile)]
        jobs = [job for stack in stacks(cells, range(number)) for job in stack]
        return sum(job.cell.seconds for job in jobs), "estimated"
