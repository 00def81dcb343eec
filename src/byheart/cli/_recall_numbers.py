"""Asking memories of vectors and of exact integers; see `_recall`, which asks the others."""

from __future__ import annotations

import numpy as np

from byheart.cli import _recall
from byheart.cli._recall import UNKNOWN, Asked, answer, ask, ask_all
from byheart.cli._show import emit, for_programs, key_text, number, say, table, token_text
from byheart.errors import ByheartError, CheckFailed, FactsError
from byheart.facts import read_arrays
from byheart.facts.vectors import numbers
from byheart.models.exact_memory import ExactMemory
from byheart.models.vector_memory import VectorMemory


@ask.register
def _(memory: ExactMemory, asked: Asked) -> bool:
    said = memory.recall(*asked.words, literally=asked.full)
    if for_programs.get() or not (said.known or said.answer == UNKNOWN):
        return answer(memory, asked, said)
    if said.known:
        how = "every block in exact integers" if asked.full else "exact"
        classes = f"class {int(said.output[0])} of {memory.spec.classes:,}"
        say(f"{token_text(str(said.answer))}\n\n{classes}, {how}")
    else:
        say(f"{UNKNOWN}\n\n{key_text(asked.words)} is not stored (the network outputs 0).")
        if near := _recall.new_token(memory, asked.words):
            say(near)
    return bool(said.known)


@ask_all.register
def _(memory: ExactMemory, asked: Asked) -> bool:
    if asked.full and memory.facts is not None:
        tokens = memory.facts.tokens
        if (memory.literal_outputs(tokens) != memory.outputs(tokens)).any():
            raise CheckFailed("the literal blocks and the fast evaluator disagree: report it.")
    return _recall.ask_every_fact(memory, asked)


@ask.register
def _(memory: VectorMemory, asked: Asked) -> bool:
    words = asked.words
    if len(words) == 1 and words[0].isdecimal():
        return _example(memory, int(words[0]), asked)
    if len(words) == 1 and words[0].endswith((".npz", ".safetensors", ".npy")):
        return _queries(memory, words[0])
    raise ByheartError(
        "this memory holds vectors: give the number of a stored one, a .npz or .safetensors file "
        f"with `query` (and `context` unless it is shared), or --all; found {' '.join(words)!r}."
    )


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
    value = list(said.output) if said.answer is None else said.answer
    measured = {"margin": said.margin, "error": error, "heads": _recall.head_records(heads)}
    emit({"row": row, "answer": value, "label": label, **measured})
    if error is None:
        say(f"{said.answer}\n\nlabel {label}, margin {number(said.margin)}")
    else:
        say(" ".join(f"{v:.9g}" for v in said.output))
        say(f"\nlabel {label}, error {error:.1e}")
    if asked.top:
        what = "part of the margin" if error is None else "part of the output"
        table(*_recall.head_rows(heads, asked.top), header=("carried by", what))
    return True


def _queries(memory: VectorMemory, path: str) -> bool:
    arrays, spec = read_arrays(path), memory.spec
    query, context = arrays.get("query"), arrays.get("context")
    if query is None or query.ndim != 2 or query.shape[1] != spec.d or not len(query):
        found = "none" if query is None else query.shape
        raise FactsError(f"{path}: expected `query` of shape (B, {spec.d}), B >= 1, found {found}.")
    shape = (len(query), spec.n, spec.d)
    if context is not None and context.shape not in (shape, shape[1:]):
        raise FactsError(f"{path}: expected `context` of shape {shape}, found {context.shape}.")
    if context is not None:
        context = np.broadcast_to(numbers(context, "context", path), shape)
    out = memory.outputs(memory.inputs(numbers(query, "query", path), context))
    answers = out.argmax(1).tolist() if memory.classes is not None else out.tolist()
    emit({"answers": answers})
    for said in answers:
        say(str(said) if memory.classes is not None else " ".join(f"{v:.9g}" for v in said))
    return True
