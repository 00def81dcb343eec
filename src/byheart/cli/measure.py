"""Measurements: `byheart kruskal` (how independent rows are), `heads` (what each head memorizes),
`precision` (what number formats keep), `audit` (the papers' assumptions in a real model, and what
its heads store)."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from byheart.cli import _options as opt
from byheart.cli._options import argument, grouped, guarded, option, switch
from byheart.cli._show import emit, progress, say, table
from byheart.errors import ByheartError, FactsError, check_choice

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

    from byheart._progress import Report
    from byheart.audits.measures import Record
    from byheart.audits.run import Measured
    from byheart.measure import HeadStatistics
    from byheart.measure.kruskal import KruskalReport
    from byheart.measure.rank import DependentSet, NumericalRank

SHOWN = 20
HEADS = ("head", "owns", "saturated stored / fresh", "own / other", "entropy stored / fresh",
         "tokens own / other", "breaks")  # fmt: skip
_shown = partial(option, panel="What it is shown")


@guarded
def kruskal(
    source: str = argument(
        "FILE",
        "A .npz, .safetensors or .npy file of numbers, or a recipe: "
        "vectors:T=621,n=32,d=64,context=fixed,classes=100,seed=42, digits:T=500.",
    ),
    size: int | None = option(
        None,
        "Every n rows should be independent. Default: context tokens, or 32, at most d.",
        min=1,
    ),
    array: str = option("query", "Which array of the file.", "NAME"),
    draws: int = option(1000, "Random subsets for the paper's statistic.", min=1, max=10**6),
    search: int | None = option(None, "Largest dependent set to look for. Default: n.", min=2),
    exact: bool = switch(
        "Ranks over the rationals, also of numbers that are not whole (as fractions).", "--exact"
    ),
    seed: int = option(0, "Of the random subsets.", min=0),
) -> None:
    """How independent are the rows of FILE? (Assumption 1 of Mahdavi et al. 2024.)

    The Kruskal rank is the largest k such that every k rows are independent. It cannot be computed
    for many rows, and sampling subsets does not find it; this report says what is proved (lower
    bound, exact duplicates), what was found (the smallest dependent set, verified), what sampling
    could have seen, and whether the groups of the construction are independent, which is all that
    the theorem's proof needs.
    """
    X, context = _rows(source, array)

    from byheart.measure.kruskal import kruskal_report, rows_of

    X = rows_of(X, source)
    wanted = size if size is not None else min(context or 32, X.shape[1])
    report = kruskal_report(X, wanted, draws=draws, search=search, exact=exact or None, seed=seed)
    emit(report.to_json())
    _print_kruskal(report)


def _rows(source: str, name: str) -> tuple[np.ndarray, int | None]:
    from byheart.facts import is_recipe, read_arrays, read_vectors

    if is_recipe(source):
        facts = read_vectors(source)
        return facts.query, facts.n
    arrays = read_arrays(source)
    if name not in arrays:
        there = ", ".join(sorted(arrays))
        expected = f"expected an array {name!r}, there are {there}"
        raise FactsError(f"{source}: {expected}. Choose one with --array.")
    context = arrays.get("context")
    n = context.shape[-2] if context is not None and context.ndim > 1 else None
    return arrays[name], n


def _print_kruskal(report: KruskalReport) -> None:
    n, sampled = report.needed, report.sampled
    certain = "by enumeration" if report.enumerated else "bounds; the exact value is NP-hard"
    equal = report.lower == report.upper
    between = str(report.lower) if equal else f"between {report.lower} and {report.upper}"
    met = f"{sampled.dependent:,} of {sampled.draws:,} subsets of {sampled.size} dependent"
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
        ("random subsets", f"{met}: fraction < {sampled.fraction_below:.1e} at 95 %"),
        ("... would meet", f"a dependent set of s rows with probability s: {chances}"),
    ]
    groups = report.groups
    if groups is not None:
        verdict = "independent, as the proof needs" if groups.holds else groups.reason()
        sizes = f"{len(groups.groups)} heads of up to {n - 1} rows, smallest pivot"
        smallest = f"{groups.pivot:.1e}, smallest residual {groups.residual:.1e}"
        rows.append(("groups", f"{verdict}: {sizes} {smallest}"))
    table(*rows)
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


@guarded
def heads(
    folder: opt.Folder,
    fresh: int = option(1000, "Fresh queries to compare with.", min=1, max=10**6),
    threshold: float = option(0.99, "Attention above which a head is saturated.", min=0.0, max=1.0),
    facts: str | None = option(None, "Other examples than those in DIR", "FILE"),
    plot: opt.Plot = None,
    seed: int = option(0, "Of the fresh queries.", min=0),
) -> None:
    """What does each head of the memory in DIR memorize?

    Saturation on stored and on fresh queries, the number of saturated heads per example beside
    independent heads, distinct attended tokens on own and other examples, and what breaks when a
    head is replaced by its mean. A level alone (all heads saturated) shows no specialisation: the
    contrast between own and other examples does.
    """
    from byheart.theory.plots import check_path, save

    if plot is not None:
        check_path(plot)
    memory = opt.load_memory(folder)

    from byheart.facts import read_vectors
    from byheart.measure.specialisation import head_statistics
    from byheart.models import VectorMemory

    if not isinstance(memory, VectorMemory):
        others = "`byheart recall` and `byheart owner` show the heads of the others"
        raise ByheartError(f"{folder} holds tokens; this is for vector memories: {others}.")
    examples = None if facts is None else read_vectors(facts)
    stats = head_statistics(memory, examples, fresh=fresh, threshold=threshold, seed=seed)
    if plot is not None:
        from byheart.measure.specialisation import heads_figure

        save(heads_figure(stats, str(memory.spec)), plot)
    emit(stats.to_json())
    _print_heads(stats)
    if plot is not None:
        say(f"\nDrawn to {plot}")


def _print_heads(stats: HeadStatistics) -> None:
    heads = len(stats.saturated)
    rows = []
    for h in range(min(heads, SHOWN)):
        saturated = _pair(h, stats.saturated, stats.fresh_saturated)
        own = _pair(h, stats.own_saturated, stats.other_saturated)
        entropy = _pair(h, stats.entropy, stats.fresh_entropy)
        tokens = f"{stats.own_tokens[h]} / {stats.other_tokens[h]}"
        owned = f"{int((stats.owner == h).sum()):,}"
        rows.append((str(h), owned, saturated, own, entropy, tokens, f"{stats.broken[h]:.2f}"))
    table(*rows, header=HEADS)
    if heads > SHOWN:
        say(f"... and {heads - SHOWN} more heads (--json lists all)")
    say(f"\n{stats.T:,} examples, {stats.fresh:,} fresh queries; owners by {stats.owner_from}.")
    say(f"saturated heads per example: {_counts(stats.histogram.tolist())}")
    say(f"       of independent heads: {_counts([round(v, 1) for v in stats.expected.tolist()])}")
    correlation = "-" if stats.correlation is None else f"{stats.correlation:+.2f}"
    say(f"mean correlation of two heads' saturation: {correlation}")
    needed = _counts(stats.heads_needed.tolist())
    say(f"examples by number of heads whose loss breaks them: {needed}")
    say(f"largest share of one head in an example, mean: {stats.concentration:.2f}")


def _pair(h: int, *heads: np.ndarray) -> str:
    return " / ".join(f"{v[h]:.2f}" if math.isfinite(v[h]) else "-" for v in heads)


def _counts(values: list) -> str:
    found = [f"{k}: {v}" for k, v in enumerate(values) if v]
    return ", ".join(found[:SHOWN]) + (", ..." if len(found) > SHOWN else "")


@guarded
@grouped("reading", opt.TABLE)
def precision(
    reading: opt.Given,
    source: str = argument("DIR|FACTS", "A memory folder, or a table of facts."),
    method: list[str] | None = option(
        None,
        "FACTS: which constructions (repeat it). Default: all three.",
        "sqrt|attention|sharded",
    ),
    most: int = option(1024, "FACTS: the largest number of facts tried.", parser=opt.at_least(2)),
) -> None:
    """Say which number formats recall the facts of a memory, or how many facts of a table.

    DIR: the weights are rounded to float16, bfloat16, float32, float64 and int8 with one scale a
    channel; exact memories are evaluated in the format throughout. FACTS: for each construction
    the first 2, 3, 4, 6, 8, 12, ... facts are built, and the first number that a format gets wrong
    is shown.
    """
    from byheart.measure import precision as measured

    if os.path.isdir(source):
        from byheart.models import load

        kept = measured.precision(load(source))
        emit({"source": source, "rows": [vars(k) for k in kept]})
        rows = []
        for k in kept:
            rows.append((k.format, f"{k.significant_bits:,}", f"{k.recalled:,} of {k.asked:,}"))
        table(*rows, header=("format", "bits", "recalled"))
        return
    chosen = tuple(method or measured.METHODS)
    for name in chosen:
        check_choice("method", name, measured.METHODS)
    facts = opt.read(source, reading)
    sizes = [T for T in measured.sizes_to(facts.T) if T <= most]
    limits = measured.limits(facts, chosen, sizes)
    emit({"source": facts.name, "rows": [vars(limit) for limit in limits]})
    rows = []
    for k in limits:
        right, wrong = _count(k.last_right, "none"), _count(k.first_wrong, "none tried")
        rows.append((k.method, k.format, right, wrong, _count(k.bits, "")))
    table(*rows, header=("construction", "format", "all right up to", "first wrong", "needs bits"))
    say("\nFacts are the first ones of the table; bits are those of the longest exact weight.")


def _count(value: int | None, nothing: str) -> str:
    return nothing if value is None else f"{value:,}"


_how = partial(opt.row, panel="How assumptions are measured")
ASSUMPTIONS: opt.Options = {
    "queries": _how(str | None, None, "Which tokens ask, the main one first.", "first,last,every"),
    "formats": _how(str, "float32,float64", "Number formats to run the model in."),
    "random": _how(bool, True, "Also with weights drawn anew.", "--random/--no-random"),
    "ranked": _how(int, 200, "Contexts kept whole for their ranks."),
    "draws": _how(int, 200, "Random subsets of queries."),
    "search": _how(int, 4, "Largest dependent set to look for."),
    "device": _how(str, "cpu", "cpu or cuda."),
}


@guarded
@grouped("assumed", ASSUMPTIONS)
def audit(
    assumed: opt.Given,
    model: str = argument(
        "MODEL",
        "A Hugging Face folder (BERT, GPT-2, Llama, ViT; safetensors), a .gguf file, a "
        "name in the local cache, or minilm, smollm2 (`make models` installs them).",
    ),
    heads: bool = switch("What the heads of a language model have by heart, instead.", "--heads"),
    text: list[str] | None = _shown(None, "Text (repeatable).", "FILE"),
    tokens: str | None = _shown(None, "Token ids: .npy, .npz, .safetensors, .jsonl.", "FILE"),
    images: str | None = _shown(None, "Images: .npy, .npz, .safetensors, folder, digits.", "FILE"),
    length: int | None = _shown(None, "Tokens a context. Default: 64."),
    contexts: int | None = _shown(
        None, "Different contexts, at most. Default: 2,000; with --heads 128."
    ),
    batch: int | None = option(None, "Contexts at a time. Default: 32; with --heads 16."),
    seed: int = option(0, "Of all draws.", min=0),
    top: int | None = option(None, "--heads: heads whose pairs are listed. Default: 10."),
    output: str | None = option(None, "Also write the JSON.", "-o", "--output", "FILE"),
    plot: opt.Plot = None,
) -> None:
    """Do the papers' assumptions hold in MODEL, layer by layer? What do its heads store?

    Context rank (Assumption 2), independence of the queries (Assumption 1: the published sampling,
    verified dependent sets, and the groups that the proof really needs), General Position,
    e + mean E (Assumption 3), (r, δ)-separation, saturation of the heads; with the model in float32
    and in float64, raw and centred, trained and with random weights; and what Theorem 1 then
    promises. Nothing is downloaded and no code of a model is run.

    --heads: the bigrams and skip-trigrams in the QK and OV circuits of each head of a GPT-2 or
    Llama, and how much of the next-token information of held-out text they explain, beside the
    model's own and beside the same heads with shuffled weights.
    """
    from byheart.theory.plots import check_path, save

    if plot is not None:
        check_path(plot)
    sizes = {"length": length, "contexts": contexts, "batch": batch, "seed": seed, "top": top}
    given = {name: value for name, value in sizes.items() if value is not None}
    shown = {"text": text, "tokens": tokens, "images": images}
    with progress() as tell:
        if heads:
            result, drawn = _stored(model, given, shown, assumed, tell)
        else:
            result, drawn = _assumptions(model, given, shown, assumed, tell)
    if output is not None:
        result.save(output)
    if plot is not None:
        save(drawn(result.record), plot)
    emit(result.to_json())
    _print_stored(result.record) if heads else _print_audit(result.record)
    for path in filter(None, (output, plot)):
        say(f"Written to {path}")


def _assumptions(
    model: str, sizes: dict[str, Any], shown: dict[str, Any], assumed: dict[str, Any], tell: Report
) -> tuple[Measured, Callable[[Record], Figure]]:
    from byheart.audits import AuditSettings, audit_figure
    from byheart.audits import audit as measure

    if "top" in sizes:
        raise ByheartError("--top is of use with --heads only. Leave it out.")
    for name in assumed.keys() & {"queries", "formats"}:
        assumed[name] = tuple(map(str.strip, assumed[name].split(",")))
    settings = AuditSettings(**sizes, **assumed)
    return measure(model, settings=settings, progress=tell, **shown), audit_figure


def _stored(
    model: str, sizes: dict[str, Any], shown: dict[str, Any], assumed: dict[str, Any], tell: Report
) -> tuple[Measured, Callable[[Record], Figure]]:
    from byheart.audits import HeadSettings, audit_heads, heads_figure

    images = shown.pop("images")
    if foreign := assumed | ({} if images is None else {"images": images}):
        raise ByheartError(f"{opt.flags(foreign)}: of no use with --heads. Leave it out.")
    settings = HeadSettings(**sizes)
    return audit_heads(model, settings=settings, progress=tell, **shown), heads_figure


def _print_stored(record: Record) -> None:
    from byheart.audits import head_tables as shown

    say("\n".join(shown.head_lines(record)) + "\n")
    table(*shown.head_rows(record), header=shown.HEAD_HEADER)
    table(*shown.pair_rows(record), header=shown.PAIR_HEADER)
    say(shown.LEGEND)
    _print_costs(record)


def _print_audit(record: Record) -> None:
    from byheart.audits.tables import HEADER, headline, table_rows

    used = record["settings"]
    say("\n".join(headline(record)) + "\n")
    table(*table_rows(record), header=HEADER)
    say(
        f"\nA2: contexts of rank n, of {used['ranked']:,}. A1 drawn: independent ones of "
        f"{used['draws']:,} random n-subsets. Q: largest size with no dependent subset, drawn or "
        "found. groups: what Theorem 1's proof needs holds for H heads. GP: General Position "
        "(open: not refuted; ?: fewer contexts than d). A3: e + mean E. T1: H(Q-1)+1 examples.\n"
        f"Main query: {used['queries'][0]}. Several numbers: float32 raw|centred / float64 "
        "raw|centred; one: all agree."
    )
    if record["model"]["positions"] == "rotary":
        say("In brackets: for a layer with one W_h for all positions; this one has rotary ones.")
    _print_costs(record, f", {record['forward_cpu_seconds']:.0f} s of them in the model")


def _print_costs(record: Record, model: str = "") -> None:
    say(
        f"{record['seconds']:.0f} s ({record['cpu_seconds']:.0f} s CPU{model}), peak memory "
        f"{record['peak_bytes'] / 1e9:.1f} GB"
    )
