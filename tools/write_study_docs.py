"""Write docs/studies/*.md and their figures from a store: one page a study, one table of verdicts.

python tools/write_study_docs.py STORE [STORE ...] [--profiles full quick] [--docs docs/studies]
python tools/write_study_docs.py STORE [STORE ...] --times    what `reproduce --list` calls measured

Of each study the first profile is shown whose rows are all there, or else the first with any. A
study without rows in any of the stores keeps the page it has.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from byheart._folders import write_text
from byheart.papers import all_studies
from byheart.studies import Finding, Row, Study, duration, figure, open_store, rows_of, status

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "studies"
TIMES = ROOT / "src" / "byheart" / "papers" / "times.json"
# Its grid, and so its time, depends on which pretrained models are installed: always estimated.
VARIES = {"mahdavi2024/assumptions"}


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


def found_rows(study: Study, stores: list[Path], profile: str) -> tuple[list[Row], int]:
    """The study's rows of a profile in the stores, and how many are missing."""
    rows: list[Row] = []
    missing = sys.maxsize
    for place in stores:
        with open_store(place, create=False) as opened:
            rows += rows_of(study, opened, profile)[0]
            missing = min(missing, status(study, opened, profile).missing)
    return rows, missing


def chosen_rows(study: Study, stores: list[Path], profiles: list[str]) -> tuple[str, list[Row]]:
    """The first profile whose rows are all there, or else the first with any, and its rows."""
    partial: tuple[str, list[Row]] = (profiles[0], [])
    for profile in profiles:
        rows, missing = found_rows(study, stores, profile)
        if rows and not missing:
            return profile, rows
        if rows and not partial[1]:
            partial = (profile, rows)
    return partial


def write(stores: list[Path], profiles: list[str], docs: Path) -> list[dict[str, Any]]:
    """All pages and the table of verdicts; the records of the table."""
    docs.mkdir(parents=True, exist_ok=True)
    records = []
    for study in all_studies():
        stem = study.name.replace("/", "-")
        profile, rows = chosen_rows(study, stores, profiles)
        if not rows:
            kept = (docs / f"{stem}.md").exists()
            name = f"[{study.name}]({stem}.md)" if kept else study.name
            words = "not run here" if kept else "not run"
            record = {"study": name, "source": study.source, "verdict": words, "what follows": "-"}
            records.append({**record, "profile": "-", "rows": 0, "time": "-"})
            continue
        finding = study.analyse(rows)
        image = f"images/{stem}.png"
        figure.save(study.draw(rows, finding), docs / image)
        write_text(docs / f"{stem}.md", page(study, rows, finding, profile, image))
        planned = {c.hash for v in study.variants for c in study.cells(v, profile)}
        there = len({r.cell for r in rows})
        partial = "" if there == len(planned) else f" ({there} of {len(planned)} cells)"
        seconds = sum({(r.cell, r.seed): r.seconds for r in rows}.values())
        records.append(
            {
                "study": f"[{study.name}]({stem}.md)",
                "source": study.source,
                "verdict": finding.verdict + partial,
                "what follows": finding.sentence,
                "profile": profile,
                "rows": len(rows),
                "time": duration(seconds),
            }
        )
    text = (
        "# Verdicts\n\nWritten by `tools/write_study_docs.py` from the stores of runs. Each page "
        "states its rule and its settings; times are of one core, and rows that studies share "
        f"count in each.\n\n{markdown_table(records)}\n"
    )
    write_text(docs / "README.md", text)
    return records


def write_times(stores: list[Path], profiles: list[str], file: Path = TIMES) -> int:
    """CPU seconds of every study and profile whose rows are all there, for `reproduce --list`."""
    known = json.loads(file.read_text()) if file.exists() else {}
    number = 0
    for study in all_studies():
        for profile in profiles if study.name not in VARIES else ():
            rows, missing = found_rows(study, stores, profile)
            seconds = {(r.cell, r.seed): r.seconds for r in rows}
            if seconds and not missing:
                known.setdefault(study.name, {})[profile] = round(sum(seconds.values()), 1)
                number += 1
    write_text(file, json.dumps(known, indent=1, sort_keys=True) + "\n")
    return number


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stores", nargs="+", type=Path)
    parser.add_argument("--profiles", nargs="+", default=["full", "quick"])
    parser.add_argument("--docs", type=Path, default=DOCS)
    parser.add_argument("--times", action="store_true", help="only the times of --list")
    chosen = parser.parse_args()
    if chosen.times:
        number = write_times(chosen.stores, chosen.profiles)
        sys.stdout.write(f"{number} times in {TIMES}\n")
        return
    records = write(chosen.stores, chosen.profiles, chosen.docs)
    ran = [r for r in records if r["rows"]]
    sys.stdout.write(f"{len(ran)} pages in {chosen.docs}\n")


if __name__ == "__main__":
    main()
