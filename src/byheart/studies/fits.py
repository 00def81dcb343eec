"""Fits of laws to rows: least squares from many starts, with intervals that cover.

Every law is linear in its coefficients once one shape parameter θ is fixed, so a fit is a search
over θ alone (a grid of starts, refined around the best), with exact least squares inside.

Whatever is estimated is a function of the means over seeds at each x. Its 95 % interval is that
of Welch and Satterthwaite: estimate ± t_ν sqrt(V), V = Σ_x v_x, v_x = c_x² s_x² / n_x, with s_x²
the variance over the n_x seeds at x, c_x the derivative of the estimate by the mean at x, and
ν = V² / Σ_x v_x² / (n_x - 1). Seeds may scatter more at some x than at others; with 3, 5 or 10 of
them 93 to 97 % of such intervals hold the truth (tests/studies/test_coverage.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from byheart.errors import ByheartError
from byheart.studies.study import LEAST_SEEDS, Interval, Record

Array = np.ndarray
LEVEL = 0.95
FINER = (81, 121, 121)  # values of θ looked at in each round of refinement
TELLS = 4.0  # difference of AICc from which the better law is said to be told apart


@dataclass(frozen=True)
class Law:
    """y = a + b f(x, θ); `shape` is the name of θ, if there is one, `starts` its first values."""

    name: str
    formula: str
    curve: Callable[[Array, Array | float], Array]
    shape: str | None = None
    starts: tuple[float, ...] = (0.0,)

    @property
    def parameters(self) -> int:
        return 2 + (self.shape is not None)

    def at(self, x: Array, values: Mapping[str, float]) -> Array:
        """y at x with these parameters."""
        return values["a"] + values["b"] * self.curve(x, values[self.shape] if self.shape else 0.0)


def _power(x: Array, p: Array | float) -> Array:
    """x^p of positive x; 0 has no negative powers, so no negative p is fitted where x holds it."""
    with np.errstate(divide="ignore"):
        f = np.maximum(x, 0) ** p
    return np.where(np.isfinite(f).all(-1, keepdims=True), f, 1.0)


LAWS: dict[str, Law] = {
    law.name: law
    for law in (
        Law("linear", "a + b x", lambda x, _: x),
        Law("quadratic", "a + b x²", lambda x, _: x**2),
        Law("cubic", "a + b x³", lambda x, _: x**3),
        Law("power", "a + b x^p", _power, "p", tuple(np.arange(-2.95, 6.1, 0.1).tolist())),
        Law(
            "saturating", "a + b (1 - exp(-x/τ))", lambda x, tau: -np.expm1(-x / tau),
            "τ", tuple(np.geomspace(1e-3, 1e3, 61).tolist()),
        ),
    )
}  # fmt: skip
"""p goes from -2.95 to 6.05 through the logarithm at 0; for b < 0 a negative p flattens towards a.
τ of the saturating law is in units of the largest |x|."""


@dataclass(frozen=True)
class Fit:
    """One law fitted to points: its parameters by name, and how well it does.

    `aicc` is Akaike's criterion corrected for few points (smaller is better); `cross_validated`
    the root mean square error at values of x that were left out, one at a time; `intervals` those
    of the parameters, if asked for: none where an x has fewer than three seeds, or where θ lies at
    an end of its search, which says nothing of θ but that it is not inside.
    """

    law: str
    values: dict[str, float]
    points: int
    r2: float
    aicc: float
    cross_validated: float
    intervals: dict[str, tuple[float, float]]

    def __call__(self, x: Sequence[float] | Array) -> Array:
        return LAWS[self.law].at(np.asarray(x, float), self.values)

    def interval(self, name: str) -> Interval:
        """One parameter with its interval; NaN where there is none."""
        return span(self.values[name], *self.intervals.get(name, (math.nan, math.nan)))

    def to_json(self) -> Record:
        return {
            "law": self.law, "formula": LAWS[self.law].formula, **self.values,
            "intervals": {k: list(v) for k, v in self.intervals.items()}, "R2": self.r2,
            "AICc": self.aicc, "cross_validated": self.cross_validated, "points": self.points,
        }  # fmt: skip


def fit(
    name: str, x: Sequence[float] | Array, y: Sequence[float] | Array, *,
    intervals: bool = False, validate: bool = True,
) -> Fit:  # fmt: skip
    """Least squares of a law; with `intervals`, over the seeds at each x.

    >>> x = np.repeat([1.0, 2, 3, 4], 2)
    >>> found = fit("power", x, 1 + 2 * x**1.5)
    >>> round(found.values["p"], 3), round(found.values["a"], 3)
    (1.5, 1.0)
    """
    law, x, y = LAWS[name], np.asarray(x, float), np.asarray(y, float)
    distinct = len(np.unique(x))
    if distinct < law.parameters:
        raise ByheartError(
            f"the {law.name} law {law.formula} has {law.parameters} parameters: it needs as many "
            f"different x, found {distinct}."
        )
    solved, (rss,) = _solve(law, x, y[:, None])
    values = {name: float(v[0]) for name, v in solved.items()}
    total = float(((y - y.mean()) ** 2).sum())
    r2 = 1 - float(rss) / total if total > 0 else 1.0
    aicc = _aicc(float(rss), len(x), law.parameters)
    left_out = _left_out(law, x, y) if validate else math.nan
    spans = _intervals(law, x, y, values) if intervals else {}
    return Fit(law.name, values, len(x), r2, aicc, left_out, spans)


def _intervals(
    law: Law, x: Array, y: Array, values: Mapping[str, float]
) -> dict[str, tuple[float, float]]:
    """The intervals of a law's parameters, from how each moves with the mean at each x."""
    at = np.unique(x)
    groups = [y[x == value] for value in at]
    if min(map(len, groups)) < LEAST_SEEDS or _at_edge(law, x, values):
        return {}
    means, spread = np.array([g.mean() for g in groups]), np.array([g.std(ddof=1) for g in groups])
    counts = np.array([len(g) for g in groups])
    step = math.sqrt(float((spread**2 / counts).mean())) or 1e-6 * (float(np.abs(y).max()) or 1.0)
    moved = means[:, None] + step * np.concatenate([np.eye(len(at)), -np.eye(len(at))], axis=1)
    solved, _ = _solve(law, at, moved, counts)
    found = {}
    for name, shifted in solved.items():
        up, down = np.split(shifted, 2)
        interval = combined(groups, (up - down) / (2 * step), values[name])
        found[name] = interval["low"], interval["high"]
    return found


def _at_edge(law: Law, x: Array, values: Mapping[str, float]) -> bool:
    if law.shape is None:
        return False
    unit = (float(np.abs(x).max()) or 1.0) if law.shape == "τ" else 1.0
    ends = law.starts[0] * unit, law.starts[-1] * unit
    return any(math.isclose(values[law.shape], end, rel_tol=1e-6) for end in ends)


def span(value: float, low: float, high: float) -> Interval:
    """A number with its interval."""
    return {"estimate": value, "low": low, "high": high}


def combined(
    groups: Sequence[Array | Sequence[float]], weights: Array | Sequence[float],
    estimate: float | None = None, *, chosen_of: int = 1,
) -> Interval:  # fmt: skip
    """Σ weight x mean of a group, with its interval; `estimate`: of a number that moves so with the
    means. `chosen_of`: how many numbers this one was picked from by looking at them, which all
    have to be covered (Bonferroni). NaN for the ends where a group has fewer than three values.

    >>> shown = combined([[1.0, 1.2, 0.8, 1.1, 0.9], [0.4, 0.5, 0.6]], [1, -1])
    >>> [round(v, 2) for v in shown.values()]
    [0.5, 0.28, 0.72]
    """
    from scipy.stats import t

    arrays = [np.asarray(g, float) for g in groups]
    c, n = np.asarray(weights, float), np.array([len(g) for g in arrays])
    value = float(c @ [g.mean() for g in arrays]) if estimate is None else estimate
    if not len(n) or n.min() < LEAST_SEEDS:
        return span(value, math.nan, math.nan)
    parts = c**2 * np.array([g.var(ddof=1) for g in arrays]) / n
    total = float(parts.sum())
    if total == 0:
        return span(value, value, value)
    freedom = total**2 / float((parts**2 / (n - 1)).sum())
    outside = (1 - LEVEL) / chosen_of
    half = float(t.ppf(1 - outside / 2, freedom)) * math.sqrt(total)
    return span(value, value - half, value + half)


@dataclass(frozen=True)
class Choice:
    """Laws compared on the same points, best AICc first. `best` is None if the data cannot tell."""

    fits: tuple[Fit, ...]
    best: str | None
    why: str

    def table(self) -> list[Record]:
        return [f.to_json() for f in self.fits]


def choose(
    x: Sequence[float] | Array, y: Sequence[float] | Array,
    laws: Sequence[str] = ("linear", "quadratic", "power", "saturating"), *,
    intervals: bool = False,
) -> Choice:  # fmt: skip
    """Compare laws by AICc and by the error at left-out x.

    A law is chosen if its AICc is smaller by 4 or more than that of every other, and no other
    predicts left-out points better by a tenth; otherwise the data cannot tell.

    >>> x = np.repeat(np.arange(1.0, 9), 3)
    >>> noise = np.tile([0.1, -0.1, 0.0], 8)
    >>> choose(x, x**2 + noise, ("linear", "quadratic")).best
    'quadratic'
    """
    distinct = len(np.unique(np.asarray(x, float)))
    able = [name for name in laws if LAWS[name].parameters < distinct]
    if not able:
        raise ByheartError(f"none of {', '.join(laws)} can be compared on {distinct} different x.")
    fitted = [fit(name, x, y, intervals=intervals) for name in able]
    fits = best, *others = tuple(sorted(fitted, key=lambda f: f.aicc))
    if not others:
        return Choice(fits, best.law, "only one law could be fitted")
    close = [f.law for f in others if f.aicc - best.aicc < TELLS]
    better = [f.law for f in others if f.cross_validated < 0.9 * best.cross_validated]
    if close or better:
        why = f"AICc of {best.law} and {', '.join(close)} differ by less than {TELLS:g}"
        if not close:
            predictors = ", ".join(better)
            why = f"{best.law} has the best AICc, but {predictors} predicts left-out x better"
        return Choice(fits, None, f"the data cannot tell: {why}")
    gap = others[0].aicc - best.aicc
    return Choice(fits, best.law, f"AICc smaller by {gap:.1f} than {others[0].law}")


def _solve(
    law: Law, x: Array, ys: Array, weights: Array | None = None
) -> tuple[dict[str, Array], Array]:
    """Least squares for every column of `ys` (points, columns): parameters and residual sums.
    `weights`: how often each point counts."""
    # Points of equal x enter through their mean; what they scatter about it no law explains.
    at, group, counts = np.unique(x, return_inverse=True, return_counts=True)
    counts = counts if weights is None else weights  # of points that are means themselves
    means = np.stack([ys[group == g].mean(0) for g in range(len(at))])
    scatter = ((ys - means[group]) ** 2).sum(0)
    share = counts / counts.sum()
    centre = share @ means
    unit = (float(np.abs(x).max()) or 1.0) if law.shape == "τ" else 1.0

    def scan(grid: Array) -> tuple[Array, Array, Array]:
        """f (θ, x), the best slope (θ, columns), and the best θ of each column."""
        f = law.curve(at, grid[:, None] * unit) + np.zeros((len(grid), 1))
        off = f - (f @ share)[:, None]
        spread = (off**2 @ share)[:, None]
        slope = (off * share) @ (means - centre)
        slope = np.divide(slope, spread, out=0 * slope, where=spread > 0)
        return f, slope, (slope**2 * spread).argmax(0)

    grid = np.array(law.starts)
    f, slope, best = scan(grid)
    for number in FINER if law.shape else ():  # between the neighbours of the best values
        low, high = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, len(grid) - 1)]
        between = np.geomspace if law.shape == "τ" else np.linspace
        grid = between(low.min(), high.max(), number)
        f, slope, best = scan(grid)
    b = slope[best, np.arange(ys.shape[1])]
    a = centre - b * (f @ share)[best]
    rss = scatter + counts @ (means - a - b * f[best].T) ** 2
    parameters = {"a": a, "b": b}
    return {**parameters, law.shape: grid[best] * unit} if law.shape else parameters, rss


def _aicc(rss: float, n: int, parameters: int) -> float:
    """n log(rss/n) + 2k + 2k(k+1)/(n-k-1), k counting the variance too."""
    k = parameters + 1
    if n - k - 1 <= 0:
        return math.inf
    return n * math.log(max(rss, n * 1e-24) / n) + 2 * k + 2 * k * (k + 1) / (n - k - 1)


def _left_out(law: Law, x: Array, y: Array) -> float:
    """Root mean square error of the mean at each x, predicted from the other x."""
    values = np.unique(x)
    if len(values) - 1 < law.parameters:
        return math.nan
    squares = []
    for value in values:
        rest = x != value
        solved, _ = _solve(law, x[rest], y[rest, None])
        predicted = law.at(np.array([value]), {k: float(v[0]) for k, v in solved.items()})
        squares.append(float((y[~rest].mean() - predicted[0]) ** 2))
    return math.sqrt(sum(squares) / len(squares))
