"""A memory of vectors: a multi-head attention layer with weights, that can be asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from byheart.errors import FactsError
from byheart.facts import VectorFacts
from byheart.models import multi_head
from byheart.models.memory import BATCH_BYTES, answer_margins
from byheart.specs import MultiHeadSpec

# What a label may be off by where nothing else is said: 1e-5 of float32 arithmetic, some thousand
# units in the last place of labels of order 1, and 1e-9 of float64.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}


@dataclass(frozen=True)
class VectorRecall:
    """One answer: the outputs; for classes the largest one and its margin over the next."""

    output: tuple[float, ...]
    answer: int | None
    margin: float | None


@dataclass(frozen=True)
class VectorMemory:
    """A multi-head spec with weights (no model axis) and, usually, the examples it holds.

    `classes`: outputs are logits of so many classes (None: the outputs are the label). `context`:
    the one context, where all examples share it.

    >>> import byheart as bh
    >>> facts = bh.random_vectors(T=29, n=8, d=16)
    >>> memory = bh.build(facts)
    >>> bool(abs(memory.recall(facts.query[3]).output[0] - facts.label[3]) < 1e-5)
    True
    """

    spec: MultiHeadSpec
    weights: Mapping[str, Tensor]
    facts: VectorFacts | None = None
    classes: int | None = None
    context: np.ndarray | None = None
    construction: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, shape in self.spec.weight_shapes().items():
            if name not in self.weights or tuple(self.weights[name].shape) != shape:
                found = tuple(self.weights[name].shape) if name in self.weights else "nothing"
                raise ValueError(f"{name}: expected shape {shape} for {self.spec}, found {found}")
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
        return float(self.construction.get("tolerance") or TOLERANCE[self.dtype])

    def outputs(
        self,
        query: Tensor | np.ndarray,
        context: Tensor | np.ndarray | None = None,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """f(E, e): (B, d_out), evaluated in the stored number format or in `dtype`.

        `query` (B, d); `context` (B, n, d), or nothing where all examples share one.
        """
        dtype = dtype or self.dtype
        E = self._context(context)
        e = _tensor(query).to(dtype)
        stacked = {name: w[None].to(dtype) for name, w in self.weights.items()}
        if E.dim() == 2:
            E = E.to(dtype)
        parts = []
        for b in self.batches(len(e)):
            own = E if E.dim() == 2 else E[None, b].to(dtype)
            parts.append(multi_head.forward(self.spec, stacked, own, e[b])[0])
        return torch.cat(parts)

    def attention(
        self, query: Tensor | np.ndarray, context: Tensor | np.ndarray | None = None
    ) -> Tensor:
        """a^h(t) of every head, float64: (B, H, n)."""
        E = self._context(context).double()
        e = _tensor(query).double()
        stacked = {name: w[None].double() for name, w in self.weights.items()}
        parts = []
        for b in self.batches(len(e)):
            own = E if E.dim() == 2 else E[None, b]
            parts.append(multi_head.attention(self.spec, stacked, own, e[b])[0])
        return torch.cat(parts)

    def contributions(
        self, query: Tensor | np.ndarray, context: Tensor | np.ndarray | None = None
    ) -> Tensor:
        """What each head adds to the outputs, float64: (B, H, d_out)."""
        E = self._context(context).double()
        e = _tensor(query).double()
        stacked = {name: w[None].double() for name, w in self.weights.items()}
        parts = []
        for b in self.batches(len(e)):
            own = E if E.dim() == 2 else E[None, b]
            parts.append(multi_head.head_outputs(self.spec, stacked, own, e[b])[0])
        return torch.cat(parts)

    def recall(self, query: np.ndarray, context: np.ndarray | None = None) -> VectorRecall:
        """Ask with one query (d,), and its context (n, d) unless that is shared."""
        out = self.outputs(
            np.asarray(query)[None], None if context is None else np.asarray(context)[None]
        )[0]
        if self.classes is None:
            return VectorRecall(tuple(out.tolist()), None, None)
        g = out.argmax()
        margin = float(answer_margins(out[None], g[None])[0])
        return VectorRecall(tuple(out.tolist()), int(g), margin)

    def errors(self, facts: VectorFacts, dtype: torch.dtype | None = None) -> Tensor:
        """max_j |f_j(E(t), e(t)) - y_j(t)| of each example (regression): (T,)."""
        out = self.outputs(facts.query, self._own(facts), dtype).double()
        return (out - torch.tensor(facts.targets)).abs().amax(1)

    def margins(self, facts: VectorFacts, dtype: torch.dtype | None = None) -> Tensor:
        """> 0 means recalled: for classes the logit of the right one minus the largest other, for
        regression the tolerance minus the largest error of an output; (T,)."""
        if self.classes is None:
            return self.tolerance - self.errors(facts, dtype)
        out = self.outputs(facts.query, self._own(facts), dtype)
        return answer_margins(out, torch.tensor(facts.label)).double()

    def batches(self, rows: int, copies: int = 1) -> Iterator[slice]:
        """Slices of at most `BATCH_BYTES` of intermediates, of which `copies` are kept at once."""
        step = max(1, BATCH_BYTES // (copies * self.spec.row_bytes(8)))
        return (slice(i, min(i + step, rows)) for i in range(0, rows, step))

    def to_dense(self) -> VectorMemory:
        """Already a plain layer: as it is."""
        return self

    def to_torch(self) -> torch.nn.Module:
        """A plain `torch.nn.Module` with trainable weights: `forward(context, query)`."""
        return MultiHeadModule(self.spec, dict(self.weights))

    def save(self, folder: str | Path, *, force: bool = False, with_facts: bool = True) -> Path:
        """Write the memory folder; see `byheart.models.memory_files.save`."""
        from byheart.models.memory_files import save

        return save(self, folder, force=force, with_facts=with_facts)

    def _own(self, facts: VectorFacts) -> np.ndarray | None:
        """The contexts of `facts`; None where the memory has the one they share."""
        self.check_fits(facts)
        return None if self.context is not None else facts.contexts()

    def check_fits(self, facts: VectorFacts) -> None:
        """Refuse examples that this memory cannot be asked for."""
        if facts.d != self.spec.d or facts.n != self.spec.n:
            raise FactsError(
                f"the examples have n={facts.n} tokens of d={facts.d} coordinates, the memory "
                f"takes n={self.spec.n}, d={self.spec.d}. Is it the right file?"
            )
        if facts.classes is None and (self.classes or facts.outputs != self.spec.d_out):
            raise FactsError(f"expected {self._labels()}, found labels of {facts.outputs} numbers")
        if facts.classes is not None and (self.classes or 0) < facts.classes:
            raise FactsError(f"expected {self._labels()}, found {facts.classes} classes")
        if self.context is not None and facts.shared and not np.array_equal(
            self.context, facts.context
        ):  # fmt: skip
            raise FactsError(
                "the examples share another context than the one this memory was built for."
            )
        if self.context is not None and not facts.shared:
            raise FactsError("this memory has one shared context, the examples have their own.")

    def _labels(self) -> str:
        return f"{self.classes} classes" if self.classes else f"labels of {self.spec.d_out} numbers"

    def _context(self, context: Tensor | np.ndarray | None) -> Tensor:
        if context is None and self.context is None:
            raise FactsError(
                "this memory was built for examples with contexts of their own: give the context "
                f"(n={self.spec.n}, d={self.spec.d}) with the query."
            )
        chosen = self.context if context is None else context
        return _tensor(chosen)


def _tensor(values: Tensor | np.ndarray | None) -> Tensor:
    # torch.tensor copies: facts keep their arrays read-only.
    return values if isinstance(values, Tensor) else torch.tensor(np.asarray(values))


class MultiHeadModule(torch.nn.Module):
    """Σ_h softmax(E W_K^h W_Q^h^T e)^T E W_V^h W_O^h with trainable weights.

    `forward(context, query)`: (n, d) or (B, n, d), and (B, d) -> (B, d_out).
    """

    def __init__(self, spec: MultiHeadSpec, weights: multi_head.Weights) -> None:
        super().__init__()
        self.spec = spec
        for name in spec.weight_shapes():
            self.register_parameter(name, torch.nn.Parameter(weights[name].clone()))

    def forward(self, context: Tensor, query: Tensor) -> Tensor:
        stacked = {name: w[None] for name, w in self.named_parameters()}
        return multi_head.forward(self.spec, stacked, context, query)[0]
