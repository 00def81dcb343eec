"""Slides of June 2024 (Dana, after Bietti et al. 2023): the associative memory holds order d facts
with few answers; with an answer for every key d²/(2 log T)."""

from __future__ import annotations

import numpy as np

from byheart.papers.declare import declare, largest_passing
from byheart.studies import figure, laws
from byheart.studies.cell import Cell, Measurements, Params, Procedure
from byheart.studies.fits import combined
from byheart.studies.study import Axes, Claim, Finding, Row

RECALLED = 0.99  # share of the facts that must be recalled
# With an answer for every key recall falls from 1 to 0 around d²/(2 log T). Half of the facts is
# where: .99 is reached at .2 of that for d = 64, at .46 for d = 1,024 (derived), so that its
# exponent is that of the approach.
HALF = 0.5
CONSTANT = 1.5  # T within this factor of d²/(2 log T) counts as that
ROWS = 4096  # keys asked at once
FEW = 16
TASKS = {FEW: f"{FEW} answers", 0: "an answer for every key"}


def recalled(T: int, d: int, answers: int, seed: int) -> float:
    """Share of T facts with argmax_j w_U(j)·W w_e(i) = g(i), W = Σ_i w_U(g(i)) w_e(i)^T.

    w_e(i) random signs / sqrt(d), w_U(j) random unit vectors, g uniform over the answers (0: as
    many as facts). Noise of a wrong logit: T/d² from cross-talk, and T/(answers d) from the keys
    that share its answer, so capacity is of order d if the answers stay few, of order d² (up to
    logarithms) if they grow with T (derived here).

    >>> recalled(8, 256, 8, seed=0)
    1.0
    """
    import torch

    source = torch.Generator().manual_seed(seed)
    A = answers or T
    keys = (2 * torch.randint(2, (T, d), generator=source) - 1).float() / d**0.5
    out = torch.nn.functional.normalize(torch.randn(A, d, generator=source))
    right = torch.randint(A, (T,), generator=source)
    W = keys.T @ out[right]
    hits = 0
    for i in range(0, T, ROWS):
        logits = keys[i : i + ROWS] @ W @ out.T
        hits += int((logits.argmax(1) == right[i : i + ROWS]).sum())
    return hits / T


def capacity(params: Params, seed: int) -> Measurements:
    """The largest T of which 99 %, or the share `recalled`, are recalled, to 5 %."""
    d, answers, share = params["d"], params["answers"], params.get("recalled", RECALLED)
    passes = lambda T: recalled(T, d, answers, seed) >= share  # noqa: E731
    T = largest_passing(passes, max(2, d // 4), precise=1.05)
    return {"T": T, "of_d": T / d}


CAPACITY = Procedure(
    capacity,
    seconds=lambda p: 0.02 + (2e-10 * p["d"] ** 4.2 if p["answers"] == 0 else 3e-6 * p["d"] ** 2),
)


def grid(variant: str, profile: str) -> list[Cell]:
    few, widths = (64, 128, 256, 512, 1024), (16, 32, 64, 128, 256, 512)
    if profile == "quick":
        few, widths = few[:4], widths[:4]
    own = CAPACITY.grid("associative", answers=0, d=widths, recalled=HALF)
    return CAPACITY.grid("associative", answers=FEW, d=few) + own


def by_task(rows: list[Row]) -> dict[str, list[Row]]:
    return {name: [row for row in rows if row["answers"] == n] for n, name in TASKS.items()}


def analyse(rows: list[Row]) -> Finding:
    table, claims = [], []
    for name, _, d, T in laws.enough(by_task(rows), "d", "T", 3):
        law = T * 2 * np.log(T)  # d², where T is d²/(2 log T)
        if name == TASKS[FEW]:
            claims.append(laws.exponent_claim(f"{name}: T ~ d^p", laws.exponent(d, T), 1.0))
        else:
            p = laws.exponent(d, law)
            claims.append(laws.exponent_claim(f"{name}: 2 T log T ~ d^p", p, 2.0))
            at, groups = laws.at_each(d, law / d**2)
            ratio = combined(groups, np.full(len(at), 1 / len(at)))
            statement = f"{name}: T by d²/(2 log T), mean of the widths"
            claims.append(Claim(statement, ratio, round(1 / CONSTANT, 2), CONSTANT))
        table += [
            {"answers": name, "d": int(at), "T": mean, "T_by_d": mean / at,
             "T_by_d2_by_2logT": 2 * mean * np.log(mean) / at**2}
            for at, mean, _ in zip(*figure.means(d, T), strict=True)
        ]  # fmt: skip
    if not table:
        return laws.too_few("three widths are needed")
    told = "; ".join(f"{c.statement}, found {c.found['estimate']:.2f}" for c in claims)
    return Finding(f"{told}.", tuple(claims), tables={"widths": table})


def sharp(d: np.ndarray) -> np.ndarray:
    """T = d²/(2 log T).

    >>> round(float(sharp(np.array([256.0]))[0]))
    3956
    """
    T = d**2
    for _ in range(50):
        T = d**2 / (2 * np.log(T))
    return T


@figure.one_panel("The associative memory", "width d", "facts recalled")
def draw(panel: figure.Panel, rows: list[Row]) -> None:
    figure.groups(panel, by_task(rows), "d", "T")
    if rows:
        d = np.array(sorted({float(row["d"]) for row in rows}))
        figure.curve(panel, d, d, "d", 2, "--")
        figure.curve(panel, d, sharp(d), "d²/(2 log T)", 3, ":")
        figure.logarithmic(panel)


AXES = Axes("d", "T", "answers", "width d", "facts recalled", log="xy")
STUDIES = (declare("slides/associative", grid, analyse, AXES, draw, FEW=FEW, CONSTANT=CONSTANT),)
