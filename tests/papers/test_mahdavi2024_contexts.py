"""Contexts that some examples share, and queries of planted Kruskal rank: verdicts, and rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from made_up import Law, finding, verdicts

from byheart.measure import kruskal_rank
from byheart.papers import find
from byheart.papers.mahdavi2024 import kruskal, sharing
from byheart.theory.mahdavi2024 import effective_parameters, partly_shared, theorem1_capacity


def study(name: str):
    return find(f"mahdavi2024/{name}")[0]


def contexts(most: float = 0.95, lost: int = 0) -> Law:
    """Random heads that miss the derived rank by `lost`, fits up to `most` of P."""

    def law(p: dict[str, Any]) -> dict[str, Any]:
        H, n, d = p["H"], p["n"], p["d"]
        if "k" in p:
            T = 2 * H * d
            R = sharing.derived_rank(H, n, d, p["k"], T)
            one, own = (partly_shared(H, n, d, d, c)[0] for c in (1, T))
            return {"layer": f"{H},{n},{d}", "T": T, "contexts": -(-T // p["k"]), "shared": one,
                    "rank": R - lost, "derived_rank": R, "held": R - lost, "derived_held": R,
                    "own": own}  # fmt: skip
        P = partly_shared(H, n, d, p["d_h"], p["contexts"])[1]
        T = int(p["share"] * P)
        return {"layer": f"{H},{n},{d}", "T": T, "P": P, "fitted": most * P >= T, "shared": 1,
                "own": 2}  # fmt: skip

    return law


def planted(harm: float = 0.0, most: float = 0.95, built: str = "whole", gain: float = 0.2) -> Law:
    """Trained accuracies that dependent sets change by -`harm`; builds of what `built` names."""

    def law(p: dict[str, Any]) -> dict[str, Any]:
        H, n, d, Q, sets = p["H"], p["n"], p["d"], p["Q"], p["kind"] == "sets"
        theorem, whole = theorem1_capacity(H, n, d, Q), H * (n - 1) + 1
        if "steps" in p:
            lower = harm * (Q < d) if sets else gain * np.log2(d / Q)
            return {"accuracy": float(0.9 - lower), "theorem": theorem}
        if "share" in p:
            P = effective_parameters(H, n, d if sets else Q, d, shared=True)
            T = int(p["share"] * P)
            return {"T": T, "P": P, "fitted": most * P >= T, "theorem": theorem}
        builds = {"whole": whole, "theorem": theorem}[built] if sets else theorem
        return {"theorem": theorem, "whole": whole, "random": whole, "built": builds}

    return law


@pytest.mark.parametrize(
    ("name", "law", "scatter", "expected"),
    [
        ("partial-sharing", contexts(), 0, "confirmed"),
        ("partial-sharing", contexts(most=2.0), 0, "mixed"),  # beyond P
        ("partial-sharing", contexts(lost=1), 0, "mixed"),
        ("partial-sharing", contexts(most=0.0, lost=1), 0, "mixed"),
        ("kruskal-vs-memorized", planted(), 0.003, "confirmed"),
        ("kruskal-vs-memorized", planted(built="theorem"), 0.003, "mixed"),
        ("kruskal-vs-memorized", planted(harm=0.2), 0.003, "mixed"),
        ("kruskal-vs-memorized", planted(), 0.5, "mixed"),  # training says nothing
    ],
)
def test_verdicts_follow_from_the_rows(name: str, law: Law, scatter: float, expected: str):
    found = finding(study(name), law, scatter=scatter)
    assert found.verdict == expected, verdicts(found)
    for how in ({"seeds": 2}, {"profile": "quick"}):
        assert finding(study(name), law, scatter=scatter, **how).verdict == "trend"


@pytest.mark.parametrize(
    ("name", "law", "scatter", "words", "expected"),
    [
        ("partial-sharing", contexts(lost=1), 0, "rank(Z)", "refuted"),
        ("partial-sharing", contexts(lost=1), 0, "read-out", "refuted"),
        ("partial-sharing", contexts(most=2.0), 0, "nothing beyond", "refuted"),
        ("partial-sharing", contexts(most=0.85), 0, "up to P", "refuted"),
        ("kruskal-vs-memorized", planted(built="theorem"), 0, "construction builds H", "refuted"),
        ("kruskal-vs-memorized", planted(most=0.81), 0, "whatever Q", "refuted"),
        ("kruskal-vs-memorized", planted(most=2.0), 0, "at 1.05 P", "refuted"),
        ("kruskal-vs-memorized", planted(harm=0.2), 0.003, "do not hurt", "refuted"),
        ("kruskal-vs-memorized", planted(), 0.5, "do not hurt", "undecided"),
        ("kruskal-vs-memorized", planted(gain=0.0), 0.003, "twice the dimension", "refuted"),
    ],
)
def test_each_claim_is_judged_by_itself(
    name: str, law: Law, scatter: float, words: str, expected: str
):
    found = verdicts(finding(study(name), law, scatter=scatter))
    assert [v for statement, v in found.items() if words in statement] == [expected], found


@pytest.mark.parametrize("name", ["partial-sharing", "kruskal-vs-memorized"])
def test_the_paper_profile_is_a_matter_of_minutes(name: str):
    assert study(name).estimate("paper")[0] < 600


def test_sharing_costs_nothing_up_to_h_times_n_minus_1():
    """The read-out's wall is H d as long as k <= H(n-1), H(n-1)+1 beyond H(n-1)+1: measured."""
    H, n, d = 3, 3, 8
    for k, wall in ((1, H * d), (H * (n - 1), H * d), (H * (n - 1) + 2, H * (n - 1) + 1)):
        row = sharing.read_out({"H": H, "n": n, "d": d, "k": k}, seed=5)
        assert row["held"] == row["derived_held"] == wall
        assert row["rank"] == row["derived_rank"]


def test_all_weights_fit_below_p_of_the_contexts_and_not_above():
    layer = {"H": 3, "n": 3, "d": 8, "d_h": 3, "contexts": 2}
    below, above = (sharing.newton({**layer, "share": share}, 1) for share in (0.9, 1.05))
    assert below["shared"] < below["T"] < below["P"] < below["own"] and below["fitted"]
    assert above["T"] > above["P"] and not above["fitted"]


@pytest.mark.parametrize("Q", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", kruskal.KINDS)
def test_the_planted_kruskal_rank_is_the_kruskal_rank(kind: str, Q: int):
    e = kruskal.queries(kind, Q, 12, 6, np.random.default_rng(Q))
    assert kruskal_rank(e) == Q
    assert np.linalg.matrix_rank(e) == (6 if kind == "sets" else Q)


def test_dependent_sets_do_not_hurt_and_a_small_space_does():
    layer = {"H": 4, "n": 5, "d": 12, "Q": 2}
    sets, space = (kruskal.built({**layer, "kind": kind}, 3) for kind in ("sets", "space"))
    assert sets["built"] == sets["random"] == sets["whole"] == 17
    assert space["built"] == space["theorem"] == sets["theorem"] == 5


def test_trained_accuracy_is_a_mean_of_starts():
    p = {"H": 2, "n": 3, "d": 6, "T": 20, "steps": 20, "lr": 0.02, "kind": "sets", "Q": 2}
    row = kruskal.trained(p, 0)
    assert 0 < row["accuracy"] <= 1 and row["theorem"] == 3
    assert (row["accuracy"] * 20 * kruskal.TRAINED) == pytest.approx(
        round(row["accuracy"] * 20 * kruskal.TRAINED)
    )
