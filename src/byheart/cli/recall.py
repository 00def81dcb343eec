"""`byheart recall` and `byheart owner`: ask a memory, and which heads hold a fact."""

from __future__ import annotations

from importlib import import_module

import typer

from byheart.cli import _options as opt
from byheart.cli._options import argument, guarded, option, switch
from byheart.cli._show import emit, key_text, say, token_text
from byheart.errors import ByheartError

NUMBERS = ("multi-head", "sqrt")  # families whose way of answering is loaded when it is needed
LISTED = 10


@guarded
def recall(
    folder: opt.Folder,
    tokens: list[str] | None = argument(
        "TOKEN...",
        "The key, one token an argument. Vector memories: the number of an example, or a file of "
        "queries.",
        default=None,
    ),
    everything: bool = switch("Ask for every fact the memory holds.", "--all"),
    top: int = option(5, "How many heads, or answers, to show.", min=0),
    abstain: bool = switch("Tell other keys by fingerprints, without the facts.", "--abstain"),
    raw: bool = switch("Show what the model says, even where the key is not stored.", "--raw"),
    full: bool = switch(
        "Sharded: through all heads of the literal layer; exact: every block in integers.", "--full"
    ),
) -> None:
    """Ask the memory in DIR: the answer, its margin, and which heads carried it.

    A key that is not stored is answered `not stored` (exit code 1); --raw shows what the model says
    about it, which means nothing. margin = logit of the answer minus the next best; it is the exact
    sum of what the skip and each head contribute. A memory of distributions shows the top answers
    with their probabilities, recalled and stored.
    """
    if bool(tokens) == everything:
        raise ByheartError("give the tokens of one key, or --all (not both).")
    family = opt.check_memory_folder(folder)["family"]
    foreign = [name for name, given in (("--abstain", abstain), ("--full", full)) if given]
    if family == "multi-head" and foreign:
        raise ByheartError(f"{', '.join(foreign)} do not belong to vector facts: leave them out.")

    from byheart.cli._recall import Asked, ask, ask_all
    from byheart.models import load

    if family in NUMBERS:
        import_module("byheart.cli._recall_numbers")

    memory = load(folder, lazy=not everything and not full)
    asked = Asked(tuple(tokens or ()), top, abstain, raw, full)
    good = ask_all(memory, asked) if everything else ask(memory, asked)
    if not good:
        raise typer.Exit(1)


@guarded
def owner(
    folder: opt.Folder,
    tokens: list[str] = argument(
        "TOKEN...", "The key, one token an argument. Vector memories: the number of an example."
    ),
) -> None:
    """Say which heads hold a fact, and what else they hold.

    Sharded memories: ablating these heads (zeroing their W_O) loses exactly the facts of their
    shard; with a subject sink other facts depend on them too, and it says how. Vector memories of
    the one-hot and the literal proof: the head whose group the example is in; others depend on it.
    """
    from byheart.facts import Facts

    memory = opt.load_memory(folder)
    key = memory.key_of(tokens)
    found = memory.owner(*key)
    heads, shard, held, facts = found.heads, found.shard, found.facts, memory.facts
    said = {"answer": memory.recall(*key).answer} if heads else {}
    record = {"key": tokens, "shard": shard, "heads": list(heads), "facts": len(held)}
    record["layer"] = found.layer
    emit(record | {"others": found.others} | said)
    if not heads:
        say(f"No head: {tokens[-1]!r} decides for no shard; the memory has nothing on this key.")
        return
    say(f"{found.where}, of {memory.spec.to_json()['H']:,} heads")
    if found.others:
        say(f"{found.others[0].upper()}{found.others[1:]}.")
    if facts is None:
        return
    rest = "" if found.others else " and nothing else"
    say(f"\nThey hold {len(held):,} {memory.construction.unit}{rest}:")
    for i in held[:LISTED]:
        if isinstance(facts, Facts):
            say(f"  {key_text(facts.key(i))} -> {token_text(facts.answer(i))}")
        else:
            say(f"  example {facts.rows[i]} -> {facts.label[i].tolist()}")
    if len(held) > LISTED:
        say(f"  ... and {len(held) - LISTED:,} more")
