"""Asking memories of every family: one key or all of them, for people or as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import singledispatch

from byheart._json import Json
from byheart.cli._show import emit, key_text, number, say, table, token_text
from byheart.errors import ByheartError, FactsError, did_you_mean
from byheart.facts import VectorFacts
from byheart.models.memory import Memory, Recall, Split
from byheart.models.sharded_memory import ShardedMemory
from byheart.models.token_memory import DistributionMemory, TokenMemory

LISTED = 20
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Asked:
    """A question: the words of the key, and how to answer."""

    words: tuple[str, ...]
    top: int = 5
    abstain: bool = False
    raw: bool = False
    full: bool = False
    as_json: bool = False


@singledispatch
def ask(memory: Memory, asked: Asked) -> bool:
    """Answer one key; is it stored, as far as the memory can tell?"""
    return answer(memory, asked, memory.recall(*asked.words))


def answer(memory: Memory, asked: Asked, said: Recall) -> bool:
    """Show one answer with its margin, and who carried it."""
    split = None
    if memory.no_heads is None and (said.known is not False or asked.raw):
        split = memory.split(*asked.words)
    # An answer that means nothing is not shown; "unknown" is what an exact memory says by itself.
    hidden = said.known is False and not asked.raw and said.answer != UNKNOWN
    if asked.as_json:
        emit(_record(memory, said, split, hidden))
        return said.known is not False
    if hidden:
        _not_stored(memory, asked.words)
        return False
    say(token_text(str(said.answer)))
    if said.known is False:
        say("\nThis key is not stored: any answer is arbitrary.")
    if said.runner_up is not None:
        say(f"\nmargin {number(said.margin)} over {token_text(said.runner_up)}")
    if split is not None and split.heads and asked.top:
        rows = [*head_rows(split.largest(), asked.top)]
        rows += [("skip", f"{split.skip:+.4f}"), ("sum", f"{split.margin:+.4f}")]
        table(rows, header=("carried by", "part of the margin"))
        if len(split.heads) > asked.top and not isinstance(memory, ShardedMemory):
            say("\nEvery head carries a part of every fact here: no single one means anything.")
    return said.known is not False


def _record(memory: Memory, said: Recall, split: Split | None, hidden: bool) -> dict[str, Json]:
    heads = [] if split is None else split.largest()
    return {
        "answer": None if hidden else said.answer,
        "known": said.known,
        "false_positive_rate": memory.false_positive_rate,
        "margin": None if hidden else said.margin,
        "heads": [{"head": h, "contribution": c} for h, c in heads],
        "skip": None if split is None else split.skip,
        "runner_up": None if hidden else said.runner_up,
        "key": list(said.key),
    }


def _not_stored(memory: Memory, words: Sequence[str]) -> None:
    say(f"not stored: {key_text(list(words))}")
    never = "The memory was never told. --raw shows what the model says all the same."
    say(f"\n{new_token(memory, words) or never}")


def new_token(memory: Memory, words: Sequence[str]) -> str:
    """The first word that no fact has, and those like it; nothing where every word is known."""
    vocabulary = getattr(memory, "vocabulary", None)
    new = [] if vocabulary is None else [token for token in words if token not in vocabulary]
    if not new or vocabulary is None:
        return ""
    return f"No fact has the token {new[0]!r}. {did_you_mean(new[0], vocabulary.tokens)}".rstrip()


def head_rows(heads: list[tuple[int, float]], top: int) -> list[tuple[str, str]]:
    rows = [(f"head {h}", f"{c:+.4f}") for h, c in heads[:top]]
    if len(heads) > top:
        rest = math.fsum(c for _, c in heads[top:])
        rows.append((f"other {len(heads) - top} heads", f"{rest:+.4f}"))
    return rows


@ask.register
def _(memory: TokenMemory, asked: Asked) -> bool:
    if asked.abstain:
        raise ByheartError(
            "--abstain reads fingerprints, which this memory has none of: build it with "
            "--method sharded --abstain. Keys that are not stored are told by the facts anyway."
        )
    return answer(memory, asked, memory.recall(*asked.words))


@ask.register
def _(memory: ShardedMemory, asked: Asked) -> bool:
    if asked.full:
        if asked.abstain:
            raise ByheartError("--abstain reads own heads: leave out --full.")
        return ask(memory.to_dense(), replace(asked, full=False))
    if asked.abstain:
        return _by_fingerprint(memory, asked)
    _check_shard(memory, asked.words)
    return answer(memory, asked, memory.recall(*asked.words))


def _check_shard(memory: ShardedMemory, words: Sequence[str]) -> None:
    """Refuse to answer from heads that are not the ones that were written."""
    shard = memory.shard(*words)
    if shard >= 0:
        memory.check_shard(shard)


def _by_fingerprint(memory: ShardedMemory, asked: Asked) -> bool:
    """Answer `unknown` unless the key's fingerprint is the stored one."""
    new = [token for token in asked.words if token not in memory.vocabulary]
    # A known token in its place: length and fingerprints are checked all the same.
    words = [memory.vocabulary.token(0) if token in new else token for token in asked.words]
    keys = memory.in_order(memory.key_ids([words]))
    _check_shard(memory, words)
    known = bool(memory.knows_by_fingerprint(keys)[0]) and not new
    if known:
        return answer(memory, asked, replace(memory.recall(*asked.words), known=True))
    if asked.as_json:
        said = Recall(asked.words, UNKNOWN, known=False)
        emit(_record(memory, said, None, hidden=False))
    else:
        say(UNKNOWN)
        rate = number(memory.false_positive_rate)
        share = f"A share of {rate} of such keys is answered all the same."
        why = new_token(memory, asked.words) or share
        say(f"\n{key_text(asked.words)} is not stored. {why}")
    return True  # it was asked for, and it is an answer


@ask.register
def _(memory: DistributionMemory, asked: Asked) -> bool:
    if asked.abstain:
        raise ByheartError("--abstain belongs to sharded memories of single answers.")
    said = memory.recall(*asked.words)
    table_ = memory.distribution
    stored: dict[str, float] | None = None
    if table_ is not None:
        rows = (table_.tokens == memory.key_ids([asked.words])[0]).all(axis=1).nonzero()[0]
        stored = dict(table_.top(int(rows[0]), table_.A)) if len(rows) else None
    shown = said.probabilities[: max(asked.top, 1)]
    hidden = said.known is False and not asked.raw
    if asked.as_json:
        answers: list[Json] = [
            {
                "answer": token,
                "recalled": q,
                "stored": None if stored is None else stored.get(token, 0.0),
            }
            for token, q in shown
        ]
        answer = None if hidden else said.answer
        emit({"key": list(said.key), "answer": answer, "answers": [] if hidden else answers,
              "known": said.known})  # fmt: skip
        return said.known is not False
    if hidden:
        _not_stored(memory, asked.words)
        return False
    say(token_text(str(said.answer)))
    say()
    cells = [
        (token_text(t), f"{q:.4f}", "-" if stored is None else f"{stored.get(t, 0.0):.4f}")
        for t, q in shown
    ]
    table([*cells], header=("answer", "recalled", "stored"))
    if stored is None:
        say("\nThis key is not among the stored sequences: what is recalled is arbitrary.")
    return said.known is not False


@singledispatch
def ask_all(memory: Memory, asked: Asked) -> bool:
    """Ask for every fact; were all of them recalled?"""
    return ask_every_fact(memory, asked)


def ask_every_fact(memory: Memory, asked: Asked) -> bool:
    facts = memory.facts
    if facts is None:
        raise FactsError("this memory was saved without its facts: ask for one key instead.")
    margins = memory.margins()
    recalled = margins > 0
    if isinstance(memory, ShardedMemory) and asked.abstain:
        tokens = memory.inputs_of(facts)[:, 1:]  # without the start token
        recalled &= memory.knows_by_fingerprint(tokens).numpy()
    lost = (~recalled).nonzero()[0].tolist()
    quality = memory.quality()
    if asked.as_json:
        counts = {"facts": facts.T, "recalled": int(recalled.sum())}
        emit({**counts, **quality, "lost": [_fact(memory, i) for i in lost]})
    else:
        unit = memory.construction.unit
        say(f"{int(recalled.sum()):,} of {facts.T:,} {unit} recalled, {memory.quality_text()}")
        for i in lost[:LISTED]:
            say(f"  {_lost(memory, i)}")
    return not lost


def _lost(memory: Memory, i: int) -> str:
    facts = memory.facts
    assert facts is not None
    if isinstance(facts, VectorFacts):
        return f"example {facts.rows[i]}: not {facts.label[i].tolist()}"
    said = token_text(str(memory.recall(*facts.key(i)).answer))
    key, right = key_text(facts.key(i)), token_text(facts.answer(i))
    return f"row {facts.rows[i]}: {key} -> {said}, not {right}"


@ask_all.register
def _(memory: DistributionMemory, asked: Asked) -> bool:
    from byheart.measure import memory_losses

    losses = memory_losses(memory)
    mean, right = losses.mean(), int(losses.right.sum())
    if asked.as_json:
        emit({"facts": len(losses.kl), "recalled": right, **mean})
        return True
    say(f"{len(losses.kl):,} sequences")
    table(
        [
            ("d_KL", f"{mean['kl']:.4g} nats"),
            ("total variation", f"{mean['total_variation']:.4g}"),
            ("max |log π - log q|", f"{mean['max_log_ratio']:.4g}"),
            ("most probable answer", f"recalled for {right:,}"),
        ]
    )
    return True


@ask_all.register
def _(memory: ShardedMemory, asked: Asked) -> bool:
    if asked.full:
        return ask_every_fact(memory.to_dense(), asked)
    return ask_every_fact(memory, asked)


def _fact(memory: Memory, i: int) -> Json:
    facts = memory.facts
    assert facts is not None
    row = int(facts.rows[i])
    if isinstance(facts, VectorFacts):
        return {"row": row, "answer": facts.label[i].tolist()}
    return {"row": row, "key": list(facts.key(i)), "answer": facts.answer(i)}
