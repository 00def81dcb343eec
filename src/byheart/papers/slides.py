"""Slides of June 2024 (Dana, after Bietti et al. 2023): the associative memory holds order d."""

from __future__ import annotations

import numpy as np

from byheart.papers.declare import declare, largest_passing
from byheart.studies import figure, laws
from byheart.studies.cell import Cell, Measurements, Params, Procedure
from byheart.studies.study import Axes, Finding, Record, Row

RECALLED = 0.99  # share of the facts that must be recalled
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
    """The largest T of which 99 % are recalled, to 5 %."""
    d, answers = params["d"], params["answers"]
    passes = lambda T: recalled(T, d, answers, seed) >= RECALLED  # noqa: E731
    T = largest_passing(passes, max(2, d // 4), precise=1.05)
    return {"T": T, "of_d": T / d}


CAPACITY = Procedure(
    capacity,
    seconds=lambda p: 0.02 + (3e-9 * p["d"] ** 4.4 if p["answers"] == 0 else 3e-6 * p["d"] ** 2),
)


def grid(variant: str, profile: str) -> list[Cell]:
    few, widths = (32, 64, 128, 256, 512, 1024), (16, 32, 64, 128, 192, 256)
    if profile == "quick":
        few, widths = few[:5], widths[:4]
    grids = [CAPACITY.grid("associative", answers=n, d=d) for n, d in ((FEW, few), (0, widths))]
    return grids[0] + grids[1]


def by_task(rows: list[Row]) -> dict[str, list[Row]]:
    return {name: [row for row in rows if row["answers"] == n] for n, name in TASKS.items()}


def analyse(rows: list[Row]) -> Finding:
    numbers: Record = {}
    table, verdicts = [], []
    for name, _, x, y in laws.enough(by_task(rows), "d", "T", 3):
        p = laws.exponent(x, y)
        numbers[f"exponent of d, {name}"] = p
        verdicts.append(laws.exponent_verdict(p, 1.0))
        at, mean, _ = figure.means(x, y)
        table += [
            {"answers": name, "d": int(d), "T": T, "T_by_d": T / d, "T_by_d2": T / d**2}
            for d, T in zip(at, mean, strict=True)
        ]
    if not table:
        return laws.too_few("three widths are needed")
    told = "; ".join(f"{name[15:]}: d^{p['estimate']:.2f}" for name, p in numbers.items())
    return Finding(laws.worst(verdicts), f"Capacity by {told}.", numbers, {"widths": table})


@figure.one_panel("The associative memory", "width d", "facts recalled (99 %)")
def draw(panel: figure.Panel, rows: list[Row]) -> None:
    figure.groups(panel, by_task(rows), "d", "T")
    if rows:
        d = np.array(sorted({float(row["d"]) for row in rows}))
        figure.curve(panel, d, d, "d", 2, "--")
        figure.curve(panel, d, d**2, "d²", 3, ":")
        figure.logarithmic(panel)


AXES = Axes("d", "T", "answers", "width d", "facts recalled (99 %)", log="xy")
STUDIES = (declare("slides/associative", grid, analyse, AXES, draw, FEW=FEW),)
