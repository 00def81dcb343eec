"""The slides' last experiment: "No memorization limit in term of quantity, but in term of quality!"

Its figure is not at hand; what it must show follows from the slides' theorem. With modules enough
every question is answered as an encoder of rank d answers it, however many questions there are; the
encoder's own divergence d_KL(π, L(N, S, d)) stays, and only the width d lowers it. Here attention
layers of width d are trained whole on all N² questions with more and more modules.
"""

from __future__ import annotations

import math

import numpy as np

from byheart.papers.declare import declare
from byheart.specs import AttentionOnlySpec
from byheart.studies import figure, laws
from byheart.studies.cell import Cell, Jobs, Measurements, Params, Procedure, group
from byheart.studies.fits import combined
from byheart.studies.study import Axes, Claim, Finding, Record, Row

TASKS: dict[str, Params] = {
    "one answer": {"kind": "lut", "eta": 0.03},
    "many answers": {"kind": "gauss", "tau": 1.0},
}
KNOWN = 0.9  # of the questions, where each has one answer: no limit in quantity
FLOOR = (0.8, 1.25)  # d_KL by that of the best encoder: it is the limit in quality
NOTHING = 0.02  # nats: d = N - 1 has no such limit
LR = 0.02


def spec_of(p: Params) -> AttentionOnlySpec:
    """The layer: `load` modules for every d questions, d_h = d."""
    H = math.ceil(p["load"] * p["N"] ** 2 / p["d"])
    return AttentionOnlySpec(N=p["N"], S=2, d=p["d"], d_h=p["d"], H=H)


def train(jobs: Jobs) -> list[Measurements]:
    """`kl`: d_KL(π, T) of the trained layer; `floor`: that of the best encoder of rank d, on the
    same questions, so a little above the infimum; `known`: share of the questions whose likeliest
    answer comes first. Every seed draws its own questions.
    """
    import torch

    from byheart.construct.encoders import encode
    from byheart.facts import random_distributions
    from byheart.models.architectures import module_of
    from byheart.theory.divergences import kl, top_answers
    from byheart.training import Data, Recipe, train_stack

    p, spec = jobs[0][0], spec_of(jobs[0][0])
    seeds = [seed for _, seed in jobs]
    tables = [random_distributions(N=p["N"], seed=seed, **TASKS[p["task"]]) for seed in seeds]
    # All N² questions, in an order that every seed draws: a row must not depend on its stack.
    orders = [np.lexsort(table.tokens.T[::-1]) for table in tables]
    tokens = torch.from_numpy(tables[0].tokens[orders[0]])
    pi = torch.stack([
        torch.from_numpy(table.probabilities[order]).float()
        for table, order in zip(tables, orders, strict=True)
    ])  # fmt: skip
    recipe = Recipe(steps=p["steps"], lr=LR, loss="kl", stop_at=None)
    data = Data(tokens.repeat(len(seeds), 1, 1), pi, kind="distribution", own=True)
    trained = train_stack(spec, data, recipe, seeds)
    with torch.no_grad():
        logits = module_of(spec).forward(spec, trained.weights, tokens).double().numpy()
    found = []
    for table, seed, order, f in zip(tables, seeds, orders, logits, strict=True):
        floor = encode(table, p["d"], "best", seed=seed).logits[order]
        pi_t, prior = table.probabilities[order], table.prior[order]
        found.append({
            "kl": float(prior @ kl(pi_t, f)), "floor": float(prior @ kl(pi_t, floor)),
            "known": float(top_answers(pi_t, f).mean()), "modules": spec.H,
            "parameters": spec.parameters,
        })  # fmt: skip
    return found


def train_seconds(p: Params) -> float:
    """CPU seconds of one model in a stack of five, and of its encoder."""
    return 0.5 + p["steps"] * (2e-4 + 3e-8 * p["N"] ** 2 * spec_of(p).H * p["d"] ** 0.5)


TRAIN = Procedure(stack=train, largest=5, seconds=train_seconds)


def grid(variant: str, profile: str) -> list[Cell]:
    """Widths from 2 to N - 1; `load` = dP/T from an eighth of the theorem's modules to twice."""
    N, steps, loads = (10, 3000, (0.125, 0.25, 0.5, 1.0, 2.0))
    widths = (2, 4, N - 1)
    if profile == "quick":
        N, steps, loads, widths = 6, 1000, (0.25, 1.0, 2.0), (2, 5)
    return TRAIN.grid("quality", task=tuple(TASKS), N=N, d=widths, load=loads, steps=steps)


def most_modules(rows: list[Row]) -> dict[tuple[str, int], list[Row]]:
    """The rows with the most modules, by task and width."""
    groups = group(rows, lambda row: (row["task"], row["d"]))
    return {
        key: [row for row in same if row["load"] == max(r["load"] for r in same)]
        for key, same in sorted(groups.items(), key=lambda item: (item[0][0] != "one answer", item))
    }


def analyse(rows: list[Row]) -> Finding:
    most = most_modules(rows)
    if len({d for _, d in most}) < 2:
        return laws.too_few("two widths are needed")
    claims = []
    for (task, d), same in most.items():
        where = f"{task}, d = {d}"
        if task == "one answer":
            known = combined([[row["known"] for row in same]], [1.0])
            claims.append(Claim(f"quantity, {where}: share of the questions known", known, KNOWN))
        kl = [row["kl"] for row in same]
        if d >= same[0]["N"] - 1:
            statement = f"quality, {where} = N - 1: d_KL"
            claims.append(Claim(statement, combined([kl], [1.0]), most=NOTHING))
        else:
            ratios = [a / row["floor"] for a, row in zip(kl, same, strict=True)]
            statement = f"quality, {where}: d_KL by that of the best encoder"
            claims.append(Claim(statement, combined([ratios], [1.0]), *FLOOR))
    told = "; ".join(
        f"{task}, d = {d}: {laws.mean(same, 'known'):.0%} known, {laws.mean(same, 'kl'):.3f} nats"
        for (task, d), same in most.items()
    )
    tables = {"layers": layers_table(rows)}
    return Finding(f"With the most modules {told}.", tuple(claims), tables=tables)


def layers_table(rows: list[Row]) -> list[Record]:
    """A line for each layer: means over seeds, d_KL with its interval."""
    table = []
    for same in laws.by_cell(rows).values():
        line: Record = {name: same[0][name] for name in ("task", "d", "load", "modules")}
        line |= laws.columns("kl", combined([[row["kl"] for row in same]], [1.0]))
        table.append(line | {name: laws.mean(same, name) for name in ("floor", "known")})
    return sorted(table, key=lambda line: (line["task"], line["d"], line["load"]))


def draw(rows: list[Row], _: Finding) -> figure.Figure:
    """d_KL against dP/T, a panel for each task; dashed: the best encoder of that rank."""
    labels = "A limit in quality, not in quantity", "modules, dP / T", "d_KL, nats"
    drawn, panels = figure.panels(*labels, len(TASKS), 5.4)
    for panel, task in zip(panels, TASKS, strict=True):
        mine = laws.by([row for row in rows if row["task"] == task], "d")
        for i, (d, same) in enumerate(mine.items()):
            figure.points(panel, *figure.series(same, "load", "kl"), f"d = {d}", i)
            at, floor = figure.series(same, "load", "floor")
            figure.curve(panel, at, np.full(len(at), floor.mean()), None, i, "--")
        if panel.has_data():
            figure.logarithmic(panel, "x")
        panel.set_title(task, fontsize=9)
        figure.legend(panel)
    return drawn


AXES = Axes("load", "kl", "d", "modules, dP / T", "d_KL, nats", log="x", bound="floor")
STUDY = declare(
    "slides/quality", grid, analyse, AXES, draw, KNOWN=KNOWN, FLOOR=FLOOR, NOTHING=NOTHING, LR=LR
)
