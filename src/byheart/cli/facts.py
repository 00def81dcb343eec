"""`byheart facts`: describe a table of facts, and what the theorems ask of a model for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from byheart.cli import _options as opt
from byheart.cli import _vectors
from byheart.cli._distribution import describe_distributions
from byheart.cli._show import emit, guarded, key_text, say, table, token_text
from byheart.errors import FactsError

if TYPE_CHECKING:
    from byheart.facts import Facts


@guarded
def facts(
    source: Annotated[str, typer.Argument(metavar="FACTS", help="A file or a built-in table.")],
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="Also write it as CSV, TSV or JSONL."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing FILE of -o.")] = False,
    distribution: opt.Distribution = False,
    on_conflict: opt.OnConflict = "error",
    normalise: opt.Normalise = False,
    smooth: opt.Smooth = None,
    ngram: opt.Ngram = None,
    contexts: opt.Contexts = 5000,
    keys: opt.Keys = None,
    answer: opt.Answer = None,
    weights: opt.Weights = None,
    melt: opt.Melt = False,
    empty: opt.Empty = "error",
    pad: opt.Pad = False,
    as_json: opt.Json = False,
) -> None:
    """Describe FACTS: sizes, duplicates, conflicts, and what the theorems ask.

    Two rows with one key and different answers are listed, with exit code 2.
    """
    from byheart.facts.vector_files import is_vectors

    if is_vectors(source):
        vectors = _vectors.read(source, keys=keys, answer=answer, weights=weights, melt=melt)
        _check_output(output, force)
        if output is not None:
            vectors.write(output)
        if as_json:
            emit(vectors.describe())
        else:
            say(_vectors.describe(vectors))
        return
    reading = {"keys": keys, "answer": answer, "weights": weights, "melt": melt}
    reading |= {"empty": empty, "pad": pad}
    if opt.asks_for_distributions(distribution, on_conflict, ngram):
        counting = {"normalise": normalise, "smooth": smooth, "ngram": ngram, "contexts": contexts}
        given = opt.read_distributions(source, on_conflict=on_conflict, **counting, **reading)
        _check_output(output, force)
        describe_distributions(given, output, as_json)
        return
    read = opt.read(source, **reading)
    _check_output(output, force)

    from byheart.construct.choose import choose_attention_only
    from byheart.theory import corollary1_capacity, corollary1_heads

    choice = choose_attention_only(read)
    spec = choice.spec
    asked: dict[str, Any] = {
        "bound": "dana2025.corollary1",
        "statement": "H·d_h + d >= facts",
        "d": spec.d,
        "d_h": spec.d_h,
        "heads": corollary1_heads(read.T, spec.d, spec.d_h, read.last_tokens),
        "heads_with_slack": spec.H,
        "capacity": corollary1_capacity(spec, read.last_tokens),
        "parameters": spec.parameters,
        "why": list(choice.why),
    }
    asked["sharded"] = _shards(read)
    if output is not None:
        read.write(output)
    if as_json:
        emit({**read.describe(), "theory": asked})
        return
    _print(read, asked)
    if output is not None:
        say(f"\nWritten to {output}")


def _check_output(output: str | None, force: bool) -> None:
    if output is not None and os.path.lexists(output) and not force:
        raise FactsError(
            f"{output} exists already. Give another -o FILE, or --force to replace it."
        )


def _print(read: Facts, asked: dict[str, Any]) -> None:
    known = read.describe()
    last, common = known["commonest_last_token"], known["commonest_answer"]
    columns = ", ".join(read.columns) if read.columns else "-"
    table(
        [
            ("facts", f"{known['facts']:,}"),
            ("keys", f"{known['length']} token{'s'[: known['length'] > 1]}: {columns}"),
            ("vocabulary", f"{known['vocabulary']:,} tokens, {known['answers']:,} of them answers"),
            ("last tokens", f"{known['last_tokens']:,} distinct; {_counted(last)}"),
            ("answers", f"commonest {_counted(common)}"),
            ("prior", "uniform" if known["uniform_prior"] else _skewed(known["T_eps"])),
            ("duplicates merged", f"{known['merged']:,}"),
            ("skipped", f"{known['skipped']:,} with an empty cell"),
        ]
    )
    say()
    for i in range(min(3, read.T)):
        say(f"  {key_text(read.key(i))} -> {token_text(read.answer(i))}")
    say(
        "\nAttention-only, one layer (Dana et al. 2025, Corollary 1): "
        f"H·d_h + d >= {read.T:,} facts."
        f"\nAt d = {asked['d']}, d_h = {asked['d_h']}: {asked['heads']:,} heads are enough, "
        f"{asked['heads_with_slack']:,} with slack ({asked['parameters']:,} parameters):"
    )
    for reason in asked["why"]:
        say(f"  - {reason}")
    if asked["sharded"] is not None:
        say("\nSharded attention, what `byheart build` takes for so many facts:")
        for reason in asked["sharded"]:
            say(f"  - {reason}")


def _shards(read: Facts) -> list[str] | None:
    """What the planner of sharded memories says, where `byheart build` would take one."""
    from byheart.construct.build import SHARDED_FROM
    from byheart.construct.sharded import plan
    from byheart.errors import CapacityError

    if read.T < SHARDED_FROM:
        return None
    try:
        return list(plan(read).why)
    except CapacityError as error:
        return [f"not possible: {error}"]


def _counted(entry: dict[str, Any]) -> str:
    return f"{entry['token']!r} in {entry['count']:,} facts"


def _skewed(T_eps: dict[str, int]) -> str:
    return ", ".join(f"{n:,} facts hold {1 - float(eps):.0%} of it" for eps, n in T_eps.items())
