"""A sharded memory as one would meet it in the wild: rotated, permuted, deep, among other heads.

Whether a method of interpretability finds the heads that hold a fact is a fair question only where
the weights do not show them at a glance. Each disguise keeps the function on the stored facts:

- `rotate`: x -> x R with a random orthogonal R, so that no coordinate means anything; and each head
  gets bases of its own, W_Q A and W_K A with A (r x r), W_V B and B^T W_O with B (d_h x d_h).
- `permute`: the heads of every layer in random order.
- `layers`, `layer`: the memory is one layer of several. The others consist of distractor heads.
- `distractors`: random heads beside those of the memory. They read as the memory's heads do, in its
  own layer most of them through gates copied from one of them, and write into coordinates of their
  own, which neither the memory's heads nor W_U read (before the rotation). The start token stays 0
  there too, so that a closed head adds nothing.
- `noise`: the distractors of the memory's layer and of later ones also write onto what W_U reads,
  as much as changes any logit of a stored fact by `noise` at most. It eats margin.
- `cancelling`: pairs of heads in every layer that read alike and write opposite vectors, large
  ones, onto what W_U reads: nothing in the sum, yet direct logit attribution sees both.

Layers before the memory's write nothing that its heads read, so gates and features stay what they
were. All is verified as stored; the proof of deep attention-only stacks covers it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from byheart._progress import Report, quiet
from byheart.construct.attention_only import gaussians
from byheart.construct.solve import DTYPES
from byheart.errors import ByheartError, CheckFailed, OptionError, check_choice
from byheart.facts import Facts
from byheart.models import attention_only, sharded
from byheart.models.attention_only import Stack
from byheart.models.construction import finite
from byheart.models.devices import on_cpu
from byheart.models.disguised_memory import DisguisedConstruction, DisguisedMemory
from byheart.models.memory import BATCH_BYTES, Memory, answer_margins
from byheart.models.owner import Owners
from byheart.models.sharded_memory import ShardedMemory
from byheart.models.threads import one_thread

PER_HEAD = ("W_Q", "W_K", "W_V", "W_O")
OPEN = 4  # every fourth distractor has no gate: it reads every key
CROWD = 2.0  # open heads of a layer write as much as so many of the memory's, together at most
LOUD = 2.0  # what one of a cancelling pair writes, in lengths of an answer's vector
NOT_IN = "float64: in {first} the disguise loses facts, since gates are no longer exact sums"
NOISE_ROUNDS, NOISE_FROM = 12, 0.8  # until the noise is at most what is asked, and this much of it


@dataclass(frozen=True)
class Disguise:
    """What to do to a sharded memory (`disguise`). `layer` from 0 on, by default the middle one;
    `distractors`: heads beside the memory's in its own layer (the other layers have as many heads
    as that one, all of them distractors); `cancelling`: pairs in each layer; `noise` in logits;
    `dtype`: that of the memory by default, or float64 where that loses facts."""

    rotate: bool = False
    permute: bool = False
    layers: int = 1
    layer: int | None = None
    distractors: int = 0
    cancelling: int = 0
    noise: float = 0.0
    dtype: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.layers <= 64:
            raise OptionError("layers", "between 1 and 64", self.layers)
        if self.layer is not None and not 0 <= self.layer < self.layers:
            hint = "Layers are counted from 0."
            raise OptionError("layer", f"between 0 and {self.layers - 1}", self.layer, hint)
        for name in ("distractors", "cancelling", "noise", "seed"):
            if not 0 <= getattr(self, name) < math.inf:
                raise OptionError(name, "a number from 0 on", getattr(self, name))
        if self.dtype is not None:
            check_choice("dtype", self.dtype, DTYPES)
        if self.noise and not self.distractors and self.depth == self.layers - 1:
            raise ByheartError(
                f"`noise={self.noise}` is written by distractors of the memory's layer or of later "
                "ones, and there are none: give `distractors`, or a `layer` before the last."
            )

    @property
    def depth(self) -> int:
        """The layer of the memory."""
        return self.layers // 2 if self.layer is None else self.layer


@on_cpu
def disguise(
    memory: Memory, options: Disguise | None = None, progress: Report = quiet
) -> DisguisedMemory:
    """The memory in disguise (rotated and permuted where nothing is said), with its owners known.

    >>> import byheart as bh
    >>> memory = bh.build("elements", bh.Sharded(facts_per_head=1))
    >>> hidden = bh.disguise(memory, bh.Disguise(rotate=True, layers=3, cancelling=2))
    >>> hidden.recall("Fe", "name").answer, hidden.owner("Fe", "name").layer
    ('iron', 1)
    """
    options = options or Disguise(rotate=True, permute=True)
    if not isinstance(memory, ShardedMemory):
        raise ByheartError(
            f"only sharded memories, whose owners are known, are disguised; this is {memory.name}. "
            "Build one with `method=sharded`."
        )
    facts = memory.facts
    if facts is None:
        raise ByheartError(
            "this memory was saved without its facts, from which it is verified that the disguise "
            "keeps all of them. Build it again with them."
        )
    first = options.dtype or str(memory.dtype).removeprefix("torch.")

    def tried(dtype: str) -> tuple[DisguisedMemory, np.ndarray]:
        """The disguise in a format, and its margins as it runs and in float64, the smaller ones."""
        with one_thread():
            made = _Draft(memory, facts, replace(options, dtype=dtype), progress).memory()
        return made, np.minimum(made.margins(), made.margins(dtype=torch.float64))

    (made, margins), why = tried(first), ()
    if not (margins > 0).all() and options.dtype is None and first != "float64":
        (made, margins), why = tried("float64"), (NOT_IN.format(first=first),)
    recalled, record = int((margins > 0).sum()), made.construction
    if recalled < facts.T:
        raise CheckFailed(
            f"{recalled:,} of {facts.T:,} facts are recalled from the disguise in {record.dtype}, "
            f"the smallest margin is {margins.min():.3g}. Nothing was written. Use "
            "`dtype=float64`, less `noise`, or fewer `layers`."
        )
    least, why = finite(float(margins.min())), (*record.why, *why)
    return replace(made, construction=replace(record, recalled=recalled, margin=least, why=why))


class _Draft:
    """A disguise in the making, in float64 until it is stored."""

    def __init__(
        self, memory: ShardedMemory, facts: Facts, options: Disguise, progress: Report
    ) -> None:
        self.source, self.facts, self.options, self.progress = memory, facts, options, progress
        self.gaussian = gaussians(options.seed)
        self.order = np.random.default_rng([options.seed, 0xD15])
        dense, weights = sharded.to_dense(memory.spec, memory.tensors)
        self.dense, self.old = dense, {name: w.double() for name, w in weights.items()}
        self.g, self.width = memory.spec.d_g, dense.d
        more = options.layers > 1 or options.distractors > 0
        self.extra = self.g if more else 0
        H = dense.H + options.distractors + 2 * options.cancelling
        self.spec = replace(dense, d=dense.d + self.extra, H=H, layers=options.layers)
        shapes = self.spec.weight_shapes()
        self.weights = {n: torch.zeros(s, dtype=torch.float64) for n, s in shapes.items()}
        self.loud: list[tuple[int, int]] = []  # (layer, head) of distractors that may be noisy
        norms = self.old["W_O"][0].flatten(1).norm(dim=1)
        self.median = float(norms[norms > 0].median())

    def memory(self) -> DisguisedMemory:
        """All of it, stored in the chosen format."""
        self._copy()
        for layer in range(self.spec.layers):
            self._fill(layer)
        noise = self._noise() if self.options.noise else 0.0
        heads = self._permuted()
        source, made = self.source, self.source.construction
        owners = source.owners()
        assert owners is not None
        survive = owners.survive if owners.others else self._survivors(owners, heads)
        if self.options.rotate:
            self._rotate()
        mine = [tuple(sorted(heads[h] for h in some)) for some in owners.heads]
        options, pairs = self.options, self.options.cancelling * self.spec.layers
        distractors = self.spec.H * self.spec.layers - self.dense.H - 2 * pairs
        construction = DisguisedConstruction(
            facts=made.facts, capacity=made.capacity, readout=made.readout, seed=options.seed,
            dtype=str(options.dtype), ideal_margin=made.ideal_margin, layer=options.depth,
            shard=tuple(owners.shard.tolist()), heads=tuple(mine), others=owners.others,
            survive=survive, rotated=options.rotate, permuted=options.permute,
            distractors=distractors, cancelling=pairs, noise=noise,
            width=self.width, why=(*made.why, *self._why()),
        )  # fmt: skip
        dtype = DTYPES[str(options.dtype)]
        return DisguisedMemory(
            spec=self.spec,
            weights={name: w.to(dtype).contiguous() for name, w in self.weights.items()},
            construction=construction,
            vocabulary=source.vocabulary,
            facts=self.facts,
            start_id=source.spec.N - 1,
            pad_id=source.pad_id,
            order=source.order,
        )

    def _why(self) -> tuple[str, ...]:
        words = (f"layer {self.options.depth} of {self.spec.layers} holds the facts",)
        if self.options.cancelling:
            words += (
                "zeroing one head of a cancelling pair changes every logit, and may lose facts "
                "that it does not hold; zeroing both changes none",
            )
        return words

    def _copy(self) -> None:
        """The memory itself: layer `depth`, first heads, first coordinates."""
        weights, old, d, H = self.weights, self.old, self.width, self.dense.H
        for name in ("W_E", "W_pos"):
            weights[name][:, :d] = old[name]
            size = float(old[name][:, : self.g].square().mean().sqrt())
            weights[name][:, d:] = size * self.gaussian(len(old[name]), self.extra)
        weights["W_E"][-1], weights["W_pos"][0] = 0.0, 0.0  # x_BOS = 0: closed heads add nothing
        weights["W_U"][:d] = old["W_U"]
        for name in PER_HEAD:
            place = weights[name][self.options.depth, :H]
            (place[..., :d] if name == "W_O" else place[:, :d]).copy_(old[name][0])

    def _fill(self, layer: int) -> None:
        """Cancelling pairs, and distractors in all other heads of a layer."""
        first = self.dense.H if layer == self.options.depth else 0
        for _ in range(self.options.cancelling):
            a, b = first, first + 1
            self._draw(layer, a, gated=False)
            for name in PER_HEAD:
                self.weights[name][layer, b] = self.weights[name][layer, a]
            W = self.gaussian(self.spec.d_h, self.g)
            W *= LOUD / self._writes(layer, a, W)
            self.weights["W_O"][layer, a] = self.weights["W_O"][layer, b] = 0.0
            self.weights["W_O"][layer, a, :, : self.g] = W
            self.weights["W_O"][layer, b, :, : self.g] = -W
            first += 2
        rest = range(first, self.spec.H)
        # Gates multiply the error bounds of what lies below: in other layers no proof would hold.
        opened = max(1, len(rest) // OPEN) if layer == self.options.depth else len(rest)
        for i, h in enumerate(rest):
            gated = i >= opened
            size = self._draw(layer, h, gated) * (1.0 if gated else min(1.0, CROWD / opened))
            W = self.gaussian(self.spec.d_h, self.extra)
            self.weights["W_O"][layer, h, :, self.width :] = W * (size / W.norm())
            if layer >= self.options.depth:
                self.loud.append((layer, h))

    def _draw(self, layer: int, h: int, gated: bool) -> float:
        """Scores and values of a head like those of a random one of the memory, with its gates if
        `gated`; the length of W_O that goes with them."""
        weights, g, d = self.weights, self.g, self.width
        model = int(self.order.integers(self.source.spec.H))
        own = [*range(g), *range(d, self.spec.d)]
        for name in ("W_Q", "W_K"):
            if gated:
                weights[name][layer, h, :d, 1:] = self.old[name][0, model][:, 1:]
            size = float(self.old[name][0, model, :g, 0].square().mean().sqrt())
            weights[name][layer, h, own, 0] = (
                size * self.gaussian(len(own)) / math.sqrt(len(own) / g)
            )
        V = torch.linalg.qr(self.gaussian(len(own), self.spec.d_h)).Q
        weights["W_V"][layer, h, own] = V
        return min(float(self.old["W_O"][0, model].norm()), self.median)

    def _writes(self, layer: int, h: int, W: Tensor) -> float:
        """The length of what a head with W_O = (W, 0) writes for a typical token."""
        x = self.weights["W_E"][:-1] + self.weights["W_pos"][-1]
        return float((x @ self.weights["W_V"][layer, h] @ W).norm(dim=1).mean())

    def _logits(self) -> Tensor:
        """Of all stored facts, as it stands."""
        stacked = {name: w[None] for name, w in self.weights.items()}
        step = max(1, BATCH_BYTES // self.spec.row_bytes(8))
        batches = self.source.with_start(self.facts.tokens).split(step)
        return torch.cat([attention_only.forward(self.spec, stacked, b)[0] for b in batches])

    def _noise(self) -> float:
        """Let distractors write onto what W_U reads; the largest change of a logit that results,
        `NOISE_FROM` of what was asked or more, and never more than that."""
        self.progress("measuring the noise of distractors")
        quiet_logits, W_O = self._logits(), self.weights["W_O"]
        drawn = {(k, h): self.gaussian(self.spec.d_h, self.g) for k, h in self.loud}
        sizes = {at: float(W_O[at].norm() / drawn[at].norm()) for at in drawn}
        scale, found = 1.0, 0.0
        for _ in range(NOISE_ROUNDS):
            for at, W in drawn.items():
                W_O[at][:, : self.g] = scale * sizes[at] * W
            found = float((self._logits() - quiet_logits).abs().max())
            if NOISE_FROM * self.options.noise <= found <= self.options.noise:
                return found
            scale *= 0.9 * self.options.noise / max(found, 1e-300)
        raise CheckFailed(
            f"no strength of the distractors changes logits by {self.options.noise:g}: the last "
            f"one changed them by {found:.3g}. Use less `noise` or more `distractors`."
        )

    def _permuted(self) -> list[int]:
        """Where each head of the memory is now."""
        heads = list(range(self.spec.H))
        for layer in range(self.spec.layers if self.options.permute else 0):
            order = torch.from_numpy(self.order.permutation(self.spec.H))
            for name in PER_HEAD:
                self.weights[name][layer] = self.weights[name][layer][order]
            if layer == self.options.depth:
                heads = order.argsort().tolist()
        return heads

    def _survivors(self, owners: Owners, heads: list[int]) -> tuple[int, ...]:
        """Facts that are named without the heads that hold them, each without its own only: those
        of others are silent at the end of its key, but what they write at earlier tokens is read
        by noisy heads of later layers."""
        spec, layer = self.spec, self.options.depth
        stack = Stack(spec, {name: w[None] for name, w in self.weights.items()})
        W_O, W_U = self.weights["W_O"][layer], self.weights["W_U"]
        zeroed = torch.zeros(len(owners.heads), spec.H, dtype=torch.float64)
        for row, some in zip(zeroed, owners.heads, strict=True):
            row[[heads[h] for h in some]] = 1.0
        inputs = self.source.with_start(self.facts.tokens)
        answers, kept = torch.tensor(self.facts.answers), []
        step = max(1, BATCH_BYTES // (spec.S * spec.row_bytes(8)))  # every position is computed
        shard = torch.from_numpy(owners.shard)
        for rows in (shard >= 0).nonzero()[:, 0].split(step):
            x = stack.embed(inputs[rows])
            for k in range(layer):
                x = stack.all_positions(k, x)
            stays = 1.0 - zeroed[shard[rows]]
            F = stack.heads(layer, x, last_only=False) * stays[:, None, :, None]
            x = x + torch.einsum("mbshe,hed->mbsd", F, W_O)
            for k in range(layer + 1, spec.layers):
                x = stack.all_positions(k, x)
            margins = answer_margins(x[0, :, -1] @ W_U, answers[rows])
            kept += rows[margins > 0].tolist()
        return tuple(kept)

    def _rotate(self) -> None:
        """Random orthogonal bases of the stream and of every head, whose W_Q and W_K first get
        equal lengths."""
        weights, spec = self.weights, self.spec
        R, heads = self._orthogonal(spec.d), (spec.layers, spec.H)
        A, B = self._orthogonal(spec.qk_rank, *heads), self._orthogonal(spec.d_h, *heads)
        q, k = (weights[name].norm(dim=2, keepdim=True) for name in ("W_Q", "W_K"))
        balance = torch.where((q > 0) & (k > 0), (k / q).sqrt(), 1.0).log2().round().exp2()
        weights["W_Q"], weights["W_K"] = weights["W_Q"] * balance, weights["W_K"] / balance
        for name in ("W_E", "W_pos"):
            weights[name] = weights[name] @ R
        weights["W_U"] = R.T @ weights["W_U"]
        for name, own in (("W_Q", A), ("W_K", A), ("W_V", B)):
            weights[name] = R.T @ weights[name] @ own
        weights["W_O"] = B.transpose(2, 3) @ weights["W_O"] @ R

    def _orthogonal(self, n: int, *many: int) -> Tensor:
        """Uniformly distributed (Haar): (*many, n, n)."""
        Q, upper = torch.linalg.qr(self.gaussian(*many, n, n))
        return Q * upper.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]
