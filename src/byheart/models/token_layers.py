"""The layers of token memories: described part by part, and margins split over their heads."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from byheart.models.memory import HeadParts, Part
from byheart.specs import TokenSpec

HEADS = ("W_Q", "W_K", "W_V", "W_O")


def margin_parts(
    at: Tensor,
    heads: Tensor,
    skip: Tensor,
    written: Tensor,
    attention: Tensor,
    W_U: Tensor,
    answers: Tensor | None,
) -> HeadParts:
    """(w_g - w_j)·W_O^h F^h(t) for answer g and runner-up j, head by head."""
    logits = (skip + written.sum(1)) @ W_U
    g = logits.argmax(1) if answers is None else answers
    j = logits.scatter(1, g[:, None], -torch.inf).argmax(1)
    direction = (W_U[:, g] - W_U[:, j]).T
    parts = torch.einsum("bhd,bd->bh", written, direction)
    through = (skip * direction).sum(1)
    return HeadParts(at, heads, parts, through, attention, g, j, logits, written)


def token_parts(spec: TokenSpec, key_length: int, answer: Part, *notes: str) -> tuple[Part, ...]:
    """The parts of a Transformer over tokens, or of whatever weights the spec names."""
    shapes = spec.weight_shapes()
    size = {name: math.prod(shape) for name, shape in shapes.items()}
    plural = "s"[: key_length > 1]
    start = ("behind a start token",) if spec.S > key_length else ()
    key = Part("key", (f"{key_length} token{plural}", f"of {spec.N:,}", *start))
    if "W_Q" not in shapes:
        blocks = [Part(n, (" × ".join(map(str, s)),), size[n]) for n, s in shapes.items()]
        return (key, *blocks, answer)
    sizes = spec.to_json()
    d, H, layers = sizes["d"], sizes["H"], sizes.get("layers", 1)
    embeddings = size["W_E"] + size.get("W_pos", 0)
    lines = (f"W_E: {spec.N:,} × {d}", f"W_pos: {spec.S} × {d}")
    between = spec.parameters - embeddings - size["W_U"]
    label = f"{H} head{'s'[: H != 1]}" + (f" × {layers} layers" if layers > 1 else "")
    if "w" in sizes:
        notes = (*notes, f"feed-forward width {sizes['w']}")
    projections = tuple(
        f"{n}: {' × '.join(map(str, shapes[n][-2:]))}" for n in HEADS if n in shapes
    )
    return (
        key,
        Part("embedding", lines, embeddings),
        Part(label, (*projections, *notes), between, H, sizes.get("skip", True)),
        Part("W_U", (f"{d} × {spec.N:,}",), size["W_U"]),
        answer,
    )
