"""Memories that are asked in words: keys as token ids, and their facts on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch
from safetensors.torch import save as dump_tensors
from torch import Tensor

from byheart._json import Json, plain
from byheart._json import record as typed_record
from byheart.errors import FactsError
from byheart.facts import Distributions, Facts, Vocabulary
from byheart.models.construction import Construction
from byheart.models.folder import FACTS, MOST_KEY, Files, Layouts, Record, tensors
from byheart.models.memory import FactTable, Inputs, Memory
from byheart.specs import TokenSpec

ABOUT = ("name", "columns", "answer_column", "merged", "skipped")  # of facts, in memory.json


@dataclass(frozen=True)
class _AboutFacts:
    """What memory.json says of facts: their number and that of their tokens, and `ABOUT`."""

    count: int
    vocabulary: int
    digest: str
    name: str
    columns: tuple[str, ...] | None
    answer_column: str
    merged: int
    skipped: int


@dataclass(frozen=True)
class _Reading:
    """How keys are read, in memory.json."""

    start_id: int | None
    pad_id: int | None
    order: tuple[int, ...] | None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WordMemory(Memory[Inputs]):
    """Keys are tokens of the `vocabulary`, padded on the left with `pad_id` where the facts are.

    `start_id`: the token put in front of every key (keys of one token need it, see
    `byheart.construct.attention_only`); `order`: the key columns as the model reads them, where
    that is not the order in which they are asked.
    """

    specs: ClassVar[Sequence[type[TokenSpec]]]

    spec: TokenSpec
    vocabulary: Vocabulary
    construction: Construction
    facts: Facts | None = None
    start_id: int | None = None
    pad_id: int | None = None
    order: tuple[int, ...] | None = None

    @property
    def key_length(self) -> int:
        """Tokens that a user gives: S without the start token."""
        return self.spec.S - (self.start_id is not None)

    @cached_property
    def key_vocabulary(self) -> Vocabulary:
        """The tokens that a key may hold: all but the start token, which is the last."""
        words = self.vocabulary
        return words if self.start_id is None else Vocabulary(words.tokens[:-1])

    def key_ids(self, keys: Sequence[Sequence[str]]) -> np.ndarray:
        """Token ids (B, key length) of keys given in words, as the table of facts has them: padded
        where the facts are, in the order in which they are asked."""
        length, rows = self.key_length, []
        for key in keys:
            if isinstance(key, str):
                raise FactsError(
                    f"expected a key as a sequence of tokens, found the string {key!r}. "
                    f"Write ({key!r},) for a key of one token."
                )
            if wrong := [token for token in key if not isinstance(token, str)]:
                raise FactsError(
                    f"expected tokens as text, found {wrong[0]!r} ({type(wrong[0]).__name__}). "
                    "Give each token as one argument: memory.recall('France', 'capital')."
                )
            if len(key) > length or (len(key) < length and self.pad_id is None) or not key:
                example = ", ".join(map(repr, self.example()))
                raise FactsError(
                    f"this memory takes keys of {length} token{'s'[: length > 1]}, found "
                    f"{len(key)}: {', '.join(map(repr, key)) or 'nothing'}."
                    + (f" Example: {example}" if example else "")
                )
            pad = [] if self.pad_id is None else [self.pad_id] * (length - len(key))
            rows.append(pad + self.key_vocabulary.ids(key))
        return np.array(rows, dtype=np.int64).reshape(len(rows), length)

    def knows(self, key: np.ndarray) -> bool | None:
        """Whether the key (key length,) is stored; None without the facts."""
        if self.facts is None:
            return None
        return bool((self.facts.tokens == key).all(axis=1).any())

    def example(self) -> tuple[str, ...]:
        return () if self.facts is None else self.facts.key(0)

    def facts_tensors(self, facts: Facts) -> dict[str, Tensor]:
        """`tokens`, `answers` and `rows` int32, `prior` float64."""
        arrays = {"tokens": facts.tokens, "answers": facts.answers, "rows": facts.rows}
        tensors = {k: torch.from_numpy(a.astype(np.int32)) for k, a in arrays.items()}
        return tensors | {"prior": torch.from_numpy(facts.prior.copy())}

    def facts_file(self) -> bytes | None:
        return None if self.facts is None else dump_tensors(self.facts_tensors(self.facts))

    def record(self) -> dict[str, Json]:
        facts, about = self.facts, None
        if facts is not None:
            about = {"count": facts.T, "vocabulary": facts.N, "digest": facts.digest()}
            about |= {name: plain(getattr(facts, name)) for name in ABOUT}
        read: dict[str, Json] = {"start_id": self.start_id, "pad_id": self.pad_id}
        read |= {"order": plain(self.order), "facts": about, "distribution": None}
        read["vocabulary"] = list(self.vocabulary.tokens)
        return read

    @classmethod
    def fields_of(cls, record: Record, files: Files) -> dict[str, Any]:
        """The fields of a memory from its description and files, checked against each other."""
        spec, vocabulary = cls.spec_of(record), Vocabulary(tuple(record["vocabulary"]))
        reading, N = typed_record(record, _Reading), spec.N
        if len(vocabulary) != N:
            raise ValueError(f"{len(vocabulary)} tokens in the vocabulary, N = {N} in the spec")
        if reading.start_id not in (None, N - 1):
            raise ValueError(f"start_id = {reading.start_id} is not the last token")
        if reading.pad_id is not None and not 0 <= reading.pad_id < N:
            raise ValueError(f"pad_id = {reading.pad_id} is no token of the vocabulary")
        keys, order = _key_length(record, spec), reading.order
        if order is not None and sorted(order) != list(range(keys)):
            raise ValueError(f"order {order} does not permute {keys} key columns")
        made = Construction.from_json(record["construction"])
        facts = facts_from(record, files, vocabulary)
        held = {"spec": spec, "vocabulary": vocabulary, "construction": made, "facts": facts}
        return held | vars(reading)

    @classmethod
    def spec_of(cls, record: Record) -> TokenSpec:
        spec = super().spec_of(record)
        if not isinstance(spec, TokenSpec) or spec.S > MOST_KEY:
            raise ValueError(f"expected keys of at most {MOST_KEY:,} tokens, found {spec}")
        return spec

    @classmethod
    def layouts(cls, record: Record) -> Layouts:
        about, files = record["facts"], super().layouts(record)
        if about is None:
            return files
        T = typed_record(about, _AboutFacts, "facts").count
        table = tensors({"tokens": (T, _key_length(record, cls.spec_of(record)))}, ("I32",))
        table |= tensors({"answers": (T,), "rows": (T,)}, ("I32",)) | tensors(
            {"prior": (T,)}, ("F64",)
        )
        return {**files, FACTS: table}

    @classmethod
    def from_files(cls, record: Record, files: Files) -> Self:
        return cls(**cls.fields_of(record, files))


def _key_length(record: Record, spec: TokenSpec) -> int:
    """Tokens of a key: at least one, besides the start token."""
    keys = spec.S - (typed_record(record, _Reading).start_id is not None)
    if keys < 1:
        raise ValueError("keys without tokens: there is a start token, and S = 1")
    return keys


def facts_from(record: Record, files: Files, vocabulary: Vocabulary) -> Facts | None:
    """The facts in a folder; None where they were left out."""
    content = files.get(FACTS)
    if not isinstance(content, dict):
        return None
    about = typed_record(record["facts"], _AboutFacts, "facts")
    arrays = {name: content[name].numpy() for name in ("tokens", "answers", "prior", "rows")}
    size, ids = about.vocabulary, [arrays[name] for name in ("tokens", "answers")]
    if about.count < 1 or not 1 <= size <= len(vocabulary):
        raise ValueError(f"{about.count} facts over {size} of {len(vocabulary)} tokens")
    if min(int(a.min()) for a in ids) < 0 or max(int(a.max()) for a in ids) >= size:
        raise ValueError(f"{FACTS} has token ids outside the vocabulary")
    if about.columns is not None and len(about.columns) != arrays["tokens"].shape[1]:
        raise ValueError(f"{len(about.columns)} names of columns for {arrays['tokens'].shape}")
    check_sums(arrays["prior"], "the prior")
    words = {name: getattr(about, name) for name in ABOUT}
    own = Vocabulary(vocabulary.tokens[:size])
    return Facts(**arrays, vocabulary=own, pad_id=record["pad_id"], **words)


def check_sums(shares: np.ndarray, name: str) -> None:
    """Refuse what is no distribution: shares that are finite and not negative, and sum to 1 but for
    rounding, row by row."""
    if not (np.isfinite(shares).all() and (shares >= 0).all()):
        raise ValueError(f"{name}: expected finite shares that are not negative")
    off = float(np.abs(shares.sum(axis=-1) - 1).max(initial=0))
    if off > 4 * (shares.shape[-1] + 8) * np.finfo(np.float64).eps:
        raise ValueError(f"{name}: expected shares that sum to 1, off by {off:.1e}")


def token_table(facts: FactTable) -> Facts:
    """The tokens and answers of a table: the most probable answers of distributions."""
    if isinstance(facts, Facts):
        return facts
    if isinstance(facts, Distributions):
        return facts.facts
    raise FactsError(
        "this memory holds tokens and was given vectors: memory and facts do not belong together."
    )
