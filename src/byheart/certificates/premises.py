"""What the proof of a sharded memory takes for granted, checked on its weights in whole numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from byheart.errors import ByheartError
from byheart.models.attention_only import Weights
from byheart.models.folder import DIGESTS
from byheart.specs import ShardedSpec

# Of a number format: bits of a whole number, smallest and largest exponents.
EXACT_INTEGERS = {torch.float32: (24, -126, 127), torch.float64: (53, -1022, 1023)}
LARGEST_POINT = 2**26  # coordinates of lattice points: sums of squares then fit into 64 bits


def premises(spec: ShardedSpec, weights: Weights) -> tuple[tuple[str, str], ...]:
    """What the proof takes for granted, checked on these weights in whole numbers: (what, how it
    was checked). Refuses weights for which it is not so."""
    stray = sorted(set(weights) - {*spec.weight_shapes(), "u", "w", "V", "far", DIGESTS})
    if stray:
        raise ByheartError(f"tensors that {spec} does not have: {', '.join(stray)}")
    points = torch.cat([weights["point"].long(), weights["far"].long()[None]])
    if int(points.abs().max()) >= LARGEST_POINT:
        raise ByheartError(f"lattice points beyond {LARGEST_POINT:,}: distances are not exact")
    if len(points.unique(dim=0)) != len(points):
        raise ByheartError("two groups share a lattice point: the shards are not separated")
    exponents = {name: _exponent(name, getattr(spec, name)) for name in ("lam", "s1", "s2")}
    significant, least, most = EXACT_INTEGERS[weights["W_O"].dtype]
    # dist is summed from |P|², 2 P·Q and |Q|²: no partial sum exceeds 4 max|P|².
    square = int((points**2).sum(1).max())
    if 4 * square > 2**significant:
        raise ByheartError(f"lattice points too far out: sums beyond 2^{significant} are not exact")
    # Powers of two that stand in the layer, each with the largest whole number it is multiplied by.
    lam, s1, s2 = (exponents[name] for name in ("lam", "s1", "s2"))
    width, root = (4 * square).bit_length(), (2 * math.isqrt(square) + 2).bit_length()
    # Half a λ: a wrong bit is counted as 1/2 - c b / 2.
    entries = {"λ": (lam - 1, width + 2), "s1": (s1, root), "s2": (s2, width)}
    entries |= {"λ/s1": (lam - s1, root + 1), "λ/s2": (lam - s2, 1)}
    for name, (low, bits) in entries.items():
        if low < least or low + bits > most:
            raise ByheartError(
                f"{name} times lattice points does not exist in {weights['W_O'].dtype}: the "
                "literal layer has other gates than the proof assumes"
            )
    if bool((weights["W_E"][-1] != 0).any()) or bool((weights["W_pos"][0] != 0).any()):
        raise ByheartError("the start token is not the zero vector: foreign heads are not silent")
    for wrong, text in _layout_faults(spec, weights):
        if wrong:
            raise ByheartError(text)
    kind = str(weights["W_O"].dtype).removeprefix("torch.")
    return (
        ("gates", f"{len(points):,} lattice points are distinct; λ, s1 and s2 are powers of two"),
        ("range", f"sums of at most {4 * square:,} are whole numbers that {kind} holds exactly"),
        ("layout", f"{spec.H:,} heads in {spec.shards:,} shards, each owned by one group"),
        ("start token", "embedded as the zero vector, and in no key"),
    )


def _exponent(name: str, value: float) -> int:
    """log2 of a power of two."""
    mantissa, exponent = math.frexp(value)
    if mantissa != 0.5:
        raise ByheartError(f"{name} = {value} is not a power of two: the gates are not exact")
    return exponent - 1


def _layout_faults(spec: ShardedSpec, weights: Weights) -> Iterator[tuple[object, str]]:
    """What makes sparse recall and the literal layer differ: (whether it is so, in words). Each
    relies on those before it."""
    start, level, first = (weights[name].long() for name in ("head_start", "level", "first"))
    counts = start[1:] - start[:-1]
    all_heads = int(start[0]) == 0 and int(start[-1]) == spec.H
    text = f"head_start does not run from 0 to H = {spec.H:,} upward"
    yield not all_heads or (counts < 0).any(), text
    drawn = spec.H if spec.untied else int(counts.max())
    stored = min(len(weights[name]) for name in ("u", "w", "V"))
    yield stored < drawn, f"fewer than {drawn:,} heads u, w, V are stored"
    splits = spec.bits if spec.gate == "query" and spec.S == 2 else 0
    text = f"level must lie between 0 and {splits}, the bits that gates can read"
    yield _outside(level, 0, splits), text
    owned = first.repeat_interleave(2**level)
    ends = (2**level).cumsum(0)
    owned += torch.arange(len(owned)) - (ends - 2**level).repeat_interleave(2**level)
    twice = len(owned.unique()) < len(owned)
    text = f"groups share a shard, or own one beyond the {spec.shards:,} there are"
    yield twice or _outside(owned, 0, spec.shards - 1), text
    group = weights["group"]
    text = f"group must lie between -1 and {spec.groups - 1:,}, -1 for BOS"
    yield _outside(group, -1, spec.groups - 1) or int(group[-1]) != -1, text
    signs = weights["bits"] if spec.bits else torch.ones(1)
    yield (signs.abs() != 1).any(), "bits other than +1 and -1: sub-shards are not separated"
    elsewhere = spec.gate != "query" and int(weights["deciding"]) != 0
    yield elsewhere, f"the {spec.gate} gate reads the first token, not the one stored"
    subject = weights.get("subject", torch.zeros(1, dtype=torch.int8))
    wrong = ((subject != 0) & (subject != 1)).any() or int(subject[-1]) != 0
    yield wrong, "subject marks other than 0 and 1, or on the start token"


def _outside(numbers: Tensor, low: int, high: int) -> bool:
    return int(numbers.min()) < low or int(numbers.max()) > high
