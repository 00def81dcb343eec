"""Asking memories of every family: one key or all of them, for people or as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import singledispatch

from byheart._json import Json
from byheart.cli._show import emit, key_text, number, say, table, token_text
from byheart.errors import ByheartError, FactsError, did_you_mean
from byheart.facts import Facts, VectorFacts
from byheart.models.memory import Memory, Recall, Split
from byheart.models.sharded_memory import ShardedMemory
from byheart.models.token_memory import DistributionMemory

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


@singledispatch
def ask(memory: Memory, asked: Asked) -> bool:
    """Answer one key; is it stored, as far as the memory can tell?"""
    if asked.abstain:
        raise ByheartError(
            "--abstain reads fingerprints, which this memory has none of: build it with "
            "--method sharded --abstain. Keys that are not stored are told by the facts anyway."
        )
    return answer(memory, asked, memory.recall(*asked.words))


def answer(memory: Memory, asked: Asked, said: Recall) -> bool:
    """Show one answer with its margin, and who carried it."""
    # An answer that means nothing is not shown; "unknown" is what an exact memory says by itself.
    known = said.known is not False
    hidden = not known and not asked.raw and said.answer != UNKNOWN
    split = memory.split(*asked.words) if memory.no_heads is None and (known or asked.raw) else None
    heads = [] if split is None else split.largest()
    _emit(memory, said, split, hidden)
    if hidden:
        return _not_stored(memory, asked.words)
    say(token_text(str(said.answer)))
    if not known:
        say("\nThis key is not stored: any answer is arbitrary.")
    if said.runner_up is not None:
        say(f"\nmargin {number(said.margin)} over {token_text(said.runner_up)}")
    if split is not None and heads and asked.top:
        rows = head_rows(heads, asked.top)
        rows += [("skip", f"{split.skip:+.4f}"), ("sum", f"{split.margin:+.4f}")]
        table(*rows, header=("carried by", "part of the margin"))
        if len(heads) > 1 and not isinstance(memory, ShardedMemory):
            say("\nEvery head carries a part of every fact here: no single one means anything.")
    return known


def _emit(memory: Memory, said: Recall, split: Split | None, hidden: bool = False) -> None:
    emit(
        {
            "answer": None if hidden else said.answer,
            "known": said.known,
            "false_positive_rate": memory.false_positive_rate,
            "margin": None if hidden else said.margin,
            "heads": head_records([] if split is None else split.largest()),
            "skip": None if split is None else split.skip,
            "runner_up": None if hidden else said.runner_up,
            "key": list(said.key),
        }
    )


def _not_stored(memory: Memory, words: Sequence[str]) -> bool:
    say(f"not stored: {key_text(list(words))}")
    never = "The memory was never told. --raw shows what the model says all the same."
    say(f"\n{new_token(memory, words) or never}")
    return False


def new_token(memory: Memory, words: Sequence[str]) -> str:
    """The first word that no fact has, and those like it; nothing where every word is known."""
    vocabulary = getattr(memory, "vocabulary", None)
    new = [] if vocabulary is None else [token for token in words if token not in vocabulary]
    if not new or vocabulary is None:
        return ""
    return f"No fact has the token {new[0]!r}. {did_you_mean(new[0], vocabulary.tokens)}".rstrip()


def head_records(heads: list[tuple[int, float]]) -> list[Json]:
    return [{"head": h, "contribution": c} for h, c in heads]


def head_rows(heads: list[tuple[int, float]], top: int) -> list[tuple[str, str]]:
    rows = [(f"head {h}", f"{c:+.4f}") for h, c in heads[:top]]
    if len(heads) > top:
        rest = math.fsum(c for _, c in heads[top:])
        rows.append((f"other {len(heads) - top} heads", f"{rest:+.4f}"))
    return rows


@ask.register
def _(memory: ShardedMemory, asked: Asked) -> bool:
    """From the heads of one shard, unless they are not the ones that were written. --abstain:
    `unknown` unless the key's fingerprint is the stored one."""
    if asked.full:
        if asked.abstain:
            raise ByheartError("--abstain reads own heads: leave out --full.")
        return ask(memory.to_dense(), asked)
    new = [token for token in asked.words if token not in memory.vocabulary]
    # A known token in its place: length and fingerprints are checked all the same.
    stand_in = memory.vocabulary.token(0)
    words = [stand_in if asked.abstain and token in new else token for token in asked.words]
    keys = memory.in_order(memory.key_ids([words])) if asked.abstain else None
    shard = memory.shard(*words)
    if shard >= 0:
        memory.check_shard(shard)
    if keys is None:
        return answer(memory, asked, memory.recall(*words))
    if memory.knows_by_fingerprint(keys)[0] and not new:
        return answer(memory, asked, replace(memory.recall(*words), known=True))
    _emit(memory, Recall(asked.words, UNKNOWN, known=False), None)
    rate = number(memory.false_positive_rate)
    share = f"A share of {rate} of such keys is answered all the same."
    why = new_token(memory, asked.words) or share
    say(f"{UNKNOWN}\n\n{key_text(asked.words)} is not stored. {why}")
    return True  # it was asked for, and it is an answer


@ask.register
def _(memory: DistributionMemory, asked: Asked) -> bool:
    if asked.abstain:
        raise ByheartError("--abstain belongs to sharded memories of single answers.")
    said = memory.recall(*asked.words)
    known, given = said.known is not False, memory.distribution
    stored: dict[str, float] | None = None
    if given is not None:
        rows = (given.tokens == memory.key_ids([asked.words])[0]).all(axis=1).nonzero()[0]
        stored = dict(given.top(int(rows[0]), given.A)) if len(rows) else None
    shown = [
        (token, q, None if stored is None else stored.get(token, 0.0))
        for token, q in said.probabilities[: max(asked.top, 1)]
    ]
    hidden = not known and not asked.raw
    answers = [{"answer": token, "recalled": q, "stored": p} for token, q, p in shown]
    record = {"answer": None, "answers": []}
    record = record if hidden else {"answer": said.answer, "answers": answers}
    emit({"key": list(said.key), **record, "known": said.known})
    if hidden:
        return _not_stored(memory, asked.words)
    say(f"{token_text(str(said.answer))}\n")
    cells = [(token_text(t), f"{q:.4f}", "-" if p is None else f"{p:.4f}") for t, q, p in shown]
    table(*cells, header=("answer", "recalled", "stored"))
    if stored is None:
        say("\nThis key is not among the stored sequences: what is recalled is arbitrary.")
    return known


def ask_every_fact(memory: Memory, asked: Asked) -> bool:
    """Ask for every fact; were all of them recalled?"""
    facts = memory.facts
    if facts is None:
        raise FactsError("this memory was saved without its facts: ask for one key instead.")
    recalled = memory.margins() > 0
    if isinstance(memory, ShardedMemory) and asked.abstain:
        tokens = memory.inputs_of(facts)[:, 1:]  # without the start token
        recalled &= memory.knows_by_fingerprint(tokens).numpy()
    lost, right = (~recalled).nonzero()[0].tolist(), int(recalled.sum())
    records = [_record(facts, i) for i in lost]
    emit({"facts": facts.T, "recalled": right, **memory.quality(), "lost": records})
    unit = memory.construction.unit
    say(f"{right:,} of {facts.T:,} {unit} recalled, {memory.quality_text()}")
    for i in lost[:LISTED]:
        row = int(facts.rows[i])
        if isinstance(facts, VectorFacts):
            say(f"  example {row}: not {facts.label[i].tolist()}")
            continue
        said, right = str(memory.recall(*facts.key(i)).answer), facts.answer(i)
        wrong = f"{token_text(said)}, not {token_text(right)}"
        say(f"  row {row}: {key_text(facts.key(i))} -> {wrong}")
    return not lost


ask_all = singledispatch(ask_every_fact)


def _record(facts: Facts | VectorFacts, i: int) -> Json:
    row = int(facts.rows[i])
    if isinstance(facts, VectorFacts):
        return {"row": row, "answer": facts.label[i].tolist()}
    return {"row": row, "key": list(facts.key(i)), "answer": facts.answer(i)}


@ask_all.register
def _(memory: DistributionMemory, asked: Asked) -> bool:
    from byheart.measure import memory_losses

    losses = memory_losses(memory)
    mean, right = losses.mean(), int(losses.right.sum())
    emit({"facts": len(losses.kl), "recalled": right, **mean})
    say(f"{len(losses.kl):,} sequences")
    table(
        ("d_KL", f"{mean['kl']:.4g} nats"),
        ("total variation", f"{mean['total_variation']:.4g}"),
        ("max |log π - log q|", f"{mean['max_log_ratio']:.4g}"),
        ("most probable answer", f"recalled for {right:,}"),
    )
    return True


@ask_all.register
def _(memory: ShardedMemory, asked: Asked) -> bool:
    return ask_every_fact(memory.to_dense() if asked.full else memory, asked)
