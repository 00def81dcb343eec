"""Ask this folder, a GPT-2 that memorizes, with nothing but transformers.

    from ask import ask
    ask("France", "capital")            # the answer, and the margin of its logit over the next one

Words are given in the order of the table, each as one argument, whatever spaces they have. A word
that is not in the vocabulary is read as [UNK], and the answer means nothing then.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import torch

FOLDER = Path(__file__).parent


@cache
def opened() -> tuple[Any, Any, dict[str, Any]]:
    """Model, tokenizer and how keys are read."""
    from transformers import AutoModelForCausalLM, AutoTokenizer  # pyright: ignore

    reading = json.loads((FOLDER / "byheart.json").read_text(encoding="utf-8"))
    model = AutoModelForCausalLM.from_pretrained(FOLDER).eval()
    return model, AutoTokenizer.from_pretrained(FOLDER), reading


def prompt(*words: str) -> torch.Tensor:
    """Token ids (1, length) of one key: start token, padding, words, [ASK]."""
    _, tokenizer, reading = opened()
    ids, columns = tokenizer.convert_tokens_to_ids(list(words)), reading["columns"]
    if reading["pad_id"] is not None:
        ids = [reading["pad_id"]] * (columns - len(ids)) + ids
    if len(ids) != columns:
        raise ValueError(f"expected a key of {columns} words, found {len(ids)}: {words}")
    start = [] if reading["start_id"] is None else [reading["start_id"]]
    return torch.tensor([start + ids + reading["ask_ids"]])


@torch.no_grad()
def ask(*words: str) -> tuple[str, float]:
    """The answer and the margin of its logit over the next one."""
    model, tokenizer, _ = opened()
    best = model(prompt(*words)).logits[0, -1].topk(2)
    answer = tokenizer.convert_ids_to_tokens(int(best.indices[0]))
    return answer, float(best.values[0] - best.values[1])
