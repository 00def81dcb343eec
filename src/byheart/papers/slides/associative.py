"""The associative memory (slides, after Bietti et al. 2023): the largest number T of facts that one
d x d matrix holds without an error, against d and d²/(2 log T).

    logits(i) = U W^T x_i,     x_i random signs / sqrt(d), u_j random unit vectors, A answers

What is expected (derived here; noise taken as normal, so for large d). Let n = min(A, d) d, and the
logits of wrong answers have variance s² = |W|² / n if the right ones are 1. The largest of the T A
noises is sqrt(2 log(T A)) s.

- summed, W = Σ_i x_i u_{g(i)}^T: s² = T / n, and the right logits have that noise too. The worst of
  T A differences of two noises is 2 sqrt(log(T A)) s: T = n / (4 log(T A)).
- solved, least |W| with x_i^T W u_{g(i)} = 1: the right logits have no noise: T = n / (2 log(T A)).
- trained, the best W there is: a fact needs to beat its own A wrong answers only, which costs it
  sqrt(2 log A) in units of s, and T such constraints leave |W|² <= n as long as T (1 + 2 log A) is
  below n (the capacity of a perceptron with that margin): T = n / (2 log A) for many answers.

With an answer for every key (A = T, n = d²) these are d²/(8 log T), d²/(4 log T) and d²/(2 log T);
with few answers, of order d.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from byheart.papers.declare import declare
from byheart.studies import figure, laws
from byheart.studies.cell import Cell, Measurements, Params, Procedure
from byheart.studies.fits import combined
from byheart.studies.study import Axes, Claim, Finding, Record, Row

if TYPE_CHECKING:
    from torch import Tensor

ENTRIES = 1 << 24  # logits looked at together
NARROW = 1.1  # T is searched on a ladder of this ratio
RESIDUAL = 1e-3  # of the right logits where the solution is exact: they are 1
AHEAD = 1.2  # trainings hold more than the leading term: the ladder of those begins here
STEPS = 15  # of Adam on all facts at once
RATE = 4.0  # first learning rate, times d; it falls to 0 along a line
FEW = 16
FROM = 64  # width from which on 16 answers are nearly orthogonal: d >= 4 of them
TASKS = {0: "an answer for every key", FEW: f"{FEW} answers"}
# T 2 log T / d² with an answer for every key, and the band: within this factor of it.
SHARES: Mapping[str, float] = {"summed": 0.25, "solved": 0.5, "trained": 1.0}
FACTOR = 1.5


def drawn(T: int, d: int, answers: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Keys X (T, d), answers U (A, d), and which is right (T,): with `answers` of them drawn
    uniformly, with 0 every key has its own."""
    import torch

    source = torch.Generator().manual_seed(seed)
    X = (2 * torch.randint(2, (T, d), generator=source) - 1).float() / d**0.5
    U = torch.nn.functional.normalize(torch.randn(answers or T, d, generator=source))
    own = torch.arange(T)
    return X, U, torch.randint(answers, (T,), generator=source) if answers else own


def blocks(T: int, A: int) -> list[slice]:
    """Keys whose logits are looked at together."""
    rows = max(1, ENTRIES // A)
    return [slice(i, i + rows) for i in range(0, T, rows)]


def holds(W: Tensor, X: Tensor, U: Tensor, right: Tensor) -> bool:
    """Whether every right logit is above all others of its key.

    >>> import torch
    >>> holds(torch.eye(2), torch.eye(2), torch.eye(2), torch.tensor([0, 1]))
    True
    """
    for some in blocks(len(X), len(U)):
        logits, column = X[some] @ W @ U.T, right[some, None]
        own = logits.gather(1, column)[:, 0]
        if bool((logits.scatter_(1, column, -math.inf).amax(1) >= own).any()):
            return False
    return True


def summed(X: Tensor, U: Tensor, right: Tensor) -> Tensor:
    """W = Σ_i x_i u_{g(i)}^T."""
    return X.T @ U[right]


def solved(X: Tensor, U: Tensor, right: Tensor) -> Tensor:
    """The least |W| with x_i^T W u_{g(i)} = 1 for all facts: W = Σ_i a_i x_i u_{g(i)}^T with K a =
    1, K_ij = (x_i·x_j)(u_i·u_j), by conjugate gradients, which need K only in products. Where K is
    singular (more facts than dimensions) they end without a solution, and the facts are not held.
    """
    import torch

    V = U[right]
    a, residual = torch.zeros(len(X)), torch.ones(len(X))
    direction, square = residual, float(len(X))
    for _ in range(len(X)):
        along = ((X @ (X.T @ (direction[:, None] * V))) * V).sum(1)
        step = square / float(direction @ along)
        a, residual = a + step * direction, residual - step * along
        before, square = square, float(residual @ residual)
        if not square > RESIDUAL**2 * len(X):
            break
        direction = residual + square / before * direction
    return X.T @ (a[:, None] * V)


def trained(X: Tensor, U: Tensor, right: Tensor) -> Tensor:
    """W after gradient descent on the cross-entropy of softmax(d x_i^T W u_j), from 0: Adam, all
    facts in every step; the first W that holds them, or the last."""
    import torch

    d = X.shape[1]
    W = torch.zeros(d, d)
    adam = torch.optim.Adam([W], betas=(0.9, 0.99))
    for step in range(STEPS):
        gradient, all_held = torch.zeros(d, d), True
        for some in blocks(len(X), len(U)):
            p, column = (X[some] @ W @ U.T).mul_(d).softmax(1), right[some, None]
            all_held = all_held and bool((p.argmax(1) == right[some]).all())
            p.scatter_add_(1, column, torch.full_like(column, -1.0, dtype=p.dtype))
            gradient += X[some].T @ (p @ U)
        if all_held:
            break
        adam.param_groups[0]["lr"] = RATE / d * (1 - step / STEPS)
        W.grad = gradient
        adam.step()
    return W


WAYS: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "summed": summed, "solved": solved, "trained": trained,
}  # fmt: skip


def expected(way: str, d: int, answers: int) -> float:
    """The T that the derivation above expects, in its leading term.

    >>> [round(expected(way, 256, 0)) for way in WAYS]
    [1161, 2137, 3956]
    >>> [round(expected(way, 256, 16)) for way in WAYS]
    [134, 247, 739]
    """
    n = min(answers or d, d) * d
    T = float(n)
    for _ in range(50):
        A = answers or T
        of_all, of_own = math.log(T * A), math.log(A)
        T = max(2.0, n / {"summed": 4 * of_all, "solved": 2 * of_all, "trained": 2 * of_own}[way])
    return T


def largest_held(held: Callable[[int], bool], start: float) -> int:
    """The largest T held of start, start x 1.1, ...; where start is not, the first of start / 1.1,
    start / 1.1², ... that is. One held by less than a tenth more is not looked for.

    >>> largest_held(lambda T: T <= 100, 90), largest_held(lambda T: T <= 100, 130)
    (99, 97)
    """
    T = max(1, round(start))
    if held(T):
        while held(more := max(T + 1, round(T * NARROW))):
            T = more
        return T
    while T > 1:
        T = min(T - 1, round(T / NARROW))
        if held(T):
            break
    return T


def capacity(params: Params, seed: int) -> Measurements:
    """The largest T held by one way of finding W. Every seed has a ladder of its own, so that what
    the rungs round off is part of the scatter between seeds."""
    way, d, answers = params["way"], params["d"], params["answers"]

    def held(T: int) -> bool:
        X, U, right = drawn(T, d, answers, seed)
        return holds(WAYS[way](X, U, right), X, U, right)

    start = expected(way, d, answers) * NARROW ** (np.random.default_rng(seed).random() - 0.5)
    T = largest_held(held, AHEAD * start if way == "trained" else start)
    return {"T": T, "of_d": T / d, "of_law": 2 * T * math.log(T) / d**2}


def seconds(p: Params) -> float:
    """CPU seconds of one search: products at 60 GFLOP/s, and 8 ns for a logit of a training."""
    d, T = p["d"], 1.2 * expected(p["way"], p["d"], p["answers"])
    A = p["answers"] or T
    look = 2 * T * d * (d + A) / 6e10
    steps = 2 * STEPS  # of two trainings, most of which are done
    return 0.01 + {
        "summed": look, "solved": 1.2 * (look + 20 * T * d**2 / 6e10),
        "trained": steps * (2 * look + 8e-9 * T * A),
    }[p["way"]]  # fmt: skip


CAPACITY = Procedure(capacity, seconds=seconds)
WIDTHS = (16, 32, 64, 128, 256, 512, 1024)


def grid(variant: str, profile: str) -> list[Cell]:
    """All three ways at all widths, but for training an answer for every key at the last: each of
    its steps would take minutes."""
    widths = WIDTHS[:4] if profile == "quick" else WIDTHS
    cells = CAPACITY.grid("associative", answers=tuple(TASKS), way=tuple(WAYS), d=widths)
    last = {"answers": 0, "way": "trained", "d": WIDTHS[-1]}
    return [cell for cell in cells if dict(cell.params) != last]


def by_way(rows: list[Row], answers: int) -> dict[str, list[Row]]:
    mine = laws.by([row for row in rows if row["answers"] == answers], "way")
    return {way: mine[way] for way in WAYS if way in mine}


def law_of(way: str, answers: int) -> tuple[str, Callable[[np.ndarray], np.ndarray], float]:
    """What grows as a power of d, in words and of T, and the power that the derivation expects."""
    if answers == 0:
        return "2 T log T", lambda T: 2 * T * np.log(np.maximum(T, 2)), 2.0
    if way == "trained":
        return "T", lambda T: T, 1.0
    return f"T log({answers} T)", lambda T: T * np.log(answers * T), 1.0


def analyse(rows: list[Row]) -> Finding:
    claims, tables, told = [], {}, {task: [] for task in TASKS.values()}
    for answers, task in TASKS.items():
        groups = by_way(rows, answers)
        tables[task] = widths_table(groups)
        for way, _, d, T in laws.enough(groups, "d", "T", 3):
            words, law, power = law_of(way, answers)
            wide = d >= (FROM if answers else 0)
            if len(np.unique(d[wide])) > 1:
                p = laws.exponent(d[wide], law(T[wide]))
                claims.append(laws.exponent_claim(f"{task}, {way}: {words} ~ d^p", p, power))
                told[task].append(f"{way} {words} ~ d^{p['estimate']:.2f}")
            if answers == 0:
                at, ratios = laws.at_each(d, law(T) / d**2)
                ratio = combined(ratios, np.full(len(at), 1 / len(at)))
                statement = f"{task}, {way}: T by d²/(2 log T), mean of the widths"
                band = SHARES[way] / FACTOR, SHARES[way] * FACTOR
                claims.append(Claim(statement, ratio, *(round(end, 2) for end in band)))
                told[task].append(f"{ratio['estimate']:.2f} times d²/(2 log T)")
    if not claims:
        return laws.too_few("three widths are needed")
    sentence = " ".join(f"With {task}: {', '.join(ways)}." for task, ways in told.items() if ways)
    return Finding(sentence, tuple(claims), tables=tables)


def widths_table(groups: Mapping[str, list[Row]]) -> list[Record]:
    """A line for each width: d²/(2 log T), and the T of every way with its interval."""
    table: list[Record] = []
    for d in sorted({row["d"] for rows in groups.values() for row in rows}):
        line: Record = {"d": d, "d2_by_2logT": expected("trained", d, 0)}
        for way, rows in groups.items():
            T = [row["T"] for row in rows if row["d"] == d]
            if T:
                line |= laws.columns(way, combined([T], [1.0]))
        table.append(line)
    return table


def draw(rows: list[Row], _: Finding) -> figure.Figure:
    """Facts held against d, a panel for each task."""
    labels = "One matrix as a memory: facts held without an error", "width d", "facts T"
    drawn, panels = figure.panels(*labels, len(TASKS), 5.4)
    for panel, (answers, task) in zip(panels, TASKS.items(), strict=True):
        groups = by_way(rows, answers)
        figure.groups(panel, groups, "d", "T")
        d = np.array(sorted({float(row["d"]) for same in groups.values() for row in same}))
        if len(d):
            figure.curve(panel, d, d, "d", 3, "--")
            sharp = np.array([expected("trained", int(at), 0) for at in d])
            figure.curve(panel, d, sharp, "d²/(2 log T)", 4, ":")
            figure.logarithmic(panel)
        panel.set_title(task, fontsize=9)
        figure.legend(panel, most=5)
    return drawn


AXES = Axes("d", "T", "way", "width d", "facts held", log="xy", label="{value}")
STUDY = declare(
    "slides/associative", grid, analyse, AXES, draw, FEW=FEW, FROM=FROM, FACTOR=FACTOR,
    STEPS=STEPS, RATE=RATE, SHARES=", ".join(f"{way} {share:g}" for way, share in SHARES.items()),
)  # fmt: skip
