"""What the proof of a sharded memory takes for granted, checked on its weights in whole numbers."""

from __future__ import annotations

import math

import torch

from byheart.errors import ByheartError
from byheart.models.attention_only import Weights
from byheart.models.folder import DIGESTS
from byheart.models.sharded import layout_fault
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
    if wrong := layout_fault(spec, weights):
        raise ByheartError(wrong)
    if spec.gate == "subject-sink":  # what is cancelled is summed over all heads
        counts = weights["head_start"].long().diff()
        idle = torch.ones(spec.shards, dtype=torch.bool)
        idle[weights["first"].long()] = False
        if bool(weights["W_O"][idle.repeat_interleave(counts)].any()):
            raise ByheartError("heads of a shard that no group owns write: the layer has none")
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
