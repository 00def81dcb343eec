"""Ask this folder, an ONNX graph that memorizes, with nothing but onnxruntime and numpy.

    from ask import ask
    ask("France", "capital")            # the answer, and the margin of its logit over the next one

Words are given in the order of the table, each as one argument; a word that is not in the
vocabulary is an error.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent


@cache
def opened() -> tuple[Any, list[str], dict[str, Any]]:
    """Session, vocabulary and how keys are read."""
    from onnxruntime import InferenceSession

    vocabulary, reading = (
        json.loads((FOLDER / name).read_text(encoding="utf-8"))
        for name in ("vocabulary.json", "byheart.json")
    )
    session = InferenceSession(FOLDER / "model.onnx", providers=["CPUExecutionProvider"])
    return session, vocabulary, reading


def tokens(*words: str) -> np.ndarray:
    """Token ids (1, S) of one key, as the graph reads it: reordered, padded, with start."""
    _, vocabulary, reading = opened()
    unknown = [word for word in words if word not in vocabulary]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not in the vocabulary ({len(vocabulary)} words)")
    ids, columns = [vocabulary.index(word) for word in words], reading["columns"]
    if reading["pad_id"] is not None:
        ids = [reading["pad_id"]] * (columns - len(ids)) + ids
    if len(ids) != columns:
        raise ValueError(f"expected a key of {columns} words, found {len(ids)}: {words}")
    start = [] if reading["start_id"] is None else [reading["start_id"]]
    return np.array([start + [ids[i] for i in reading["order"] or range(columns)]])


def ask(*words: str) -> tuple[str, float]:
    """The answer and the margin of its logit over the next one."""
    session, vocabulary, _ = opened()
    (logits,) = session.run(None, {"tokens": tokens(*words)})
    second, first = np.argsort(logits[0])[-2:]
    return vocabulary[first], float(logits[0, first] - logits[0, second])
