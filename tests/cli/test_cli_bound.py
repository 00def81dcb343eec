"""`byheart bound`: tables, JSON, explanations, sweeps, real models, and what it refuses."""

import csv
import json
import math
import re
import resource
from pathlib import Path

import pytest

CONFIGS = Path(__file__).parents[1] / "theory" / "configs"
GPT2 = ("--d-model", 768, "--heads", 12, "--d-head", 64, "--context", 1024, "--vocab", 50257)
SMALL = ("--d-model", 16, "--d-head", 4, "--context", 8, "--vocab", 100)
ROW = {"id", "applies", "reason", "capacity", "parameters", "kind", "exactness"}


def rows(record):
    return {row["id"]: row for row in record["rows"]}


def test_the_sizes_of_gpt2_by_hand(run_json):
    """12 · 64 + 768 = 1,536; 768 (1024 + 2 · 50257 + 4 · 64 · 12) = 80,340,480 parameters."""
    record = run_json("bound", *GPT2)
    found = rows(record)
    assert record["spec"]["family"] == "attention-only"
    assert found["dana2025.corollary1"]["capacity"] == 1536
    assert found["dana2025.corollary1"]["parameters"] == 80_340_480
    assert found["mahdavi2024.theorem1"]["applies"] is False
    assert found["mahdavi2024.theorem1"]["reason"] == "needs n <= d: 1024 > 768"
    assert found["dana2025.bennett"]["applies"] is None
    assert all(set(row) >= ROW for row in record["rows"])
    assert len(record["rows"]) >= 25


def test_the_table_shows_numbers_and_reasons(run, plain):
    said = run("bound", *GPT2)
    assert said.exit_code == 0
    text = plain(said.stdout)
    assert "dana2025.corollary1 >= 1,536 facts 80,340,480 1.91e-05" in text
    assert "needs n <= d: 1024 > 768" not in text and "--all says why" in text
    assert max(map(len, said.stdout.splitlines())) <= 100
    assert "needs n <= d: 1024 > 768" in plain(run("bound", *GPT2, "--all").stdout)


def test_the_answer_comes_first(run, run_json, plain):
    """2 · 124,439,808 / log2 50,257 = 15.9 million; 3.6 and 32 bits a parameter likewise."""
    text = plain(run("bound", "--hf", CONFIGS / "gpt2.json", "--facts", "50k").stdout)
    answer = text[: text.index("theorem that applies")]
    for words in (
        "Trained, it holds about 15.9 million facts of 15.6 bits (2 bits a parameter: Allen-Zhu "
        "and Li 2025), to 28.7 million (3.6 bits a parameter: Morris et al. 2025).",
        "here they are extrapolations",
        "Theorems guarantee at least 1,536 facts in one attention layer of these sizes (dana2025.",
        "No model of this size can hold more than 255 million facts",
        "Your 50,000 facts are 319 times fewer than the lower law says that training holds.",
    ):
        assert words in answer
    assert len(run_json("bound", "--hf", CONFIGS / "gpt2.json")["answer"]) == 3
    text = plain(run("bound", "--hf", CONFIGS / "vit-b-16.json").stdout)
    assert "No measured law covers it" in text and "9,216 real labels of vectors" in text


@pytest.mark.parametrize("written", ["1B", "1e9", "1_000_000_000", "1000M", "1,000,000k", "0.001T"])
def test_numbers_as_people_write_them(run_json, written):
    record = run_json("bound", "--parameters", written, "--answers", "1k")
    assert record["parameters"] == 10**9
    found = rows(record)
    assert found["empirical.knowledge_capacity"]["capacity"] == int(2e9 / math.log2(1000))
    assert found["related.information"]["capacity"] == int(32e9 / math.log2(1000))
    assert found["dana2025.corollary1"]["applies"] is None


@pytest.mark.parametrize(
    ("facts", "words"),
    [("1e10", "more than it can hold"), ("200M", "between the measurements"),
     ("500M", "more than was measured"), ("1M", "128 times fewer than the lower law says")],
)  # fmt: skip
def test_where_the_facts_lie(run_json, facts, words):
    assert words in run_json("bound", "--parameters", "1B", "--facts", facts)["answer"][-1]


def test_layers_without_a_vocabulary_read_vectors(run_json):
    """d = 64, n = 32, H = 20: 20 · 31 + 1 = 621 (Theorem 1), P for both kinds of context."""
    flags = ("--d-model", 64, "--heads", 20, "--d-head", 64, "--context", 32)
    found = rows(run_json("bound", *flags))
    assert found["mahdavi2024.theorem1"]["capacity"] == 621
    # 20 · 31 (64 + 31 - 31) + 621; 20 · 64 · 64 + 20 · 64.
    assert found["mahdavi2024.effective_parameters_shared"]["capacity"] == 40_301
    assert found["mahdavi2024.effective_parameters"]["capacity"] == 83_200
    assert found["dana2025.corollary1"]["applies"] is False
    found = rows(run_json("bound", *flags, "--kruskal", 10))
    assert found["mahdavi2024.theorem1"]["capacity"] == 181


def test_the_head_width_is_d_over_heads(run_json, refused):
    flags = ("--d-model", 768, "--context", 128, "--vocab", 9)
    assert run_json("bound", *flags, "--heads", 12)["spec"]["d_h"] == 64
    assert "5 heads do not divide the width 768" in refused("bound", *flags, "--heads", 5)


def test_facts_by_number_and_by_file(run_json):
    flags = ("--d-model", 8, "--heads", 80, "--context", 2, "--vocab", 5000)
    for facts, holds in (("500", None), ("640", None), ("88", True), ("1e2", None)):
        found = rows(run_json("bound", *flags, "--d-head", 1, "--facts", facts))
        assert found["dana2025.corollary1"]["holds"] is holds, facts
    found = rows(run_json("bound", *flags, "--d-head", 8, "--facts", "countries"))
    assert found["dana2025.corollary1"]["holds"] is True
    assert found["dana2025.corollary2"]["capacity"] == 1.0


@pytest.mark.parametrize(
    ("name", "parameters", "applying", "failing"),
    [
        ("gpt2", 124_439_808, "dana2025.corollary1", "mahdavi2024.theorem1"),
        ("gpt2-large", 774_030_080, "mahdavi2024.theorem1", "kajitsuka2025.theorem41"),
        ("bert-large", 335_141_888, "mahdavi2024.theorem1", "kajitsuka2025.theorem42"),
        ("vit-b-16", 86_389_248, "mahdavi2024.theorem1", "dana2025.corollary1"),
        ("smollm2-135m", 134_515_008, "dana2025.proposition1", "dana2025.corollary1"),
    ],
)
def test_real_models(run_json, name, parameters, applying, failing):
    record = run_json("bound", "--hf", CONFIGS / f"{name}.json")
    found = rows(record)
    assert record["parameters"] == parameters
    assert found[applying]["applies"] is True
    assert (found[failing]["applies"], found[failing]["capacity"]) == (False, None)
    assert found[failing]["reason"]


def test_it_answers_within_a_second_and_without_torch(script, tmp_path):
    """Processor time, as in test_cli_process: what a clock shows on an idle machine."""

    def used():
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    seconds = []
    for name in ("gpt2", "smollm2-135m"):
        before = used()
        assert script("bound", "--hf", CONFIGS / f"{name}.json").returncode == 0
        seconds.append(used() - before)
    assert min(seconds) < 1.0
    guard = tmp_path / "torch.py"
    guard.write_text("raise ImportError('bound must not load torch')\n")
    done = script("bound", *GPT2, env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin"})
    assert done.returncode == 0, done.stderr


LAYER = ("--d-model", 8, "--heads", 2, "--context", 4)


@pytest.mark.parametrize(
    "args",
    [
        ("bound", "--d-modle", 8),
        ("bound", "--explain", "dana2025.corolary1"),
        ("bound", *LAYER, "--facts", "nowhere.csv"),
        ("bound", *LAYER, "--heads", 0),
        ("size", "--facts", 9, "--vocab", 9, "--length", 2, "--family", "shraded"),
    ],
)
def test_wrong_use_is_refused_without_torch(script, tmp_path, args):
    (tmp_path / "torch.py").write_text("raise ImportError('torch must not be loaded')\n")
    done = script(*args, env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin"})
    assert done.returncode == 2 and "torch" not in done.stderr


def test_explain_one_and_all(run, run_json):
    said = run("bound", "--explain", "dana2025.corollary1")
    assert said.exit_code == 0
    for words in ("T0 = H d_h + d", "Corollary 1", "d_h <= d", "(assumed)"):
        assert words in said.stdout
    record = run_json("bound", "--explain", "mahdavi2024.theorem1")
    assert record["formula"].startswith("T = H(r-1) + 1")
    assert len(run_json("bound", "--explain", "all")["bounds"]) >= 25
    assert "empirical.free_dimensions" in run("bound", "--explain", "all").stdout


def test_a_sweep_is_a_csv_and_a_plot(run, tmp_path):
    table, plot = tmp_path / "out.csv", tmp_path / "out.png"
    said = run("bound", *SMALL, "--sweep", "heads=1:64", "-o", table, "--plot", plot)
    assert said.exit_code == 0, said.output
    assert str(table) in said.stdout
    with open(table, newline="") as file:
        lines = [row for row in csv.DictReader(file) if row["id"] == "dana2025.corollary1"]
    assert [int(row["heads"]) for row in lines] == list(range(1, 65))
    assert [int(row["capacity"]) for row in lines] == [4 * H + 16 for H in range(1, 65)]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_a_sweep_leaves_cells_empty_where_a_bound_does_not_apply(run, tmp_path):
    table = tmp_path / "out.csv"
    flags = ("--d-model", 8, "--heads", 2, "--d-head", 2, "--vocab", 100)
    assert run("bound", *flags, "--sweep", "context=6:12:2", "-o", table).exit_code == 0
    with open(table, newline="") as file:
        found = {
            int(row["context"]): row["capacity"]
            for row in csv.DictReader(file)
            if row["id"] == "mahdavi2024.theorem1"
        }
    assert found == {6: "3", 8: "3", 10: "", 12: ""}


def test_a_sweep_as_json_and_svg(run_json, tmp_path):
    plot = tmp_path / "out.svg"
    record = run_json("bound", *SMALL, "--sweep", "heads=1:3", "--plot", plot)
    assert record["sweep"] == "heads"
    assert {row["heads"] for row in record["rows"]} == {1, 2, 3}
    assert "<svg" in plot.read_text()


HF = CONFIGS / "gpt2.json"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "--d-model, --heads, --context missing"),
        (("--d-model", 0, "--heads", 2, "--context", 4), "--d-model must be a whole number of at"),
        (("--d-model", 8, "--heads", -2, "--context", 4), "--heads must be .* found -2"),
        ((*LAYER, "--d-head", 0), "--d-head must be"),
        ((*LAYER, "--vocab", 1), "--vocab must be .* at least 2, found 1"),
        ((*LAYER, "--layers", 0), "--layers must be"),
        ((*LAYER, "--layers", 2), "--layers needs --vocab"),
        ((*LAYER, "--bits", 0), "--bits must be a whole number of at least 1"),
        ((*LAYER, "--kruskal", 0), "--kruskal must be"),
        ((*LAYER, "--facts", 0), "--facts must be a whole number of at least 1, found '0'"),
        ((*LAYER, "--facts", "-3"), "found '-3'"),
        ((*LAYER, "--facts", "1.5"), "found '1.5'"),
        ((*LAYER, "--facts", "nowhere.csv"), "nowhere.csv"),
        ((*LAYER, "--vocab", 3, "--facts", 1000), "1,000 facts are more than the N.n = 3.4 = 81"),
        ((*LAYER, "--vocab", 10, "--facts", "countries"), "the facts have .* --vocab"),
        (("--hf", HF, "--heads", 3), "--hf and --heads contradict each other"),
        (("--hf", HF, "--parameters", "1B"), "--parameters and --hf contradict each other"),
        (("--parameters", "1B", "--heads", 3), "--parameters and --heads contradict each other"),
        (("--parameters", 0), "--parameters must be a whole number of at least 1, found 0"),
        (("--parameters", "1B", "--answers", 1), "--answers must be .* at least 2"),
        (("--hf", HF, "--sweep", "heads=1:3"), "--hf and --sweep contradict each other"),
        (("--hf", "nowhere.json"), "nowhere.json: no such file"),
        (("--explain", "dana2025.corolary1"), "Did you mean 'dana2025.corollary1'"),
        ((*LAYER, "-o", "x.csv"), "are for --sweep"),
        ((*LAYER, "--sweep", "heads=1:3", "-o", "x.csv"), "--heads and --sweep .* contradict"),
        ((*SMALL, "--sweep", "heads"), "--sweep must be NAME=FIRST:LAST"),
        ((*SMALL, "--sweep", "heads=3:1"), "--sweep must be NAME"),
        ((*SMALL, "--sweep", "heads=0:4"), "--sweep must be NAME"),
        ((*SMALL, "--sweep", "heads=a:b"), "--sweep must be NAME"),
        ((*SMALL, "--sweep", "noses=1:4"), "one of heads"),
        ((*SMALL, "--sweep", "head=1:4"), "Did you mean 'heads'"),
        ((*SMALL, "--sweep", "heads=1:1000000"), "at most 10,000 points, .* Give a step"),
        ((*SMALL, "--sweep", "heads=1:4", "--plot", "x.gif"), "must end in .png, .svg, .pdf"),
        ((*SMALL, "--sweep", "heads=1:4", "--plot", "no/x.png"), "there is no folder no"),
        ((*SMALL, "--sweep", "heads=1:4", "-o", "no/x.csv"), "there is no folder no"),
    ],
)
def test_wrong_use(refused, tmp_path, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    assert re.search(message, refused("bound", *args))


def test_a_sweep_without_a_place_to_go(run):
    said = run("bound", *SMALL, "--sweep", "heads=1:3")
    assert said.exit_code == 2
    assert "say where the sweep goes: -o out.csv" in said.stderr


def test_nothing_to_plot(refused, tmp_path):
    flags = ("--d-model", 1, "--d-head", 2, "--context", 1)
    message = refused("bound", *flags, "--sweep", "heads=1:3", "--plot", tmp_path / "x.png")
    assert "nothing to plot" in message


def test_partial_and_unknown_configs(refused, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "gpt2", "n_embd": 768}))
    missing = "n_head, n_layer, n_positions or n_ctx, vocab_size missing; found model_type, n_embd"
    assert missing in refused("bound", "--hf", config)
    config.write_text(json.dumps({"model_type": "mamba", "state_size": 16}))
    message = refused("bound", "--hf", config)
    assert "'mamba' is not known" in message and "hidden_size, num_attention_heads" in message
    config.write_text("{")
    assert "not JSON" in refused("bound", "--hf", config)


def test_huge_sizes(run, run_json):
    flags = ("--d-model", 10**12, "--heads", 10**12, "--d-head", 10**12, "--context", 10**12,
             "--vocab", 10**12)  # fmt: skip
    assert run("bound", *flags, "--facts", "1e12").exit_code == 0
    assert rows(run_json("bound", *flags))["dana2025.corollary1"]["capacity"] == 10**24 + 10**12
