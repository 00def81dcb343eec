"""The studies of the slides: verdicts that follow from made-up rows; their experiments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from made_up import Law, finding, verdicts

from byheart.papers import find
from byheart.papers.slides import associative, quality, sparse


def study(name: str):
    return find(f"slides/{name}")[0]


def held(power: float, shares: dict[str, float], few: float = 1.0) -> Law:
    """2 T log T = share d^power with an answer for every key; with few, T log(16 T) ~ d^few for
    the sum and the solution, T ~ d^few for training."""

    def law(p: dict[str, Any]) -> dict[str, Any]:
        way, d, A = p["way"], float(p["d"]), p["answers"]
        wanted = shares[way] * d**power / 2 if A == 0 else 4 * d**few
        T = wanted
        for _ in range(60 if A == 0 or way != "trained" else 0):
            T = max(2.0, wanted / math.log(T * (A or 1)))
        return {"T": T}

    return law


DERIVED = {**associative.SHARES}


def known(built: float, convex: float, power: float, worse: float = 5.0, off: float = 0.0) -> Law:
    """Questions known, built m and convex m^power of m features; the built memory's divergence, and
    how much further it is from its encoder than the theorem allows."""

    def law(p: dict[str, Any]) -> dict[str, Any]:
        T, d = p["N"] ** 2, p["d"]
        P = sparse.modules(p["share"], T, d)
        m = min(d * P + d, T)
        return {"P": P, "N_eps": T, "T": T, "features": m, "uniform_kl": 2.5, "encoder_kl": 0.5,
                "convex_kl": 1.0, "convex_known": convex * m**power, "built_known": built * m,
                "built_kl": 2.5 * worse, "bound": 2.5 * worse + 1 - off}  # fmt: skip

    return law


def layers(share: float, of_floor: float, wide: float = 0.001) -> Law:
    def law(p: dict[str, Any]) -> dict[str, Any]:
        floor = np.float64(0.5 / p["d"])  # of another type than float: without noise
        kl = wide if p["d"] == p["N"] - 1 else of_floor * float(floor)
        return {"kl": kl, "floor": floor, "known": share, "modules": 5}

    return law


@pytest.mark.parametrize(
    ("name", "law", "scatter", "expected"),
    [
        ("associative", held(2, DERIVED), 0.003, "confirmed"),
        ("associative", held(3, dict.fromkeys(DERIVED, 9.0), 2.0), 0.003, "refuted"),
        ("associative", held(2, dict.fromkeys(DERIVED, 1.0)), 0.003, "mixed"),
        ("associative", held(2, DERIVED), 1.5, "undecided"),
        ("sparse", known(1.0, 0.5, 1.25), 0.003, "confirmed"),
        ("sparse", known(0.5, 0.9, 0.8, worse=0.5, off=9.0), 0.003, "refuted"),
        ("sparse", known(1.0, 2.0, 0.9), 0.003, "mixed"),  # more, and less for each feature
        ("sparse", known(1.0, 0.5, 1.25), 1.0, "mixed"),  # what is counted is certain
        ("quality", layers(0.99, 1.05), 0.003, "confirmed"),
        ("quality", layers(0.5, 3.0, wide=0.5), 0.003, "refuted"),
        ("quality", layers(0.9, 1.25, wide=0.02), 0.1, "undecided"),
    ],
)
def test_verdicts_follow_from_the_rows(name: str, law: Law, scatter: float, expected: str):
    found = finding(study(name), law, scatter=scatter)
    assert found.verdict == expected, verdicts(found)
    few = finding(study(name), law, scatter=scatter, seeds=2)
    assert few.verdict == finding(study(name), law, profile="quick").verdict == "trend"
    counted = [claim for claim in few.claims if claim.found["low"] == claim.found["high"]]
    assert all(c.verdict == "undecided" for c in few.claims if c not in counted)


def test_the_claims_on_the_sparse_regime_are_judged_apart():
    found = list(verdicts(finding(study("sparse"), known(1.0, 2.0, 0.9))).values())
    assert found == ["confirmed", "confirmed", "confirmed", "confirmed", "refuted"]
    wide = list(verdicts(finding(study("sparse"), known(1.0, 0.5, 1.25), scatter=1.0)).values())
    assert (wide[0], wide[2], wide[4]) == ("undecided", "confirmed", "undecided")


def test_the_table_has_every_width_and_way_beside_the_law():
    found = finding(study("associative"), held(2, DERIVED))
    table = found.tables["an answer for every key"]
    assert [line["d"] for line in table] == [16, 32, 64, 128, 256, 512, 1024]
    for line in table:
        T = line["d2_by_2logT"]
        assert 2 * T * math.log(T) == pytest.approx(line["d"] ** 2)
        assert {"summed", "solved"} <= line.keys()
        assert ("trained" in line) == (line["d"] < 1024)
    assert all("trained" in line for line in found.tables["16 answers"])


@pytest.mark.parametrize("answers", [0, 16])
def test_the_solution_has_right_logits_of_1_and_the_least_norm(answers: int):
    X, U, right = associative.drawn(60, 24, answers, seed=3)
    V = U[right]
    W = associative.solved(X, U, right)
    assert torch.allclose(((X @ W) * V).sum(1), torch.ones(60), atol=0.02)
    K = ((X @ X.T) * (V @ V.T)).double()
    a = torch.linalg.solve(K, torch.ones(60, dtype=torch.float64))
    least = X.T.double() @ (a[:, None] * V.double())
    assert float((W - least).norm() / least.norm()) < 0.01


def test_training_holds_what_the_sum_does_not():
    d = 32
    T = round(associative.expected("trained", d, 0))
    X, U, right = associative.drawn(T, d, 0, seed=1)
    held = {w: associative.holds(f(X, U, right), X, U, right) for w, f in associative.WAYS.items()}
    assert held == {"summed": False, "solved": False, "trained": True}
    # `holds` is strict, and right in blocks as well as whole.
    assert not associative.holds(torch.zeros(d, d), X, U, right)
    W = associative.trained(X, U, right)
    assert bool(((X @ W @ U.T).argmax(1) == right).all())


def test_capacities_are_near_what_is_derived():
    for way, share in associative.SHARES.items():
        p = {"way": way, "d": 64, "answers": 0}
        found = np.mean([associative.capacity(p, seed)["of_law"] for seed in range(3)])
        assert share / associative.FACTOR < found < share * associative.FACTOR
    few = associative.capacity({"way": "trained", "d": 64, "answers": 16}, 0)
    assert 3 * 64 < few["T"] < 6 * 64
    assert few == associative.capacity({"way": "trained", "d": 64, "answers": 16}, 0)


def test_the_ladder_ends_at_what_is_held():
    for most in (1, 2, 7, 100, 5000):
        for start in (1.0, 9.3, 4000.0):
            T = associative.largest_held(lambda T: T <= most, start)  # noqa: B023 asked at once
            assert most / associative.NARROW - 1 <= T <= most


def test_too_few_modules_hold_dP_plus_d_by_construction_and_more_by_a_convex_readout():
    found = sparse.built_and_convex({"N": 10, "d": 4, "zipf": 0.0, "share": 0.4}, 1)
    assert found["features"] == 4 * found["P"] + 4 < found["N_eps"] <= 100
    assert abs(found["built_known"] / found["features"] - 1) < 0.4
    assert found["convex_known"] > found["features"]
    assert found["encoder_kl"] < found["convex_kl"] < found["uniform_kl"] < found["built_kl"]
    assert abs(found["built_kl"] - found["encoder_kl"]) <= found["bound"]


def test_with_the_modules_of_the_theorem_the_built_memory_is_its_encoder():
    found = sparse.built_and_convex({"N": 8, "d": 3, "zipf": 0.0, "share": 1.0}, 1)
    assert found["P"] == math.ceil(found["N_eps"] / 3)
    assert found["built_kl"] == pytest.approx(found["encoder_kl"], abs=sparse.ZERO)


def test_every_seed_trains_on_questions_of_its_own_whatever_its_stack():
    p = {"task": "many answers", "N": 4, "d": 3, "load": 1.0, "steps": 200}
    both = quality.train([(p, 1), (p, 2)])
    assert max(found["floor"] for found in both) < 1e-6 and both[0]["kl"] != both[1]["kl"]
    alone = quality.train([(p, 2)])[0]
    assert alone["kl"] == pytest.approx(both[1]["kl"], rel=0.02)
    assert quality.spec_of(p).H == math.ceil(16 / 3)
