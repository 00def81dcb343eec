"""A memory as a language model that is prompted: words in the order of the table, a token for
unknown words, and an end.

A tokenizer of another library cannot change the order of words, and a memory may read its key in
another order (`order`). Then the tokenizer puts an [ASK] token behind the key, and one layer is put
in front of the memory's: it copies there what the memory reads last. The place it was copied from
is shut for the layers behind. Positions carry one coordinate for each class of them:

    plain | source of a copy, ... | [ASK], ... | behind the key

Two heads copy coordinates i to j: both attend to the own class, except that the first one attends
from [ASK] to its source; their difference is x_source at [ASK] and exactly 0 elsewhere, because
e^-`SURE` is 0 in float32 and in float64. Behind the key the model says [END].
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from byheart.exports.normal import dense_spec, normal_form, normal_spec
from byheart.models.memory import Memory
from byheart.models.token_memory import TokenMemory
from byheart.specs import AttentionOnlySpec

SURE = 1024.0  # e^-1024 is 0 in float64
SPARE = 16  # positions behind the key, where generated tokens are read
SPECIAL = ("[UNK]", "[END]", "[ASK]")


@dataclass(frozen=True)
class Layout:
    """Where the tokens of a key stand in a prompt: `before` start tokens, then the columns as they
    are asked, then one [ASK] for each of the columns that are `moved`.

    >>> Layout(before=1, order=(1, 0)).moved
    (0,)
    """

    before: int
    order: tuple[int, ...]

    @property
    def kept(self) -> tuple[int, ...]:
        """The first columns that the memory reads, as long as they stand in its order."""
        rise = (i for i in range(1, len(self.order)) if self.order[i] < self.order[i - 1])
        return self.order[: next(rise, len(self.order))]

    @property
    def moved(self) -> tuple[int, ...]:
        return self.order[len(self.kept) :]

    @property
    def length(self) -> int:
        """Tokens of a prompt."""
        return self.before + len(self.order) + len(self.moved)

    @property
    def classes(self) -> int:
        return 2 + 2 * len(self.moved)

    def class_of(self, position: int) -> int:
        """The class of a position: 0 plain, 1.. sources, then [ASK]s, the last behind the key."""
        moved, end = len(self.moved), self.before + len(self.order)
        if position >= end:
            return 1 + moved + min(position - end, moved)
        column = position - self.before
        return 1 + self.moved.index(column) if column in self.moved else 0


@dataclass(frozen=True)
class Prompted:
    """A memory in normal form that reads prompts, and the tokens that it has besides: its S
    positions are those of the longest prompt, of which the key has `layout.length`; `start_id` and
    `pad_id` are as they were. `shift`: how many layers stand in front of those of the memory.
    """

    memory: TokenMemory
    layout: Layout
    shift: int

    @property
    def unknown_id(self) -> int:
        return self.memory.spec.N - 2 - self.shift

    @property
    def end_id(self) -> int:
        return self.unknown_id + 1

    @property
    def ask_ids(self) -> list[int]:
        """What stands behind the key."""
        return [self.end_id + 1] * len(self.layout.moved)

    def prompts(self, tokens: Tensor) -> Tensor:
        """Keys (B, columns) as the table has them -> token ids (B, length) as the model reads."""
        rows, start = len(tokens), self.memory.start_id
        front = tokens.new_full((rows, 0 if start is None else 1), start or 0)
        back = tokens.new_tensor(self.ask_ids).expand(rows, -1)
        return torch.cat([front, tokens, back], dim=1)


def prompt_layout(memory: Memory) -> Layout:
    """The layout of a memory that is asked in words."""
    n = memory.key_length  # type: ignore[attr-defined]
    order = getattr(memory, "order", None) or range(n)
    return Layout(dense_spec(memory).S - n, tuple(order))


def prompted_spec(spec: AttentionOnlySpec, layout: Layout) -> AttentionOnlySpec:
    """The spec of `prompted`, for a layer with this spec."""
    form, moved = normal_spec(spec), len(layout.moved)
    H, width = form.H, form.d_h
    if moved:
        H = max(H, 2)
        width = max(width + 1, layout.classes, -(-form.d // (H // 2)))
    special = len(SPECIAL) if moved else len(SPECIAL) - 1
    return AttentionOnlySpec(
        N=form.N + special,
        S=layout.length + SPARE,
        d=form.d + layout.classes,
        d_h=width,
        H=H,
        layers=form.layers + bool(moved),
    )


def prompted(memory: Memory) -> Prompted:
    """The memory that reads prompts; logits of its own tokens are those of the memory.

    >>> import byheart as bh
    >>> made = prompted(bh.build("countries", "sharded"))
    >>> made.layout.moved, made.shift, made.memory.vocabulary.tokens[-3:]
    ((0,), 1, ('[UNK]', '[END]', '[ASK]'))
    """
    layout = prompt_layout(memory)
    form, spec = normal_form(memory)
    wide = prompted_spec(dense_spec(memory), layout)
    old, shift = form.weights, wide.layers - spec.layers
    new = {name: torch.zeros(s, dtype=form.dtype) for name, s in wide.weight_shapes().items()}
    bounds = stream_bounds(form, spec)
    classes = slice(spec.d, wide.d)
    new["W_E"][: spec.N, : spec.d] = old["W_E"]
    new["W_pos"] = _positions(old["W_pos"], layout, new["W_pos"])
    new["W_U"][: spec.d, : spec.N] = old["W_U"]
    most = float(old["W_U"].abs().sum(0).max()) * bounds[-1]
    new["W_U"][classes, spec.N :] = _special_logits(layout, wide.N - spec.N, most)
    for name in ("W_Q", "W_K", "W_V"):
        new[name][shift:, : spec.H, : spec.d, : spec.d_h] = old[name]
    new["W_O"][shift:, : spec.H, : spec.d_h, : spec.d] = old["W_O"]
    if shift:
        _copy(new, layout, spec.d)
        sources = slice(spec.d + 1, spec.d + 1 + len(layout.moved))
        for layer, bound in enumerate(bounds[:-1]):
            depth = _power(2 * _largest_score(old, layer, bound) + SURE)
            new["W_Q"][layer + shift, : spec.H, classes, spec.d_h] = -depth
            new["W_K"][layer + shift, : spec.H, sources, spec.d_h] = 1.0
    vocabulary = form.vocabulary
    for name in SPECIAL[: wide.N - spec.N]:
        vocabulary, _ = vocabulary.with_special(name)
    made = replace(form, spec=wide, weights=new, vocabulary=vocabulary, order=None, facts=None)
    return Prompted(made, layout, shift)


def _positions(old: Tensor, layout: Layout, new: Tensor) -> Tensor:
    """W_pos: what the memory adds, at the place where its token stands; and the classes."""
    d, before = old.shape[1], layout.before
    places = [*range(before), *(before + column for column in layout.order)]
    new[places, :d] = old
    for position in range(len(new)):
        new[position, d + layout.class_of(position)] = 1.0
    return new


def _special_logits(layout: Layout, special: int, most: float) -> Tensor:
    """(classes, special): lower than every logit of the memory, which are at most `most`; but
    behind the key the end leads all others."""
    logits = torch.full((layout.classes, special), -_power(2 * most + 1), dtype=torch.float64)
    logits[-1, SPECIAL.index("[END]")] *= -1
    return logits


def _copy(new: dict[str, Tensor], layout: Layout, d: int) -> None:
    """The first layer: x_[ASK] = x_source, which is 0 before; all else stays."""
    width, moved = new["W_V"].shape[-1], len(layout.moved)
    own = torch.eye(layout.classes)
    target = own.clone()
    target[1 + moved : 1 + 2 * moved] = own[1 : 1 + moved]  # from [ASK] to its source
    classes = slice(d, d + layout.classes)
    for i, first in enumerate(range(0, d, width)):
        some = torch.arange(first, min(first + width, d))
        channels = torch.arange(len(some))
        for head, attends, sign in ((2 * i, target, 1.0), (2 * i + 1, own, -1.0)):
            new["W_Q"][0, head, classes, : layout.classes] = SURE * attends.to(new["W_Q"].dtype)
            new["W_K"][0, head, classes, : layout.classes] = own.to(new["W_K"].dtype)
            new["W_V"][0, head, some, channels] = 1.0
            new["W_O"][0, head, channels, some] = sign


def stream_bounds(form: TokenMemory, spec: AttentionOnlySpec) -> list[float]:
    """Bounds of max|x| in the stream of a normal form, before each layer and after the last one.

    Attention averages, so that a layer lets it grow by at most the factor 1 + Σ_h ‖W_V^h W_O^h‖
    (largest column sum of |·|)."""
    w = form.weights
    bounds = [float(w["W_E"].abs().max() + w["W_pos"].abs().max())]
    for layer in range(spec.layers):
        growth = 0.0
        for h in range(spec.H):
            OV = w["W_V"][layer, h].double() @ w["W_O"][layer, h].double()
            growth += float(OV.abs().sum(0).max())
        bounds.append(bounds[-1] * (1 + growth))
    return bounds


def _largest_score(weights: Mapping[str, Tensor], layer: int, bound: float) -> float:
    """max |x W_Q · y W_K| over heads, for coordinates of x and y up to `bound`."""
    q, k = (weights[name][layer].double().abs().sum(1) for name in ("W_Q", "W_K"))
    return float((q * k).sum(1).max()) * bound**2


def _power(number: float) -> float:
    """The next power of 2, which float32 holds exactly."""
    return 2.0 ** math.ceil(math.log2(number))
