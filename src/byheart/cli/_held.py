"""What `build` and `train` say about facts: what there is, what was lost, how to ask."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from byheart.cli._show import key_text, say, token_text

if TYPE_CHECKING:
    from byheart.facts import Facts

LISTED = 20


def describe(facts: Facts) -> str:
    """A table of facts in one line."""
    columns = f" ({', '.join(facts.columns)})" if facts.columns else ""
    words = (
        f"{facts.name}: {facts.T:,} facts, keys of {facts.S} token{'s'[: facts.S > 1]}{columns}, "
    )
    words += f"{facts.N:,} tokens, {len(facts.answer_ids):,} distinct answers"
    if facts.merged:
        words += f"; {facts.merged:,} duplicate rows merged"
    if facts.skipped:
        words += f"; {facts.skipped:,} skipped for an empty cell"
    return words


def report_lost(made: Mapping[str, Any]) -> None:
    """List the facts that a memory does not hold, and what to do."""
    lost = made["lost"]
    say(f"\nLOST {len(lost):,} facts; the memory holds the other {made['recalled']:,}:")
    for fact in lost[:LISTED]:
        say(f"  row {fact['row']}: {key_text(fact['key'])} -> {token_text(fact['answer'])}")
    if len(lost) > LISTED:
        say(f"  ... and {len(lost) - LISTED:,} more (--json lists all)")
    more = "--heads or --d-model" if made["method"] in ("attention", "train") else "--d-model"
    longer = ", or more --steps," if made["method"] == "train" else ""
    say(f"Use a larger {more}{longer} to hold all of them.")


def ask_line(folder: str, key: tuple[str, ...]) -> str:
    """The command that asks a memory for one of its facts."""
    words = " ".join(shlex.quote(token) for token in key)
    dashes = "-- " if any(token.startswith("-") for token in key) else ""
    return f"Ask it:   byheart recall {shlex.quote(folder)} {dashes}{words}"
