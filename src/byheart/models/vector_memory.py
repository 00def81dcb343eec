"""A memory of vectors: a multi-head attention layer with weights, that can be asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import numpy as np
import torch
from safetensors.torch import save as dump_tensors
from torch import Tensor

from byheart._json import Json, typed
from byheart._json import record as typed_record
from byheart.errors import ByheartError, FactsError
from byheart.facts import VectorFacts
from byheart.models import multi_head
from byheart.models.construction import Construction, MultiHeadConstruction
from byheart.models.description import PageWords, Part
from byheart.models.folder import (
    FACTS,
    WEIGHTS,
    Files,
    Layouts,
    Record,
    TensorLayout,
    check_shapes,
    tensors,
)
from byheart.models.memory import (
    Dtype,
    FactTable,
    HeadParts,
    Memory,
    Recall,
    answer_margins,
    projections,
)
from byheart.models.owner import Owner, Owners
from byheart.specs import MultiHeadSpec, Spec

# What a label may be off by where nothing else is said: 1e-5 of float32 arithmetic, some thousand
# units in the last place of labels of order 1, and 1e-9 of float64.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}
PARTS_BYTES = 256 * 2**20  # of the contributions of all heads that are held at once
COUNTED_ON = (
    "other examples depend on it too: it adds to their outputs, and the heads that hold them make "
    "up for that. Zeroing its W_O loses more than these"
)
CONTEXT = "context"  # beside the weights: a shared context is part of what is evaluated


class VectorInputs(NamedTuple):
    """What the layer reads: `context` (n, d), shared, or (B, n, d); `query` (B, d)."""

    context: Tensor
    query: Tensor

    def rows(self, batch: slice) -> VectorInputs:
        shared = self.context.dim() == 2
        return VectorInputs(self.context if shared else self.context[batch], self.query[batch])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class VectorMemory(Memory[VectorInputs]):
    """A multi-head spec with weights (no model axis) and, usually, the examples it holds.

    `classes`: outputs are logits of so many classes (None: the outputs are the label). `context`:
    the one context, where all examples share it.

    >>> import byheart as bh
    >>> facts = bh.random_vectors(T=29, n=8, d=16)
    >>> memory = bh.build(facts)
    >>> bool(abs(memory.recall(facts.query[3]).output[0] - facts.label[3]) < 1e-5)
    True
    """

    specs: ClassVar[Sequence[type[Spec]]] = (MultiHeadSpec,)

    spec: MultiHeadSpec
    weights: Mapping[str, Tensor]
    construction: Construction
    facts: VectorFacts | None = None
    classes: int | None = None
    context: np.ndarray | None = None

    def __post_init__(self) -> None:
        check_shapes(self.spec, self.spec.weight_shapes(), self.weights)
        if self.classes not in (None, self.spec.d_out):
            raise ValueError(f"{self.classes} classes, but {self.spec.d_out} outputs")
        if bool(self.spec.shared) != (self.context is not None):
            raise ValueError("a shared context belongs to a spec that says shared, and only there")

    @property
    def dtype(self) -> torch.dtype:
        """The number format in which the weights are stored."""
        return self.weights["W_Q"].dtype

    @property
    def tolerance(self) -> float:
        """How far an output may be from its label and still count as recalled."""
        return float(getattr(self.construction, "tolerance", None) or TOLERANCE[self.dtype])

    def encode(self, keys: Sequence) -> VectorInputs:
        """Keys are (query,) where all examples share the context, else (query, context)."""
        queries = np.stack([np.asarray(key[0], dtype=np.float64) for key in keys])
        given = [key[1] for key in keys if len(key) > 1 and key[1] is not None]
        if given and len(given) != len(keys):
            raise FactsError("expected a context with every query, or with none.")
        contexts = np.stack([np.asarray(E, dtype=np.float64) for E in given]) if given else None
        return self.inputs(queries, contexts)

    def inputs(
        self, query: Tensor | np.ndarray, context: Tensor | np.ndarray | None = None
    ) -> VectorInputs:
        """`query` (B, d); `context` (B, n, d), or nothing where all examples share one."""
        n, d, chosen = self.spec.n, self.spec.d, self.context if context is None else context
        if chosen is None:
            raise FactsError(
                "this memory was built for examples with contexts of their own: give the context "
                f"(n={n}, d={d}) with the query."
            )
        # torch.tensor copies: facts keep their arrays read-only.
        e, E = (x if isinstance(x, Tensor) else torch.tensor(x) for x in (query, chosen))
        if e.dim() != 2 or e.shape[1] != d:
            raise FactsError(f"expected queries of d={d} numbers, found {tuple(e.shape)}.")
        if E.shape[-2:] != (n, d):
            raise FactsError(
                f"expected contexts of n={n} tokens with d={d} numbers, found {tuple(E.shape)}."
            )
        return VectorInputs(E, e)

    def inputs_of(self, facts: FactTable) -> VectorInputs:
        examples = self.fitting(facts)
        contexts = None if self.context is not None else examples.contexts()
        return self.inputs(examples.query, contexts)

    def answers_of(self, facts: FactTable) -> Tensor:
        """Classes; of numbers the coordinate that is furthest from 0."""
        some = self.fitting(facts)
        far = some.label if some.classes is not None else np.abs(some.targets).argmax(1)
        return torch.tensor(far)

    def _each(self, compute: Callable[..., Tensor], inputs: VectorInputs, dtype: Dtype) -> Tensor:
        """compute(spec, weights, E, e) of `models.multi_head`, batch by batch."""
        stacked = {name: w[None].to(dtype) for name, w in self.weights.items()}
        parts = []
        for b in self.batches(len(inputs.query)):
            E, e = (x.to(dtype) for x in inputs.rows(b))
            parts.append(compute(self.spec, stacked, E if E.dim() == 2 else E[None], e)[0])
        return torch.cat(parts)

    def outputs(self, inputs: VectorInputs, dtype: Dtype | None = None) -> Tensor:
        """f(E, e): (B, d_out), evaluated in the stored number format or in `dtype`."""
        return self._each(multi_head.forward, inputs, dtype or self.dtype)

    def attention(self, inputs: VectorInputs) -> Tensor:
        """a^h(t) of every head, float64: (B, H, n)."""
        return self._each(multi_head.attention, inputs, torch.float64)

    def contributions(self, inputs: VectorInputs) -> Tensor:
        """What each head adds to the outputs, float64: (B, H, d_out)."""
        return self._each(multi_head.head_outputs, inputs, torch.float64)

    def key_of(self, words: Sequence[str]) -> tuple:
        """The stored example with this row number: its query and, unless shared, its context."""
        facts = self.facts
        if facts is None:
            raise FactsError("this memory was saved without its facts: ask with a file of queries.")
        if len(words) != 1 or not str(words[0]).isdecimal():
            raise FactsError(f"expected the number of a stored example, found {' '.join(words)!r}.")
        rows, last = np.flatnonzero(facts.rows == int(words[0])), facts.rows.max()
        if not len(rows):
            raise FactsError(f"no example {words[0]}: there are {facts.T:,}, up to {last}.")
        i = int(rows[0])
        return (facts.query[i],) if facts.shared else (facts.query[i], facts.context[i])

    def recall(self, *key: np.ndarray | None) -> Recall:
        """Ask with one query (d,), and its context (n, d) unless that is shared."""
        inputs = self.encode([key])
        out = self.outputs(inputs)[0]
        said = Recall((), None, known=self._stored(inputs), output=tuple(out.tolist()))
        if self.classes is None:
            return said
        g = out.argmax()
        return replace(said, answer=int(g), margin=float(answer_margins(out[None], g[None])[0]))

    def _stored(self, inputs: VectorInputs) -> bool | None:
        """Whether one example is stored, number by number; None without the facts."""
        if self.facts is None:
            return None
        rows = (self.facts.query == inputs.query.numpy()).all(axis=1)
        if self.context is None:
            rows &= (self.facts.contexts() == inputs.context.numpy()).all(axis=(1, 2))
        return bool(rows.any())

    def errors(self, facts: VectorFacts | None = None, dtype: Dtype | None = None) -> np.ndarray:
        """max_j |f_j(E(t), e(t)) - y_j(t)| of each example (regression): (T,)."""
        examples = self.fitting(self.own(facts))
        out = self.outputs(self.inputs_of(examples), dtype).double()
        return (out - torch.tensor(examples.targets)).abs().amax(1).numpy()

    def margins(self, facts: FactTable | None = None, dtype: Dtype | None = None) -> np.ndarray:
        """> 0 means recalled: for classes the logit of the right one minus the largest other, for
        regression the tolerance minus the largest error of an output; (T,)."""
        examples = self.fitting(self.own(facts))
        if self.classes is None:
            return self.tolerance - self.errors(examples, dtype)
        out = self.outputs(self.inputs_of(examples), dtype)
        return answer_margins(out, torch.tensor(examples.label)).double().numpy()

    def quality(self) -> dict[str, float | None]:
        error = None if self.classes is not None else float(self.errors().max())
        return super().quality() | {"error": error}

    def quality_text(self) -> str:
        error, text = self.quality()["error"], f"(tolerance {self.tolerance:.0e})"
        return super().quality_text() if error is None else f"largest error {error:.1e} {text}"

    def head_parts(
        self, inputs: VectorInputs, answers: Tensor | None = None
    ) -> Iterator[HeadParts]:
        """Classes: parts of the margin. Numbers: parts of one output, by default the one furthest
        from 0; the "answer" and the "runner-up" are then that coordinate."""
        spec, heads = self.spec, torch.arange(self.spec.H)
        step = max(1, PARTS_BYTES // (8 * spec.H * (spec.d_out + spec.n)))
        for i in range(0, len(inputs.query), step):
            some = inputs.rows(slice(i, i + step))
            parts, out = self.contributions(some), self.outputs(some, torch.float64)
            constant = out - parts.sum(1)  # the decoder's bias, if there is one
            index, at = torch.arange(len(out)), torch.arange(i, i + len(out))
            likely = out.abs() if self.classes is None else out
            g = j = likely.argmax(1) if answers is None else answers[at]
            split, skip = parts[index, :, g], constant[index, g]
            if self.classes is not None:
                j = out.scatter(1, g[:, None], -torch.inf).argmax(1)
                split, skip = split - parts[index, :, j], skip - constant[index, j]
            yield HeadParts(at, heads, split, skip, self.attention(some), g, j, out)

    def owner(self, *key: np.ndarray | None) -> Owner:
        """The head whose group of the proof holds the example, and the other examples of it."""
        owners, facts = self.owners(), self.facts
        if owners is None or facts is None:
            reason = "was saved without its examples" if facts is None else "has no groups"
            raise ByheartError(
                f"this memory {reason}: `proof=one-hot` and `proof=literal` give every head a "
                "group of examples of its own."
            )
        e = self.encode([key]).query.numpy()
        rows = np.flatnonzero((facts.query == e).all(axis=1))
        heads = owners.heads_of(int(rows[0])) if len(rows) else ()
        if not heads:
            return Owner((), (), ())
        return Owner((), heads, owners.facts_of(heads[0]), others=owners.others)

    def owners(self) -> Owners | None:
        made, facts = self.construction, self.facts
        groups = made.groups if isinstance(made, MultiHeadConstruction) else None
        if not groups or facts is None:
            return None
        heads = np.full(facts.T, -1)
        for head, group in enumerate(groups):
            heads[list(group)] = head
        single = tuple((head,) for head in range(self.spec.H))
        return Owners(0, heads, single, COUNTED_ON)

    def example(self) -> tuple[str, ...]:
        return () if self.facts is None else (str(self.facts.rows[0]),)

    def page_words(self) -> PageWords:
        shared = self.context is not None
        key, comma = ("f.query[0]", ",") if shared else ("f.query[0], f.contexts()[0]", "")
        asking = (
            "f = memory.facts",
            f"memory.recall({key})",
            "module = memory.to_torch()  # a plain torch.nn.Module with named, hookable parts",
            f"module(memory.encode([({key}{comma})]))",
        )
        numbers = "tolerance minus the error of the label"
        margin = numbers if self.classes is None else PageWords.margin
        answers = None if self.facts is None else self.facts.classes
        positions = tuple(f"token {i}" for i in range(self.spec.n))
        bits = 8 * self.dtype.itemsize * self.spec.parameters
        return PageWords(asking, positions, margin, answers, bits)

    def parts(self) -> tuple[Part, ...]:
        spec, shapes = self.spec, self.spec.weight_shapes()
        size = {name: int(np.prod(shape)) for name, shape in shapes.items()}
        heads = sum(size[name] for name in ("W_Q", "W_K", "W_V", "W_O"))
        blocks = [Part("query and context", (f"e: {spec.d} numbers", f"E: {spec.n} × {spec.d}"))]
        if spec.embed:
            blocks.append(Part("embedding", (f"{spec.d} × {spec.d}",), size["W_E"] + size["b_E"]))
        label = f"{spec.H} head{'s'[: spec.H != 1]}"
        blocks.append(Part(label, projections(shapes), heads, spec.H))
        if spec.decoder:
            blocks.append(Part("decoder", (f"{spec.d} × {spec.d_out}",), size["W_U"] + size["b_U"]))
        kind = f"logits of {self.classes} classes" if self.classes else "the label"
        return (*blocks, Part(kind, (f"{spec.d_out} number{'s'[: spec.d_out > 1]}",)))

    def fitting(self, facts: FactTable) -> VectorFacts:
        """Vector facts that this memory can be asked for; others are refused."""
        spec, classes = self.spec, self.classes
        if not isinstance(facts, VectorFacts):
            raise FactsError(
                "a vector memory holds vector facts (.safetensors, .npz) and a token memory "
                "tables: memory and facts do not belong together."
            )
        if facts.d != spec.d or facts.n != spec.n:
            raise FactsError(
                f"the examples have n={facts.n} tokens of d={facts.d} coordinates, the memory "
                f"takes n={spec.n}, d={spec.d}. Is it the right file?"
            )
        labels = f"{classes} classes" if classes else f"labels of {spec.d_out} numbers"
        if facts.classes is None and (classes or facts.outputs != spec.d_out):
            raise FactsError(f"expected {labels}, found labels of {facts.outputs} numbers")
        if facts.classes is not None and (classes or 0) < facts.classes:
            raise FactsError(f"expected {labels}, found {facts.classes} classes")
        if self.context is not None and not facts.shared:
            raise FactsError("this memory has one shared context, the examples have their own.")
        if self.context is not None and not np.array_equal(self.context, facts.context):
            raise FactsError("the examples share another context than that of this memory.")
        return facts

    def to_torch(self) -> torch.nn.Module:
        """A plain `torch.nn.Module` with trainable weights and hookable parts: it takes what
        `encode` gives, or a context and a query. See `byheart.models.modules`."""
        from byheart.models.modules import VectorModel, vector_config, vector_state

        model = VectorModel(vector_config(self)).to(self.dtype)
        model.load_state_dict(vector_state(self))
        return model

    def weight_files(self) -> dict[str, bytes]:
        tensors = {name: w.contiguous() for name, w in self.weights.items()}
        if self.context is not None:
            tensors[CONTEXT] = torch.tensor(self.context)
        return {WEIGHTS: dump_tensors(tensors)}

    def facts_file(self) -> bytes | None:
        facts = self.facts
        if facts is None:
            return None
        arrays = {"query": facts.query, "label": facts.label, "rows": facts.rows.astype(np.int64)}
        if not facts.shared:
            arrays[CONTEXT] = facts.context
        return dump_tensors({name: torch.tensor(array) for name, array in arrays.items()})

    def record(self) -> dict[str, Json]:
        facts, about = self.facts, None
        if facts is not None:
            about = {"count": facts.T, "digest": facts.digest(), "name": facts.name}
            about |= {"classes": facts.classes, "merged": facts.merged}
        return {"classes": self.classes, "facts": about, "vocabulary": []}

    @classmethod
    def layouts(cls, record: Record) -> Layouts:
        spec, about, files = cls.spec_of(record), _about(record), dict(super().layouts(record))
        own = tensors({CONTEXT: (spec.n, spec.d)}, ("F64",)) if spec.shared else {}
        files[WEIGHTS] = tensors(spec.weight_shapes()) | own
        if about is not None:
            T = about.count
            table = tensors({"query": (T, spec.d)}, ("F64",)) | tensors({"rows": (T,)}, ("I64",))
            if not spec.shared:
                table |= tensors({CONTEXT: (T, spec.n, spec.d)}, ("F64",))
            table["label"] = TensorLayout(((T,), (T, spec.d_out)), ("F64",))
            if about.classes is not None:
                table |= tensors({"label": (T,)}, ("I64",))
            files[FACTS] = table
        return files

    @classmethod
    def spec_of(cls, record: Record) -> MultiHeadSpec:
        return MultiHeadSpec(**record["spec"])

    @classmethod
    def from_files(cls, record: Record, files: Files) -> Self:
        spec, weights, facts = cls.spec_of(record), _arrays(files[WEIGHTS]), None
        context, about = weights.pop(CONTEXT, None), _about(record)
        E = None if context is None else context.numpy()
        if FACTS in files and about is not None:
            facts = facts_from(about, _arrays(files[FACTS]), E, spec.d_out)
        made = Construction.from_json(record["construction"])
        classes = typed(record["classes"], int | None, "classes")
        groups = getattr(made, "groups", None) or ()
        T = made.facts if facts is None else facts.T
        if len(groups) > spec.H or any(not 0 <= i < T for group in groups for i in group):
            raise ValueError("construction.groups: heads or examples that are not there")
        return cls(
            spec=spec, weights=weights, construction=made, facts=facts, classes=classes, context=E
        )


@dataclass(frozen=True)
class _AboutFacts:
    """What memory.json says of examples."""

    count: int
    digest: str
    name: str
    classes: int | None
    merged: int


def _about(record: Record) -> _AboutFacts | None:
    said = record["facts"]
    return None if said is None else typed_record(said, _AboutFacts, "facts")


def facts_from(
    about: _AboutFacts, content: Mapping[str, Tensor], context: np.ndarray | None, outputs: int
) -> VectorFacts:
    """The examples of a folder. Not the checks of `VectorFacts.make`: a changed file must still be
    evaluated, to say what is lost."""
    arrays = {name: t.numpy() for name, t in content.items()}
    E, label = context if context is not None else arrays[CONTEXT], arrays["label"]
    if about.count < 1 or (about.classes is not None and not 1 <= about.classes <= outputs):
        raise ValueError(f"{about.count} examples of {about.classes} classes, {outputs} outputs")
    if about.classes is not None and (label.min() < 0 or label.max() >= about.classes):
        raise ValueError(f"{FACTS} has labels that are no classes")
    if arrays["rows"].min() < 0:
        raise ValueError(f"{FACTS} has a negative row number")
    said = about.name, about.classes, about.merged
    return VectorFacts(E, arrays["query"], label, arrays["rows"], *said)


def _arrays(content: dict[str, Tensor] | bytes) -> dict[str, Tensor]:
    if isinstance(content, bytes):
        raise ValueError("a file of tensors was expected")
    return dict(content)
