"""What comes from outside: files that are none, numbers beyond measure, text that is obeyed."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import byheart as bh
from byheart._style import new_figure, save
from byheart.cli import _show
from byheart.errors import FactsError
from byheart.facts import read_arrays

DIGITS = "9" * 400
ODD = "\x85 \u202e \x1b[31m $\\frac$ $"


@pytest.mark.parametrize(
    "words",
    [
        *(("facts", f"pipe{suffix}") for suffix in (".csv", ".jsonl", ".parquet", ".npz")),
        ("facts", "pipe.txt", "--ngram", "2"),
        ("facts", "zero.csv"),
        ("kruskal", "pipe.npy"),
        ("kruskal", "zero.safetensors"),
        ("bound", "--hf", "pipe.json"),
        ("reproduce", "pipe.py"),
        ("report", "pipe.json"),
        ("explore", "--no-open", "-o", "pipe.html"),
    ],
)
def test_pipes_and_devices_are_refused_at_once(refused, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    for suffix in (".csv", ".jsonl", ".parquet", ".npz", ".npy", ".json", ".py", ".txt", ".html"):
        os.mkfifo(tmp_path / f"pipe{suffix}")
    for suffix in (".csv", ".safetensors"):
        (tmp_path / f"zero{suffix}").symlink_to("/dev/zero")
    assert "expected a file, found a" in refused(*words)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000000,), }",
            "8,000,000",
        ),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (6, ", "refused"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (), }", "expected rows"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 3), }", "expected rows"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 3), }", "refused"),
        ("{'descr': '<c16', 'fortran_order': False, 'shape': (1, 2), }", "complex128"),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", "could run code"),
    ],
)
def test_npy_headers_are_not_believed(refused, tmp_path, header, message):
    text = header.encode().ljust(117) + b"\n"
    path = tmp_path / "rows.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(64))
    assert message in refused("kruskal", path)


@pytest.mark.parametrize("order", "CF")
def test_arrays_are_read_as_numpy_reads_them(tmp_path, order):
    rows = np.asarray(np.arange(12.0).reshape(3, 4), order=order)
    np.save(tmp_path / "rows.npy", rows)
    np.savez_compressed(tmp_path / "rows.npz", query=rows, label=np.arange(3, dtype=">i2"))
    assert (read_arrays(tmp_path / "rows.npy")["query"] == rows).all()
    read = read_arrays(tmp_path / "rows.npz")
    assert (read["query"] == rows).all() and read["label"].tolist() == [0, 1, 2]


def test_queries_that_are_none_are_refused(refused, run, tmp_path):
    run("build", "vectors:T=6,n=2,d=3,context=fixed,classes=2", "-o", tmp_path / "m")
    for query in (np.zeros((0, 3)), np.full((1, 3), np.nan), np.array("x")):
        np.savez(tmp_path / "q.npz", query=query)
        assert "q.npz" in refused("recall", tmp_path / "m", tmp_path / "q.npz")


def test_values_that_python_lacks_in_parquet(refused, tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    kinds = (pa.timestamp("us"), pa.date32(), pa.duration("s"))
    for kind, value in zip(kinds, (2**62, 10**9, 2**60), strict=True):
        table = pa.table(
            {
                "k": pa.array([value], pa.int64()).cast(kind, safe=False)
                if kind != pa.date32()
                else pa.array([value], kind),
                "v": ["a"],
            }
        )
        parquet.write_table(table, tmp_path / "t.parquet")
        assert "t.parquet: expected" in refused("facts", tmp_path / "t.parquet")


@pytest.mark.parametrize(
    "words",
    [
        ("facts", "x" * 300),
        ("facts", f"random:N={DIGITS},S=2,T=3"),
        ("facts", "random:kind=gauss,N=9,S=1000000"),
        ("facts", "vectors:T=6,n=2,d=3,classes=2147483648"),
        ("facts", "vectors:T=6,n=999999999999,d=3"),
        ("facts", "random:kind=gauss,N=4", "--smooth", "1e308"),
        ("bound", "--d-model", "8", "--context", "4", "--sweep", f"heads=1:{DIGITS}"),
        ("precision", "x" * 300),
        ("recall", "x" * 300, "a"),
        ("bound", "--hf", "x" * 300),
        ("encoder", "random:kind=gauss,N=4", "--rank", "1000000000000"),
        ("explore", "--no-open", "-o", "x" * 300 + ".html"),
    ],
)
def test_numbers_and_names_beyond_measure_are_refused(refused, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    assert len(refused(*words)) < 1500


@pytest.mark.parametrize(
    "words",
    [
        ("bound", "--d-model", DIGITS, "--heads", "1", "--context", "4"),
        ("size", "--facts", "9", "--vocab", DIGITS, "--length", "2"),
    ],
)
def test_sizes_beyond_measure_are_refused(run, words):
    said = run(*words)
    assert said.exit_code == 2 and "Invalid value" in said.stderr and len(said.stderr) < 1500


def test_tokens_are_drawn_and_printed_as_they_stand(run, run_json, tmp_path):
    table = tmp_path / "t.jsonl"
    keys = [["$\\frac$", "a"], [ODD, "a"], ["x_1^2$", "b"], ["😀", "b"]]
    lines = [json.dumps({"input": key, "output": f"{ODD}{i}"}) for i, key in enumerate(keys)]
    table.write_text("\n".join(lines))
    run("build", table, "-o", tmp_path / "m", "--method", "attention")
    for suffix in (".svg", ".png", ".pdf"):
        words = ("report", tmp_path / "m", "--figure", "attention", "-o", tmp_path / f"f{suffix}")
        assert run(*words).exit_code == 0
    drawn = (tmp_path / "f.svg").read_text()
    ElementTree.fromstring(drawn)
    said = run("recall", tmp_path / "m", "--json", "--", ODD, "a").stdout
    assert not {*"\x85\u202e\x1b"} & {*said}
    assert json.loads(said)["answer"] == f"{ODD}1"


def test_a_title_with_dollars_is_no_formula(tmp_path):
    figure, (axes,) = new_figure()
    axes.set_title("$\\frac$ and $x^$")
    axes.plot([1, 10], [1, 100], label="\x1b $_$")
    axes.set_yscale("log")
    axes.legend()
    save(figure, tmp_path / "a.svg")
    save(figure, tmp_path / "b.svg")  # again: what is plain stays so
    ElementTree.fromstring((tmp_path / "a.svg").read_text())
    assert axes.get_title() == "\\$\\frac\\$ and \\$x^\\$"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("counted", ["", "[/x]"])
def test_progress_is_no_markup(monkeypatch, counted):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with _show.progress(counted) as tell:
        tell("waiting for [/x].memory \x1b[31m")


def test_standard_streams_that_are_closed():
    words = ["-m", "byheart", "size", "--facts", "9", "--vocab", "9", "--length", "2"]
    for closed in (">&- 2>&-", "| head -0"):
        line = f'"{sys.executable}" {" ".join(words)} {closed}; exit ${{PIPESTATUS[0]}}'
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (0, ""), closed


def test_a_terminal_of_no_width_still_shows_something():
    env = {**os.environ, "COLUMNS": "0"}
    words = [sys.executable, "-m", "byheart", "facts", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=env)
    assert "FACTS" in done.stdout


def test_a_certificate_that_cannot_be_written_is_no_failed_check(run, refused, tmp_path):
    run("build", "elements", "-o", tmp_path / "m")
    (tmp_path / "m" / "certificate.json").mkdir()
    assert "certificate.json cannot be written" in refused("certify", tmp_path / "m")


def test_a_long_integer_in_json_lines_is_named(tmp_path):
    path = Path(tmp_path / "t.jsonl")
    path.write_text(f'{{"input": {DIGITS}, "output": "a"}}\n')
    with pytest.raises(FactsError, match=r"line 1: .*beyond 64 bits"):
        bh.read_facts(path)
