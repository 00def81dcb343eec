"""New: the Kruskal rank of the queries against what is memorized, built and trained."""

from __future__ import annotations

import numpy as np

from byheart.facts import VectorFacts
from byheart.papers.declare import declare
from byheart.papers.mahdavi2024.capacity import CLASSES, FITTED, STARTS, best_start
from byheart.papers.mahdavi2024.sharing import largest_fit, random_features
from byheart.specs import MultiHeadSpec
from byheart.studies import figure, laws
from byheart.studies.cell import Cell, Measurements, Params, Procedure
from byheart.studies.fits import combined
from byheart.studies.study import Axes, Claim, Finding, Record, Row
from byheart.theory.mahdavi2024 import effective_parameters, generic_rank, theorem1_capacity

KINDS = {"sets": "dependent sets of Q+1", "space": "all in a Q-dimensional space"}
SHARES = (0.8, 0.9, 0.95, 1.05)  # of P
NEARLY = 0.85  # of P: what counts as reaching it
HARM = 0.1  # of the accuracy: a smaller loss is none beside that of a space (0.2 for half of it)
GAIN = 0.05  # of the accuracy, for twice the dimension
SEEN = 3  # random heads leave out the mean query: of a plane one direction, too few for float64
TRAINED = 4  # starts whose accuracies are averaged
# Sizes of random and built heads, of layers whose weights are all fitted, and of trained ones; the
# last Q is d, where nothing is planted.
HEADS = ((6, 6, 16), (4, 8, 24))  # H, n, d
RANKS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
FITTED_LAYER: Params = {"H": 3, "n": 4, "d": 12}
FITTED_RANKS = {"sets": (2, 3, 5, 8, 12), "space": (5, 8, 12)}
TRAINED_LAYER: Params = {"H": 4, "n": 6, "d": 16, "T": 250, "lr": 0.01}
TRAINED_RANKS = {"sets": (1, 2, 4, 8, 16), "space": (2, 4, 8, 16)}


def queries(kind: str, Q: int, T: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """T queries in R^d of Kruskal rank Q, U[0,1] otherwise. "sets": each Q+1 after another are
    dependent, and they span R^d; "space": projected to a random Q-dimensional space.

    >>> from byheart.measure import kruskal_rank
    >>> made = [queries(kind, 3, 12, 6, np.random.default_rng(0)) for kind in KINDS]
    >>> [(kruskal_rank(e), int(np.linalg.matrix_rank(e))) for e in made]
    [(3, 6), (3, 3)]
    """
    e = rng.random((T, d))
    if kind == "space":
        basis, _ = np.linalg.qr(rng.standard_normal((d, Q)))
        return e @ basis @ basis.T
    for last in range(Q, T if Q < d else 0, Q + 1):
        e[last] = rng.uniform(0.5, 1.5, Q) / Q @ e[last - Q : last]
    return e


def dealt(facts: VectorFacts, H: int, T: int) -> VectorFacts:
    """The first T examples in an order in which the queries of a dependent set, which stand
    together, fall to different heads: groups that the proof needs, where they exist."""
    over, rest = [T - 1], np.arange(T - 1)
    return facts.subset(np.concatenate([over, *(rest[h::H] for h in range(H))]))


def built(p: Params, seed: int) -> Measurements:
    """One shared context, scalar labels. `built`: H s + 1 for the largest groups, s queries a head,
    for which the group certificate holds and the construction recalls every label; `random`: the
    largest T that a linear read-out of random heads fits."""
    H, n, d, Q = p["H"], p["n"], p["d"], p["Q"]
    rng = np.random.default_rng(seed)
    whole = generic_rank(H, n, d, shared=True)
    e = queries(p["kind"], Q, 2 * whole, d, rng)
    facts = VectorFacts.make(rng.random((n, d)), e, rng.random(len(e)))
    held = largest_fit(random_features(facts, H, d, seed), facts.targets[:, 0])
    size = next((s for s in range(n - 1, 0, -1) if builds(dealt(facts, H, H * s + 1), H, seed)), 0)
    return {"theorem": theorem1_capacity(H, n, d, Q), "whole": whole, "random": held,
            "built": H * size + 1 if size else 0}  # fmt: skip


def builds(facts: VectorFacts, H: int, seed: int) -> bool:
    """Whether a proof of Theorem 1 builds a layer of H heads that recalls all these labels."""
    from byheart.construct.methods import MultiHead
    from byheart.errors import ByheartError

    d_h = (facts.T - 1) // H + 1
    # In a plane few sign patterns exist, and the one-hot form may fail where the literal does not.
    for proof in ("one-hot", "literal"):
        try:
            method = MultiHead(proof=proof, H=H, d_h=d_h, dtype="float64")
            return method.build(facts, seed).construction.recalled == facts.T
        except ByheartError:
            continue
    return False


def newton(p: Params, seed: int) -> Measurements:
    """All weights, T = share x P; in a Q-dimensional space a head sees Q coordinates, not d."""
    H, n, d, Q = p["H"], p["n"], p["d"], p["Q"]
    seen = d if p["kind"] == "sets" else Q
    P = effective_parameters(H, n, seen, seen, shared=True)
    T = int(p["share"] * P)
    rng = np.random.default_rng(seed)
    e = queries(p["kind"], Q, T, d, rng)
    facts = VectorFacts.make(rng.random((n, d)), e, rng.random(T))
    error, starts = best_start(facts, H, d, seed, 1 if T > P else STARTS)
    return {"T": T, "P": P, "error": error, "fitted": error < FITTED, "starts": starts,
            "theorem": theorem1_capacity(H, n, d, Q)}  # fmt: skip


def trained(p: Params, seed: int) -> Measurements:
    """Random classes, Adam on the full batch: the mean accuracy of some starts with one context,
    each with its own queries and labels."""
    import torch

    from byheart.training import Data, Recipe, train_stack

    H, n, d, T = p["H"], p["n"], p["d"], p["T"]
    spec = MultiHeadSpec(d, n, d, H, min(n, CLASSES), CLASSES, True)
    rng = np.random.default_rng(seed)
    e = np.stack([queries(p["kind"], p["Q"], T, d, rng) for _ in range(TRAINED)])
    query, context = (torch.tensor(x).float() for x in (e, rng.random((n, d))))
    label = torch.tensor(rng.integers(CLASSES, size=(TRAINED, T)))
    data = Data(query, label, "class", context, own=True)
    recipe = Recipe(steps=p["steps"], lr=p["lr"], warmup=0.05)
    starts = [seed + start for start in range(TRAINED)]
    found = [o.accuracy for o in train_stack(spec, data, recipe, starts).outcomes]
    return {"accuracy": float(np.mean(found)), "theorem": theorem1_capacity(H, n, d, p["Q"]),
            "parameters": spec.parameters}  # fmt: skip


def newton_seconds(p: Params) -> float:
    """CPU seconds of one fit: those above P stall; few dimensions need restarts."""
    return 0.3 if p["share"] > 1 or p["Q"] < 8 else 0.1


BUILT = Procedure(built, seconds=lambda p: 0.1)
NEWTON = Procedure(newton, seconds=newton_seconds)
TRAIN = Procedure(trained, seconds=lambda p: TRAINED * p["steps"] * p["T"] * 3.5e-6)


def grid(variant: str, profile: str) -> list[Cell]:
    quick = profile == "quick"
    cells = []
    for H, n, d in HEADS[:1] if quick else HEADS:
        for kind, least in (("sets", 1), ("space", 2)):
            ranks = tuple(Q for Q in RANKS if least <= Q <= d)
            cells += BUILT.grid("heads", H=H, n=n, d=d, kind=kind, Q=ranks)
    for kind in KINDS:
        shares = (0.9, 1.05) if quick else SHARES
        cells += NEWTON.grid(
            "newton", kind=kind, Q=FITTED_RANKS[kind], share=shares, **FITTED_LAYER
        )
        ranks, steps = TRAINED_RANKS[kind], 1500
        if quick:
            ranks, steps = (ranks[1], ranks[-1]), 500
        cells += TRAIN.grid("trained", kind=kind, Q=ranks, steps=steps, **TRAINED_LAYER)
    return cells


def largest_fitted(rows: list[Row]) -> list[Record]:
    """For each kind and Q, P and the largest T that each seed fitted."""
    table = []
    for (kind, Q), same in laws.group(rows, lambda row: (row["kind"], row["Q"])).items():
        seeds = laws.group(same, lambda row: row.seed).values()
        T = [max(row["T"] * row["fitted"] for row in mine) for mine in seeds]
        told = {name: same[0][name] for name in ("P", "theorem")}
        table.append({"kind": kind, "Q": Q, **told, "largest_T": T})
    return table


def analyse(rows: list[Row]) -> Finding:
    parts = laws.group(rows, lambda row: row.experiment)
    heads, fits, trained = (parts.get(name, []) for name in ("heads", "newton", "trained"))
    if {row["kind"] for row in (*heads, *fits, *trained)} != set(KINDS):
        return laws.too_few("queries of both kinds are needed")
    if not (heads and fits and trained):
        return laws.too_few("built, fitted and trained layers are needed")
    claims = (*_of_heads(heads), *_of_fits(fits), *_of_training(trained))
    largest = max(row["built"] / row["theorem"] for row in heads)
    sentence = (
        f"Dependent sets: {claims[0].found['estimate']:.0f} builds of H(n-1)+1 fail, up to "
        f"{largest:.1f} times the theorem's number at that Kruskal rank; random heads miss "
        f"H(n-1)+1 in {claims[1].found['estimate']:.0f} rows. Of T up to "
        f"{SHARES[-2]:g} P all weights fit {claims[4].found['estimate']:.2f} P, "
        f"{claims[5].found['estimate']:.2f} P if the queries lie in a Q-dimensional space, whose P "
        "has Q for d. Trained accuracy differs by "
        f"{claims[7].found['estimate']:+.3f} with dependent sets, and by "
        f"{claims[8].found['estimate']:+.3f} for twice the dimension."
    )
    return Finding(sentence, claims, tables={"heads": _table(heads), "all weights": [
        {**line, "largest_T": float(np.mean(line["largest_T"]))} for line in largest_fitted(fits)
    ]})  # fmt: skip


def _of_heads(rows: list[Row]) -> tuple[Claim, ...]:
    """Numbers of rows in which a layer of the construction, or of random heads, falls short."""
    by_kind = laws.by(rows, "kind")
    sets, space = by_kind["sets"], by_kind["space"]
    wrong = (
        ("dependent sets, Q >= 2: the construction builds H(n-1)+1: rows where it does not",
         [row["built"] != row["whole"] for row in sets if row["Q"] >= 2]),
        ("dependent sets: random heads hold H(n-1)+1: rows where they do not",
         [row["random"] != row["whole"] for row in sets]),
        ("a Q-dimensional space: the construction builds the theorem's number and no more: rows "
         "where not", [row["built"] != row["theorem"] for row in space]),
        (f"a Q-dimensional space, Q >= {SEEN}: random heads hold H(n-1)+1: rows where they do not",
         [row["random"] != row["whole"] for row in space if row["Q"] >= SEEN]),
    )  # fmt: skip
    return tuple(Claim(words, laws.counted(sum(where)), most=0) for words, where in wrong)


def _of_fits(rows: list[Row]) -> tuple[Claim, ...]:
    """How much of P all weights reach, and that nothing goes beyond."""
    words = {
        "sets": "dependent sets: all weights reach P, whatever Q: largest T by P",
        "space": "a Q-dimensional space: they reach P with Q for d: largest T by P",
    }
    claims = []
    lines = laws.group(largest_fitted(rows), lambda line: line["kind"])
    for kind, statement in words.items():
        shares = [np.array(line["largest_T"]) / line["P"] for line in lines[kind]]
        mean = combined(shares, np.full(len(shares), 1 / len(shares)))
        claims.append(Claim(statement, mean, NEARLY))
    above = sum(row["fitted"] and row["T"] > row["P"] for row in rows)
    return *claims, Claim("number of fits at 1.05 P", laws.counted(above), most=0)


def _of_training(rows: list[Row]) -> tuple[Claim, ...]:
    """Accuracy with dependent sets minus that without, and its growth with the dimension."""
    by_kind = laws.by(rows, "kind")
    Q, accuracy = laws.at_each(*figure.series(by_kind["sets"], "Q", "accuracy"))
    planted, plain = (Q >= 2) & (Q < Q.max()), Q == Q.max()  # the last Q is d
    weights = planted / max(1, planted.sum()) - plain
    dimension, share = figure.series(by_kind["space"], "Q", "accuracy")
    return (
        Claim("dependent sets, Q >= 2, do not hurt training: accuracy minus that without",
              combined(accuracy, weights), -HARM),
        Claim("a Q-dimensional space does: accuracy for twice the dimension",
              laws.slope(np.log2(dimension), share), GAIN),
    )  # fmt: skip


def _table(rows: list[Row]) -> list[Record]:
    keys = ("H", "n", "d", "kind", "Q")
    return [
        dict(zip(keys, values, strict=True))
        | {name: same[0][name] for name in ("theorem", "whole")}
        | {name: laws.mean(same, name) for name in ("built", "random")}
        for values, same in laws.group(rows, lambda row: tuple(row[k] for k in keys)).items()
    ]


def draw(rows: list[Row], finding: Finding) -> figure.Figure:
    """Built and random heads of the first layer, all weights, and training, against Q."""
    title = "Kruskal rank of the queries and what is memorized"
    drawn, panels = figure.panels(title, "Kruskal rank Q of the queries", "", 3, 4.8)
    parts = laws.group(rows, lambda row: row.experiment)
    first = [row for row in parts.get("heads", []) if row["H"] == HEADS[0][0]]
    for i, (kind, words) in enumerate(KINDS.items()):
        heads, trained = (
            [row for row in some if row["kind"] == kind]
            for some in (first, parts.get("trained", []))
        )
        for name, style, shift in (("built", "-", 0), ("random", ":", 2)):
            if heads:
                x, y, _ = figure.means(*figure.series(heads, "Q", name))
                figure.curve(panels[0], x, y, f"{name}: {words}", i + shift, f"o{style}")
        lines = [line for line in finding.tables.get("all weights", []) if line["kind"] == kind]
        if lines:
            x, T, P = (
                np.array([line[k] for line in lines], float) for k in ("Q", "largest_T", "P")
            )
            figure.points(panels[1], x, T, words, i, line=False)
            figure.curve(panels[1], x, P, f"P: {words}", i, "--")
        figure.points(panels[2], *figure.series(trained, "Q", "accuracy"), words, i)
    if first:
        x, y, _ = figure.means(*figure.series(first, "Q", "theorem"))
        figure.curve(panels[0], x, y, "H(min(Q, n)-1)+1 (Theorem 1)", "black", "--")
    for panel, label in zip(panels, ("examples", "largest T fitted, all weights",
                                     "accuracy, trained"), strict=True):  # fmt: skip
        panel.set_ylabel(label)
        if panel.has_data():
            figure.logarithmic(panel, "x")
            panel.set_ylim(bottom=0)
        figure.legend(panel, most=6)
    return drawn


AXES = (
    Axes("Q", "built", "kind", "Kruskal rank Q", "examples built", log="x", label="{value}",
         where="heads", bound="theorem"),
    Axes("Q", "accuracy", "kind", "Kruskal rank Q", "accuracy, trained", log="x", label="{value}",
         where="trained", bottom=0, top=1.03),
)  # fmt: skip
KRUSKAL = declare(
    "mahdavi2024/kruskal-vs-memorized", grid, analyse, AXES, draw, FITTED=FITTED, NEARLY=NEARLY,
    HARM=HARM, GAIN=GAIN, SEEN=SEEN, STARTS=STARTS, TRAINED=TRAINED, CLASSES=CLASSES,
    SHARES=", ".join(f"{share:g} P" for share in SHARES),
)  # fmt: skip
