"""The benchmark from end to end, on two disguises of six facts; rows, table, figure, command."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import byheart as bh
from byheart.cli.main import app
from byheart.errors import ByheartError
from byheart.interpret import METHODS, STUDY, tables
from byheart.interpret.benchmark import EXPECTED, localise, measure
from byheart.interpret.hiding import HIDINGS
from byheart.studies import StudyResult
from byheart.studies.cell import derived_seed
from byheart.studies.recorded import recorded_rows

ROOT = Path(__file__).parents[2]
Run = Callable[..., Result]
FEW = ["direct", "lost", "random"]
TWO = ["plain", "rotated"]
MINE = """
def find(model, key, answer):
    return model.run(key[None]).heads[:, 0, -1].norm(dim=-1)
"""


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    store = tmp_path_factory.mktemp("localise") / "localise.db"
    return localise(FEW, disguises=TWO, facts=6, store=store)


def test_every_method_is_sent_into_the_same_memories(result: StudyResult):
    assert len(result.rows) == 3 * 2 * 3 and not result.failed
    seeds: dict[tuple[str, int], set] = {}
    for row in result.rows:
        seeds.setdefault((row["disguise"], row.seed), set()).add((row["candidates"], row["chance"]))
    assert all(len(same) == 1 for same in seeds.values())
    cells = [c for c in STUDY.cells("as-built", "paper") if c.params["disguise"] == "rotated"]
    assert len({c.hash for c in cells}) == len(METHODS) and len({c.draws for c in cells}) == 1
    assert derived_seed(cells[0].draws, 0) == derived_seed(cells[1].draws, 0)


def test_rows_say_all_of_the_disguise(result: StudyResult):
    row = next(row for row in result.rows if row["disguise"] == "rotated")
    assert row["rotate"] is True and row["permute"] is True and row["copies"] == 1
    assert row["facts"] == 6


def test_a_second_run_computes_nothing_and_a_new_method_alone(result: StudyResult):
    again = localise([*FEW, "attention"], disguises=TWO, facts=6, store=result.store)
    assert again.run is not None and again.run.computed == 6
    kept = [row.measurements for row in again.rows if row["method"] in FEW]
    assert sorted(map(str, kept)) == sorted(str(row.measurements) for row in result.rows)


def test_the_table_has_methods_down_and_disguises_across(result: StudyResult):
    lines = tables.lines(tables.by_method(result.rows))
    assert lines[0] == ("method", *TWO, "passes") and [line[0] for line in lines[1:]] == FEW
    assert lines[1] == ("direct", "1.00 ±.00", "1.00 ±.00", "1")
    assert "above 0.9: plain 2 of 2, rotated 2 of 2" in result.finding.sentence
    table = result.finding.tables["average precision"]
    assert table[0]["plain"]["estimate"] == 1 and table[2]["plain"]["estimate"] < 0.9
    assert len(result.figure.axes) == 2


def test_other_sizes_are_a_trend(result: StudyResult):
    assert result.finding.setting == "trend"


def test_the_study_copes_with_no_rows():
    assert STUDY.find([]).claims == ()
    assert STUDY.draw([], STUDY.find([])).axes


def test_a_function_is_a_method_but_not_for_other_processes(tmp_path: Path):
    def norm(model, key, answer):
        return model.run(key[None]).heads[:, 0, -1].norm(dim=-1)

    found = localise([norm], disguises=["plain"], facts=6, seeds=1, store=tmp_path / "a.db")
    assert found.rows[0]["average_precision"] == 1 and len(found.rows[0]["source"]) == 12
    with pytest.raises(ByheartError, match="which other processes do not have"):
        localise([norm], workers=2)


def test_a_method_that_fails_is_a_row_that_failed(tmp_path: Path):
    def short(model, key, answer):
        return [0.0]

    found = localise([short, "direct"], disguises=["plain"], facts=6, store=tmp_path / "a.db")
    assert len(found.failed) == len(found.rows) == 3
    assert "must return a number for each (layer, head)" in str(found.failed[0].error)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"disguises": ["bare"]}, "`disguises` must be one of plain"),
     ({"facts": 1}, "`facts` must be between 2"), ({"methods": ["zoro"]}, "Did you mean 'zero'")],
)  # fmt: skip
def test_wrong_use_is_refused_before_anything_runs(arguments: dict, words: str):
    with pytest.raises(ByheartError, match=words):
        localise(**arguments)


@pytest.mark.parametrize("name", HIDINGS)
def test_a_hidden_memory_recalls_and_its_owners_are_needed(name: str):
    """Without its owners, all of them, a fact is lost; the truth is the memory's own."""
    from byheart.interpret.hiding import hidden

    hiding = HIDINGS[name]
    memory, where = hidden(8, hiding.copies, tuple(hiding.options.items()), 5)
    assert isinstance(memory, bh.TokenMemory) and (memory.margins() > 0).all()
    owners = memory.owners()
    assert owners is not None
    assert where.owners.reshape(8, -1).sum(1).tolist() == [hiding.copies] * 8
    dense = memory.to_dense()
    for row in (r for r in where.rows if r not in owners.survive):
        weights = {key: w.clone() for key, w in dense.weights.items()}
        weights["W_O"][owners.layer, list(owners.heads_of(row))] = 0
        without = bh.TokenMemory(**{**vars(dense), "weights": weights})
        assert without.margins()[row] <= 0


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def invoke(*args: object) -> Result:
        said = CliRunner().invoke(app, ["localise", *map(str, args)])
        if said.exception is not None and not isinstance(said.exception, SystemExit):
            raise said.exception
        return said

    return invoke


def test_the_command_prints_one_table_and_draws_one_figure(run: Run, tmp_path: Path):
    (tmp_path / "mine.py").write_text(MINE)
    chosen = ["--methods", "direct,random", "--method", "mine.py:find", "--disguises", "plain"]
    said = run(*chosen, "--facts", 6, "--seeds", 1)
    assert said.exit_code == 0, said.output
    assert said.stdout.startswith("method        plain") and "mine.py:find  1.00" in said.stdout
    assert (tmp_path / "byheart-studies" / "localise.png").exists()
    record = json.loads(run(*chosen, "--facts", 6, "--seeds", 1, "--json").stdout)
    assert record["computed"] == 0 and record["rows"] == 3


def test_the_command_takes_a_memory_of_ones_own(run: Run, tmp_path: Path):
    facts = bh.random_associations(N=8, S=2, T=12, seed=1)
    bh.build(facts, bh.Sharded(facts_per_head=1)).save(tmp_path / "mine.memory")
    said = run("--memory", "mine.memory", "--methods", "direct,random", "--facts", 6, "-o", "a.svg")
    assert said.exit_code == 0 and "direct  1.00 ±.00" in said.stdout
    assert (tmp_path / "a.svg").exists()
    bh.build(facts, "attention").save(tmp_path / "dense.memory")
    said = run("--memory", "dense.memory")
    assert said.exit_code == 2 and "has no owners" in said.stderr
    said = run("--memory", "mine.memory", "--disguises", "plain")
    assert said.exit_code == 2 and "--disguises is for byheart's memories" in said.stderr


def test_the_command_lists_what_there_is(run: Run):
    record = json.loads(run("--list", "--json").stdout)
    assert record["methods"].keys() == METHODS.keys()
    assert record["disguises"].keys() == HIDINGS.keys()


def test_expectations_name_what_there_is():
    for expected in EXPECTED:
        assert expected.method in METHODS and expected.disguise in HIDINGS


def test_the_page_shows_the_recorded_rows():
    spec = importlib.util.spec_from_file_location("docs", ROOT / "tools" / "write_study_docs.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    text = (ROOT / "docs" / "localise.md").read_text(encoding="utf-8")
    for part in tool.localise_parts().values():
        assert part in text, "run tools/write_study_docs.py"


def test_what_is_recorded_names_its_cells_and_is_whole():
    rows = recorded_rows(STUDY, "paper")
    cells = STUDY.cells("as-built", "paper")
    assert len(rows) == 3 * len(cells) and STUDY.setting(rows) == "own"
    assert {row.cell for row in rows} == {cell.hash for cell in cells}


def test_a_recorded_row_is_computed_again():
    """The same numbers, up to another order of summation."""
    row = next(
        row for row in recorded_rows(STUDY, "paper")
        if (row["method"], row["disguise"]) == ("direct", "copies-2")
    )  # fmt: skip
    cell = next(cell for cell in STUDY.cells("as-built", "paper") if cell.hash == row.cell)
    again = measure(dict(cell.params), derived_seed(cell.draws, row.seed))
    assert again == pytest.approx(dict(row.measurements), abs=1e-6)
