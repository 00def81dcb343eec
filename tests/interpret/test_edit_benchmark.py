"""The editing benchmark: what it counts, counted again by asking; its study, command and errors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import byheart as bh
from byheart.cli.main import app
from byheart.errors import ByheartError, FactsError, OptionError
from byheart.interpret import edit_study
from byheart.interpret.edit_table import NAMES, EditBenchmark
from byheart.interpret.edits import (
    EDITORS,
    benchmark_memory,
    draw_edits,
    edit_benchmark,
    editors_of,
    measure_edits,
)
from byheart.papers import find
from byheart.studies import Row, run


@pytest.fixture(scope="module")
def memory():
    return benchmark_memory("trained", 150, seed=2)


def test_others_are_counted_twice(memory):
    """Once by margins, once by asking for every fact in words."""
    facts, edits = memory.facts, draw_edits(memory.facts, 12, seed=5)
    found = measure_edits(memory, EDITORS["rank-one-sampled"], edits)
    edited = EDITORS["rank-one-sampled"](memory, edits)
    lost = held = others = 0
    for i in range(facts.T):
        said = edited.recall(*facts.key(i)).answer
        if facts.key(i) in edits:
            held += said == edits[facts.key(i)]
        else:
            others += 1
            lost += said != facts.answer(i)
    assert (found.held, found.lost, found.others) == (held, lost, others)
    assert lost > 0 and others == facts.T - 12


def test_doing_nothing_holds_nothing_and_loses_nothing(memory):
    found = measure_edits(memory, lambda same, _: same, draw_edits(memory.facts, 9))
    assert (found.held, found.lost, found.fall) == (0, 0, 0.0)


def test_edits_are_other_answers_of_distinct_facts(memory):
    edits = draw_edits(memory.facts, 100, seed=4)
    assert len(edits) == 100
    answer = {memory.facts.key(i): memory.facts.answer(i) for i in range(memory.facts.T)}
    assert all(answer[key] != new for key, new in edits.items())
    assert draw_edits(memory.facts, 100, seed=4) == edits != draw_edits(memory.facts, 100, seed=5)


def test_shard_edits_lose_nothing_and_the_table_says_so():
    sharded = benchmark_memory("sharded", 200, seed=1)
    result = bh.edit_benchmark(sharded, ["shards", "rank-one"], counts=(1, 50, 199, 200))
    assert [row.edits for row in result.rows] == [1, 1, 50, 50, 199, 199]  # 200 leave no other
    assert all((row.efficacy, row.lost) == (1.0, 0) for row in result.rows)
    header, body = result.table()
    assert len(body) == 6 and all(len(line) == len(header) for line in body)
    assert "100.0%" in repr(result) and "<table" in result._repr_html_()
    (panel,) = result.figure.axes
    assert panel.get_yscale() == "symlog" and panel.get_ylim()[0] < 0  # 0 is shown


def test_an_editor_of_ones_own(memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "my_editors.py").write_text(
        "WORD = 'no function'\ndef nothing(memory, edits):\n    return memory\n"
    )
    monkeypatch.chdir(tmp_path)
    result = edit_benchmark(memory, ["my_editors:nothing"], counts=(2,))
    assert (result.rows[0].editor, result.rows[0].held) == ("my_editors:nothing", 0)
    no = "no such function"
    wrong = {"rank-on": "Did you mean 'rank-one'", "my_editors:none": no, "my_editors:WORD": no}
    for name, words in wrong.items():
        with pytest.raises(OptionError, match=words):
            editors_of([name])
    with pytest.raises(ByheartError, match="cannot be imported"):
        editors_of(["not_there:nothing"])


def test_what_the_benchmark_refuses(memory):
    with pytest.raises(ByheartError, match="must return a memory, found int"):
        measure_edits(memory, lambda _memory, _edits: 3, draw_edits(memory.facts, 1))  # type: ignore
    with pytest.raises(FactsError, match="with its facts"):
        edit_benchmark(replace(memory, facts=None))
    with pytest.raises(OptionError, match="`counts` must be below 150"):
        edit_benchmark(memory, counts=(150,))
    wrong = replace(memory, facts=replace(memory.facts, answers=np.roll(memory.facts.answers, 1)))
    with pytest.raises(FactsError, match="are lost already"):
        edit_benchmark(wrong, counts=(1,))
    alike = bh.Facts.from_dict({("a", "b"): "c", ("b", "a"): "c"})
    with pytest.raises(FactsError, match="two different answers"):
        draw_edits(alike, 1)


def test_a_tiny_study_runs_from_end_to_end(tmp_path: Path):
    (study,) = find("editing/damage")
    small = study.with_values({"facts": [40], "counts": [[1, 5]]})
    small = replace(small, grid=[c for c in small.cells("corrected", "quick")
                                 if c.params["editor"] in ("shards", "null-space")])  # fmt: skip
    report = run(small, tmp_path / "tiny.db", seeds=1)
    assert (report.failed, report.computed) == (0, 4)
    assert run(small, tmp_path / "tiny.db", seeds=1).computed == 0


def made_up(lost: int) -> list[Row]:
    """Rows in which every edit is held and every editor but the exact ones loses `lost` others."""
    rows = []
    for cell in edit_study.STUDY.cells("corrected", "paper"):
        p = cell.params
        exact = p["editor"] == "shards" or (
            p["editor"] in edit_study.CLOSED and p["memory"] in edit_study.BUILT
        )
        for seed in range(1000, 1003):
            counts = p["counts"]
            zeros = [0.0 for _ in counts]
            found = {
                "T": p["facts"], "held": counts, "others": [p["facts"] - c for c in counts],
                "lost": [0 if exact else lost + seed - 1000 for _ in counts],
            } | dict.fromkeys(("fall", "largest_fall", "cpu_seconds"), zeros)  # fmt: skip
            rows.append(Row("editing/damage", "edits", "corrected", cell.hash, seed, p, found))
    return rows


def test_verdicts_follow_from_the_rows():
    study = edit_study.STUDY
    assert study.analyse([]).verdict == "undecided"
    study.draw([], study.analyse([]))
    bad = study.find(made_up(900))
    assert bad.setting == "own"
    assert {claim.verdict for claim in bad.claims} == {"confirmed"} and len(bad.claims) == 16
    good = study.find(made_up(0))  # nobody loses anything: what says that they do is wrong
    assert [claim.verdict for claim in good.claims].count("refuted") == 6
    one = [replace(row, measurements={**row.measurements, "lost": [1 for _ in row["counts"]]})
           for row in made_up(0)]  # fmt: skip
    assert all(c.verdict == "refuted" for c in study.find(one).claims if c.most == 0)


def test_the_command(tmp_path: Path):
    folder, figure = tmp_path / "a.memory", tmp_path / "edits.png"
    bh.build("countries", "sharded").save(folder)
    said = CliRunner().invoke(app, [
        "edits", str(folder), "--editors", "shards,least-squares", "--counts", "1,10",
        "--seeds", "2", "-o", str(figure), "--json",
    ])  # fmt: skip
    assert said.exit_code == 0
    rows = json.loads(said.stdout)["rows"]
    assert [(r["editor"], r["edits"], r["seed"], r["lost"]) for r in rows] == [
        (editor, edits, seed, 0)
        for seed in (0, 1) for edits in (1, 10) for editor in ("shards", "least-squares")
    ]  # fmt: skip
    assert figure.stat().st_size > 5000
    said = CliRunner().invoke(app, ["edits", "--memory", "dense", "--facts", "40", "--counts", "3",
                                    "--editors", "shards,rank-one"])  # fmt: skip
    assert said.exit_code == 0 and "rank-one" in said.stdout and "shards " not in said.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--memory", "sparse"], "--memory must be one of"), (["--counts", "x"], "--counts must be"),
     (["--editors", "rank-two"], "--editors must be one of"), (["-o", "x.txt"], "must be a file"),
     (["--memory", "dense", "--editors", "shards", "--facts", "20"], "needs a sharded memory"),
     (["here.memory", "--facts", "20"], "DIR is one already"), (["here.memory"], "here.memory")],
)  # fmt: skip
def test_what_the_command_refuses(arguments: list[str], words: str):
    said = CliRunner().invoke(app, ["edits", *arguments])
    assert said.exit_code == 2 and words in said.stderr


def test_every_editor_is_named():
    assert tuple(EDITORS) == NAMES


def test_an_empty_benchmark_is_a_table_without_lines():
    assert EditBenchmark(()).table()[1] == []
