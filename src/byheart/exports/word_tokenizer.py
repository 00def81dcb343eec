"""The tokenizer of a prompted memory, in the files of Hugging Face's `tokenizers`.

Words are split at white space (`WordLevel`), tokens that contain white space are found as a whole,
longest first, and any other word is [UNK]. The start token stands in front, [ASK] behind. Keys that
are shorter than others are padded on the left by normalizers, one for each number of words; they
count words at white space, so there are none where a token contains some. (A normalizer cannot
change the order of words: what it puts in has no groups of what was found.)
"""

from __future__ import annotations

from byheart.exports.prompts import Prompted

Json = dict[str, object]


def tokenizer_files(prompted: Prompted) -> tuple[Json, Json]:
    """tokenizer.json and tokenizer_config.json."""
    memory, layout = prompted.memory, prompted.layout
    tokens = memory.vocabulary.tokens
    off = dict.fromkeys(("lstrip", "rstrip", "normalized"), False)
    special = {prompted.unknown_id, prompted.end_id, *prompted.ask_ids, memory.start_id}
    added = [
        {"id": i, "content": token, "single_word": i not in special, "special": i in special, **off}
        for i, token in enumerate(tokens)
        if i in special or (token and spaced(token))
    ]
    tokenizer: Json = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": _padding(prompted),
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": _frame(prompted),
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "unk_token": tokens[prompted.unknown_id],
        },
    }
    settings: Json = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": layout.length,
        "model_input_names": ["input_ids"],  # no mask: padding is a token like any other
        "clean_up_tokenization_spaces": False,
        "unk_token": tokens[prompted.unknown_id],
        "eos_token": tokens[prompted.end_id],
    }
    if memory.start_id is not None:
        settings["bos_token"] = tokens[memory.start_id]
    if memory.pad_id is not None:
        settings |= {"pad_token": tokens[memory.pad_id], "padding_side": "left"}
    return tokenizer, settings


def spaced(token: str) -> bool:
    """Whether white space would split a token."""
    return token.split() != [token]


def pads_itself(prompted: Prompted) -> bool:
    """Whether the tokenizer pads short keys: it can where no word has white space in it."""
    memory = prompted.memory
    return memory.pad_id is not None and not any(map(spaced, memory.vocabulary.tokens))


def _padding(prompted: Prompted) -> Json | None:
    """Normalizers that put the missing padding in front of texts of 1, 2, ... words."""
    memory, columns = prompted.memory, len(prompted.layout.order)
    if memory.pad_id is None or not pads_itself(prompted):
        return None
    pad = memory.vocabulary.token(memory.pad_id) + " "
    rules = [
        {
            "type": "Replace",
            "pattern": {"Regex": rf"^(?=\s*(?:\S+\s+){{{words - 1}}}\S+\s*$)"},
            "content": pad * (columns - words),
        }
        for words in range(1, columns)
    ]
    return {"type": "Sequence", "normalizers": rules}


def _frame(prompted: Prompted) -> Json | None:
    """The start token in front of the words, [ASK] behind them."""
    memory = prompted.memory
    front = [] if memory.start_id is None else [memory.start_id]
    ids = {memory.vocabulary.token(i): i for i in (*front, *prompted.ask_ids)}
    if not ids:
        return None

    def pieces(some: list[int]) -> list[Json]:
        names = map(memory.vocabulary.token, some)
        return [{"SpecialToken": {"id": name, "type_id": 0}} for name in names]

    words = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    first, last = pieces(front), pieces(prompted.ask_ids)
    return {
        "type": "TemplateProcessing",
        "single": [*first, words[0], *last],
        "pair": [*first, *words, *last],
        "special_tokens": {n: {"id": n, "ids": [i], "tokens": [n]} for n, i in ids.items()},
    }
