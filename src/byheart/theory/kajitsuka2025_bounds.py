"""The theorems of Kajitsuka and Sato 2025 as objects, and our sparse construction."""

from __future__ import annotations

import math
from collections.abc import Callable

from byheart.theory.bound import (
    Bound,
    Hypothesis,
    Size,
    at_least,
    largest,
    requires,
    theorem,
)
from byheart.theory.case import Case
from byheart.theory.kajitsuka2025 import (
    Literal,
    corollary41,
    sparse_size,
    theorem41,
    theorem42_parameters,
    theorem43_parameters,
    theoremD1,
    theoremE1,
    theoremF1,
)

Construction = Callable[[int, Case], Literal]
NO_NORM = requires("no layer norm", lambda case: case.family != "transformer",
                   "needs blocks without layer norm: the proof has none")  # fmt: skip
HARDMAX = requires("hardmax attention", lambda case: case.attention == "hardmax",
                   "needs hardmax attention, found softmax")  # fmt: skip
PIECES = requires(
    "ReLU or no feed-forward", lambda case: not case.d_ff or case.activation == "relu",
    lambda case: f"needs ReLU (the proof counts linear pieces), found {case.activation}",
)  # fmt: skip
SEPARATED = requires(
    "n >= 1 tokens, (r, δ)-separated, consistently labelled",
    lambda case: case.N is not None or (case.d_in is not None and case.spread is not None),
    "needs (r, δ)-separated tokens: a vocabulary, or bounds(spec, spread=r/δ)",
)


def _labels(case: Case) -> int:
    given = case.N if case.answers is None else case.answers
    return 2 if given is None else max(2, given)


def _data(case: Case) -> tuple[int, int, float, int]:
    """n, d, r/δ and C of the input: as given, else the pairs (token, position), integers: d = 2,
    r = |(N, n)|, δ = 1."""
    n, C = case.key_length, _labels(case)
    if case.d_in is not None and case.spread is not None:
        return n, case.d_in, case.spread, C
    return n, 2, math.hypot(case["N"], n), C


def _counted(formula: Callable[[int, int, int, float, int], Literal]) -> Construction:
    """A formula of T, n, d, r/δ and C as a construction for a case."""
    return lambda T, case: formula(T, *_data(case))


def _table(T: int, case: Case) -> Literal:
    omega = case["N"] * case.key_length
    # Ids are 1 apart and at most ω: r = ω, δ = 1.
    return theoremE1(T, case.key_length, float(omega), _labels(case), omega)


def _limited(T: int, case: Case) -> Literal:
    T, data = max(4, T), _data(case)
    B = largest(lambda B: theoremF1(T, *data, B).bits <= case.bits, 2, math.isqrt(T))
    return theoremF1(T, *data, max(2, B))


def _size(construction: Construction) -> Callable[[Case], Size]:
    def size(case: Case) -> Size:
        network = construction(max(2, case["T"]), case)
        sizes = {"width": network.width, "depth": network.depth}
        note = f"about {network.bits:,.0f} bits a parameter, up to a constant"
        return Size(network.parameters, sizes, note=note, bits=network.bits)

    return size


def _fits(construction: Construction, width: int) -> tuple[Hypothesis, ...]:
    def deep(case: Case) -> str | None:
        least, found = construction(2, case).depth, case["layers"]
        return f"needs depth >= {least} for 2 sequences: {found}" if found < least else None

    relu, enough = Hypothesis("ReLU feed-forward blocks", _relu), Hypothesis("deep enough", deep)
    return (SEPARATED, relu, NO_NORM, at_least("width", width), enough)


def _network(bound_id: str, construction: Construction, width: int, reads: str = "") -> Bound:
    """A construction as a bound: the largest T whose network is no deeper than the spec."""

    def capacity(case: Case) -> int:
        return largest(lambda T: construction(T, case).depth <= case["layers"], 2)

    def remark(case: Case) -> str:
        network = construction(capacity(case), case)
        return f"weights of about {network.bits:,.0f} bits, up to a constant"

    reads, fits, size = f"width layers n {reads}", _fits(construction, width), _size(construction)
    return theorem(bound_id, reads, fits, capacity, remark=remark, size=size)


def _shattering(
    bound_id: str,
    reads: str,
    first: Hypothesis,
    needed: Callable[[int, Case], float],
    most: Callable[[int, Case], int],
) -> Bound:
    """A lower bound on parameters, `needed` for T, as a bound: the `most` T that W can shatter."""
    return theorem(
        bound_id,
        reads,
        (first, NO_NORM, PIECES, "every labelling is wanted (shattering), not one"),
        lambda case: most(case["parameters"], case),
        size=lambda case: Size(math.ceil(needed(case["T"], case)), {}, "no fewer"),
    )


def _relu(case: Case) -> str | None:
    if not case.d_ff:
        return "needs feed-forward blocks: this one has attention only"
    if case.activation != "relu":
        return f"needs ReLU feed-forward blocks, found {case.activation}"
    return None


def _constant(case: Case) -> str | None:
    if case.family == "associative":
        return "is about Transformers, not one matrix"
    if case.positions != "none":
        return "needs no positions: the proof feeds sequences of equal tokens, which stay equal"
    return None


def _bits_fit(case: Case) -> str | None:
    if case.T is None or case.T < 4:
        return None
    needed = theoremF1(case.T, *_data(case), 2).bits
    needs = f"needs B >= 2, about {needed:,.0f} bits a parameter (up to a constant)"
    return f"{needs}: {case.bits}" if needed > case.bits else None


def _limited_capacity(case: Case) -> int:
    """The largest T for some B. At a given B depth and bits grow with T; with the largest B for T,
    ceil(T/B²) jumps at every square, so that a T can be too many and a larger one not."""
    data, layers = _data(case), case["layers"]

    def within(T: int, B: int) -> bool:
        network = theoremF1(T, *data, B)
        return network.depth <= layers and network.bits <= case.bits

    def with_groups(B: int) -> int:
        return largest(lambda T: within(T, B), B * B)

    def with_copies(k: int) -> int:
        """At most k networks. Depth and bits grow with T and B: with the largest B that allows
        k B², a larger B than B + 1 allows fewer T than B + 1 does."""
        B = largest(lambda B: within(k * B * B, B), 2)
        least, most = (B + 1) ** 2, k * (B + 1) ** 2
        T = largest(lambda T: within(T, B + 1), least, most)
        return max(k * B * B, T if T >= least else 0)

    most, best = largest(lambda B: within(B * B, B), 2), 3
    # A network for B² points is at least 6 B deep (Lemma C.1 twice), and k of them stand in series:
    # of k and B one is at most sqrt(layers/6). All such B are tried, then all such k.
    few = math.isqrt(layers // 6) + 1
    for less in range(min(most, few) - 1):
        B = min(most, few) - less
        one = theoremF1(B * B, *data, B).depth
        if layers // one * B * B > best:  # else it cannot be more
            best = max(best, with_groups(B))
    for k in range(1, few + 1 if most > few else 1):
        if layers * layers > 36 * k * best:  # else T <= k B² and 6 k B <= layers say: no more
            best = max(best, with_copies(k))
    return best


def _total_bits(case: Case) -> float:
    network = _next_token(max(2, case["T"]), case)
    return network.parameters * network.bits


def _sparse_size(case: Case) -> Size:
    """Our construction for case.T facts: keys are token + N · position."""
    key_bits = max(1, math.ceil(math.log2(case["N"] * case.key_length)))
    C, n = _labels(case), case.key_length
    network = sparse_size(case["T"], key_bits=key_bits, C=C, d=2, n=n)
    sizes = {"width": 3, "k": network.table.k, "t": network.table.t}
    bits = network.table.largest_weight_bits
    return Size(network.parameters, sizes, f"weights of up to {bits:,} bits", bits)


_next_token, _sequence, _sets = _counted(theorem41), _counted(corollary41), _counted(theoremD1)

BOUNDS = (
    _network("kajitsuka2025.theorem41", _next_token, 14),
    _shattering("kajitsuka2025.theorem42", "parameters",
                Hypothesis("no positions added", _constant),
                lambda T, case: theorem42_parameters(T), lambda W, case: 16 * W * (W + 1)),
    _network("kajitsuka2025.corollary41", _sequence, 14),
    _shattering("kajitsuka2025.theorem43", "parameters n", HARDMAX,
                lambda T, case: theorem43_parameters(T, case.n or case.key_length),
                lambda W, case: largest(
                    lambda T: theorem43_parameters(T, case.n or case.key_length) <= W)),
    _network("kajitsuka2025.theoremD1", _sets, 12),
    _network("kajitsuka2025.theoremE1", _table, 14, "N"),
    theorem("kajitsuka2025.theoremF1", "width layers n T",
            (at_least("T", 4), *_fits(_limited, 15),
             Hypothesis("B >= 2 within the bits of a parameter", _bits_fit)),
            _limited_capacity, size=_size(_limited)),
    theorem("kajitsuka2025.bits", "T n N", (at_least("T", 2),), _total_bits,
            lambda case: _next_token(case["T"], case).parameters,
            lambda case: (
                f"against {case['T'] * math.log2(_labels(case)):,.0f} bits that the facts have"
            )),
    theorem("kajitsuka2025.sparse", "", ("keys told apart by the hash, checked when built",),
            size=_sparse_size),
)  # fmt: skip
