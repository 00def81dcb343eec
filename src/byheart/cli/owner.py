"""`byheart owner`: which heads hold a fact."""

from __future__ import annotations

from byheart.cli import _options as opt
from byheart.cli._group import argument
from byheart.cli._show import emit, guarded, key_text, say, token_text

LISTED = 10


@guarded
def owner(
    folder: opt.Folder,
    tokens: list[str] = argument(
        "TOKEN...", "The key, one token an argument. Vector memories: the number of an example."
    ),
    as_json: opt.Json = False,
) -> None:
    """Say which heads hold a fact, and what else they hold.

    Sharded memories: ablating these heads (zeroing their W_O) loses exactly the facts of their
    shard. Vector memories of the one-hot and the literal proof: the head whose group the example
    is in.
    """
    opt.check_memory_folder(folder)

    from byheart.facts import Facts
    from byheart.models import load

    memory = load(folder)
    found = memory.owner(*memory.key_of(tokens))
    if as_json:
        record = {"key": tokens, "shard": found.shard, "heads": list(found.heads)}
        emit(record | {"facts": len(found.facts), **_answer(memory, tokens, bool(found.heads))})
        return
    if not found.heads:
        say(f"No head: {tokens[-1]!r} decides for no shard; the memory has nothing on this key.")
        return
    first, last = found.heads[0], found.heads[-1]
    heads = f"head {first}" if first == last else f"heads {first} to {last}"
    shard = "" if found.shard is None else f" (shard {found.shard})"
    say(f"{heads} of {memory.spec.to_json()['H']:,}{shard}")
    facts = memory.facts
    if facts is None:
        return
    say(f"\nThey hold {len(found.facts):,} {memory.construction.unit} and nothing else:")
    for i in found.facts[:LISTED]:
        if isinstance(facts, Facts):
            say(f"  {key_text(facts.key(i))} -> {token_text(facts.answer(i))}")
        else:
            say(f"  example {facts.rows[i]} -> {facts.label[i].tolist()}")
    if len(found.facts) > LISTED:
        say(f"  ... and {len(found.facts) - LISTED:,} more")


def _answer(memory, tokens: list[str], owned: bool) -> dict:
    return {"answer": memory.recall(*memory.key_of(tokens)).answer} if owned else {}
