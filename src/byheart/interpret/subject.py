"""A model to look into: its heads in plain PyTorch, and a count of what looking costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor, nn

from byheart.errors import ByheartError
from byheart.models import Memory, TokenMemory
from byheart.specs import AttentionOnlySpec

Edit = Callable[[int, Tensor], Tensor]
"""(layer, what its heads write (B, S, H, d)) -> what they write instead."""
BATCH_BYTES = 64 * 2**20  # of what all heads write, in one batch


@dataclass(frozen=True)
class Run:
    """What passed through the model for B keys. `logits` (B, N); `heads` (layers, B, S, H, d), what
    each head writes at each position; `patterns` (layers, B, H, S, S), whom it reads (query, key);
    `streams` (layers + 1, B, S, d), the residual stream before each layer and after the last."""

    logits: Tensor
    heads: Tensor
    patterns: Tensor
    streams: Tensor


class Subject:
    """An attention-only Transformer as an attribution method gets it; who owns what is not in it.

    `module` is the plain `torch.nn.Module` (float64, no gradients of weights), with hooks; `layers`
    and `H` say how many heads there are, `W_U` (d, N) turns the stream into logits, `start` is
    whether position 0 holds the start token. `keys` (T, S) and `answers` (T,) are all facts of the
    model, for baselines and for patching. Every method below counts: a key that passes through the
    model is one of `forwards`, a gradient one of `backwards`.

    >>> import byheart as bh
    >>> facts = bh.random_associations(N=8, S=2, T=12, seed=1)
    >>> subject = Subject(bh.build(facts, "sharded"))
    >>> seen = subject.run(subject.keys[:3])
    >>> total = seen.streams[0] + seen.heads[0].sum(2)
    >>> torch.allclose(total[:, -1] @ subject.W_U, seen.logits), subject.forwards
    (True, 3)
    """

    def __init__(self, memory: Memory, seed: int = 0) -> None:
        dense = dense_memory(memory)
        assert dense.facts is not None
        self.module: nn.Module = dense.to_torch().double().requires_grad_(False)
        self.layers, self.H = dense.spec.layers, dense.spec.H  # type: ignore[attr-defined]
        self.W_U = dense.weights["W_U"].double()
        self.start = dense.start_id is not None
        self.keys = dense.inputs_of(dense.facts)
        self.answers = torch.tensor(dense.facts.answers)
        self.generator = torch.Generator().manual_seed(seed)
        self.forwards = self.backwards = 0

    def run(self, keys: Tensor) -> Run:
        """Everything that keys (B, S) make the heads read and write."""
        seen: dict[tuple[str, int], Tensor] = {}

        def note(name: str, layer: int, _: nn.Module, __: object, output: Tensor) -> None:
            seen[name, layer] = output

        places = {"heads": "hook_heads", "patterns": "hook_pattern", "streams": "hook_resid_post"}
        with torch.no_grad(), self._hooks(places, note):
            embedded = self.module.hook_embed.register_forward_hook(partial(note, "streams", -1))  # type: ignore[union-attr]
            try:
                logits = self._counted(keys)
            finally:
                embedded.remove()
        stacked = {
            name: torch.stack([seen[name, layer] for layer in range(self.layers)])
            for name in places
        }
        streams = torch.cat([seen["streams", -1][None], stacked["streams"]])
        return Run(logits, stacked["heads"], stacked["patterns"], streams)

    def logits(self, keys: Tensor, edit: Edit | None = None) -> Tensor:
        """Logits (B, N) of keys (B, S); `edit` changes what heads write on the way. Gradients flow
        through it."""

        def change(_: str, layer: int, __: nn.Module, ___: object, output: Tensor) -> Tensor | None:
            return None if edit is None else edit(layer, output)

        with self._hooks({"heads": "hook_heads"}, change):
            return self._counted(keys)

    def gated(self, key: Tensor, gates: Tensor) -> Tensor:
        """Logits (B, N) of one key (S,) with what each head writes multiplied by its gate, (B,
        layers, H), at every position: 1 leaves the head as it is, 0 removes it."""

        def gate(layer: int, heads: Tensor) -> Tensor:
            return heads * gates[:, layer, None, :, None]

        return self.logits(key.expand(len(gates), -1), gate)

    def gradients(self, values: Tensor, of: Tensor) -> Tensor:
        """d values_b / d of_b, the shape of `of` (B, ...): one backward pass for each of the B."""
        self.backwards += len(values)
        return torch.autograd.grad(values.sum(), of)[0]

    def replaced(self, seen: Run, values: Tensor) -> Tensor:
        """Logits (layers, H, N) of the key that was `seen`, one, with each head in turn, and it
        alone, replaced: it writes values[layer, head] (S, d) instead. As many forward passes as
        there are heads.

        A pass begins at the layer of its head, with the stream that the unchanged key has there.
        """
        rows = [self._from_layer(layer, seen, values[layer]) for layer in range(self.layers)]
        self.forwards += self.layers * self.H
        return torch.stack(rows)

    @torch.no_grad()
    def _from_layer(self, layer: int, seen: Run, values: Tensor) -> Tensor:
        """Logits (H, N) with each head of a layer replaced by values (H, S, d)."""
        changes = values - seen.heads[layer, 0].transpose(0, 1)
        stream = seen.streams[layer + 1, 0] + changes
        step = max(1, BATCH_BYTES // (8 * changes.numel()))
        out = []
        for some in stream.split(step):
            x = some
            for later in list(self.module.layers)[layer + 1 :]:  # type: ignore[arg-type]
                x = later(x, self._positions)
            out.append(x[:, -1] @ self.W_U)
        return torch.cat(out)

    @cached_property
    def mean_heads(self) -> Tensor:
        """What each head writes at each position, the mean over all `keys`: (layers, H, S, d)."""
        step = max(1, BATCH_BYTES // (8 * self.H * self.keys.shape[1] * len(self.W_U)))
        total = sum(self.run(some).heads.sum(1) for some in self.keys.split(step))
        assert isinstance(total, Tensor)
        return total.transpose(1, 2) / len(self.keys)

    def others(self, answer: int, number: int) -> Tensor:
        """Keys (number, S) of facts that have another answer, drawn at random."""
        rows = (self.answers != answer).nonzero()[:, 0]
        if not len(rows):
            raise ByheartError(
                "every fact of this memory has the same answer: there is no key with another one "
                "to patch or to resample from. Take facts with two answers or more."
            )
        drawn = torch.randint(len(rows), (number,), generator=self.generator)
        return self.keys[rows[drawn]]

    def _counted(self, keys: Tensor) -> Tensor:
        self.forwards += len(keys)
        return self.module(keys)

    @property
    def _positions(self) -> Tensor | None:
        config: dict[str, object] = self.module.config  # type: ignore[assignment]
        return self.module.W_pos if config["positions"] == "attention" else None  # type: ignore[return-value]

    @contextmanager
    def _hooks(self, places: dict[str, str], call: Callable[..., object]) -> Iterator[None]:
        hooks = [
            getattr(part, place).register_forward_hook(partial(call, name, layer))
            for layer, part in enumerate(self.module.layers)  # type: ignore[arg-type]
            for name, place in places.items()
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def dense_memory(memory: Memory) -> TokenMemory:
    """A memory as one attention-only Transformer with every head written out, and its facts."""
    dense = memory.to_dense() if isinstance(memory, TokenMemory) else None
    if dense is None or not isinstance(dense.spec, AttentionOnlySpec):
        raise ByheartError(
            f"heads are searched in attention-only Transformers, found a {memory.name}. Build the "
            "facts with `method=sharded`."
        )
    if dense.facts is None:
        raise ByheartError(
            "this memory was saved without its facts: there are no keys to ask. Build it again "
            "without `with_facts=False`."
        )
    return dense


def leads(logits: Tensor, answer: int, runner_up: int) -> Tensor:
    """How far the answer leads: logit of the answer minus that of the runner-up, over the last
    axis."""
    return logits[..., answer] - logits[..., runner_up]


def runner_up(logits: Tensor, answer: int) -> int:
    """The best of the other tokens, by logits (N,)."""
    return int(logits.index_fill(0, torch.tensor([answer]), -torch.inf).argmax())
