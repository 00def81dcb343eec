"""Hidden states of a model, layer by layer, batch by batch: only what is measured is kept.

Layer i is what attention block i reads from (the stream before its own norm, if it has one); layer
0 are the embeddings, the last one is what leaves the model's stack (after its final norm in GPT-2
and Llama, as transformers reports it).
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from byheart._progress import Report, quiet
from byheart.audits.float64 import TrueFloat64
from byheart.audits.inputs import Contexts
from byheart.audits.models import FoundModel, guarded_memory, readable
from byheart.audits.settings import AuditSettings
from byheart.errors import ByheartError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

SATURATED = 0.99  # the paper's threshold
KEPT_BYTES = 2**30  # of whole contexts, for their ranks


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
        columns = {name: values.tolist() for name, values in vars(self).items()}
        return [
            {"head": h, **{name: values[h] for name, values in columns.items()}}
            for h in range(len(self.saturated))
        ]


@dataclass
class States:
    layers: list[LayerStates]
    heads: list[HeadStates]
    kept: int


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
    import torch

    T, n = contexts.T, contexts.n
    K = kept_contexts(found, contexts, settings.ranked)
    layers = found.spec.layers + 1
    numbers = np.dtype(dtype)
    d = found.spec.d
    main = kinds[0]
    states = States(
        [
            LayerStates(
                {kind: np.empty((T, d), numbers) for kind in (*kinds, "e+mean")},
                np.empty((K, n, d), numbers),
            )
            for _ in range(layers)
        ],
        [HeadStates(*np.zeros((4, found.spec.H))) for _ in range(found.spec.layers)],
        K,
    )
    positions = np.random.default_rng(settings.seed).integers(n, size=T)
    at = {"first": np.zeros(T, int), "last": np.full(T, n - 1), "every": positions}
    reads = "pixel_values" if found.images else "input_ids"
    exact = TrueFloat64 if dtype == "float64" else nullcontext
    for start in range(0, T, settings.batch):
        progress(f"{start:,} of {T:,} contexts, {dtype}")
        rows = slice(start, min(start + settings.batch, T))
        values = torch.tensor(contexts.values[rows])
        values = values.to(getattr(torch, dtype)) if found.images else values.long()
        shown = {reads: values.to(settings.device)}
        with (
            readable(
                f"{found.path}: what the model says", "Its config may not be that of its weights."
            ),
            guarded_memory(settings.batch),
            torch.inference_mode(),
            exact(),
        ):
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
    import torch

    entropy = -(torch.special.xlogy(a, a)).sum(-1)  # (B, H, n)
    full = (a.amax(-1) > SATURATED).double()
    least = int(causal)
    count = T * (a.shape[-2] - least)
    head.saturated += full[:, :, position].sum(0).numpy() / T
    head.entropy += entropy[:, :, position].sum(0).numpy() / T
    head.saturated_every += full[:, :, least:].sum((0, 2)).numpy() / count
    head.entropy_every += entropy[:, :, least:].sum((0, 2)).numpy() / count
