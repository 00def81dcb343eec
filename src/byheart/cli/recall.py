"""`byheart recall`: ask a memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from byheart.cli import _options as opt
from byheart.cli import _vectors
from byheart.cli._abstain import answer_unknown, is_known, rate
from byheart.cli._distribution import recall_all_distributions, recall_distribution
from byheart.cli._exact import recall_all_exact, recall_exact
from byheart.cli._show import emit, guarded, key_text, number, say, table, token_text

if TYPE_CHECKING:
    from byheart.models import Memory

LISTED = 20


@guarded
def recall(
    folder: opt.Folder,
    tokens: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOKEN...",
            help="The key, one token an argument. Vector memories: the number of an example, or a "
            "file of queries.",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Ask for every fact the memory holds.")
    ] = False,
    top: Annotated[int, typer.Option(min=0, help="How many heads, or answers, to show.")] = 5,
    abstain: Annotated[
        bool,
        typer.Option("--abstain", help="Answer keys that are not stored with `unknown`."),
    ] = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Sharded memories: through all heads of the literal layer; exact memories: every "
            "block in integers.",
        ),
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """Ask the memory in DIR: the answer, its margin, and which heads carried it.

    margin = logit of the answer minus the next best; it is the exact sum of what the skip and
    each head contribute. A memory of distributions shows the top answers with their
    probabilities, recalled and stored.
    """
    from byheart.errors import ByheartError
    from byheart.models import VectorMemory, load
    from byheart.models.exact import ExactMemory
    from byheart.models.memory_files import check_shard

    if bool(tokens) == everything:
        raise ByheartError("give the tokens of one key, or --all (not both).")
    memory = load(folder, lazy=not everything and not full)
    if isinstance(memory, VectorMemory):
        _vectors.refuse({"abstain": abstain, "full": full})
        _vectors.recall_vectors(memory, tokens or [], everything, top, as_json)
        return
    if isinstance(memory, ExactMemory):
        if not everything:
            recall_exact(memory, tokens or [], full, as_json)
        elif not recall_all_exact(memory, full, as_json):
            raise typer.Exit(1)
        return
    if full:
        if abstain:
            raise ByheartError("--abstain reads own heads: leave out --full.")
        memory = memory.to_dense()
    if memory.construction.get("kind") == "distribution":
        if abstain:
            raise ByheartError("--abstain belongs to sharded memories of single answers.")
        if everything:
            recall_all_distributions(memory, as_json)
        else:
            recall_distribution(memory, tokens or [], top, as_json)
        return
    if everything:
        _recall_all(memory, as_json, abstain)
        return
    key = tokens or []
    new = abstain and any(token not in memory.vocabulary for token in key)
    shard = None if new else _shard(memory, key)
    if shard is not None and shard >= 0:
        check_shard(memory, shard)
    known = is_known(memory, key, abstain)
    if known is False and (abstain or shard == -1):
        answer_unknown(memory, key, as_json)
    else:
        _recall_one(memory, key, top, as_json, known)


def _shard(memory: Memory, tokens: list[str]) -> int | None:
    """The shard that owns the key; None for memories without shards."""
    from byheart.models.sharded import shard_of
    from byheart.specs import ShardedSpec

    if not isinstance(memory.spec, ShardedSpec):
        return None
    return int(shard_of(dict(memory.weights), memory.encode([tokens]))[0])


def _recall_one(
    memory: Memory, tokens: list[str], top: int, as_json: bool, known: bool | None
) -> None:
    said = memory.recall(*tokens)
    heads, skip = _carriers(memory, tokens)
    if as_json:
        emit(
            {
                "answer": said.answer,
                "known": known,
                "false_positive_rate": rate(memory),
                "margin": said.margin,
                "heads": [{"head": h, "contribution": c} for h, c in heads],
                "skip": skip,
                "runner_up": said.runner_up,
                "key": list(tokens),
            }
        )
        return
    say(token_text(said.answer))
    if said.runner_up is None:
        return
    say(f"\nmargin {number(said.margin)} over {token_text(said.runner_up)}")
    if known is False:
        say("This key is not stored: any answer is arbitrary (--abstain answers `unknown`).")
    if heads and top:
        rows = [(f"head {h}", f"{c:+.4f}") for h, c in heads[:top]]
        if len(heads) > top:
            rows.append(
                (f"other {len(heads) - top} heads", f"{sum(c for _, c in heads[top:]):+.4f}")
            )
        rows += [("skip", f"{skip:+.4f}"), ("sum", f"{said.margin:+.4f}")]
        table(rows, header=("carried by", "part of the margin"))


def _carriers(memory: Memory, tokens: list[str]) -> tuple[list[tuple[int, float]], float | None]:
    """Contributions of the heads, largest first, and of the skip; nothing for headless memories."""
    from byheart.measure import head_split, owner
    from byheart.specs import AttentionOnlySpec, ShardedSpec

    if isinstance(memory.spec, ShardedSpec):
        found = owner(memory, *tokens)
        if found is None:
            return [], None
        heads = list(enumerate(found.parts, found.first))
        return sorted(heads, key=lambda pair: -pair[1]), found.skip
    if not isinstance(memory.spec, AttentionOnlySpec) or memory.spec.N == 1:
        return [], None
    split = head_split(memory, memory.encode([tokens]))
    heads = list(enumerate(split.heads[0].tolist()))
    return sorted(heads, key=lambda pair: -pair[1]), float(split.skip[0])


def _recall_all(memory: Memory, as_json: bool, abstain: bool) -> None:
    from byheart.errors import FactsError

    facts = memory.facts
    if facts is None:
        raise FactsError("this memory was saved without its facts: ask for one key instead.")
    margins = memory.margins(facts)
    recalled = margins > 0
    if abstain:
        from byheart.construct.sharded.fingerprint import knows

        recalled &= knows(memory, memory.with_start(facts.tokens))
    lost = (~recalled).nonzero()[:, 0].tolist()
    smallest = float(margins.min())
    if as_json:
        emit(
            {
                "facts": facts.T,
                "recalled": int(recalled.sum()),
                "margin": smallest,
                "lost": [
                    {"row": int(facts.rows[i]), "key": facts.key(i), "answer": facts.answer(i)}
                    for i in lost
                ],
            }
        )
    else:
        count = f"{int(recalled.sum()):,} of {facts.T:,} facts recalled"
        say(f"{count}, smallest margin {number(smallest)}")
        for i in lost[:LISTED]:
            said = token_text(memory.recall(*facts.key(i)).answer)
            right = token_text(facts.answer(i))
            say(f"  row {facts.rows[i]}: {key_text(facts.key(i))} -> {said}, not {right}")
    if lost:
        raise typer.Exit(1)
