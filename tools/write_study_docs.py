"""Write docs/studies from the rows that come with the package: a page a study, and the verdicts.

python tools/write_study_docs.py                        pages and figures from the recorded rows
python tools/write_study_docs.py --record STORE ...     first record the rows of these stores
python tools/write_study_docs.py --only dana2025/fig3   some pages; the table has all of them
python tools/write_study_docs.py --times STORE ...      times alone, of whole profiles in stores
python tools/write_study_docs.py --check                writes nothing: what is not as the rows say

Of each study the most faithful profile is shown whose rows are all recorded, else the first with
any. CPU seconds of whole profiles go to `papers/times.json`, for `byheart reproduce --list`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.image import imread

from byheart._folders import write_text
from byheart.papers import all_studies
from byheart.papers.registry import OWN, PAPERS
from byheart.studies import Claim, Row, Study, StudyResult, duration, figure, open_store, rows_of
from byheart.studies.published import matched
from byheart.studies.recorded import best_profile, record, recorded_rows
from byheart.studies.result import cell_text, table_text
from byheart.studies.study import PROFILES, Finding, Record

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "studies"
PACKAGE = ROOT / "src" / "byheart" / "papers"
TIMES = PACKAGE / "times.json"
# Its grid, and so its time, depends on which pretrained models are installed: always estimated.
VARIES = {"mahdavi2024/assumptions"}
NAMES = {
    "dana2025": "Dana, Pydi, Chevaleyre: Memorization in Attention-only Transformers (AISTATS "
    "2025)",
    "mahdavi2024": "Mahdavi, Liao, Thrampoulidis: Memorization Capacity of Multi-Head Attention in "
    "Transformers (ICLR 2024)",
    "kajitsuka2025": "Kajitsuka, Sato: On the Optimal Memorization Capacity of Transformers (ICLR "
    "2025)",
    "slides": "The slides of June 2024",
    "localise": "byheart's own: which tool finds the heads that hold a fact",
    "editing": "Editing: exact shards beside ROME, MEMIT, AlphaEdit and fine-tuning",
}
INTRODUCTION = """\
# Verdicts

A claim is one statement about one number, with a band in which the number must lie. Below, every
claim stands beside the number that was found, with its 95 % interval over seeds. The band was
written down before the rows were computed (those of `dof-law` after a first look, as its page
says), and the seeds are ones that nobody had looked at before; where a rule was changed later,
its page says when, why, and what the earlier one gave. A claim is **confirmed** if the whole
interval lies in the band, **refuted** if it lies outside, and **undecided** otherwise.

A verdict stands only at the setting that the claim speaks of: `paper` is the authors' setting in
every number but that of the seeds (three where they have five or six, as pages say), `sub-grid` a
stated part of it. What a paper does not state, and no code shows, is ours; each page lists it.
`other text` has the paper's sizes on other sentences with other labels, those of licences and
manuals: MultiNLI and IMDb, the authors' own, cannot be shipped (with a copy at hand, the variant
`as-published` takes it). `own` marks claims that no figure of a paper makes, ours or those of a
theorem or slide without sizes: they are judged at sizes that were chosen with them, and say
nothing about any figure; some stand beside a figure's, and are marked and counted apart. Anything
else is a **trend**, and decides nothing. Where numbers were published, "data" says whether ours
agree with them, apart from what they mean: `agree` if the interval of the mean difference lies
within the stated distance.

`byheart reproduce NAME --recorded` draws any of these figures again, from the rows that come with
the package. `tools/write_study_docs.py` wrote this page from the same rows.
"""
BESIDE = """\
The authors of these numbers published them; ours were computed anew, from other seeds. A line says
how many of the published values were compared, the mean of ours minus theirs with its interval
over our seeds, the mean of the absolute differences, and the largest one.
"""
MANY = 8  # claims of one study that are shown unfolded
SHADE = 2 / 255  # another processor rounds a line's edge by one shade of 256: the same picture


def markdown_table(rows: Sequence[Record]) -> str:
    return markdown(*table_text(rows))


def markdown(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    texts = ["| " + " | ".join(line) + " |" for line in (titles, *lines)]
    return "\n".join([texts[0], "|" + "---|" * len(titles), *texts[1:]])


def claim_record(claim: Claim, finding: Finding) -> Record:
    verdict = "trend" if finding.setting == "trend" else f"**{finding.outcome_of(claim)}**"
    found = {"claim": claim.statement, "band": claim.band, "found": claim.found}
    return {**found, "verdict": verdict}


def page(result: StudyResult, image: str) -> str:
    """The page of one study."""
    study, finding, rows = result.study, result.finding, result.rows
    seconds = {(r.cell, r.seed): r.seconds for r in rows}  # a row of two variants counts once
    seeds = sorted({row.seed for row in rows})
    claims = [claim_record(c, finding) for c in finding.claims]
    data = [claim_record(finding.data, finding)] if finding.data is not None else []
    parts = [
        f"# {study.title}",
        f"`byheart reproduce {study.name} --recorded` · {study.source} · setting: "
        f"**{finding.setting}**",
        f"**What is claimed.** {study.claim}",
        f"**What follows.** {finding.sentence}",
        f"![{study.title}]({image})",
        "## Claims",
        markdown_table(claims) if claims else "None could be judged on these rows.",
    ]
    if data:
        parts += ["## Beside the published data", markdown_table(data)]
    if finding.numbers:
        lines = [f"- {name}: {cell_text(value)}" for name, value in finding.numbers.items()]
        parts += ["## Numbers", "\n".join(lines)]
    for name, table in finding.tables.items():
        parts += [f"### {name}", markdown_table([dict(row) for row in table])]
    parts += ["## Settings", f"{settings_of(study)} Profile `{result.profile}`: "
        f"{len({r.cell for r in rows})} cells, seeds {seeds[0]} to {seeds[-1]}, {len(seconds)} "
        f"rows, {duration(sum(seconds.values()))} of one core."]  # fmt: skip
    return "\n\n".join([*parts, *words_of(study)]) + "\n"


def settings_of(study: Study) -> str:
    variants = ", ".join(study.variants)
    return f"{study.settings} Measured: {study.measurement}. Variants: {variants}."


def words_of(study: Study) -> list[str]:
    """What a page says of a study whatever its rows: settings beside the paper's, rule,
    disagreements."""
    parts = []
    if study.compared:
        titles = ("what", "the paper", "the authors' code", "here")
        rows: list[Record] = [dict(zip(titles, row, strict=True)) for row in study.compared]
        parts.append(markdown_table(rows))
    parts += ["## Rule of the verdict", study.rule]
    if study.disagreements:
        lines = [f"- {text}" for text in study.disagreements]
        parts += ["## Where paper, code and data disagree", "\n".join(lines)]
    return parts


def empty_page(study: Study) -> str:
    """The page of a study that has no recorded rows: what it will judge, and how to run it."""
    profile = "paper" if study.part is None else "part"
    seconds, how = study.estimate(profile)
    command = f"byheart reproduce {study.name} --profile {profile}"
    parts = [
        f"# {study.title}",
        f"`{command}` · {study.source}",
        f"**What is claimed.** {study.claim}",
        f"**No verdict.** No rows of this study are recorded yet. The command above takes "
        f"{duration(seconds)} of one core ({how}).",
        "## Settings",
        settings_of(study),
    ]
    return "\n\n".join([*parts, *words_of(study)]) + "\n"


def found(study: Study) -> StudyResult | None:
    """What the recorded rows of a study say; None if there are none."""
    profile = best_profile(study)
    rows = recorded_rows(study, profile)
    return StudyResult(study, profile, rows, [], study.find(rows), None) if rows else None


def data_of(result: StudyResult) -> Record | None:
    """Ours minus published, in one line of the table; None where nothing is published."""
    finding, study = result.finding, result.study
    if finding.data is None or study.published is None:
        return None
    largest, absolute = (
        next(value for name, value in finding.numbers.items() if name.startswith(kind))
        for kind in ("largest difference", "mean absolute difference")
    )
    agree = {"confirmed": "agree", "refuted": "differ", "undecided": "undecided"}
    points = len(matched(study.published, result.rows))
    return {
        "study": link(study), "values": f"{points} of {len(study.published.points)}",
        "mean difference": finding.data.found, "mean absolute": absolute, "largest": largest,
        "within": finding.data.band, "data": agree[finding.data.verdict],
    }  # fmt: skip


def link(study: Study) -> str:
    return f"[{study.name.partition('/')[2]}]({study.name.replace('/', '-')}.md)"


def tally(finding: Finding) -> str:
    """How many claims came out how.

    A trend decides nothing, so its claims are not counted.
    """
    if finding.setting == "trend":
        return "trend"
    parts = []
    for own in (False, True):
        verdicts = Counter(claim.verdict for claim in finding.claims if claim.own == own)
        told = ", ".join(f"{n} {v}" for v, n in sorted(verdicts.items()))
        parts += [f"own: {told}" if own else told] if told else []
    return "; ".join(parts) or "none judged"


def line_of(study: Study, result: StudyResult | None) -> Record:
    """The study's line of the table of all studies."""
    first = {"study": link(study), "source": study.source}
    if result is None:
        return {**first, "setting": "not run", "data": "-", "claims": "-", "what follows": "-"}
    data = data_of(result)
    return {
        **first, "setting": result.finding.setting, "data": data["data"] if data else "-",
        "claims": tally(result.finding), "what follows": result.finding.sentence,
    }  # fmt: skip


def block(result: StudyResult) -> str:
    """A study on the page of all verdicts: its figure, its claims line by line, and where paper,
    code and data disagree."""
    study, finding = result.study, result.finding
    stem = study.name.replace("/", "-")
    claims = markdown_table([claim_record(c, finding) for c in finding.claims])
    if len(finding.claims) > MANY:
        summary = f"{len(finding.claims)} claims: {tally(finding)}"
        claims = f"<details><summary>{summary}</summary>\n\n{claims}\n\n</details>"
    parts = [
        f"### {study.source}: [{study.title}]({stem}.md)",
        f"**Claimed:** {study.claim}",
        f"**Found** ({finding.setting}): {finding.sentence}",
        f'<img src="images/{stem}.png" alt="{study.title}" width="640">',
        claims if finding.claims else "No claim could be judged on these rows.",
    ]
    if study.disagreements:
        parts += ["Where paper, code and data disagree:",
                  "\n".join(f"- {text}" for text in study.disagreements)]  # fmt: skip
    return "\n\n".join(parts)


def remaining(studies: Sequence[tuple[Study, StudyResult | None]]) -> list[Record]:
    """What has not been run at the paper's whole grid, and what it would take."""
    table = []
    for study, result in studies:
        if study.stands_for == "trend" or (result and result.finding.setting == study.stands_for):
            continue
        seconds, how = study.estimate("paper")
        table.append({
            "study": link(study), "so far": "nothing" if result is None else result.finding.setting,
            "whole grid, one core": f"{duration(seconds)} ({how})",
            "command": f"`byheart reproduce {study.name} --profile paper`",
        })  # fmt: skip
    return table


def verdicts(studies: Sequence[tuple[Study, StudyResult | None]]) -> str:
    """The page of all verdicts."""
    parts = [INTRODUCTION.rstrip(), "## All studies",
             markdown_table([line_of(study, result) for study, result in studies])]  # fmt: skip
    data = [line for _, result in studies if result and (line := data_of(result))]
    if data:
        parts += ["## Ours beside the published data", BESIDE.rstrip(), markdown_table(data)]
    for paper in dict.fromkeys(study.paper for study, _ in studies):
        blocks = [block(r) for study, r in studies if study.paper == paper and r is not None]
        if blocks:
            parts += [f"## {NAMES.get(paper, paper)}", *blocks]
    left = remaining(studies)
    if left:
        parts += ["## What remains to run", markdown_table(left)]
    return "\n\n".join(parts) + "\n"


def write(
    studies: list[Study], docs: Path, only: list[str] | None = None, pictures: bool = True
) -> int:
    """Pages of all studies, or of some, and the table of verdicts; how many pages."""
    docs.mkdir(parents=True, exist_ok=True)
    results = [(study, found(study)) for study in studies]
    pages = 0
    for study, result in results:
        stem = study.name.replace("/", "-")
        if only and study.name not in only:
            continue
        if result is None:
            write_text(docs / f"{stem}.md", empty_page(study))
            continue
        image = f"images/{stem}.png"
        if pictures:
            figure.save(result.figure, docs / image)
        write_text(docs / f"{stem}.md", page(result, image))
        pages += 1
    write_text(docs / "README.md", verdicts(results))
    return pages


def not_as_the_rows_say(studies: list[Study], docs: Path, pictures: bool = True) -> list[str]:
    """Files of `docs` that are not what the recorded rows give: other words, or another picture."""
    with tempfile.TemporaryDirectory() as made:
        write(studies, Path(made), pictures=pictures)
        new = {file.relative_to(made): file for file in Path(made).rglob("*.*")}
        kept = {file.relative_to(docs) for file in docs.rglob("*.md" if not pictures else "*.*")}
        wrong = kept ^ new.keys()
        wrong |= {name for name in kept & new.keys() if not same_file(docs / name, new[name])}
    return sorted(map(str, wrong))


def same_file(one: Path, other: Path) -> bool:
    if one.suffix != ".png":
        return one.read_bytes() == other.read_bytes()
    first, second = imread(one), imread(other)
    return first.shape == second.shape and float(np.abs(first - second).max()) <= SHADE


def write_localise(file: Path = ROOT / "docs" / "localise.md") -> None:
    """The disguises and the tables of docs/localise.md, from the code and the recorded rows."""
    text = file.read_text(encoding="utf-8")
    for name, part in localise_parts().items():
        mark = f"<!-- {name}: written by tools/write_study_docs.py -->\n"
        before, _, rest = text.partition(mark)
        text = f"{before}{mark}{part}\n<!-- end -->{rest.partition('<!-- end -->')[2]}"
    write_text(file, text)


def localise_parts() -> dict[str, str]:
    """What docs/localise.md shows of the recorded rows."""
    from byheart.interpret import STUDY, hiding, tables

    rows = recorded_rows(STUDY, "paper")
    by_method = tables.by_method(rows)
    candidates = {row["disguise"]: row["candidates"] for row in rows}
    disguises = [
        {"disguise": f"`{name}`", "what it is": one.words, "heads": candidates.get(name)}
        for name, one in hiding.HIDINGS.items()
    ]
    shown = [f"Average precision, {len(rows)} rows, 95 % interval over seeds; passes a fact:"]
    titles, *lines = tables.lines(by_method)
    shown.append(markdown(titles, lines))
    shown.append("![Average precision and cost](studies/images/localise-heads.png)")
    shown.append("Misplaced score (0: each head has its share; 1: none of it is where it belongs):")
    titles, *lines = tables.lines(by_method, "misplaced")
    shown.append(markdown(titles, lines))
    return {"disguises": markdown_table(disguises), "results": "\n\n".join(shown)}


def write_times(studies: list[Study], file: Path = TIMES, stores: Sequence[Path] = ()) -> int:
    """CPU seconds of every study and profile whose rows are all recorded, or all in one of the
    stores. Quick rows are never recorded: their times stay until a store has others."""
    before = json.loads(file.read_text()) if file.exists() else {}
    known = {study.name: {} for study in studies}
    for name, times in before.items():
        if name in known and "quick" in times:
            known[name]["quick"] = times["quick"]
    for study in (study for study in studies if study.name not in VARIES):
        for profile in (p for p in PROFILES if p != "part" or study.part is not None):
            found = [recorded_rows(study, profile)]
            for place in stores:
                with open_store(place, create=False) as store:
                    found.append(rows_of(study, store, profile)[0])
            for seconds in (whole_seconds(study, profile, rows) for rows in found):
                if seconds is not None:
                    known[study.name][profile] = round(seconds, 1)
    known = {name: times for name, times in known.items() if times}
    write_text(file, json.dumps(known, indent=1, sort_keys=True) + "\n")
    return sum(map(len, known.values()))


def whole_seconds(study: Study, profile: str, rows: Sequence[Row]) -> float | None:
    """CPU seconds of a profile; None where a row is missing."""
    seconds = {(row.cell, row.seed): row.seconds for row in rows}
    cells = {c.hash for v in study.variants for c in study.cells(v, profile)}
    whole = len(cells) * len(study.seed_numbers(profile, None))
    return sum(seconds.values()) if seconds and len(seconds) == whole else None


def record_stores(studies: list[Study], stores: list[Path], folder: Path) -> dict[str, int]:
    """Record the rows of stores, of all profiles; how many each paper has then."""
    total = {}
    for place in stores:
        with open_store(place, create=False) as store:
            for study in studies:
                for profile in PROFILES:
                    rows, _ = rows_of(study, store, profile)
                    if rows:
                        file = folder / f"{study.paper}.jsonl"
                        total[study.paper] = record(store, rows, file)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", nargs="+", type=Path, default=[], metavar="STORE")
    parser.add_argument("--only", nargs="+", metavar="STUDY")
    parser.add_argument("--times", nargs="+", type=Path, metavar="STORE")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--docs", type=Path, default=DOCS)
    chosen = parser.parse_args()
    studies = [study for study in all_studies() if study.paper in (*PAPERS, *OWN)]
    if chosen.check:
        wrong = not_as_the_rows_say(studies, chosen.docs)
        sys.exit("\n".join(["not as the recorded rows say:", *wrong]) if wrong else None)
    if chosen.times:
        sys.stdout.write(f"{write_times(studies, stores=chosen.times)} times in {TIMES}\n")
        return
    for paper, number_of_rows in record_stores(studies, chosen.record, PACKAGE / "rows").items():
        sys.stdout.write(f"{paper}: {number_of_rows:,} rows are recorded\n")
    pages = write(studies, chosen.docs, chosen.only)
    write_localise()
    sys.stdout.write(f"{pages} pages in {chosen.docs}; {write_times(studies)} times in {TIMES}\n")


if __name__ == "__main__":
    main()
