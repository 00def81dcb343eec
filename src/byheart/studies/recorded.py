"""Rows that come with the package: what the documentation says rests on them.

`papers/rows/PAPER.jsonl` has a line for each cell: its procedure and parameters, then lists over
seeds. Studies redraw from them without training, and go on from them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path

from byheart._folders import save_file
from byheart.studies.cell import Measurements, Params, canonical, group
from byheart.studies.run import Seeds, plan
from byheart.studies.store import Store
from byheart.studies.study import PROFILES, Record, Row, Study

PLACE = resources.files("byheart") / "papers" / "rows"


@dataclass(frozen=True)
class Recorded:
    """One row as it was recorded, named by its cell and its seed."""

    cell: str
    seed: int
    way: str
    params: Record
    measurements: Measurements
    seconds: float
    versions: dict[str, str]
    stack: int

    @property
    def key(self) -> tuple[str, int]:
        return self.cell, self.seed


def recorded(paper: str) -> list[Recorded]:
    """The recorded rows of a paper's studies; none for a paper that has none."""
    file = PLACE / f"{paper}.jsonl"
    if not file.is_file():
        return []
    return [row for line in file.read_text(encoding="utf-8").splitlines() for row in _rows(line)]


def recorded_rows(
    study: Study, profile: str, *, variant: str | None = None, only: str | None = None,
    seeds: Seeds = None,
) -> list[Row]:  # fmt: skip
    """The study's rows that were recorded, in the order of its grid."""
    known, numbers = _by_key(study.paper), study.seed_numbers(profile, seeds)
    return [
        Row(study.name, cell.experiment, name, cell.hash, seed, cell.params, row.measurements,
            seconds=row.seconds, versions=row.versions, stack=row.stack)
        for name in study.chosen_variants(variant)
        for cell in plan(study, name, profile, seeds, only)[0]
        for seed in numbers
        if (row := known.get((cell.hash, seed))) is not None
    ]  # fmt: skip


def best_profile(study: Study) -> str:
    """The most faithful profile of which all rows are recorded, else the first with any."""
    some = None
    for profile in reversed(PROFILES):
        rows = {(row.cell, row.seed) for row in recorded_rows(study, profile)}
        if rows and rows == _wanted(study, profile):
            return profile
        some = some or (profile if rows else None)
    return some or PROFILES[0]


def _wanted(study: Study, profile: str) -> set[tuple[str, int]]:
    seeds = study.seed_numbers(profile, None)
    cells = {cell.hash for v in study.variants for cell in study.cells(v, profile)}
    return {(cell, seed) for cell in cells for seed in seeds}


def compared(study: Study, rows: Sequence[Row]) -> Record:
    """Rows computed anew beside the recorded ones: how many are compared, how many are the same in
    every measurement, and the largest difference of each; times are never the same twice."""
    known = _by_key(study.paper)
    pairs = [(_timeless(r.measurements), _timeless(known[key].measurements)) for r in rows
             if (key := (r.cell, r.seed)) in known]  # fmt: skip
    largest: Record = {}
    for new, old in pairs:
        for name, value in new.items():
            if isinstance(value, float) and isinstance(old.get(name), (int, float)):
                largest[name] = max(largest.get(name, 0.0), abs(value - old[name]))
    same = sum(new == old for new, old in pairs)
    return {"compared": len(pairs), "identical": same, "largest_difference": largest}


def _timeless(measurements: Params) -> Record:
    return {name: v for name, v in measurements.items() if not name.endswith("seconds")}


@lru_cache
def _by_key(paper: str) -> dict[tuple[str, int], Recorded]:
    return {row.key: row for row in recorded(paper)}


def take_up(store: Store, paper: str, keys: set[tuple[str, int]]) -> int:
    """Put the recorded rows of these keys that a store does not have into it; how many."""
    known = _by_key(paper)
    rows = [known[key] for key in sorted(keys - store.keys()) if key in known]
    store.add_recorded(rows)
    return len(rows)


def record(store: Store, rows: Iterable[Row], file: Path) -> int:
    """Write rows of a store to a file of recorded rows, in the place of all that it has of the
    same cells and seeds; how many it has then."""
    ways = store.ways()
    kept = {r.key: r for line in _lines(file) for r in _rows(line)}
    for row in rows:
        if row.error is None:
            kept[row.cell, row.seed] = Recorded(
                row.cell, row.seed, ways[row.cell], dict(row.params), dict(row.measurements),
                row.seconds, dict(row.versions), row.stack,
            )  # fmt: skip
    cells = group(sorted(kept.values(), key=lambda r: (r.way, canonical(r.params), r.seed)),
                  lambda r: (r.cell, canonical(r.versions)))  # fmt: skip
    save_file(file, "".join(f"{_line(rows)}\n" for rows in cells.values()))
    return len(kept)


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def _line(rows: Sequence[Recorded]) -> str:
    first = rows[0]
    names = list(dict.fromkeys(name for row in rows for name in row.measurements))
    lists = {name: [row.measurements.get(name) for row in rows] for name in names}
    return json.dumps({
        "cell": first.cell, "way": first.way, "params": first.params,
        "seeds": [row.seed for row in rows], "measurements": lists,
        "seconds": [round(row.seconds, 3) for row in rows], "stack": [row.stack for row in rows],
        "versions": first.versions,
    }, separators=(",", ":"))  # fmt: skip


def _rows(line: str) -> list[Recorded]:
    values = json.loads(line)
    names = values["measurements"]
    return [
        Recorded(
            values["cell"], seed, values["way"], values["params"],
            {name: names[name][i] for name in names}, values["seconds"][i], values["versions"],
            values["stack"][i],
        )
        for i, seed in enumerate(values["seeds"])
    ]  # fmt: skip
