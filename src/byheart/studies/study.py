"""A study: a named grid of cells with a measurement, a fit, a figure and claims that are judged."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from byheart.errors import ByheartError, OptionError, check_choice, did_you_mean
from byheart.studies.cell import Cell, Params, Value, stacks
from byheart.studies.expression import Expression

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Verdict = Literal["confirmed", "refuted", "undecided", "mixed", "trend"]
Profile = Literal["quick", "part", "paper"]
PROFILES: tuple[Profile, ...] = ("quick", "part", "paper")
SEEDS = {"quick": 3, "part": 3, "paper": 3}
# Grids, rules and settings were chosen while looking at the seeds from 0 on. What is reported
# comes from seeds that nobody had looked at when the rules were written down.
FIRST_SEED = {"quick": 0, "part": 1000, "paper": 1000}
LEAST_SEEDS = 3  # fewer have no interval, and a cell of fewer decides nothing
Setting = Literal["paper", "sub-grid", "other text", "own", "trend"]
Interval = dict[str, float]
"""{"estimate", "low", "high"}; NaN for the ends where there is no interval."""
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
class Claim:
    """One statement about one number, and the band in which the number must lie for it to be true.

    Confirmed: its whole interval lies in the band; refuted: all of it lies outside; undecided
    otherwise, however wide or narrow it is, and where there is no interval. `own`: a claim of ours
    beside those of a figure, whose setting or statistic is not the figure's.

    >>> Claim("linear: p = 1", {"estimate": 1.02, "low": 0.97, "high": 1.06}, 0.85, 1.15).verdict
    'confirmed'
    >>> Claim("linear: p = 1", {"estimate": 1.1, "low": 0.6, "high": 1.6}, 0.85, 1.15).verdict
    'undecided'
    >>> Claim("p > 0", {"estimate": -0.2, "low": -0.3, "high": -0.1}, 0.0).verdict
    'refuted'
    """

    statement: str
    found: Interval
    least: float = -math.inf
    most: float = math.inf
    own: bool = field(default=False, kw_only=True)

    @property
    def verdict(self) -> Verdict:
        low, high = self.found["low"], self.found["high"]
        if self.least <= low and high <= self.most:
            return "confirmed"
        return "refuted" if high < self.least or low > self.most else "undecided"

    @property
    def band(self) -> str:
        """The band in words.

        >>> Claim("", {}, 0.85, 1.15).band, Claim("", {}, 0.0).band, Claim("", {}, most=2.0).band
        ('0.85 to 1.15', '0 or more', '2 or less')
        """
        if math.isinf(self.most):
            return f"{self.least:g} or more"
        lone = math.isinf(self.least)
        return f"{self.most:g} or less" if lone else f"{self.least:g} to {self.most:g}"

    def to_json(self) -> Record:
        """As a record, also for tables; infinite ends of the band are left out."""
        ends = {"least": self.least, "most": self.most}
        ends = {name: end for name, end in ends.items() if math.isfinite(end)}
        own = {"own": True} if self.own else {}
        return {"statement": self.statement, **self.found, **ends, "verdict": self.verdict, **own}

    @classmethod
    def from_json(cls, record: Params) -> Claim:
        found = {name: _number(record[name]) for name in ("estimate", "low", "high")}
        ends = {name: float(record[name]) for name in ("least", "most") if name in record}
        return cls(record["statement"], found, **ends, own=bool(record.get("own", False)))


def _number(value: Value) -> float:
    """JSON has no NaN: there it is null."""
    return math.nan if value is None else float(value)


@dataclass(frozen=True)
class Finding:
    """What the rows say: a sentence that follows from the numbers, and claims, each with its
    verdict.

    `numbers` maps a name to a number or to {"estimate", "low", "high"}; `tables` are lists of flat
    dicts (the fits with their alternatives, for instance), shown in this order. `setting`: at
    "paper", the claims are judged at the authors' setting, at "sub-grid" on a stated part of it, on
    "other text" at that setting but for the sentences; at "own" they are no figure's claims, judged
    at sizes that were chosen for them; a "trend" is all that anything else shows. `data`: ours
    minus published, where there are published numbers, a verdict apart from the claims.
    """

    sentence: str
    claims: tuple[Claim, ...] = ()
    numbers: Params = field(default_factory=dict)
    tables: Mapping[str, Sequence[Params]] = field(default_factory=dict)
    setting: Setting = "paper"
    data: Claim | None = None

    def __post_init__(self) -> None:
        if not all(isinstance(claim, Claim) for claim in self.claims):
            raise ByheartError(
                "a finding is Finding(sentence, claims, numbers, tables): its claims must be Claim "
                f"objects, found {self.claims!r:.60}. Verdicts follow from them (docs/studies.md)."
            )

    @property
    def verdict(self) -> Verdict:
        """The claims' verdict where they agree, "mixed" where they do not; claims of our own count
        where there are no others."""
        if self.setting == "trend":
            return "trend"
        counted = [claim for claim in self.claims if not claim.own] or self.claims
        found: set[Verdict] = {claim.verdict for claim in counted}
        return "mixed" if len(found) > 1 else found.pop() if found else "undecided"

    @property
    def outcome(self) -> str:
        """The verdict, and what it is limited to.

        >>> claim = Claim("p = 1", {"estimate": 1.0, "low": 0.9, "high": 1.1}, 0.85, 1.15)
        >>> Finding("p = 1.", (claim,), setting="sub-grid").outcome
        'confirmed, on a part of the grid'
        """
        limits = {
            "sub-grid": ", on a part of the grid",
            "other text": ", on other text than the paper's",
            "trend": ", which decides nothing",
        }
        return self.verdict + limits.get(self.setting, "")

    def outcome_of(self, claim: Claim) -> str:
        """The verdict on one claim, with what it is limited to."""
        if self.setting == "trend":
            return "trend only"
        return f"{claim.verdict} (own)" if claim.own else claim.verdict

    def to_json(self) -> Record:
        tables = {name: [dict(r) for r in rows] for name, rows in self.tables.items()}
        return {
            "verdict": self.verdict, "setting": self.setting, "sentence": self.sentence,
            "claims": [claim.to_json() for claim in self.claims],
            "data": None if self.data is None else self.data.to_json(),
            "numbers": dict(self.numbers), "tables": tables,
        }  # fmt: skip

    @classmethod
    def from_json(cls, record: Params) -> Finding:
        claims = tuple(map(Claim.from_json, record["claims"]))
        data = None if record["data"] is None else Claim.from_json(record["data"])
        rest = {name: record[name] for name in ("sentence", "numbers", "tables", "setting")}
        return cls(claims=claims, data=data, **rest)


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
class Published:
    """Numbers that others published: `points` are the parameters of a cell and its value of
    `measure`, of the rows of one `variant`.

    `near`: ours agree where the interval of the mean difference lies within ± (near + error);
    `error`: of reading, where the values were read off a figure.
    """

    source: str
    measure: str
    points: tuple[tuple[Params, float], ...]
    variant: str = "as-coded"
    near: float = 0.02
    error: float = 0.0


@dataclass(frozen=True)
class Study:
    """A figure or table by name, "paper/figure"; docs/studies.md says how to write one.

    `grid`: the cells, or `grid(variant, profile)`; `analyse(rows)`: fits and claims; `axes`: what
    the figure shows, a panel each, or `figure(rows, finding)` that draws it. Rows that failed are
    handed to neither; both must cope with a part of the grid. `variants`: the first is the default;
    `seeds`: how many for each profile; `seconds`: CPU seconds by profile, where they were measured
    as a whole. `part`: an expression in the parameters, true of the cells of the profile "part", a
    stated share of the paper's grid. `stands_for`: what the whole grid of the profile "paper" is:
    the authors' setting ("paper"), the same with other sentences ("other text"), one chosen for
    claims that no figure makes ("own"), or a "trend" whatever is run. `source`, `claim`,
    `measurement`, `settings` (what a reader must know of the grid and the training),
    `disagreements` (of paper, code and data) and `compared` (a setting, the paper's, the authors'
    code's, ours) are words.
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
    part: str | None = None
    published: Published | None = None
    stands_for: Setting = "own"
    settings: str = ""
    disagreements: tuple[str, ...] = ()
    compared: tuple[tuple[str, str, str, str], ...] = ()
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
        """Which seeds: those given, or so many, or as many as the profile has, from its first."""
        if seeds is not None and not isinstance(seeds, int):
            return list(seeds)
        number = self.seeds.get(profile, SEEDS[profile]) if seeds is None else seeds
        return range(FIRST_SEED[profile], FIRST_SEED[profile] + number)

    def cells(self, variant: str, profile: str) -> list[Cell]:
        """The cells of one variant, each once."""
        whole = "paper" if profile == "part" else profile
        cells = self.grid(variant, whole) if callable(self.grid) else self.grid
        if profile == "part" and self.part is not None:
            stated = Expression(self.part)
            cells = [cell for cell in cells if stated(cell.params)]
        return list({(c.hash, c.experiment): c for c in cells}.values())

    def find(self, rows: list[Row]) -> Finding:
        """What the rows say, with the setting that they stand for and, where numbers were
        published, how far ours are from them."""
        finding = replace(self.analyse(rows), setting=self.setting(rows))
        if self.published is None:
            return finding
        from byheart.studies.published import agreement

        data, numbers, table = agreement(self.published, rows)
        if data is None:
            return finding
        tables = {**finding.tables, "ours minus published": table}
        return replace(finding, data=data, numbers={**finding.numbers, **numbers}, tables=tables)

    def setting(self, rows: Sequence[Row]) -> Setting:
        """What the rows stand for: the study's whole grid, the stated part of it, or a trend where
        neither is there whole with three seeds a cell or more."""
        seeds: dict[tuple[str, str], set[int]] = {}
        for row in rows:
            seeds.setdefault((row.variant, row.cell), set()).add(row.seed)

        def whole(profile: str) -> bool:
            wanted = [(v, c.hash) for v in {v for v, _ in seeds} for c in self.cells(v, profile)]
            return bool(wanted) and all(len(seeds.get(key, ())) >= LEAST_SEEDS for key in wanted)

        if self.stands_for == "trend" or not whole("part"):
            return "trend"
        return self.stands_for if self.part is None or whole("paper") else "sub-grid"

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

        return replace(self, grid=grid, part=None, stands_for="trend")

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
        if self.part is None and profile == "part":  # the whole of it, where as many seeds are run
            same = self.seeds.get("part", SEEDS["part"]) == self.seeds.get("paper", SEEDS["paper"])
            profile = "paper" if same else profile
        if profile in self.seconds:
            return self.seconds[profile], "measured"
        cells = [cell for v in self.variants for cell in self.cells(v, profile)]
        planned = stacks(cells, self.seed_numbers(profile, None))
        return sum(job.cell.seconds for jobs in planned for job in jobs), "estimated"
