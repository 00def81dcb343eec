"""The explorer computes in the browser what Python computes: the same functions, translated."""

import math
import random
import re
from typing import Any

import pytest

import byheart as bh
from byheart.errors import ByheartError
from byheart.specs import AttentionOnlySpec, MultiHeadSpec

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
    page.fill("#number-H", "64")
    text = page.inner_text("#bounds")
    assert re.search(r"dana2025.corollary1\s+≥ 4,160 facts\s+fit", text)
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
