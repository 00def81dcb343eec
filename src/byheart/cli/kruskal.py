"""`byheart kruskal`: what is known about the Kruskal rank of the rows of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from byheart.cli import _options as opt
from byheart.cli._show import emit, guarded, say, table
from byheart.errors import FactsError

if TYPE_CHECKING:
    import numpy as np

    from byheart.measure import KruskalReport


@guarded
def kruskal(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A .npz, .safetensors or .npy file of numbers, or a recipe: "
            "vectors:T=621,n=32,d=64,context=fixed,classes=100,seed=42, digits:T=500.",
        ),
    ],
    size: Annotated[
        int | None,
        typer.Option(
            "--size",
            min=1,
            help="The n that every n rows should be independent for. Default: the number of "
            "context tokens, or 32, at most d.",
        ),
    ] = None,
    array: Annotated[
        str, typer.Option("--array", metavar="NAME", help="Which array of the file.")
    ] = "query",
    draws: Annotated[
        int, typer.Option(min=1, max=10**6, help="Random subsets for the paper's statistic.")
    ] = 1000,
    search: Annotated[
        int | None, typer.Option(min=2, help="Largest dependent set to look for. Default: n.")
    ] = None,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Ranks over the rationals, also for numbers that are not whole (floats are "
            "fractions).",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the random subsets.")] = 0,
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
    rank, centred = report.rank, report.rank_centred
    n = report.needed
    known = "by enumeration" if report.enumerated else "bounds; the exact value is NP-hard"
    between = f"{report.lower}" if report.lower == report.upper else (
        f"between {report.lower} and {report.upper}")  # fmt: skip
    rows: list[tuple[str, ...]] = [
        ("rows", f"{report.T:,} in R^{report.d}; n = {n}"),
        ("Kruskal rank", f"{between} ({known})"),
        ("zero rows", _listed([(i,) for i in report.zero_rows])),
        ("parallel rows", f"{_listed(report.parallel)} (exact)"),
        ("rank", _rank(rank)),
        ("rank, centred", _rank(centred)),
    ]
    if report.rank_exact is not None:
        rows.append(("rank, exact", f"{report.rank_exact.rank} over the rationals"))
    found = report.dependent
    rows.append(
        (
            "dependent set",
            "none found (which proves nothing)"
            if found is None
            else f"{len(found.rows)} rows: {', '.join(map(str, found.rows[:12]))}"
            f"{', ...' if len(found.rows) > 12 else ''} "
            + ("(exact)" if found.exact else f"(singular value {found.residual:.0e})"),
        )
    )
    sampled = report.sampled
    chances = ", ".join(f"{s}: {p:.2g}" for s, p in sampled.power.items())
    rows += [
        (
            "random subsets",
            f"{sampled.dependent:,} of {sampled.draws:,} subsets of {sampled.size} dependent: "
            f"fraction < {sampled.fraction_below:.1e} at 95 %",
        ),
        ("... would meet", f"a dependent set of s rows with probability s: {chances}"),
    ]
    if report.groups is not None:
        groups = report.groups
        verdict = "independent, as the proof needs" if groups.holds else groups.reason()
        rows.append(
            (
                "groups",
                f"{verdict}: {len(groups.groups)} heads of up to {n - 1} rows, smallest pivot "
                f"{groups.pivot:.1e}, smallest residual {groups.residual:.1e}",
            )
        )
    table(rows)
    total = sum(report.seconds.values())
    parts: list[Any] = [f"{name} {s:.2f}" for name, s in report.seconds.items()]
    say(f"\n{total:.2f} s: {', '.join(parts)}")


def _rank(found: Any) -> str:
    gap = "no value dropped" if found.gap == float("inf") else f"gap {found.gap:.1e}"
    return f"{found.rank} ({found.dtype}, tolerance {found.tolerance:.1e}, {gap})"


def _listed(sets: Any) -> str:
    if not sets:
        return "none"
    shown = ", ".join("=".join(map(str, s)) for s in sets[:8])
    return shown + (f", ... {len(sets):,} in all" if len(sets) > 8 else "")
