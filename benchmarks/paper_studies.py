"""Studies of Mahdavi et al. (2024), Kajitsuka and Sato (2025) and the slides: time and verdicts.

python benchmarks/paper_studies.py                   cells, then the quick profiles (about an hour)
python benchmarks/paper_studies.py cells             one cell of each shape, quick and full
python benchmarks/paper_studies.py quick             all quick profiles and their verdicts
python benchmarks/paper_studies.py quick --only fig2 those with this in their name
python benchmarks/paper_studies.py fresh             the same rules on seeds no quick profile uses
python benchmarks/paper_studies.py --folder DIR      where stores, figures and rows go
python benchmarks/paper_studies.py --workers 2       processes of the quick profiles
python benchmarks/paper_studies.py --json out.json   also as JSON

Cells are timed in CPU seconds of this process, one thread; long trainings are cut after a few
steps and extended. Quick profiles are timed by the wall clock.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from byheart.papers import find
from byheart.studies import Cell, Study, figure, open_store, rows_of, run

Row = dict[str, Any]
PAPERS = ("mahdavi2024", "kajitsuka2025", "slides")
STEPS = {"least_steps": 40, "steps": 40, "epochs": 10}  # of a training that is cut
NEVER = 3600.0  # CPU seconds by estimate from which even a cut cell is only estimated


def studies(only: str) -> list[Study]:
    return [study for paper in PAPERS for study in find(paper) if only in study.name]


def cells(only: str) -> list[Row]:
    """The costliest cell of each study and profile: its estimate, and what it took."""
    rows = []
    for study in studies(only):
        for profile in ("quick", "paper"):
            found = [c for v in study.variants for c in study.cells(v, profile)]
            cell = max(found, key=lambda c: c.seconds)
            rows.append({"study": study.name, "profile": profile, "estimated s": cell.seconds,
                         **timed(cell), "jobs": len(found) * study.seeds[profile],
                         "all, 2 cores, h": study.estimate(profile)[0] / 7200})  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def timed(cell: Cell) -> Row:
    """CPU seconds of a cell; a training is cut to a few steps and extended."""
    p = dict(cell.params)
    if "sizes" in p:
        p["sizes"] = [size for size in p["sizes"] if size <= 4]  # as if four blocks sufficed
    small = replace(cell, params=p)
    share = 1.0
    long = steps(p)
    if long is not None and small.seconds > 20:
        p |= {name: value for name, value in STEPS.items() if name in p}
        if "least_steps" in p:
            p["epochs"] = 0
        share = long / (steps(p) or long)
    if replace(cell, params=p).seconds > NEVER or p.get("n", 0) * p.get("N", 0) > 10**6:
        return {"measured s": None, "how": "too long to time"}
    began = time.process_time()
    if cell.procedure.stack is not None:
        cell.procedure.stack([(p, 1)])
    else:
        cell.procedure.work(p, 1)
    seconds = (time.process_time() - began) * share
    how = "whole" if share == 1 else f"1/{share:.0f} of its steps"
    return {"measured s": seconds, "how": how + (", blocks <= 4" if "sizes" in p else "")}


def steps(p: dict[str, Any]) -> int | None:
    """Steps of the training in a cell, if it trains."""
    if "least_steps" in p:
        return max(p["epochs"] * p["T"] // p["batch"], p["least_steps"])
    return p.get("epochs") or p.get("steps") or None


def quick(only: str, folder: Path, workers: str) -> list[Row]:
    """Every quick profile: rows, seconds, verdict, the sentence, the numbers."""
    rows = []
    for study in studies(only):
        store = folder / f"{study.paper}.db"
        began, cpu = time.perf_counter(), time.process_time()
        report = run(study, store, workers=workers)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        with open_store(store, create=False) as opened:
            good, _ = rows_of(study, opened, "quick")
        finding = study.analyse(good)
        figure.save(study.draw(good, finding), folder / f"{study.name.replace('/', '-')}.png")
        rows.append({"study": study.name, "rows": len(good), "failed": report.failed,
                     "computed": report.computed, "wall s": seconds, "CPU s": cpu,
                     "verdict": finding.verdict, "sentence": finding.sentence,
                     "numbers": dict(finding.numbers)})  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def fresh(only: str, folder: Path, workers: str) -> list[Row]:
    """Verdicts from as many seeds again: settings and rules were chosen on the first ones."""
    rows = []
    for study in studies(only):
        store, used = folder / f"{study.paper}.db", study.seeds["quick"]
        run(study, store, workers=workers, seeds=2 * used)
        with open_store(store, create=False) as opened:
            good, _ = rows_of(study, opened, "quick", seeds=2 * used)
        first = study.analyse([row for row in good if row.seed < used])
        second = study.analyse([row for row in good if row.seed >= used])
        rows.append({"study": study.name, "seeds": f"{used} + {used}", "first": first.verdict,
                     "fresh": second.verdict, "sentence": second.sentence,
                     "numbers": dict(second.numbers)})  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def show(title: str, rows: list[Row]) -> None:
    """A Markdown table."""
    columns = [name for name in rows[0] if name != "numbers"]
    print(f"\n## {title}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        cells_ = [f"{v:.3g}" if isinstance(v, float) else str(v) for v in map(row.get, columns)]
        print(f"| {' | '.join(cells_)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("parts", nargs="*", help="cells, quick, fresh")
    parser.add_argument("--only", default="")
    parser.add_argument("--folder", type=Path, default=Path("byheart-studies"))
    parser.add_argument("--workers", default="1")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[Row]] = {}
    for part in asked.parts or ["cells", "quick"]:
        if part == "cells":
            rows = cells(asked.only)
        else:
            runs = {"quick": quick, "fresh": fresh}[part]
            rows = runs(asked.only, asked.folder, asked.workers)
        found[part] = rows
        show(part, rows)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
