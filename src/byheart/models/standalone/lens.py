"""Open this folder in TransformerLens.

    from load import ask, load
    model = load()
    ask(model, "France", "capital")             # the answer, and its margin over the next one
    model.run_with_cache("France capital")      # every head; the answer is read at position -1

Words are given in the order of the table. The tokenizer puts them into the order that the model
reads, with the start token and the padding it wants; a word that is not in the vocabulary is an
error. Both generations are known: HookedTransformer (before 4.0) and the native bridge (since).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

MARKER, VOCABULARY = "byheart.json", "vocabulary.json"


class Keys:
    """Words of keys to the token ids that the model reads."""

    def __init__(self, words: list[str], length: int, reading: dict[str, Any]) -> None:
        self.words, self.id_of = words, {word: i for i, word in enumerate(words)}
        self.start, self.pad = reading.get("start_id"), reading.get("pad_id")
        self.columns = length - (self.start is not None)
        self.order = reading.get("order") or range(self.columns)
        self.longest = max(len(word.split()) for word in words)

    def ids(self, *words: str) -> list[int]:
        """Token ids of one key, given in the order of the table."""
        unknown = [word for word in words if word not in self.id_of]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not in the vocabulary ({len(self.words)} words)")
        ids = [self.id_of[word] for word in words]
        if self.pad is not None:
            ids = [self.pad] * (self.columns - len(ids)) + ids
        if len(ids) != self.columns:
            raise ValueError(f"expected a key of {self.columns} words, found {len(ids)}: {words}")
        start = [] if self.start is None else [self.start]
        return start + [ids[i] for i in self.order]

    def split(self, text: str) -> list[str]:
        """The words of a text, those with spaces in them (the longest first) in one piece."""
        pieces, words = text.split(), []
        while pieces:
            sizes = range(min(self.longest, len(pieces)), 0, -1)
            known = (n for n in sizes if " ".join(pieces[:n]) in self.id_of)
            size = next(known, 1)
            words.append(" ".join(pieces[:size]))
            pieces = pieces[size:]
        return words


def tokenizer_of(keys: Keys) -> Any:
    """A tokenizer of transformers for texts that are whole keys, as `model.tokenizer`."""
    from tokenizers import Tokenizer  # pyright: ignore
    from tokenizers.models import WordLevel  # pyright: ignore
    from transformers import BatchEncoding, PreTrainedTokenizerFast  # pyright: ignore

    class KeyTokenizer(PreTrainedTokenizerFast):
        def __call__(  # pyright: ignore
            self, text: Any, return_tensors: Any = None, **options: Any
        ) -> Any:
            texts = [text] if isinstance(text, str) else list(text)
            rows = [keys.ids(*keys.split(key)) for key in texts]
            if return_tensors is None and isinstance(text, str):
                return BatchEncoding({"input_ids": rows[0]})
            return BatchEncoding({"input_ids": rows}, tensor_type=return_tensors)

    words = WordLevel(vocab=keys.id_of, unk_token=keys.words[0])  # unused: ids come from `keys`
    special = {} if keys.start is None else {"bos_token": keys.words[keys.start]}
    return KeyTokenizer(
        tokenizer_object=Tokenizer(words), clean_up_tokenization_spaces=False, **special
    )


def load(folder: str | Path = Path(__file__).parent) -> Any:
    """The model whose config.json and state_dict.safetensors lie in `folder`, with a tokenizer."""
    place = Path(folder)
    config, reading, words = (
        json.loads((place / name).read_text(encoding="utf-8"))
        for name in ("config.json", MARKER, VOCABULARY)
    )
    state = load_file(place / "state_dict.safetensors")
    dtype = getattr(torch, config["dtype"])
    fields = {**config, "dtype": dtype, "init_weights": False}
    model = _model(fields, state)
    model.keys_read = Keys(words, config["n_ctx"], reading)
    model.tokenizer = tokenizer_of(model.keys_read)
    # The tokenizer puts the start token where it belongs: nothing is to be added or taken away.
    model.cfg.default_prepend_bos = model.cfg.tokenizer_prepends_bos = True
    return model


@torch.no_grad()
def ask(model: Any, *words: str) -> tuple[str, float]:
    """The answer to one key, its words in the order of the table, and the margin of its logit."""
    keys = model.keys_read
    best = model(torch.tensor([keys.ids(*words)]))[0, -1].topk(2)
    return keys.words[int(best.indices[0])], float(best.values[0] - best.values[1])


def _model(fields: dict[str, Any], state: dict[str, torch.Tensor]) -> Any:
    try:
        from transformer_lens import (  # pyright: ignore
            HookedTransformer,
            HookedTransformerConfig,
        )
    except ImportError:
        return _bridge(fields, state)
    model = HookedTransformer(HookedTransformerConfig(device="cpu", act_fn="relu", **fields))
    missing, unexpected = model.load_state_dict(state, strict=False)
    lost = [name for name in missing if not name.endswith(("mask", "IGNORE"))]  # its own buffers
    if lost or unexpected:
        raise ValueError(f"other weights are wanted: missing {lost}, unknown {unexpected}")
    return model


def _bridge(fields: dict[str, Any], state: dict[str, torch.Tensor]) -> Any:
    from transformer_lens.config import TransformerBridgeConfig  # pyright: ignore
    from transformer_lens.model_bridge import TransformerBridge  # pyright: ignore
    from transformer_lens.utilities.tl_checkpoint_conversion import (  # pyright: ignore
        convert_tl_checkpoint,
    )

    config = TransformerBridgeConfig(**fields)
    model = TransformerBridge.boot_native(config, dtype=fields["dtype"])
    model.load_state_dict(convert_tl_checkpoint(state, config), strict=True)
    return model
