"""`byheart kruskal`: what is known about the Kruskal rank of the rows of a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from byheart.cli import _options as opt
from byheart.cli._group import argument, option
from byheart.cli._show import emit, guarded, say, table
from byheart.errors import FactsError

if TYPE_CHECKING:
    import numpy as np

    from byheart.measure.kruskal import KruskalReport
    from byheart.measure.rank import DependentSet, NumericalRank


@guarded
def kruskal(
    source: str = argument(
        "FILE",
        "A .npz, .safetensors or .npy file of numbers, or a recipe: "
        "vectors:T=621,n=32,d=64,context=fixed,classes=100,seed=42, digits:T=500.",
    ),
    size: int | None = option(
        None,
        "The n that every n rows should be independent for. Default: the number of "
        "context tokens, or 32, at most d.",
        min=1,
    ),
    array: str = option("query", "Which array of the file.", metavar="NAME"),
    draws: int = option(1000, "Random subsets for the paper's statistic.", min=1, max=10**6),
    search: int | None = option(None, "Largest dependent set to look for. Default: n.", min=2),
    exact: bool = option(
        False,
        "Ranks over the rationals, also for numbers that are not whole (floats are fractions).",
        "--exact",
    ),
    seed: int = option(0, "Of the random subsets.", min=0),
    as_json: opt.Json = False,
) -> None:
    """How independent are the rows of FILE? (Assumption 1 of Mahdavi et al. 2024.)

    The Kruskal rank is the largest k such that every k rows are independent. It cannot be computed
    for many rows, and sampling subsets does not find it; this report says what is proved (lower
    bound, exact duplicates), what was found (the smallest dependent set, verified), what sampling
    could have seen, and whether the groups of the construction are independent, which is all that
    the theorem's proof needs.
    """
    X, context = _rows(source, array)
    wanted = size if size is not None else min(context or 32, X.shape[1])

    from byheart.measure.kruskal import kruskal_report

    report = kruskal_report(
        X, wanted, draws=draws, search=search, exact=True if exact else None, seed=seed
    )
    if as_json:
        emit(report.to_json())
    else:
        _print(report)


def _rows(source: str, name: str) -> tuple[np.ndarray, int | None]:
    from byheart.facts import is_recipe, read_arrays, read_vectors

    if is_recipe(source):
        facts = read_vectors(source)
        return facts.query, facts.n
    arrays = read_arrays(source)
    if name not in arrays:
        raise FactsError(
            f"{source}: expected an array {name!r}, there are {', '.join(sorted(arrays))}. "
            "Choose one with --array."
        )
    context = arrays.get("context")
    n = context.shape[-2] if context is not None and context.ndim > 1 else None
    return arrays[name], n


def _print(report: KruskalReport) -> None:
    n, sampled = report.needed, report.sampled
    certain = "by enumeration" if report.enumerated else "bounds; the exact value is NP-hard"
    between = f"between {report.lower} and {report.upper}"
    between = str(report.lower) if report.lower == report.upper else between
    chances = ", ".join(f"{s}: {p:.2g}" for s, p in sampled.power.items())
    rows: list[tuple[str, ...]] = [
        ("rows", f"{report.T:,} in R^{report.d}; n = {n}"),
        ("Kruskal rank", f"{between} ({certain})"),
        ("zero rows", _listed([(i,) for i in report.zero_rows])),
        ("parallel rows", f"{_listed(report.parallel)} (exact)"),
        ("rank", _rank(report.rank)),
        ("rank, centred", _rank(report.rank_centred)),
    ]
    if report.rank_exact is not None:
        rows.append(("rank, exact", f"{report.rank_exact.rank} over the rationals"))
    rows += [
        ("dependent set", _dependent(report.dependent)),
        (
            "random subsets",
            f"{sampled.dependent:,} of {sampled.draws:,} subsets of {sampled.size} dependent: "
            f"fraction < {sampled.fraction_below:.1e} at 95 %",
        ),
        ("... would meet", f"a dependent set of s rows with probability s: {chances}"),
    ]
    groups = report.groups
    if groups is not None:
        verdict = "independent, as the proof needs" if groups.holds else groups.reason()
        sizes = f"{len(groups.groups)} heads of up to {n - 1} rows, smallest pivot"
        smallest = f"{groups.pivot:.1e}, smallest residual {groups.residual:.1e}"
        rows.append(("groups", f"{verdict}: {sizes} {smallest}"))
    table(rows)
    parts = ", ".join(f"{name} {s:.2f}" for name, s in report.seconds.items())
    say(f"\n{sum(report.seconds.values()):.2f} s: {parts}")


def _rank(rank: NumericalRank) -> str:
    gap = "no value dropped" if rank.gap == float("inf") else f"gap {rank.gap:.1e}"
    return f"{rank.rank} ({rank.dtype}, tolerance {rank.tolerance:.1e}, {gap})"


def _dependent(dependent: DependentSet | None) -> str:
    if dependent is None:
        return "none found (which proves nothing)"
    rows = ", ".join(map(str, dependent.rows[:12])) + ", ..." * (len(dependent.rows) > 12)
    how = "exact" if dependent.exact else f"singular value {dependent.residual:.0e}"
    return f"{len(dependent.rows)} rows: {rows} ({how})"


def _listed(sets: Sequence[tuple[int, ...]]) -> str:
    if not sets:
        return "none"
    shown = ", ".join("=".join(map(str, s)) for s in sets[:8])
    return shown + (f", ... {len(sets):,} in all" if len(sets) > 8 else "")
