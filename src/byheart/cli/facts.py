"""`byheart facts`: describe a table of facts, and what the theorems ask of a model for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from byheart.cli import _options as opt
from byheart.cli._distribution import describe_distributions
from byheart.cli._group import argument, option
from byheart.cli._show import emit, guarded, key_text, say, table, token_text
from byheart.cli._store import describe_facts
from byheart.errors import FactsError

if TYPE_CHECKING:
    import numpy as np

    from byheart.facts import Facts


@guarded
@opt.reading(opt.ANY_TABLE)
def facts(
    reading: opt.Given,
    source: str = argument("FACTS", "A file or a built-in table."),
    output: str | None = option(
        None, "Also write it as CSV, TSV or JSONL.", "-o", "--output", metavar="FILE"
    ),
    force: bool = option(False, "Replace an existing FILE of -o.", "--force"),
    as_json: opt.Json = False,
) -> None:
    """Describe FACTS: sizes, duplicates, conflicts, and what the theorems ask.

    Two rows with one key and different answers are listed, with exit code 2.
    """
    from byheart.facts import Distributions, VectorFacts

    read = opt.read_any(source, reading)
    _check_output(output, force)
    if isinstance(read, Distributions):
        describe_distributions(read, output, as_json)
        return
    if isinstance(read, VectorFacts):
        if output is not None:
            read.write(output)
        if as_json:
            emit(read.describe())
        else:
            say(describe_facts(read))
        return

    from byheart.construct.attention_only import choose_attention_only
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
    table_file = source.lower().endswith((".csv", ".tsv"))
    _print(read, asked, table_file and "header" not in reading and "melt" not in reading)
    if output is not None:
        say(f"\nWritten to {output}")


def _check_output(output: str | None, force: bool) -> None:
    if output is not None and os.path.lexists(output) and not force:
        raise FactsError(
            f"{output} exists already. Give another -o FILE, or --force to replace it."
        )


def _print(read: Facts, asked: dict[str, Any], implied_header: bool) -> None:
    columns = ", ".join(read.columns) if read.columns else "-"
    names = f"{columns}, {read.answer_column} (row 1; --no-header if it is a fact)"
    header = [("header", names)] if implied_header else []
    uniform = read.prior.min() == read.prior.max()
    shares = [f"{read.effective_size(eps):,} facts hold {1 - eps:.0%} of it" for eps in (0.1, 0.01)]
    table(
        [
            ("facts", f"{read.T:,}"),
            ("keys", f"{read.S} token{'s'[: read.S > 1]}: {columns}"),
            *header,
            ("vocabulary", f"{read.N:,} tokens, {len(read.answer_ids):,} of them answers"),
            (
                "last tokens",
                f"{read.last_tokens:,} distinct; {_commonest(read, read.tokens[:, -1])}",
            ),
            ("answers", f"{read.answer_column}: commonest {_commonest(read, read.answers)}"),
            ("prior", "uniform" if uniform else ", ".join(shares)),
            ("duplicates merged", f"{read.merged:,}"),
            ("skipped", f"{read.skipped:,} with an empty cell"),
            ("trimmed", f"{read.trimmed:,} cells had blanks around them"),
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
    from byheart.construct.sharded.plan import plan
    from byheart.errors import CapacityError
    from byheart.methods import SHARDED_FROM

    if read.T < SHARDED_FROM:
        return None
    try:
        return list(plan(read).why)
    except CapacityError as error:
        return [f"not possible: {error}"]


def _commonest(read: Facts, ids: np.ndarray) -> str:
    token, count = read.commonest(ids)
    return f"{token!r} in {count:,} facts"
