"""Memory: what every family of memories can do, and the records that its answers are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from byheart._folders import new_folder
from byheart._json import Json
from byheart.errors import ByheartError, FactsError
from byheart.facts import Distributions, Facts, VectorFacts
from byheart.models.construction import Construction, shown
from byheart.models.description import Description, PageWords, Part
from byheart.models.devices import on_cpu
from byheart.models.folder import MEMORY, WEIGHTS, Files, Layouts, Record, tensors
from byheart.models.owner import Owner, Owners
from byheart.specs import Spec
from byheart.specs.base import Shapes

FactTable = Facts | VectorFacts | Distributions
Dtype = torch.dtype
# Spec, SHA-256 of the weights, what keys mean, digest of the facts.
Identity = tuple[Spec, str, tuple[tuple[str, str], ...], str | None]
if TYPE_CHECKING:  # a memory of unknown family takes anything
    from typing_extensions import TypeVar as TypeVarWithDefault

    Inputs = TypeVarWithDefault("Inputs", default=Any)
else:
    Inputs = TypeVar("Inputs")  # what `encode` gives, and `outputs` and `to_torch()` read

BATCH_BYTES = 256 * 2**20  # keeps intermediates well below the size of the solve that made them
NAMES = {  # families in words
    "attention-only": "attention-only Transformer",
    "associative": "associative memory",
    "mlp-transformer": "Transformer with feed-forward layers",
    "shared-bottleneck": "attention-only Transformer with shared projections",
    "sharded": "sharded attention-only Transformer",
    "multi-head": "multi-head attention layer",
    "sqrt": "square-root Transformer in exact integers",
}


# Methods that make tensors, beside weights on the CPU.
COMPUTES = {
    "encode", "inputs", "inputs_of", "answers_of", "outputs", "answers", "margins", "errors",
    "recall", "split", "owner", "owners", "quality", "to_torch", "to_dense", "save", "weight_files",
    "facts_file", "answer_logits", "attention", "contributions", "shards_of", "knows",
}  # fmt: skip


@dataclass(frozen=True)
class Recall:
    """One answer. `margin`: its logit minus that of `runner_up`, the next best (inf: only one
    token; None: no logits). `known`: whether the key is stored; None where the memory cannot tell,
    because its facts were left out of the folder. `output`: the numbers of a vector memory, the
    class of an exact one. `probabilities`: the likeliest answers of a memory of distributions."""

    key: tuple[str, ...]
    answer: str | int | None
    margin: float | None = None
    runner_up: str | None = None
    known: bool | None = None
    output: tuple[float, ...] = ()
    probabilities: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class HeadParts:
    """Of inputs `at` (B,) that the same `heads` (h,) carry: margin = skip + Σ_h parts_h, exactly,
    because logits are linear in the heads. float64.

    `parts` (B, h), `skip` (B,) with biases, `attention` (B, h, positions), `answers` and
    `runners_up` (B,) token or class ids, `logits` (B, N), `written` (B, h, d): what each head adds
    to what W_U reads (None: the parts are all there is).
    """

    at: Tensor
    heads: Tensor
    parts: Tensor
    skip: Tensor
    attention: Tensor
    answers: Tensor
    runners_up: Tensor
    logits: Tensor
    written: Tensor | None = None

    @property
    def margins(self) -> Tensor:
        return self.skip + self.parts.sum(1)


@dataclass(frozen=True)
class Split:
    """margin = skip + Σ parts of one key: what each of `heads` adds to the lead of `answer` over
    `runner_up`, and what the skip (with biases) does."""

    key: tuple[str, ...]
    answer: str | int | None
    runner_up: str | int | None
    heads: tuple[int, ...]
    parts: tuple[float, ...]
    skip: float

    @property
    def margin(self) -> float:
        return self.skip + sum(self.parts)

    def largest(self) -> list[tuple[int, float]]:
        """(head, part), the largest part first."""
        return sorted(zip(self.heads, self.parts, strict=True), key=lambda pair: -pair[1])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Memory(ABC, Generic[Inputs]):
    """A spec with weights, usually with the facts it holds: it recalls.

    The contract (`byheart.check_memory` runs it over a memory): `encode` gives exactly what
    `outputs` and `to_torch()` read; `margins` are positive where a fact is recalled; `split` adds
    up to the margin; `save` and `byheart.load` give an equal memory. What a family has not (owners,
    a torch module), it refuses with the reason.

    >>> import byheart as bh
    >>> memory = bh.build("countries")
    >>> memory.recall("France", "capital").answer
    'Paris'
    >>> bool((memory.margins() > 0).all())
    True
    """

    specs: ClassVar[Sequence[type[Spec]]]  # the architectures of which it can have weights

    spec: Spec
    construction: Construction
    facts: Facts | VectorFacts | None = None

    # What is asked

    def __init_subclass__(cls, **options: Any) -> None:
        """What a family computes, it computes where its weights are (`devices`)."""
        super().__init_subclass__(**options)
        for name in COMPUTES & vars(cls).keys():
            if isfunction(vars(cls)[name]):
                setattr(cls, name, on_cpu(vars(cls)[name]))

    @abstractmethod
    def encode(self, keys: Sequence[Any]) -> Inputs:
        """Keys as users give them, made what the model reads."""

    @abstractmethod
    def inputs_of(self, facts: FactTable) -> Inputs:
        """The keys of a table in this memory's vocabulary, as the model reads them."""

    def answers_of(self, facts: FactTable) -> Tensor | None:
        """The right answers of a table as ids, for `head_parts`; None where answers have none."""
        return None

    @abstractmethod
    def outputs(self, inputs: Inputs, dtype: Dtype | None = None) -> Tensor | np.ndarray:
        """What the model computes, in the stored number format or in `dtype`."""

    @abstractmethod
    def margins(self, facts: FactTable | None = None, dtype: Dtype | None = None) -> np.ndarray:
        """One number for each fact (its own by default), positive where it is recalled: the logit
        of the right answer minus the largest other one; float64."""

    def key_of(self, words: Sequence[str]) -> tuple[Any, ...]:
        """A key from words, as the command line has it; vector memories take a row's number."""
        return tuple(words)

    @abstractmethod
    def recall(self, *key: Any) -> Recall:
        """Ask for one key."""

    def head_parts(self, inputs: Inputs, answers: Tensor | None = None) -> Iterator[HeadParts]:
        """The margins of `answers` (what the memory says, by default) split over the heads of the
        last layer, batch by batch; refused, with the reason, where logits are no sum over heads."""
        raise ByheartError(str(self.no_heads))

    @property
    def no_heads(self) -> str | None:
        """Why a margin cannot be split over heads; None where it can."""
        return None

    @on_cpu
    def split(self, *key: Any) -> Split:
        """The margin of one key, exactly split over skip and heads.

        >>> import byheart as bh
        >>> split = bh.build("elements").split("Fe", "name")
        >>> split.answer, abs(split.margin - split.skip - sum(split.parts)) < 1e-12
        ('iron', True)
        """
        if self.no_heads is not None:
            raise ByheartError(self.no_heads)
        part = next(iter(self.head_parts(self.encode([key]))))
        answer, other = (self.answer_name(int(i[0])) for i in (part.answers, part.runners_up))
        heads, parts = (int(h) for h in part.heads), (float(p) for p in part.parts[0])
        words, skip = tuple(map(str, key)), float(part.skip[0])
        return Split(words, answer, other, tuple(heads), tuple(parts), skip)

    def answer_name(self, answer: int) -> str | int:
        """An answer id as users read it."""
        return answer

    def owner(self, *key: Any) -> Owner:
        """Which heads hold a key, and what else they hold."""
        raise ByheartError(
            f"only sharded memories and one-hot vector memories have owners; this is "
            f"{self.name}, where no head holds a fact alone (`split` shows what each adds)."
        )

    def owners(self) -> Owners | None:
        """Which heads the construction gave each fact to; None where it gave facts to no heads in
        particular, or where the facts are not there."""
        return None

    # What it is

    @property
    def name(self) -> str:
        """The family in words."""
        return NAMES.get(self.spec.family, self.spec.title or self.spec.family)

    def quality(self) -> dict[str, float | None]:
        """How well the facts are held, measured now from the stored weights."""
        margins = self.margins()
        return {"margin": float(margins.min()) if len(margins) else None}

    def quality_text(self) -> str:
        """The same in words."""
        return f"smallest margin {shown(self.quality()['margin'])}"

    @property
    def false_positive_rate(self) -> float | None:
        """The stated share of other keys that are taken for stored ones without the facts."""
        return None

    def example(self) -> tuple[str, ...]:
        """The first stored key, as one would type it; empty without facts."""
        return ()

    @property
    def table(self) -> FactTable | None:
        """What the memory is about, and what a certificate proves: its facts, or distributions."""
        return self.facts

    def own(self, facts: FactTable | None = None) -> FactTable:
        """`facts`, or what the memory holds; an error where there is neither."""
        chosen = self.table if facts is None else facts
        if chosen is None:
            raise FactsError(
                "this memory was saved without its facts: give the table with `facts`."
            )
        return chosen

    @abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """The architecture, part by part, with parameter counts that add up."""

    def parameter_rows(self) -> list[tuple[str, str]]:
        """How large it is, as (what, value)."""
        made, count = self.construction, self.spec.parameters
        per = f" ({count / made.facts:.1f} per {made.unit[:-1]})" if made.facts else ""
        return [("parameters", f"{count:,}{per}")]

    def page_words(self) -> PageWords:
        """What pages and figures say about this memory in the words of its family."""
        return PageWords(("memory.recall(...)",))

    def describe(self) -> Description:
        """The memory in words; the one source of `repr`, notebooks, command line and pages."""
        made = self.construction
        record: dict[str, Json] = {
            "family": self.spec.family,
            "spec": {"family": self.spec.family, **self.spec.to_json()},
            "parameters": self.spec.parameters,
            **made.to_json(),
        }
        rows = (("architecture", str(self.spec)), *self.parameter_rows(), *made.rows())
        title = f"{self.name} with {made.recalled:,} {made.unit}"
        return Description(title, rows, made.why, self.parts(), record)

    def __repr__(self) -> str:
        return f"<{self.describe().text()}>"

    def _repr_html_(self) -> str:
        # Pages stand above models: found when a notebook asks, so that imports point downward.
        return import_module("byheart.reports.notebook").memory_html(self)

    def __eq__(self, other: object) -> bool:
        same = type(other) is type(self)
        return self.identity() == other.identity() if same else NotImplemented

    def __hash__(self) -> int:
        return hash(self.identity())

    def identity(self) -> Identity:
        """Spec, weights, what keys mean, and facts: equal for equal memories, however made."""
        digest = None if self.table is None else self.table.digest()
        keys = sorted((k, str(v)) for k, v in self.record().items() if k != "facts")
        return self.spec, self.weights_sha256(), tuple(keys), digest

    def batches(self, rows: int, copies: int = 1) -> Iterator[slice]:
        """Slices of at most `BATCH_BYTES` of intermediates, of which `copies` are kept at once."""
        step = max(1, BATCH_BYTES // (copies * self.spec.row_bytes(8)))
        return (slice(i, min(i + step, rows)) for i in range(0, rows, step))

    # What it becomes

    @abstractmethod
    def to_torch(self) -> torch.nn.Module:
        """A plain `torch.nn.Module` whose parts have names and can be hooked."""

    def to_dense(self) -> Memory:
        """The literal layer, every head and gate written out; most memories are one already."""
        return self

    # How it lies on disk (`memory_files` writes and reads the folder)

    @abstractmethod
    def weight_files(self) -> dict[str, bytes]:
        """The files that hold the weights."""

    @abstractmethod
    def facts_file(self) -> bytes | None:
        """The facts as a safetensors file; None where there are none."""

    @abstractmethod
    def record(self) -> dict[str, Json]:
        """The fields of `memory.json` that this family has of its own."""

    @classmethod
    def spec_of(cls, record: Record) -> Spec:
        """The spec that a description names."""
        for kind in cls.specs:
            if kind.family == record["family"]:
                return kind(**record["spec"])
        raise ValueError(f"no {cls.__name__} is of the family {record['family']!r}")

    @classmethod
    def layouts(cls, record: Record) -> Layouts:
        """What each file of a folder holds, by what its description says: nothing else is read.
        A family that has other files than the weights of its spec names them here."""
        shapes = cls.spec_of(record).weight_shapes()
        return {WEIGHTS: tensors(shapes)} if shapes else {}

    @classmethod
    @abstractmethod
    def from_files(cls, record: Record, files: Files) -> Self:
        """The memory that a description and its files make; a `ValueError` where they contradict
        each other."""

    def weights_sha256(self) -> str:
        """SHA-256 of the weight file as `save` writes it; of the sums if there are several."""
        sums = [sha256(data).hexdigest() for data in self.weight_files().values()]
        return sums[0] if len(sums) == 1 else sha256("".join(sums).encode()).hexdigest()

    def save(self, folder: str | Path, *, force: bool = False, with_facts: bool = True) -> Path:
        """Write the memory folder, whole or not at all; `byheart.load` gives an equal memory.

        `force` swaps an existing memory (never another kind of folder) in one step.
        """
        from byheart.models.memory_files import write_files

        with new_folder(folder, marker=MEMORY, force=force) as target:
            write_files(self, target, with_facts=with_facts)
        return Path(folder)


def projections(shapes: Shapes) -> tuple[str, ...]:
    """The maps of one head as `parts` shows them."""
    names = ("W_Q", "W_K", "W_V", "W_O")
    return tuple(f"{n}: {' × '.join(map(str, shapes[n][-2:]))}" for n in names if n in shapes)


def answer_margins(logits: Tensor, right: Tensor) -> Tensor:
    """logits[right] - max of the others, row by row: (B,). inf where there are no others.

    >>> answer_margins(torch.tensor([[3.0, 1.0, 2.5]]), torch.tensor([0]))
    tensor([0.5000])
    """
    lead = logits.gather(1, right[:, None])
    others = logits.scatter(1, right[:, None], -torch.inf)
    return (lead - others.amax(1, keepdim=True))[:, 0]


def owner(memory: Memory, *key: Any) -> Owner:
    """Which heads of a memory hold a key, and what else they hold; refused with the reason where no
    head holds a fact alone.

    >>> import byheart as bh
    >>> memory = bh.build("countries", "sharded")
    >>> bh.owner(memory, "France", "capital").shard is not None
    True
    """
    return memory.owner(*key)
