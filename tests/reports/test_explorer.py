"""The explorer computes in the browser what Python computes: the same functions, translated."""

import ast
import json
import math
import random
import re
from pathlib import Path
from typing import Any

import pytest

import byheart as bh
from byheart.errors import ByheartError
from byheart.reports.explorer import PRESETS
from byheart.reports.translate import Untranslatable, _constant_lambda
from byheart.specs import AttentionOnlySpec, MultiHeadSpec
from byheart.theory.huggingface import parse_config, read_config

SETTINGS = 200


@pytest.fixture(scope="module")
def explorer(tmp_path_factory):
    return bh.explore(tmp_path_factory.mktemp("explorer") / "explorer.html").path


def some_settings(rng: random.Random) -> dict[str, Any]:
    def size(low: int, high: int) -> int:
        return round(low * (high / low) ** rng.random())

    reads = rng.choice(["tokens", "tokens", "vectors"])
    return {
        "d": size(1, 16384), "H": size(1, 4096), "d_h": size(1, 4096),
        "n": size(1, 64) if rng.random() < 0.7 else size(1, 8192),
        "N": size(2, 10**6), "T": size(1, 10**9), "reads": reads,
        "shared": rng.random() < 0.5,
    }  # fmt: skip


def in_python(s: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"error": None, "size_error": None, "parameters": None, "bounds": [],
                             "sizes": []}  # fmt: skip
    try:
        if s["reads"] == "vectors":
            spec = MultiHeadSpec(d=s["d"], n=s["n"], d_h=s["d_h"], H=s["H"], shared=s["shared"])
        else:
            spec = AttentionOnlySpec(N=s["N"], S=s["n"], d=s["d"], d_h=s["d_h"], H=s["H"])
        found["parameters"] = spec.parameters
        found["bounds"] = [a.to_json() for a in bh.bounds(spec, s["T"])]
    except ByheartError as error:
        found["error"] = str(error)
    try:
        found["sizes"] = [row.to_json() for row in bh.size(T=s["T"], N=s["N"], S=s["n"])]
    except ByheartError as error:
        found["size_error"] = str(error)
    return found


def same(shown: Any, meant: Any) -> bool:
    """Whole numbers to the last digit, floats to 12 digits (other libraries, other last bits)."""
    if isinstance(meant, bool) or meant is None or isinstance(meant, str):
        return shown == meant
    if isinstance(meant, int):
        return shown == {"int": str(meant)}
    if isinstance(meant, float):
        return isinstance(shown, (int, float)) and math.isclose(shown, meant, rel_tol=1e-12)
    return all(same(shown[key], meant[key]) for key in meant)


def test_200_random_settings_agree_with_python(explorer, visit):
    rng = random.Random(20_250_611)
    settings = [some_settings(rng) for _ in range(SETTINGS)]
    answers = visit(explorer).page.evaluate("(all) => all.map(exploreJson)", settings)
    compared = 0
    for s, shown in zip(settings, answers, strict=True):
        meant = in_python(s)
        for key in ("error", "size_error", "parameters"):
            assert same(shown[key], meant[key]), (s, key, shown[key], meant[key])
        for part in ("bounds", "sizes"):
            assert len(shown[part]) == len(meant[part]), s
            for ours, theirs in zip(shown[part], meant[part], strict=True):
                for key in ours:
                    assert same(ours[key], theirs[key]), (s, theirs, key, ours[key])
                    compared += 1
    assert compared > 50_000
    assert sum(a["error"] is None for a in answers) > 150


def test_a_wrong_formula_would_be_noticed(explorer, visit):
    """The comparison can fail: with one operator of the runtime changed it does."""
    page = visit(explorer).page
    s = {"d": 64, "H": 32, "d_h": 64, "n": 2, "N": 1000, "T": 2000, "reads": "tokens",
         "shared": False}  # fmt: skip
    before = page.evaluate("(s) => exploreJson(s)", s)
    page.evaluate("() => { const add = py.add; py.add = (a, b) => add(add(a, b), 1n); }")
    after = page.evaluate("(s) => exploreJson(s)", s)
    held = {name: {a["id"]: a["capacity"] for a in answer["bounds"]}["dana2025.corollary1"]
            for name, answer in (("before", before), ("after", after))}  # fmt: skip
    assert held["before"] == {"int": "2112"} != held["after"]


def test_moving_a_slider_changes_the_numbers(explorer, visit):
    page = visit(explorer).page
    page.click("text=yours")
    page.fill("#number-H", "64")
    text = page.inner_text("#bounds")
    assert re.search(r"dana2025.corollary1\s+associations\s+≥ 4,160 facts\s+fit", text)
    page.focus("#range-d")
    before = page.inner_text("#spec")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#spec") != before
    page.click("#vectors")
    assert "mahdavi2024.theorem1" in page.inner_text("#bounds")
    page.fill("#number-T", "5000000")
    page.fill("#number-N", "10")
    assert "more than the 10^2 = 100 different keys" in page.inner_text("#problem")
    page.fill("#number-N", "1")
    assert "at least 2" in page.inner_text("#problem")
    page.hover("#chart rect")
    assert "facts" in page.inner_text("#tip")


def pressed(page: Any) -> str:
    return page.inner_text("#presets [aria-pressed=true]")


def sizes(page: Any) -> dict[str, int]:
    return {k: int(page.input_value(f"#number-{k}")) for k in ("d", "H", "d_h", "n", "N", "T")}


def test_presets_are_the_models_that_bound_reads():
    configs = Path(__file__).parents[1] / "theory" / "configs"
    real = json.loads((configs / "real_models.json").read_text(encoding="utf-8"))
    specs = [
        read_config(configs / "gpt2.json"),
        read_config(configs / "bert-large.json"),
        parse_config(real["Llama-3.2-1B"]["config"]),
    ]
    read = [
        {"name": s.name, "layers": s.layers,
         "sizes": {"d": s.d, "H": s.H, "d_h": s.d_h, "n": s.S, "N": s.N}}
        for s in specs
    ]  # fmt: skip
    assert read == list(PRESETS)


def test_a_preset_sets_the_sizes_and_yours_are_kept(explorer, visit):
    page = visit(explorer).page
    assert pressed(page) == "GPT-2 small"
    assert "12 layers of these sizes" in page.inner_text("#spec")
    page.fill("#number-H", "13")
    assert pressed(page) == "yours"
    page.click("text=Llama-3.2-1B")
    assert sizes(page) == {"d": 2048, "H": 32, "d_h": 64, "n": 131072, "N": 128256, "T": 1000}
    text = page.inner_text("#bounds")
    assert re.search(r"dana2025.corollary1\s+associations\s+≥ 4,096 facts", text)
    page.click("text=yours")
    assert sizes(page)["H"] == 13 and pressed(page) == "yours"


def test_the_address_brings_the_settings_back(explorer, visit):
    page = visit(explorer).page
    page.click("text=BERT-large")
    page.click("#vectors")
    page.check("#shared")
    page.fill("#number-T", "77")
    page.wait_for_timeout(500)  # one entry of the history for a movement
    behind = "#" + page.url.partition("#")[2]
    shown = page.inner_text("main")

    again = visit(explorer, behind=behind).page
    assert again.inner_text("main") == shown
    assert again.url.endswith(behind)
    assert (sizes(again)["T"], pressed(again)) == (77, "BERT-large")
    assert again.is_checked("#shared")

    for expected in (1000, 1000, 1000):  # before T; before the shared context; before vectors
        page.go_back()
        assert sizes(page)["T"] == expected
    assert page.get_attribute("#tokens", "aria-pressed") == "true"
    page.go_back()
    assert pressed(page) == "GPT-2 small" and "#" not in page.url
    page.go_forward()
    assert pressed(page) == "BERT-large"


@pytest.mark.parametrize(
    ("behind", "wrong"),
    [
        ("#d=-5&H=1e3&n=0&N=999999999999999999999&T=7", "d, H, n, N"),
        ("#d=%3Cscript%3Ealert(1)%3C/script%3E&reads=mail&shared=%00&T=7", "d, reads, shared"),
        ("#T=7&__proto__=1&constructor=2&d=%E0%A4%A", "d"),
    ],
)
def test_bad_values_of_an_address_are_left_out(explorer, visit, behind, wrong):
    page = visit(explorer, behind=behind).page
    assert sizes(page) == {**PRESETS[0]["sizes"], "T": 7}
    assert page.inner_text("#ignored").endswith(f": {wrong}.")
    page.fill("#number-T", "8")
    assert page.inner_text("#ignored") == ""


def test_the_link_to_the_content_changes_no_setting(explorer, visit):
    page = visit(explorer).page
    page.click("text=BERT-large")
    page.evaluate("location.hash = '#main'")
    page.wait_for_timeout(50)
    assert pressed(page) == "BERT-large" and page.inner_text("#ignored") == ""


@pytest.mark.parametrize("width", [390, 768])
def test_no_table_is_cut_on_a_narrow_screen(explorer, visit, width):
    page = visit(explorer, width=width).page
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    cut = "[...document.querySelectorAll('.wide')].filter((e) => e.scrollWidth > e.clientWidth)"
    assert page.evaluate(f"{cut}.length") == 0
    ends = "[...document.querySelectorAll('td')].map((e) => e.getBoundingClientRect().right)"
    assert page.evaluate(f"Math.max(...{ends})") <= width


def test_every_theorem_is_listed(explorer, visit):
    from byheart.theory import BOUNDS

    page = visit(explorer, width=360, height=740, scheme="dark").page
    assert page.evaluate("theory.BOUNDS.map((b) => b.id)") == [b.id for b in BOUNDS]
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_what_cannot_be_translated_fails_when_it_is_reached():
    from byheart.reports.translate import Translation

    translation = Translation()
    name = translation.value(bh.theory.dana2025_bounds._eps_remark)  # type: ignore[attr-defined]
    assert name.startswith("_eps_remark")
    assert 'throw py.untranslated("Slice in _eps_remark")' in translation.text()
    translation.value(bh.theory.dana2025.shannon)  # type: ignore[attr-defined]
    assert 'py.missing("module numpy")' in translation.text()


def test_a_lambda_whose_place_is_unknown_is_found_by_its_code():
    """Python 3.12 gives no columns to a lambda that returns a constant."""
    text = "pair = (lambda case: 1, lambda case: ())"
    made: dict[str, Any] = {}
    exec(text, made)
    lambdas = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Lambda)]
    for function, node in zip(made["pair"], lambdas, strict=True):
        assert _constant_lambda(function.__code__, lambdas) is node
    with pytest.raises(Untranslatable, match="line 1"):
        _constant_lambda(made["pair"][0].__code__, lambdas[1:])
