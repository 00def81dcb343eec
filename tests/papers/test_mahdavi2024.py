"""The studies of Mahdavi et al.: verdicts that follow from made-up rows; their experiment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from made_up import Law, verdict

from byheart.papers import find
from byheart.papers.mahdavi2024 import assumptions, capacity, experiment
from byheart.papers.mahdavi2024.experiment import SCALED, TRAIN
from byheart.theory.mahdavi2024 import effective_parameters, theorem1_capacity


def study(name: str):
    return find(f"mahdavi2024/{name}")[0]


def share(law) -> Law:
    return lambda p: {"share": law(p), "accuracy": law(p)}


def fitted_up_to(most) -> Law:
    def law(p: dict[str, Any]) -> dict[str, Any]:
        sizes = (p["H"], p["n"], p["d"], p["d_h"])
        P = effective_parameters(*sizes, shared=p["context"] == "shared")
        theorem = theorem1_capacity(p["H"], p["n"], p["d_h"])
        T = int(p["share"] * P)
        return {"T": T, "P": P, "theorem": theorem, "fitted": most(P, theorem) >= T}

    return law


def held(slopes: dict[str, float]) -> Law:
    return lambda p: {"T": 5.0 + slopes[p["method"]] * p["H"], "of_rank": 1.0}


def heads(saturated: float, fresh: float, correlation: float) -> Law:
    def law(p: dict[str, Any]) -> dict[str, Any]:
        built = p["kind"] == "literal"
        a, b, c = (0.56, 0.75, -0.3) if built else (saturated, fresh, correlation)
        zero = dict.fromkeys(("own_saturated", "other_saturated", "accuracy", "co_saturation",
                              "breaks", "two_heads_or_more", "concentration"), 0.5)  # fmt: skip
        counts = {"histogram": [1] * (p["H"] + 1), "independent": [1.0] * (p["H"] + 1)}
        return {**zero, **counts, "saturated": a, "fresh_saturated": b, "correlation": c}

    return law


def table(before: float, after: float) -> Law:
    def law(p: dict[str, Any]) -> dict[str, Any]:
        there = p.get("available", True)
        first = before if p["layer"] == "embeddings" else after
        return {"available": there, "A2": 1.0, "A1": first, "GP": 0.0}

    return law


@pytest.mark.parametrize(
    ("name", "law", "expected"),
    [
        ("fig2a", share(lambda p: 0.1 + 0.012 * p["H"]), "confirmed"),
        ("fig2a", share(lambda p: 0.1 + 0.1 * p["H"] ** 0.5), "not confirmed"),
        ("regression-heads-own", share(lambda p: 0.01 * p["H"]), "confirmed"),
        ("fig2b", share(lambda p: 0.2 + 0.01 * p["n"]), "confirmed"),
        ("fig2b", share(lambda p: 0.9 - 0.01 * p["n"]), "not confirmed"),
        (
            "context-own-contexts",
            share(lambda p: 0.3 + 0.005 * p["n"] - 0.2 * (p["n"] == 40)),
            "undecided",
        ),
        ("fig2c", share(lambda p: 0.1 + 0.02 * min(p["d_h"], p["n"])), "confirmed"),
        ("fig2c", share(lambda p: 0.1 + 0.012 * p["d_h"]), "not confirmed"),
        ("fig2c", share(lambda p: 0.5), "not confirmed"),
        ("capacity-vs-P", fitted_up_to(lambda P, theorem: 0.95 * P), "confirmed"),
        ("capacity-vs-P", fitted_up_to(lambda P, theorem: 2 * P), "not confirmed"),
        ("capacity-vs-P", fitted_up_to(lambda P, theorem: theorem), "not confirmed"),
        ("built-vs-trained", held({"one-hot": 5, "convex": 20, "trained": 40}), "confirmed"),
        ("built-vs-trained", held({"one-hot": 5, "convex": 20, "trained": 10}), "not confirmed"),
        ("depth", lambda p: {"accuracy": 0.5}, "confirmed"),
        ("depth", lambda p: {"accuracy": 0.3 + 0.05 * p["layers"]}, "not confirmed"),
        ("saturation", heads(0.4, 0.41, 0.01), "artefact"),
        ("saturation", heads(0.4, 0.6, -0.2), "confirmed"),
        ("saturation", heads(0.4, 0.6, 0.01), "undecided"),
        ("assumptions", table(0.0, 1.0), "confirmed"),
        ("assumptions", table(0.0, 0.5), "not confirmed"),
    ],
)
def test_verdicts_follow_from_the_rows(name: str, law: Law, expected: str):
    assert verdict(study(name), law) == expected


def test_full_profiles_are_the_papers():
    cells = study("fig2a").cells("as-coded", "full")
    assert {(c.params["H"], c.params["T"]) for c in cells} == {
        (H, T) for H in (1, 5, 10, 20, 30, 40, 50, 60) for T in (10_000, 20_000, 30_000, 40_000)
    }
    # 342 runs a seed in the paper, two of them (saturation) in a study of their own.
    runs = sum(len(s.cells("as-coded", "full")) for s in find("mahdavi2024")[:9])
    assert runs + 2 == 342
    one = cells[0].params
    spec, recipe = experiment.spec_of({**one, "H": 20}), experiment.recipe_of(one)
    assert spec.parameters == 177_060
    assert (recipe.steps, recipe.lr, recipe.batch, recipe.warmup) == (50_000, 1e-3, 256, 0.05)
    width = study("fig2c").cells("as-coded", "full")[0].params
    assert experiment.steps_of(width) == 300_000


def test_figure_2_quick_is_estimated_below_half_an_hour_on_two_cores():
    names = ("fig2a", "fig2b", "fig2c")
    assert sum(study(name).estimate("quick")[0] for name in names) / 2 < 1800


@pytest.mark.parametrize("context", ["shared", "own"])
@pytest.mark.parametrize("task", ["classes", "values"])
def test_data_of_a_seed_does_not_depend_on_its_stack(context: str, task: str):
    p = {**SCALED, "T": 7, "n": 3, "H": 2, "d_h": 4, "d": 4, "context": context, "task": task}
    both, alone = experiment.data_of(p, [5, 6]), experiment.data_of(p, [6])
    assert torch.equal(both.inputs[1], alone.inputs[0])
    assert torch.equal(both.targets[1], alone.targets[0])
    assert not torch.equal(both.inputs[0], both.inputs[1])
    assert both.context is not None and alone.context is not None
    last = both.context[1] if context == "own" else both.context
    assert torch.equal(last, alone.context[0] if context == "own" else alone.context)
    assert 0 <= float(both.inputs.min()) and float(both.inputs.max()) < 1


def test_stacked_and_single_training_agree():
    """The same starts, data and batches: differences are of rounding only."""
    p = TRAIN.cell("x", H=2, n=4, d=8, d_h=8, T=60, least_steps=20).params
    both = experiment.train([(p, 1), (p, 2)])
    apart = [experiment.train([(p, seed)])[0] for seed in (1, 2)]
    for alone, stacked in zip(apart, both, strict=True):
        assert alone["loss"] == pytest.approx(stacked["loss"], rel=1e-3)
    values = TRAIN.cell("x", H=2, n=4, d=8, d_h=8, T=60, least_steps=20, task="values")
    [found] = experiment.train([(values.params, 1)])
    assert found["share"] <= 1 and found["memorized"] == pytest.approx(60 * found["share"])


def test_an_unknown_setting_is_refused():
    with pytest.raises(TypeError, match="heads"):
        TRAIN.cell("x", heads=3)


def test_newton_fits_below_p_and_not_above():
    layer = {"H": 2, "n": 5, "d": 8, "d_h": 8, "context": "shared"}
    below = capacity.newton({**layer, "share": 0.9}, 1)
    above = capacity.newton({**layer, "share": 1.05}, 1)
    assert below["fitted"] and below["T"] < below["P"] and below["T"] > below["theorem"]
    assert not above["fitted"] and above["T"] > above["P"]


def test_one_hot_holds_what_the_theorem_says_and_convex_more():
    layer = {"H": 2, "n": 5, "d": 8, "d_h": 8, "context": "shared", "lr": 0.02, "steps": 10}
    one_hot = capacity.held({**layer, "method": "one-hot"}, 0)
    convex = capacity.held({**layer, "method": "convex"}, 0)
    assert one_hot["T"] == one_hot["theorem"] == 9
    assert convex["T"] > one_hot["T"]


def test_one_query_for_all_fails_assumption_1_until_attention():
    p = {"T": 60, "patch": 2, "draws": 10}
    before = assumptions.digits({**p, "layer": "embeddings"}, 0)
    after = assumptions.digits({**p, "layer": "after one attention"}, 0)
    assert (before["A1"], before["A2"]) == (0.0, 1.0)
    assert (after["A1"], after["A2"]) == (1.0, 1.0)
    assert before["GP"] is None  # 60 queries in 64 dimensions


def test_a_missing_model_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(assumptions, "find_spec", lambda name: None)
    cells = study("assumptions").cells("as-coded", "quick")
    absent = [c for c in cells if c.params["model"] in assumptions.MODELS]
    assert len(absent) == len(assumptions.MODELS) and not any(c.params["available"] for c in absent)
    found = assumptions.audited(absent[0].params, 0)
    assert not found["available"] and "not installed" in found["reason"]


def test_saturation_is_counted_against_independent_heads():
    from byheart.papers.mahdavi2024.saturation import statistics

    p = {"kind": "literal", "H": 3, "T": 1, "n": 6, "d": 12, "classes": 5, "steps": 0,
         "stop_at": None}  # fmt: skip
    found = statistics(p, 1)
    assert found["accuracy"] == 1.0 and found["T"] == 16
    assert np.isclose(sum(found["independent"]), sum(found["histogram"]))
    assert found["fresh_saturated"] > found["saturated"]
