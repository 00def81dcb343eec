"""`byheart owner`: which heads hold a fact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from byheart.cli import _options as opt
from byheart.cli._show import emit, guarded, key_text, say, token_text

if TYPE_CHECKING:
    from byheart.models import Memory

LISTED = 10


@guarded
def owner(
    folder: opt.Folder,
    tokens: Annotated[
        list[str], typer.Argument(metavar="TOKEN...", help="The key, one token an argument.")
    ],
    as_json: opt.Json = False,
) -> None:
    """Say which heads of a sharded memory hold a fact, and what else they hold.

    Ablating these heads (zeroing their W_O) loses exactly the facts of their shard.
    """
    from byheart.measure import owner as find
    from byheart.models import load

    memory = load(folder)
    found = find(memory, *tokens)
    mates = [] if found is None else _mates(memory, found.shard)
    if as_json:
        record = {"key": tokens, "shard": None, "heads": [], "facts": 0}
        if found is not None:
            record |= {
                "shard": found.shard,
                "heads": list(range(found.first, found.first + len(found.parts))),
                "facts": len(mates),
                "answer": memory.vocabulary.token(found.answer),
            }
        emit(record)
        return
    if found is None:
        say(f"No head: {tokens[-1]!r} decides for no shard; the memory has nothing on this key.")
        return
    last = found.first + len(found.parts) - 1
    say(f"heads {found.first} to {last} of {memory.spec.to_json()['H']:,} (shard {found.shard})")
    if memory.facts is None:
        return
    say(f"\nThey hold {len(mates):,} facts and nothing else:")
    for i in mates[:LISTED]:
        say(f"  {key_text(memory.facts.key(i))} -> {token_text(memory.facts.answer(i))}")
    if len(mates) > LISTED:
        say(f"  ... and {len(mates) - LISTED:,} more")


def _mates(memory: Memory, shard: int) -> list[int]:
    """The facts of a shard."""
    from byheart.models.sharded import shard_of

    if memory.facts is None:
        return []
    shards = shard_of(dict(memory.weights), memory.with_start(memory.facts.tokens))
    return (shards == shard).nonzero()[:, 0].tolist()
