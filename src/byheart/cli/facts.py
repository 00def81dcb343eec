"""`byheart facts` and `byheart encoder`: a table of facts, what the theorems ask of a model for it,
and how near a model of width d can come to given distributions."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from byheart.cli import _options as opt
from byheart.cli._options import argument, grouped, guarded, option, switch, with_flags
from byheart.cli._show import emit, key_text, progress, reasons, say, table, token_text
from byheart.errors import CapacityError, FactsError

if TYPE_CHECKING:
    from byheart.construct.encoders import Compared
    from byheart.facts import Distributions, Facts

Row = dict[str, Any]


@guarded
@grouped("reading", opt.ANY_TABLE)
def facts(
    reading: opt.Given,
    source: str = argument("FACTS", "A file or a built-in table."),
    output: str | None = option(None, "Also write CSV, TSV or JSONL.", "-o", "--output", "FILE"),
    force: bool = switch("Replace an existing FILE of -o.", "--force"),
) -> None:
    """Describe FACTS: sizes, duplicates, conflicts, and what the theorems ask.

    Two rows with one key and different answers are listed, with exit code 2.
    """
    from byheart.facts import Distributions, Facts

    given = opt.read_any(source, reading)
    if output is not None and os.path.lexists(output) and not force:
        what = "Give another -o FILE, or --force to replace it."
        raise FactsError(f"{output} exists already. {what}")
    theory: Row = {}
    if isinstance(given, Facts):
        theory = _asked(given)
    elif isinstance(given, Distributions):
        theory = {"bound": "dana2025.proposition2", "d": min(given.T, given.A - 1)}
    if output is not None:
        given.write(output)
    emit(given.describe() | ({"theory": theory} if theory else {}))
    if isinstance(given, Facts):
        table_file = source.lower().endswith((".csv", ".tsv"))
        _print(given, theory, table_file and not reading.keys() & {"header", "melt"})
    elif isinstance(given, Distributions):
        _print_distributions(given, theory["d"])
    else:
        say(opt.describe_facts(given))
        return
    if output is not None:
        say(f"\nWritten to {output}")


def _asked(facts: Facts) -> Row:
    """What Corollary 1 asks of one attention layer, and the planner of sharded memories where
    `byheart build` would take one."""
    from byheart.construct.choice import choose_attention_only
    from byheart.construct.sharded.plan import plan
    from byheart.methods import SHARDED_FROM
    from byheart.theory import corollary1_capacity, corollary1_heads

    choice = choose_attention_only(facts)
    spec, shards = choice.spec, None
    if facts.T >= SHARDED_FROM:
        try:
            shards = list(plan(facts).why)
        except CapacityError as error:
            shards = [f"not possible: {error}"]
    return {
        "bound": "dana2025.corollary1",
        "statement": "H·d_h + d >= facts",
        "d": spec.d,
        "d_h": spec.d_h,
        "heads": corollary1_heads(facts.T, spec.d, spec.d_h, facts.last_tokens),
        "heads_with_slack": spec.H,
        "capacity": corollary1_capacity(spec, facts.last_tokens),
        "parameters": spec.parameters,
        "why": list(choice.why),
        "sharded": shards,
    }


def _print(facts: Facts, asked: Row, implied_header: bool) -> None:
    columns = ", ".join(facts.columns) if facts.columns else "-"
    names = f"{columns}, {facts.answer_column} (row 1; --no-header if it is a fact)"
    ids_of = (facts.tokens[:, -1], facts.answers)
    last, answer = ("{!r} in {:,} facts".format(*facts.commonest(ids)) for ids in ids_of)
    shares = [f"{facts.effective_size(e):,} facts hold {1 - e:.0%} of it" for e in (0.1, 0.01)]
    uniform = facts.prior.min() == facts.prior.max()
    table(
        ("facts", f"{facts.T:,}"),
        ("keys", f"{facts.S} token{'s'[: facts.S > 1]}: {columns}"),
        *([("header", names)] if implied_header else []),
        ("vocabulary", f"{facts.N:,} tokens, {len(facts.answer_ids):,} of them answers"),
        ("last tokens", f"{facts.last_tokens:,} distinct; {last}"),
        ("answers", f"{facts.answer_column}: commonest {answer}"),
        ("prior", "uniform" if uniform else ", ".join(shares)),
        ("duplicates merged", f"{facts.merged:,}"),
        ("skipped", f"{facts.skipped:,} with an empty cell"),
        ("trimmed", f"{facts.trimmed:,} cells had blanks around them"),
    )
    say()
    for i in range(min(3, facts.T)):
        say(f"  {key_text(facts.key(i))} -> {token_text(facts.answer(i))}")
    reasons(
        asked["why"],
        "\nAttention-only, one layer (Dana et al. 2025, Corollary 1): "
        f"H·d_h + d >= {facts.T:,} facts."
        f"\nAt d = {asked['d']}, d_h = {asked['d_h']}: {asked['heads']:,} heads are enough, "
        f"{asked['heads_with_slack']:,} with slack ({asked['parameters']:,} parameters):",
    )
    sharded = "\nSharded attention, what `byheart build` takes for so many facts:"
    reasons(asked["sharded"] or (), sharded)


def _print_distributions(given: Distributions, exact: int) -> None:
    table(*_described(given))
    say()
    for i in range(min(3, given.T)):
        answers = ", ".join(f"{token_text(token)} {p:.3g}" for token, p in given.top(i, 4))
        say(f"  {key_text(given.key(i))} -> {answers}")
    say(
        f"\nWidth d = {exact:,} has no divergence (Proposition 2); "
        f"H·d_h + d = {given.T:,} heads' outputs follow any encoder (Theorem 1, ε = 0)."
        "\n`byheart encoder FACTS --rank d` says what a smaller width costs."
    )


def _described(given: Distributions) -> list[tuple[str, ...]]:
    """A table of distributions in words."""
    import numpy as np

    entropy = given.entropy
    mean, most = float(given.prior @ entropy), float(np.log(given.A))
    prior = "uniform"
    if given.prior.min() != given.prior.max():
        prior = ", ".join(f"T_ε = {given.effective_size(e):,} at ε = {e}" for e in (0.1, 0.01))
    support = "not full: some answers have probability 0 (--smooth gives them some)"
    if given.full_support:
        support = f"full, smallest probability {given.probabilities.min():.2g}"
    extremes = f"({entropy.min():.3g} to {entropy.max():.3g})"
    rows: list[tuple[str, ...]] = [
        ("sequences", f"{given.T:,}, each of {given.S} token{'s'[: given.S > 1]}"),
        ("answers", f"{given.A:,} of {given.N:,} tokens"),
        ("entropy", f"{mean:.3g} nats, {mean / most:.0%} of log A {extremes}"),
        ("prior", prior),
        ("support", support),
    ]
    left_out = f"{given.never_asked:,} sequences of weight 0" if given.never_asked else ""
    more = (("smoothing", given.smoothing), ("left out", left_out))
    return rows + [(name, text) for name, text in more if text]


@guarded
@grouped("reading", opt.ANY_TABLE)
def encoder(
    reading: opt.Given,
    source: str = argument(
        "FACTS",
        'JSONL with "output": {token: probability}; a table with --on-conflict '
        "distribution; a text with --ngram; or random:kind=gauss,N=20,tau=1,zipf=0,seed=0.",
    ),
    rank: int = option(..., "Rank of the logits: the width.", "d", min=1),
    seed: int = option(0, "Same seed, same encoders.", min=0, max=2**62),
) -> None:
    """Compare all sequence encoders of rank d on FACTS: what any model of width d must lose.

    A Transformer of width d has logits W E(t) of rank d; none is nearer to the distributions than
    the best of these (Dana et al. 2025, Proposition 1). Bounds are rigorous unless marked.
    """
    from byheart.facts import Distributions

    given = opt.read_any(source, {"distribution": True, **reading})
    if not isinstance(given, Distributions):
        raise FactsError(f"{source}: expected distributions over answers, found {given!r}.")

    from byheart.construct.encoders import compare

    with progress() as tell:
        rows = [_row(given, one) for one in compare(given, rank, seed=seed, progress=tell)]
    exact = min(given.T, given.A - 1)
    measured = [row for row in rows if row["kl"] is not None]
    least = min(measured, key=lambda row: row["kl"])["name"] if measured else None
    described = {**given.describe(), "rank": rank, "exact_rank": exact, "best": least}
    emit({**described, "rows": rows})
    say(f"{given.name}:")
    table(*_described(given))
    say()
    header = ("encoder", "d_KL", "total variation", "top answer", "bound", "seconds", "")
    table(*(_cells(row, least) for row in rows), header=header)
    say()
    if rank >= exact:
        say(f"d = {rank} >= min(T, A - 1) = {exact:,}: exact (Proposition 2).")
    else:
        say(f"d_KL in nats; it vanishes at d = {exact:,} (Proposition 2). Smallest: {least}.")


def _row(given: Distributions, one: Compared) -> Row:
    from byheart.measure import encoder_bounds, losses

    why = with_flags(one.reason, opt.ANY_TABLE)
    row: Row = {"name": one.name, "why": why, "seconds": one.seconds}
    if one.encoder is None:
        empty = dict.fromkeys(("kl", "total_variation", "accuracy", "max_log_ratio"))
        return row | empty | {"bounds": {}}
    bounds = encoder_bounds(given, one.encoder)
    return {**row, **losses(given, one.encoder.logits).mean(), "bounds": bounds}


def _cells(row: Row, least: str | None) -> tuple[str, ...]:
    if row["kl"] is None:
        return (row["name"], "-", "-", "-", "-", "-", row["why"])
    bounds = row["bounds"]  # the smallest rigorous one is shown, with its name
    rigorous = [(bounds[k], k) for k in ("bennett", "theorem2") if bounds.get(k) is not None]
    tightest = "{:.3g} ({})".format(*min(rigorous)) if rigorous else "-"
    measured = f"{row['kl']:.4g}", f"{row['total_variation']:.4g}", f"{row['accuracy']:.1%}"
    smallest = "smallest" if row["name"] == least else ""
    return (row["name"], *measured, tightest, f"{row['seconds']:.2f}", smallest)
