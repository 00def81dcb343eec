"""Rows of the editing benchmark: how they are shown as a table and drawn. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from byheart._tables import data_frame, html_table
from byheart.studies import figure
from byheart.studies.cell import group

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Panel
    from pandas import DataFrame

# The editors of byheart, in the order in which they are listed and coloured.
NAMES = ("shards", "rank-one", "rank-one-sampled", "least-squares", "null-space", "fine-tune",
         "fine-tune-mixed")  # fmt: skip
COUNTS = (1, 10, 100, 1_000, 10_000)
# Facts and tokens of the benchmark's own memories: sharded ones take any number, the others as many
# as they are built or trained with in seconds.
SIZES = {"sharded": (12_000, 200), "dense": (1_200, 100), "trained": (1_500, 100)}


@dataclass(frozen=True)
class EditRow:
    """What one editor did with one set of edits. `held` of the `edits` are recalled; of the
    `others`, facts that were not edited, `lost` are not. `fall` is the mean by which their margins
    fell and `largest_fall` the largest, both by the median margin before; `cpu_seconds` those of
    the editor alone."""

    memory: str
    facts: int
    editor: str
    edits: int
    seed: int
    held: int
    others: int
    lost: int
    fall: float
    largest_fall: float
    cpu_seconds: float

    @property
    def efficacy(self) -> float:
        return self.held / self.edits


@dataclass(frozen=True, repr=False)
class EditBenchmark:
    """The rows of a benchmark: a table in a notebook, a data frame, a figure."""

    rows: tuple[EditRow, ...]

    @property
    def figure(self) -> figure.Figure:
        """Other facts lost against edits, a panel for each memory."""
        return draw([asdict(row) for row in self.rows])

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and lines: means over seeds."""
        return HEADER, [list(line) for line in lines([asdict(row) for row in self.rows])]

    def to_pandas(self) -> DataFrame:
        names = [field.name for field in fields(EditRow)]
        return data_frame(([getattr(row, n) for n in names] for row in self.rows), names)

    def __add__(self, other: EditBenchmark) -> EditBenchmark:
        return EditBenchmark(self.rows + other.rows)

    def __repr__(self) -> str:
        header, body = self.table()
        widths = [max(len(line[i]) for line in [header, *body]) for i in range(len(header))]
        return "\n".join(
            "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
            for line in [header, *body]
        )

    def _repr_html_(self) -> str:
        header, body = self.table()
        return html_table("Edits, and other facts lost", header, iter(body), len(body))


HEADER = ["memory", "facts", "editor", "edits", "held", "others lost", "of", "mean fall",
          "largest fall", "CPU seconds"]  # fmt: skip
Records = Sequence[Mapping[str, object]]


def lines(rows: Records) -> Iterator[tuple[str, ...]]:
    """The rows as lines of a table: means over seeds, of CPU seconds the median, because the first
    call of a function loads what it needs; falls by the median margin before."""
    cells = group(rows, lambda r: (r["memory"], r["facts"], r["editor"], r["edits"]))
    for (memory, facts, editor, edits), same in cells.items():
        values = {name: [float(str(r[name])) for r in same] for name in MEANS}
        mean = {name: np.mean(numbers) for name, numbers in values.items()}
        yield (
            str(memory), f"{facts:,}", str(editor), f"{edits:,}",
            f"{mean['held'] / int(str(edits)):.1%}", _counted(float(mean["lost"])),
            f"{mean['others']:,.0f}", f"{mean['fall']:.2g}", f"{mean['largest_fall']:.2g}",
            f"{np.median([float(str(r['cpu_seconds'])) for r in same]):.2g}",
        )  # fmt: skip


def _counted(mean: float) -> str:
    """A mean of counts: one digit behind the point where there is one.

    >>> _counted(3.0), _counted(2 / 3), _counted(11_188.3)
    ('3', '0.7', '11,188.3')
    """
    return f"{mean:,.0f}" if mean == round(mean) else f"{mean:,.1f}"


MEANS = ("held", "lost", "others", "fall", "largest_fall")


def draw(rows: Records) -> figure.Figure:
    """Other facts lost (mean over seeds) against edits, a panel for each memory; both axes are
    logarithmic, and 0 has its place below 1."""
    memories = dict.fromkeys(str(row["memory"]) for row in rows)
    editors = [*NAMES, *dict.fromkeys(str(row["editor"]) for row in rows)]
    drawn, panels = figure.panels(
        "Other facts lost by edits", "edits", "other facts lost", max(1, len(memories)), 4.6
    )
    for panel, memory in zip(panels, memories, strict=False):
        mine = group([r for r in rows if r["memory"] == memory], lambda r: str(r["editor"]))
        for editor, same in mine.items():
            x, y = (np.array([float(str(r[name])) for r in same]) for name in ("edits", "lost"))
            at, mean, _ = figure.means(x, y)
            i = editors.index(editor)
            # Lines at 0 lie on each other: the first ones have larger marks, and all are seen.
            look = {"ms": max(3.0, 10.0 - 1.2 * i), "lw": 1.4, "color": figure.colour(i)}
            panel.plot(at, mean, "o-", label=editor, **look)
        panel.set_xscale("log")
        panel.set_yscale("symlog", linthresh=1.0)
        panel.set_ylim(bottom=-0.3)
        panel.set_title(memory, fontsize=9)
    if memories:
        _name_all(panels[: len(memories)])
    return drawn


def _name_all(panels: Sequence[Panel]) -> None:
    """One legend for all panels, beside the last: an editor need not be in each of them."""
    named = {
        label: line
        for panel in panels
        for line, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    beside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
    panels[-1].legend(named.values(), named.keys(), frameon=False, fontsize=8, **beside)
