"""Fits: the law that made the points is found, the interval covers it, and doubt is admitted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import curve_fit

from byheart.errors import ByheartError
from byheart.studies.fits import LAWS, choose, combined, fit

X = np.repeat(np.arange(1.0, 11.0), 5)


def noise(size: float, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, size, len(X))


@given(
    a=st.floats(-1, 1), b=st.floats(0.1, 3), p=st.floats(0.2, 4), sign=st.sampled_from([1.0, -1.0])
)
@settings(max_examples=60, deadline=None)
def test_a_power_law_is_found_exactly(a, b, p, sign):
    found = fit("power", X, a + sign * b * X**p)
    assert abs(found.values["p"] - p) < 2e-3 * p
    assert np.abs(found(X) - (a + sign * b * X**p)).max() < 1e-3 * b * 10**p


@pytest.mark.parametrize("p", [-2.0, -0.5, 0.0, 0.02])
def test_powers_below_the_square_root_are_found(p: float):
    """Concave growth: down to the logarithm (p = 0), and beyond it to laws that flatten."""
    y = np.log(X) if p == 0 else X**p / p
    found = fit("power", X, y + noise(1e-3), intervals=True)
    low, high = found.intervals["p"]
    assert low - 0.01 < p < high + 0.01 and high - low < 0.2
    zero = np.append(X, 0.0)  # 0 has no negative powers: the fit stays finite
    assert fit("power", zero, np.sqrt(zero)).values["p"] == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("law", LAWS)
def test_every_law_finds_itself(law: str):
    theta = {"power": 1.5, "saturating": 4.0}.get(law, 0.0)
    y = 0.3 + 0.5 * LAWS[law].curve(X, theta)
    found = fit(law, X, y)
    assert np.abs(found(X) - y).max() < 1e-3
    assert found.r2 > 0.999999


def test_least_squares_equal_scipys():
    y = 0.1 + 0.05 * X**1.6 + noise(0.05)
    ours = fit("power", X, y)
    theirs, _ = curve_fit(lambda x, a, b, p: a + b * x**p, X, y, p0=(0.0, 0.1, 1.0))
    assert np.allclose([ours.values[k] for k in ("a", "b", "p")], theirs, rtol=0.02, atol=1e-3)
    rss = ((y - ours(X)) ** 2).sum()
    assert rss <= ((y - theirs[0] - theirs[1] * X ** theirs[2]) ** 2).sum() * (1 + 1e-4)
    line = fit("linear", X, y)
    assert np.allclose([line.values["b"], line.values["a"]], np.polyfit(X, y, 1))


def test_no_interval_where_there_is_none_to_be_had():
    """Of two seeds, and of an estimate at an end of its search."""
    pairs = np.repeat(np.arange(1.0, 6), 2)
    assert fit("linear", pairs, pairs, intervals=True).intervals == {}
    assert np.isnan(combined([[1.0, 2.0]], [1.0])["low"])
    steep = fit("power", X, np.where(X == 10, 1.0, 0.0) + noise(1e-6), intervals=True)
    assert steep.values["p"] == pytest.approx(LAWS["power"].starts[-1]) and not steep.intervals
    assert fit("linear", X, X).intervals == {}  # not asked for


def test_intervals_equal_those_of_the_textbook():
    """A mean: Student's t. A line through equal counts: Σ c_x mean_x with c = (x - x̄)/Σ(x - x̄)²."""
    values = noise(1.0)[:5]
    found = combined([values], [1.0])
    low, high = stats.t.interval(0.95, 4, values.mean(), stats.sem(values))
    assert [found["low"], found["high"]] == pytest.approx([low, high])
    y = 0.3 * X + noise(0.1)
    at = np.unique(X)
    off = (at - at.mean()) / ((at - at.mean()) ** 2).sum()
    slope = combined([y[X == v] for v in at], off)
    line = fit("linear", X, y, intervals=True).interval("b")
    assert list(line.values()) == pytest.approx(list(slope.values()), rel=1e-6)
    two = combined([values, values[:3]], [1.0, -1.0])
    welch = stats.ttest_ind(values, values[:3], equal_var=False).confidence_interval(0.95)
    assert [two["low"], two["high"]] == pytest.approx([welch.low, welch.high])


@pytest.mark.parametrize("law", ["linear", "quadratic", "saturating", "power"])
def test_the_right_law_is_chosen_or_none(law: str):
    theta = {"power": 0.6, "saturating": 2.0}.get(law, 0.0)
    y = 0.2 + 0.1 * LAWS[law].curve(X, theta) + noise(0.002)
    found = choose(X, y, ("linear", "quadratic", "power", "saturating"))
    assert found.best in (law, None)
    assert found.fits[0].aicc <= found.fits[-1].aicc
    if law in ("power", "saturating"):
        assert found.best == law


def test_the_data_cannot_tell():
    y = 0.5 + 0.001 * X + noise(0.2)
    found = choose(X, y)
    assert found.best is None and found.why.startswith("the data cannot tell")
    assert len(found.table()) == 4 and {"AICc", "cross_validated", "R2"} <= found.table()[0].keys()


def test_too_few_points():
    with pytest.raises(ByheartError, match="needs as many different x, found 2"):
        fit("power", [1.0, 1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(ByheartError, match="can be compared"):
        choose([1.0, 1.0], [1.0, 2.0])


def test_values_without_spread_have_an_interval_without_width():
    assert combined([[0.5] * 5], [1.0]) == {"estimate": 0.5, "low": 0.5, "high": 0.5}
