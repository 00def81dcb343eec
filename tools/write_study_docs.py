"""Write docs/studies/*.md and their figures from a store: one page a study, one table of verdicts.

python tools/write_study_docs.py STORE [STORE ...] [--profile full] [--docs docs/studies]
python tools/write_study_docs.py STORE [STORE ...] --profile full --times    for --list

A study without rows in any of the stores keeps its page, or gets one that says so.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from byheart._folders import write_text
from byheart.cli._study_progress import duration
from byheart.papers import all_studies
from byheart.studies import Finding, Row, Study, figure, open_store, rows_of, status

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "studies"
TIMES = ROOT / "src" / "byheart" / "papers" / "times.json"


def number(value: Any) -> str:
    """Four digits; an interval as estimate (low to high)."""
    if isinstance(value, dict) and "estimate" in value:
        low, high = value.get("low"), value.get("high")
        return f"{number(value['estimate'])} (95 %: {number(low)} to {number(high)})"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{k} {number(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return " to ".join(number(v) for v in value)
    return str(value)


def markdown_table(rows: list[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        lines.append("| " + " | ".join(number(row.get(name)) for name in columns) + " |")
    return "\n".join(lines)


def page(study: Study, rows: list[Row], finding: Finding, profile: str, image: str) -> str:
    """The page of one study."""
    seconds = sum({(r.cell, r.seed): r.seconds for r in rows}.values())
    seeds = len({row.seed for row in rows})
    parts = [
        f"# {study.title}",
        f"`byheart reproduce {study.name} --profile {profile}` · {study.source}",
        f"**Claim.** {study.claim}",
        f"**Verdict: {finding.verdict}.** {finding.sentence}",
        f"![{study.title}]({image})",
        "## Numbers",
        "\n".join(f"- {name}: {number(value)}" for name, value in finding.numbers.items())
        or "None.",
    ]
    for name, table in finding.tables.items():
        parts += [f"### {name}", markdown_table([dict(row) for row in table])]
    parts += [
        "## Settings",
        f"{study.settings} Measured: {study.measurement}. Variants: {', '.join(study.variants)}. "
        f"Profile `{profile}`: {len({r.cell for r in rows})} cells, {seeds} seeds, {len(rows)} "
        "rows.",
        "## Rule of the verdict",
        study.rule,
    ]
    if study.disagreements:
        parts += [
            "## Where paper, code and data disagree",
            "\n".join(f"- {text}" for text in study.disagreements),
        ]
    parts += [
        "## Time",
        f"{duration(seconds)} of one core for its rows; those that studies share count in each.",
    ]
    return "\n\n".join(parts) + "\n"


def write(stores: list[Path], profile: str, docs: Path) -> list[dict[str, Any]]:
    """All pages and the table of verdicts; the records of the table."""
    docs.mkdir(parents=True, exist_ok=True)
    records = []
    for study in all_studies():
        stem = study.name.replace("/", "-")
        rows: list[Row] = []
        for place in stores:
            with open_store(place, create=False) as opened:
                rows += rows_of(study, opened, profile)[0]
        planned = {c.hash for v in study.variants for c in study.cells(v, profile)}
        if not rows:
            kept = (docs / f"{stem}.md").exists()
            name = f"[{study.name}]({stem}.md)" if kept else study.name
            words = "not run here" if kept else "not run"
            found = {"study": name, "source": study.source, "verdict": words}
            records.append({**found, "rows": 0, "time": "-"})
            continue
        record: dict[str, Any] = {"study": f"[{study.name}]({stem}.md)", "source": study.source}
        finding = study.analyse(rows)
        image = f"images/{stem}.png"
        figure.save(study.draw(rows, finding), docs / image)
        write_text(docs / f"{stem}.md", page(study, rows, finding, profile, image))
        there = len({r.cell for r in rows})
        partial = "" if there == len(planned) else f" ({there} of {len(planned)} cells)"
        seconds = sum({(r.cell, r.seed): r.seconds for r in rows}.values())
        records.append(
            {
                **record,
                "verdict": finding.verdict + partial,
                "rows": len(rows),
                "time": duration(seconds),
            }
        )
    text = (
        "# Verdicts\n\nWritten by `tools/write_study_docs.py` from the stores of a run with "
        f"profile `{profile}`. Times are of one core.\n\n{markdown_table(records)}\n"
    )
    write_text(docs / "README.md", text)
    return records


def write_times(stores: list[Path], profile: str, file: Path = TIMES) -> int:
    """CPU seconds of every study whose rows are all there, for `byheart reproduce --list`."""
    known = json.loads(file.read_text()) if file.exists() else {}
    number = 0
    for study in all_studies():
        seconds: dict[tuple[str, int], float] = {}
        for place in stores:
            with open_store(place, create=False) as opened:
                if status(study, opened, profile)["missing"] == 0:
                    rows = rows_of(study, opened, profile)[0]
                    seconds |= {(r.cell, r.seed): r.seconds for r in rows}
        if seconds:
            known.setdefault(study.name, {})[profile] = round(sum(seconds.values()), 1)
            number += 1
    write_text(file, json.dumps(known, indent=1, sort_keys=True) + "\n")
    return number


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stores", nargs="+", type=Path)
    parser.add_argument("--profile", default="full")
    parser.add_argument("--docs", type=Path, default=DOCS)
    parser.add_argument("--times", action="store_true", help="only the times of --list")
    chosen = parser.parse_args()
    if chosen.times:
        number = write_times(chosen.stores, chosen.profile)
        sys.stdout.write(f"times of {number} studies in {TIMES}\n")
        return
    records = write(chosen.stores, chosen.profile, chosen.docs)
    ran = [r for r in records if r["rows"]]
    sys.stdout.write(f"{len(ran)} pages in {chosen.docs}\n")


if __name__ == "__main__":
    main()
