"""Asking memories of every family: one key or all of them, for people or as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import singledispatch

import numpy as np

from byheart._json import Json
from byheart.cli._show import emit, key_text, number, say, table, token_text
from byheart.errors import ByheartError, CheckFailed, FactsError
from byheart.facts import VectorFacts, read_arrays
from byheart.models.exact_memory import ExactMemory
from byheart.models.memory import Memory, Recall, Split
from byheart.models.sharded_memory import ShardedMemory
from byheart.models.token_memory import DistributionMemory, TokenMemory
from byheart.models.vector_memory import VectorMemory

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
    return _answer(memory, asked, memory.recall(*asked.words))


def _answer(memory: Memory, asked: Asked, said: Recall) -> bool:
    """Show one answer with its margin, and who carried it."""
    split = None
    if memory.no_heads is None and (said.known is not False or asked.raw):
        split = memory.split(*asked.words)
    hidden = said.known is False and not asked.raw
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
        rows = [*_head_rows(split.largest(), asked.top)]
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
    vocabulary = getattr(memory, "vocabulary", None)
    new = [] if vocabulary is None else [token for token in words if token not in vocabulary]
    if new and vocabulary is not None:
        near = vocabulary.nearest(new[0])
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        say(f"\nNo fact has the token {new[0]!r}.{hint}")
    else:
        say("\nThe memory was never told. --raw shows what the model says all the same.")


def _head_rows(heads: list[tuple[int, float]], top: int) -> list[tuple[str, str]]:
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
    return _answer(memory, asked, memory.recall(*asked.words))


@ask.register
def _(memory: ShardedMemory, asked: Asked) -> bool:
    if asked.full:
        if asked.abstain:
            raise ByheartError("--abstain reads own heads: leave out --full.")
        return ask(memory.to_dense(), replace(asked, full=False))
    if asked.abstain:
        return _by_fingerprint(memory, asked)
    shard = memory.shard(*asked.words)
    if shard >= 0:
        memory.check_shard(shard)
    return _answer(memory, asked, memory.recall(*asked.words))


def _by_fingerprint(memory: ShardedMemory, asked: Asked) -> bool:
    """Answer `unknown` unless the key's fingerprint is the stored one."""
    new = [token for token in asked.words if token not in memory.vocabulary]
    # A known token in its place: length and fingerprints are checked all the same.
    words = [memory.vocabulary.token(0) if token in new else token for token in asked.words]
    keys = memory.in_order(memory.key_ids([words]))
    known = bool(memory.knows_by_fingerprint(keys)[0]) and not new
    if known:
        return _answer(memory, asked, replace(memory.recall(*asked.words), known=True))
    if asked.as_json:
        said = Recall(asked.words, UNKNOWN, known=False)
        emit(_record(memory, said, None, hidden=False))
    else:
        say(UNKNOWN)
        rate = number(memory.false_positive_rate)
        say(
            f"\n{key_text(asked.words)} is not stored (a share of {rate} of such keys is answered)."
        )
    return True  # it was asked for, and it is an answer


@ask.register
def _(memory: ExactMemory, asked: Asked) -> bool:
    said = memory.recall(*asked.words, literally=asked.full)
    if not asked.as_json and said.known:
        say(token_text(str(said.answer)))
        how = "every block in exact integers" if asked.full else "exact"
        say(f"\nclass {int(said.output[0])} of {memory.spec.classes:,}, {how}")
        return True
    if said.answer == UNKNOWN and asked.raw and not asked.as_json:
        say(f"{UNKNOWN}\n\n{key_text(asked.words)} is not stored (the network outputs 0).")
        return False
    return _answer(memory, asked, said)


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


@ask.register
def _(memory: VectorMemory, asked: Asked) -> bool:
    _refuse_vectors(asked)
    words = asked.words
    if len(words) == 1 and words[0].isdecimal():
        return _example(memory, int(words[0]), asked)
    if len(words) == 1 and words[0].endswith((".npz", ".safetensors", ".npy")):
        return _queries(memory, words[0], asked.as_json)
    raise ByheartError(
        "this memory holds vectors: give the number of a stored example, a .npz or .safetensors "
        "file with `query` (and `context` unless it is shared), or --all; found "
        f"{' '.join(words)!r}."
    )


def _refuse_vectors(asked: Asked) -> None:
    given = [f"--{name}" for name in ("abstain", "full") if getattr(asked, name)]
    if given:
        raise ByheartError(f"{', '.join(given)} do not belong to vector facts: leave them out.")


def _example(memory: VectorMemory, row: int, asked: Asked) -> bool:
    key = memory.key_of([str(row)])
    facts = memory.facts
    assert facts is not None
    i = int((facts.rows == row).nonzero()[0][0])
    said = memory.recall(*key)
    part = next(iter(memory.head_parts(memory.encode([key]))))
    heads = sorted(enumerate(part.parts[0].tolist()), key=lambda pair: -abs(pair[1]))
    label = facts.label[i].tolist()
    error = None if memory.classes is not None else float(memory.errors(facts.subset([i]))[0])
    if asked.as_json:
        emit(
            {
                "row": row,
                "answer": list(said.output) if said.answer is None else said.answer,
                "label": label,
                "margin": said.margin,
                "error": error,
                "heads": [{"head": h, "contribution": c} for h, c in heads],
            }
        )
        return True
    if error is None:
        say(f"{said.answer}\n\nlabel {label}, margin {number(said.margin)}")
    else:
        say(" ".join(f"{v:.9g}" for v in said.output))
        say(f"\nlabel {label}, error {error:.1e}")
    if asked.top:
        what = "part of the margin" if error is None else "part of the output"
        table([*_head_rows(heads, asked.top)], header=("carried by", what))
    return True


def _queries(memory: VectorMemory, path: str, as_json: bool) -> bool:
    arrays, spec = read_arrays(path), memory.spec
    query, context = arrays.get("query"), arrays.get("context")
    if query is None or query.ndim != 2 or query.shape[1] != spec.d:
        raise FactsError(f"{path}: expected `query` of shape (B, {spec.d}).")
    shape = (len(query), spec.n, spec.d)
    if context is not None and context.shape not in (shape, shape[1:]):
        raise FactsError(f"{path}: expected `context` of shape {shape}, found {context.shape}.")
    if context is not None:
        context = np.broadcast_to(context, shape).astype(np.float64)
    out = memory.outputs(memory.inputs(query.astype(np.float64), context))
    answers = out.argmax(1).tolist() if memory.classes is not None else out.tolist()
    if as_json:
        emit({"answers": answers})
        return True
    for answer in answers:
        say(str(answer) if memory.classes is not None else " ".join(f"{v:.9g}" for v in answer))
    return True


@singledispatch
def ask_all(memory: Memory, asked: Asked) -> bool:
    """Ask for every fact; were all of them recalled?"""
    return _ask_every_fact(memory, asked)


def _ask_every_fact(memory: Memory, asked: Asked) -> bool:
    facts = memory.facts
    if facts is None:
        raise FactsError("this memory was saved without its facts: ask for one key instead.")
    margins = memory.margins()
    recalled = margins > 0
    if isinstance(memory, ShardedMemory) and asked.abstain:
        recalled &= memory.knows_by_fingerprint(memory.in_order(memory.facts.tokens)).numpy()
    lost = (~recalled).nonzero()[0].tolist()
    quality = memory.quality()
    if asked.as_json:
        counts = {"facts": facts.T, "recalled": int(recalled.sum())}
        emit({**counts, **quality, "lost": [_fact(memory, i) for i in lost]})
    else:
        unit = memory.construction.unit
        say(f"{int(recalled.sum()):,} of {facts.T:,} {unit} recalled, {_quality(memory, quality)}")
        for i in lost[:LISTED]:
            say(f"  {_lost(memory, i)}")
    return not lost


def _quality(memory: Memory, quality: dict[str, float | None]) -> str:
    if quality.get("error") is not None:
        tolerance = memory.tolerance if isinstance(memory, VectorMemory) else 0.0
        return f"largest error {quality['error']:.1e} (tolerance {tolerance:.0e})"
    if isinstance(memory, ExactMemory):
        return "exactly"
    return f"smallest margin {number(quality['margin'])}"


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
def _(memory: VectorMemory, asked: Asked) -> bool:
    _refuse_vectors(asked)
    return _ask_every_fact(memory, asked)


@ask_all.register
def _(memory: ExactMemory, asked: Asked) -> bool:
    if not asked.full or memory.facts is None:
        return _ask_every_fact(memory, asked)
    outputs = memory.literal_outputs(memory.facts.tokens)
    if (outputs != memory.outputs(memory.facts.tokens)).any():
        raise CheckFailed("the literal blocks and the fast evaluator disagree: report it.")
    return _ask_every_fact(memory, asked)


@ask_all.register
def _(memory: ShardedMemory, asked: Asked) -> bool:
    if asked.full:
        return _ask_every_fact(memory.to_dense(), asked)
    return _ask_every_fact(memory, asked)


def _fact(memory: Memory, i: int) -> Json:
    facts = memory.facts
    assert facts is not None
    row = int(facts.rows[i])
    if isinstance(facts, VectorFacts):
        return {"row": row, "answer": facts.label[i].tolist()}
    return {"row": row, "key": list(facts.key(i)), "answer": facts.answer(i)}
