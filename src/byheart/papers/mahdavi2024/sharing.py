"""New: contexts that some examples share, between one context for all and one for each."""

from __future__ import annotations

import numpy as np

from byheart.facts import VectorFacts
from byheart.papers.declare import declare
from byheart.papers.mahdavi2024.capacity import FITTED, SLOPE, STARTS, best_start
from byheart.specs import MultiHeadSpec
from byheart.studies import figure, laws
from byheart.studies.cell import Cell, Measurements, Params, Procedure
from byheart.studies.study import Axes, Claim, Finding, Record, Row
from byheart.theory.mahdavi2024 import partly_shared

SHARES = (0.8, 0.9, 0.95, 1.05)  # of P
SIZES = ", ".join(f"{share:g}" for share in SHARES)
# H, n, d of random heads; the last has more tokens than coordinates
SMALL = ((4, 5, 16), (3, 3, 12))
LARGER = (*SMALL, (8, 4, 24), (6, 8, 32), (3, 8, 6))
# H, n, d, d_h of layers whose weights are all fitted, and how many contexts their examples have
NARROW = ((3, 3, 12, 4),)
WIDER = (*NARROW, (4, 3, 16, 4), (4, 4, 12, 3), (3, 3, 10, 10))
CONTEXTS = (1, 2, 3, 5, 8, 16)


def examples(n: int, d: int, context: np.ndarray, seed: int) -> VectorFacts:
    """Examples with scalar labels; example t has the context number context[t]."""
    rng, T = np.random.default_rng(seed), len(context)
    E = rng.random((int(context.max()) + 1, n, d))
    return VectorFacts.make(E[context], rng.random((T, d)), rng.random(T))


def random_features(facts: VectorFacts, H: int, d_h: int, seed: int) -> np.ndarray:
    """What random heads give the read-out: Z (T, H d), or A (T, H n) of one shared context."""
    from byheart.construct.multi_head.generic import features, random_heads

    W_Q, W_K = random_heads(facts, H, d_h, seed)
    spec = MultiHeadSpec(facts.d, facts.n, d_h, H, shared=facts.shared)
    return features(spec, {"W_Q": W_Q, "W_K": W_K}, facts).numpy()


def largest_fit(X: np.ndarray, y: np.ndarray) -> int:
    """The largest T for which a linear read-out of the first T rows fits their labels.

    >>> largest_fit(np.eye(5)[:, :3], np.ones(5))
    3
    """
    low, high = 0, len(y) + 1
    while high - low > 1:  # rows of a fit can be left out, so T fits if a larger one does
        T = (low + high) // 2
        w = np.linalg.lstsq(X[:T], y[:T], rcond=None)[0]
        error = float(np.abs(X[:T] @ w - y[:T]).max())
        low, high = (T, high) if error < FITTED else (low, T)
    return low


def derived_rank(H: int, n: int, d: int, k: int, T: int) -> int:
    """rank(Z) of T examples, k to a context in their order: `partly_shared`, with a last context
    that fewer may use.

    >>> [derived_rank(4, 5, 16, k, 128) for k in (1, 17, 32, 64, 128)]
    [64, 64, 64, 34, 17]
    """
    full, rest = divmod(T, k)
    most, with_last = (partly_shared(H, n, d, d, c)[0] for c in (full, full + (rest > 0)))
    return min(T, most + rest, with_last)


def read_out(p: Params, seed: int) -> Measurements:
    """Random heads, every k examples with a context of their own: rank(Z) of T = 2 H d examples,
    and `held`, the largest number of them that a linear read-out fits; beside what is derived."""
    from byheart.measure.rank import numerical_rank

    H, n, d, k = p["H"], p["n"], p["d"], p["k"]
    T = 2 * H * d
    facts = examples(n, d, np.arange(T) // k, seed)
    X = random_features(facts, H, d, seed)
    promised = max(t for t in range(1, H * d + 1) if derived_rank(H, n, d, k, t) == t)
    one, own = (partly_shared(H, n, d, d, c)[0] for c in (1, T))
    return {
        "layer": f"H = {H}, n = {n}, d = {d}", "T": T, "contexts": -(-T // k),
        "rank": numerical_rank(X).rank, "derived_rank": derived_rank(H, n, d, k, T),
        "held": largest_fit(X, facts.targets[:, 0]), "derived_held": promised,
        "shared": one, "own": own,
    }  # fmt: skip


def newton(p: Params, seed: int) -> Measurements:
    """All weights, T = share x P scalar labels, c contexts used in turn."""
    H, n, d, d_h, c = p["H"], p["n"], p["d"], p["d_h"], p["contexts"]
    P = partly_shared(H, n, d, d_h, c)[1]
    T = int(p["share"] * P)
    facts = examples(n, d, np.arange(T) % c, seed)
    # Above P nothing can succeed: one start shows by how much it fails.
    error, starts = best_start(facts, H, d_h, seed, 1 if T > P else STARTS)
    one, own = (partly_shared(H, n, d, d_h, c)[1] for c in (1, d))
    return {
        "layer": f"H = {H}, n = {n}, d = {d}, d_h = {d_h}", "T": T, "P": P, "error": error,
        "fitted": error < FITTED, "starts": starts, "shared": one, "own": own,
    }  # fmt: skip


def newton_seconds(p: Params) -> float:
    """CPU seconds of one fit: those above P go on until they stall, wide heads need restarts."""
    P = partly_shared(p["H"], p["n"], p["d"], p["d_h"], p["contexts"])[1]
    restarts = 3.0 if p["d_h"] == p["d"] else 1.0
    return 0.05 + P**2 * (1e-5 if p["share"] > 1 else 3e-6 * restarts)


READ_OUT = Procedure(read_out, seconds=lambda p: 0.03 + 2e-9 * (p["H"] * p["d"]) ** 3)
NEWTON = Procedure(newton, seconds=newton_seconds)


def uses(H: int, n: int, d: int) -> tuple[int, ...]:
    """Examples to a context, k: the ends, and around H(n-1)+1, what one context holds.

    >>> uses(4, 5, 16)
    (1, 2, 8, 16, 17, 18, 34, 68, 128)
    """
    one, T = H * (n - 1) + 1, 2 * H * d
    return tuple(sorted({k for k in (1, 2, one // 2, one - 1, one, one + 1, 2 * one, 4 * one, T)
                         if k <= T}))  # fmt: skip


def grid(variant: str, profile: str) -> list[Cell]:
    heads, layers = (SMALL, NARROW) if profile == "quick" else (LARGER, WIDER)
    cells = []
    for H, n, d in heads:
        cells += READ_OUT.grid("read-out", H=H, n=n, d=d, k=uses(H, n, d))
    for H, n, d, d_h in layers:
        cells += NEWTON.grid("newton", H=H, n=n, d=d, d_h=d_h, contexts=CONTEXTS, share=SHARES)
    return cells


def largest_fitted(rows: list[Row]) -> list[Record]:
    """For each layer and number of contexts, P and the largest T that each seed fitted."""
    table = []
    for (layer, c), same in laws.group(rows, lambda row: (row["layer"], row["contexts"])).items():
        seeds = laws.group(same, lambda row: row.seed).values()
        T = [max(row["T"] * row["fitted"] for row in mine) for mine in seeds]
        first = {name: same[0][name] for name in ("P", "shared", "own")}
        table.append({"layer": layer, "contexts": c, **first, "largest_T": T})
    return table


def analyse(rows: list[Row]) -> Finding:
    parts = laws.group(rows, lambda row: row.experiment)
    heads, layers = parts.get("read-out", []), largest_fitted(parts.get("newton", []))
    if not heads or len({line["P"] for line in layers}) < 3:
        return laws.too_few("random heads, and fits at three P, are needed")
    wrong, missed = (
        sum(row[name] != row[f"derived_{name}"] for row in heads) for name in ("rank", "held")
    )
    between = sum(row["shared"] < row["rank"] < row["own"] for row in heads)
    above = sum(row["fitted"] and row["T"] > row["P"] for row in parts["newton"])
    pairs = [(line["P"], T) for line in layers for T in line["largest_T"]]
    slope = laws.slope(*np.array(pairs, float).T)
    claims = (
        Claim("rank(Z) is the derived one: number of rows where it is not",
              laws.counted(wrong), most=0),
        Claim("the read-out fits the derived number of examples and no more: rows where not",
              laws.counted(missed), most=0),
        Claim("nothing beyond P(c): number of fits at 1.05 P", laws.counted(above), most=0),
        Claim("up to P(c): slope of the largest T fitted against P", slope, *SLOPE),
    )  # fmt: skip
    sentence = (
        f"Of {len(heads)} layers of random heads {wrong} have another rank than derived ({between} "
        f"lie strictly between the two formulas) and {missed} another wall of the read-out; with "
        f"all weights the largest T that is fitted, of {SIZES} P(c), grows as "
        f"{slope['estimate']:.2f} P(c), {above} above P."
    )
    table = [{**line, "largest_T": float(np.mean(line["largest_T"]))} for line in layers]
    return Finding(sentence, claims, tables={"all weights": table, "random heads": _means(heads)})


def _means(rows: list[Row]) -> list[Record]:
    names = ("derived_rank", "derived_held", "shared", "own")
    return [
        {"layer": layer, "k": k, "contexts": same[0]["contexts"], "rank": laws.mean(same, "rank"),
         "held": laws.mean(same, "held")} | {name: same[0][name] for name in names}
        for (layer, k), same in laws.group(rows, lambda row: (row["layer"], row["k"])).items()
    ]  # fmt: skip


def draw(rows: list[Row], finding: Finding) -> figure.Figure:
    """Wall of the read-out against k, rank against contexts, and all weights; dashed: derived."""
    title = "Contexts shared by some examples: measured (points) and derived (dashed)"
    drawn, panels = figure.panels(title, "", "", 3, 4.8)
    parts = laws.group(rows, lambda row: row.experiment)
    heads = list(laws.by(parts.get("read-out", []), "layer").items())
    for panel, x, y in ((panels[0], "k", "held"), (panels[1], "contexts", "rank")):
        for i, (layer, same) in enumerate(heads):
            figure.points(panel, *figure.series(same, x, y), str(layer), i, line=False)
            at, derived, _ = figure.means(*figure.series(same, x, f"derived_{y}"))
            figure.curve(panel, at, derived, None, i, "--")
    for i, (layer, same) in enumerate(laws.group(finding.tables.get("all weights", []),
                                                 lambda line: line["layer"]).items()):  # fmt: skip
        x, T, P = (np.array([line[name] for line in same], float)
                   for name in ("contexts", "largest_T", "P"))  # fmt: skip
        figure.points(panels[2], x, T, str(layer), i, line=False)
        figure.curve(panels[2], x, P, None, i, "--")
    labels = (
        ("examples to a context k", "largest T fitted, random heads"),
        ("different contexts, T = 2 H d", "rank of Z"),
        ("different contexts c", "largest T fitted, all weights"),
    )
    for panel, (x, y) in zip(panels, labels, strict=True):
        panel.set_xlabel(x)
        panel.set_ylabel(y)
        if panel.has_data():
            figure.logarithmic(panel, "x")
        figure.legend(panel, most=6)
    return drawn


AXES = (
    Axes("k", "held", "layer", "examples to a context k", "largest T fitted, random heads",
         log="x", label="{value}", where="read-out", bound="derived_held"),
    Axes("contexts", "T", "fitted", "different contexts c", "T, all weights fitted or not",
         log="x", label="fitted: {value}", where="newton"),
)  # fmt: skip
SHARING = declare(
    "mahdavi2024/partial-sharing", grid, analyse, AXES, draw, FITTED=FITTED, SLOPE=SLOPE,
    SHARES=", ".join(f"{share:g} P" for share in SHARES), LAYERS=len(LARGER), FITS=len(WIDER),
    CONTEXTS=", ".join(map(str, CONTEXTS)),
)  # fmt: skip
