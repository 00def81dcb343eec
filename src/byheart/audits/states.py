"""Hidden states of a model, layer by layer, batch by batch: only what is measured is kept.

Layer i is what attention block i reads from (the stream before its own norm, if it has one); layer
0 are the embeddings, the last one is what leaves the model's stack (after its final norm in GPT-2
and Llama, as transformers reports it).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from byheart._progress import Report, quiet
from byheart.audits.inputs import Contexts
from byheart.audits.models import FoundModel, guarded_memory, readable
from byheart.audits.settings import AuditSettings
from byheart.errors import ByheartError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SATURATED = 0.99  # the paper's threshold
KEPT_BYTES = 2**30  # of whole contexts, for their ranks
Function = Callable[..., object]
WIDER: dict[Function, Function] = {Tensor.float: Tensor.double}


class TrueFloat64(TorchFunctionMode):
    """While active, casts to float32 become casts to float64: transformers casts to float32 inside
    RMSNorm, rotary positions and softmax, so a model in float64 still carries float32 noise, and
    every rank above that noise would look full.

    >>> x = torch.tensor([1.0], dtype=torch.float64)
    >>> with TrueFloat64():
    ...     x.float().dtype, torch.softmax(x, 0, dtype=torch.float32).dtype
    (torch.float64, torch.float64)
    """

    def __torch_function__(
        self,
        func: Function,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        kwargs = dict(kwargs or {})
        args = tuple(torch.float64 if a is torch.float32 else a for a in args)
        if kwargs.get("dtype") is torch.float32:
            kwargs["dtype"] = torch.float64
        return WIDER.get(func, func)(*args, **kwargs)


@dataclass
class LayerStates:
    """Of one layer: `queries` (T, d) by kind, `contexts` (K, n, d) of the first K contexts.

    Kinds: "first" ([CLS]), "last", "every" (one token of each context, at a random position) and
    "e+mean" (the main query plus the mean token, Assumption 3).
    """

    queries: dict[str, np.ndarray]
    contexts: np.ndarray


@dataclass
class HeadStates:
    """Of one attention block: `saturated` and `entropy` (nats) a head, of the main query, and of
    all tokens."""

    saturated: np.ndarray
    entropy: np.ndarray
    saturated_every: np.ndarray
    entropy_every: np.ndarray

    def to_json(self) -> list[dict[str, float | int]]:
        """One object a head."""
        rows = zip(*(values.tolist() for values in vars(self).values()), strict=True)
        return [
            {"head": h, **dict(zip(vars(self), row, strict=True))} for h, row in enumerate(rows)
        ]


@dataclass
class States:
    layers: list[LayerStates]
    heads: list[HeadStates]


def kept_contexts(found: FoundModel, contexts: Contexts, ranked: int) -> int:
    """How many whole contexts are kept for their ranks: at most `ranked`, at most 1 GiB."""
    one = 8 * contexts.n * found.spec.d * (found.spec.layers + 1)
    return max(1, min(ranked, contexts.T, KEPT_BYTES // one))


def collect(
    model: PreTrainedModel,
    found: FoundModel,
    contexts: Contexts,
    kinds: tuple[str, ...],
    dtype: str,
    settings: AuditSettings,
    progress: Report = quiet,
) -> States:
    """Run the model over all contexts in batches and keep queries, some contexts, head sums."""
    T, n = contexts.T, contexts.n
    K = kept_contexts(found, contexts, settings.ranked)
    layers = found.spec.layers + 1
    d, main = found.spec.d, kinds[0]

    def empty_layer() -> LayerStates:
        queries = {kind: np.empty((T, d), dtype) for kind in (*kinds, "e+mean")}
        return LayerStates(queries, np.empty((K, n, d), dtype))

    states = States(
        [empty_layer() for _ in range(layers)],
        [HeadStates(*np.zeros((4, found.spec.H))) for _ in range(found.spec.layers)],
    )
    positions = np.random.default_rng(settings.seed).integers(n, size=T)
    at = {"first": np.zeros(T, int), "last": np.full(T, n - 1), "every": positions}
    reads = "pixel_values" if found.images else "input_ids"
    exact = TrueFloat64 if dtype == "float64" else nullcontext
    for start in range(0, T, settings.batch):
        progress(f"{start:,} of {T:,} contexts, {dtype}")
        rows = slice(start, min(start + settings.batch, T))
        numbers = getattr(torch, dtype) if found.images else torch.long
        shown = {reads: torch.tensor(contexts.values[rows]).to(numbers).to(settings.device)}
        said = readable(f"{found.path}: what the model says", "Are config and weights one model's?")
        with said, guarded_memory(settings.batch), torch.inference_mode(), exact():
            out = model(**shown, output_hidden_states=True, output_attentions=True)
        hidden = [h.to("cpu").numpy() for h in out.hidden_states]
        if len(hidden) != layers or hidden[0].shape[1] != n:
            raise ByheartError(
                f"{found.name}: expected {layers} layers of {n} tokens, the model gave "
                f"{len(hidden)} of {hidden[0].shape[1]}."
            )
        index = np.arange(rows.stop - rows.start)
        for layer, h in zip(states.layers, hidden, strict=True):
            if not np.isfinite(h).all():
                raise ByheartError(f"{found.name}: a hidden state is not finite ({dtype}).")
            for kind in kinds:
                layer.queries[kind][rows] = h[index, at[kind][rows]]
            layer.queries["e+mean"][rows] = h[index, at[main][rows]] + h.mean(1)
            if start < K:
                layer.contexts[start : rows.stop] = h[: K - start]
        for head, attention in zip(states.heads, out.attentions, strict=True):
            own = 0 if main == "first" else -1
            _add(head, attention.to("cpu").double(), own, T, found.causal)
    return states


def _add(head: HeadStates, a: Tensor, position: int, T: int, causal: bool) -> None:
    """Sums over contexts and query positions, divided by their number. The first token of a causal
    model sees only itself and is left out of "every"."""
    entropy = -(torch.special.xlogy(a, a)).sum(-1)  # (B, H, n)
    full = (a.amax(-1) > SATURATED).double()
    least = int(causal)
    count = T * (a.shape[-2] - least)
    head.saturated += full[:, :, position].sum(0).numpy() / T
    head.entropy += entropy[:, :, position].sum(0).numpy() / T
    head.saturated_every += full[:, :, least:].sum((0, 2)).numpy() / count
    head.entropy_every += entropy[:, :, least:].sum((0, 2)).numpy() / count
