"""The smallest model of each family for given facts, and where families cross."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from byheart.errors import ByheartError
from byheart.theory.bound import Case, Number, Size
from byheart.theory.registry import find


@dataclass(frozen=True)
class Family:
    """A way to hold facts: the bound that sizes it, and the sizes that are fixed beforehand."""

    id: str
    title: str
    bound: str
    fixed: dict[str, int]

    def size(self, case: Case) -> Size:
        size = find(self.bound).size
        if size is None:
            raise ByheartError(f"{self.bound} does not say how large a model must be")
        return size(replace(case, **self.fixed))


FAMILIES = (
    Family("associative", "associative memory", "dana2025.associative", {}),
    Family("attention-2", "attention-only, d = 2", "dana2025.corollary1", {"d": 2, "d_h": 2}),
    Family("attention-64", "attention-only, d = 64", "dana2025.corollary1", {"d": 64, "d_h": 64}),
    Family("rank1-64", "attention-only, d = 64, rank-1 W_QK", "dana2025.corollary1_rank1",
           {"d": 64, "d_h": 64}),
    Family("sharded", "sharded attention, d = 20", "sharded.layer", {"d_h": 16}),
    Family("multi-head", "multi-head, smallest", "mahdavi2024.theorem1", {}),
    Family("multi-head-64", "multi-head, d = 64, n = 32", "mahdavi2024.theorem1",
           {"d": 64, "n": 32, "d_h": 32}),
    Family("sqrt", "sqrt(T) as published", "kajitsuka2025.theorem41", {}),
    Family("sqrt-sparse", "sqrt(T) sparse", "kajitsuka2025.sparse", {}),
    Family("information", "information limit", "related.information", {}),
)  # fmt: skip


@dataclass(frozen=True)
class Sized:
    """One row of `byheart size`."""

    family: str
    title: str
    bound: str
    T: int
    parameters: Number
    sizes: Mapping[str, Number]
    bits: Number | None
    exactness: str
    note: str
    answers: int

    @property
    def facts_per_parameter(self) -> float:
        return self.T / self.parameters

    @property
    def bits_per_parameter(self) -> float:
        return self.facts_per_parameter * math.log2(self.answers)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self)} | {
            "facts_per_parameter": self.facts_per_parameter,
            "bits_per_parameter": self.bits_per_parameter,
        }


@dataclass(frozen=True)
class Crossing:
    """From `T` facts on, `winner` has fewer parameters than `loser`."""

    T: int
    winner: str
    loser: str
    parameters: Number


def size(
    facts: Any = None,
    *,
    T: int | None = None,
    N: int | None = None,
    S: int | None = None,
    answers: int | None = None,
    last_tokens: int | None = None,
    bits: int = 32,
    families: Sequence[str] | None = None,
) -> list[Sized]:
    """The smallest model of every family for a table of facts, or for T facts over N tokens.

    Keys have S tokens; `answers` different ones (default N); `bits` a parameter for the information
    limit. Smallest first.

    >>> rows = {row.family: row.parameters for row in size(T=1000, N=50, S=2)}
    >>> rows["attention-2"] == 2 * (2 + 2 * 50 + 4 * (1000 - 2))
    True
    """
    case = facts_case(facts, T, N, S, answers, last_tokens, bits)
    chosen = choose(families)
    return sorted((sized(family, case) for family in chosen), key=lambda row: row.parameters)


def facts_case(
    facts: Any,
    T: int | None,
    N: int | None,
    S: int | None,
    answers: int | None = None,
    last_tokens: int | None = None,
    bits: int = 32,
) -> Case:
    """The sizes of the facts, checked.

    >>> case = facts_case(None, T=81, N=9, S=2)
    >>> case.T, case.N, case.S
    (81, 9, 2)
    """
    if facts is not None:
        if (T, N, S, answers, last_tokens) != (None,) * 5:
            raise ByheartError("give a table of facts or sizes (T, N, S, ...), not both.")
        if isinstance(facts, int):
            raise ByheartError("a number of facts needs a vocabulary: size(T=..., N=..., S=...)")
        T, N, S = int(facts.T), int(facts.N), int(facts.S)
        answers, last_tokens = len(facts.answer_ids), int(facts.last_tokens)
    missing = [name for name, value in (("T", T), ("N", N), ("S", S)) if value is None]
    if T is None or N is None or S is None:
        raise ByheartError(
            f"expected the number of facts T, the vocabulary N and the key length S: "
            f"{', '.join(missing)} missing."
        )
    named = {"--facts": (T, 1), "--vocab": (N, 2), "--length": (S, 1), "--bits": (bits, 1)}
    if answers is not None:
        named["--answers"] = (answers, 1)
    for flag, (value, least) in named.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ByheartError(f"{flag} must be a whole number of at least {least}, found {value}")
    if answers is not None and answers > N:
        raise ByheartError(f"{answers:,} answers are more than the vocabulary of {N:,} tokens.")
    if S < T.bit_length() and T > N**S:
        least = math.ceil(T ** (1 / S))
        raise ByheartError(
            f"{T:,} facts are more than the {N:,}^{S} = {N**S:,} different keys. "
            f"Give --vocab {least} or more, or a greater --length."
        )
    return Case(T=T, N=N, S=S, n=None, answers=answers, last_tokens=last_tokens, bits=bits)


def choose(families: Sequence[str] | None) -> list[Family]:
    """The families with these ids; all of them by default.

    >>> [family.bound for family in choose(["sqrt", "information"])]
    ['kajitsuka2025.theorem41', 'related.information']
    """
    if families is None:
        return list(FAMILIES)
    known = {family.id: family for family in FAMILIES}
    wrong = [name for name in families if name not in known]
    if wrong:
        raise ByheartError(f"unknown family {wrong[0]!r}: choose from {', '.join(known)}.")
    return [known[name] for name in families]


def sized(family: Family, case: Case) -> Sized:
    """One family, one number of facts."""
    found = family.size(case)
    T = case["T"]
    return Sized(
        family=family.id,
        title=family.title,
        bound=family.bound,
        T=T,
        parameters=found.parameters,
        sizes=found.sizes,
        bits=found.bits,
        exactness=find(family.bound).exactness,
        note=found.note,
        answers=max(2, case.answers if case.answers is not None else case["N"]),
    )


def sweep(case: Case, counts: Sequence[int], families: Sequence[str] | None = None) -> list[Sized]:
    """Every family at every number of facts.

    >>> rows = sweep(facts_case(None, 100, 50, 2), [10, 100], ["multi-head"])
    >>> [(row.T, row.parameters) for row in rows]
    [(10, 99), (100, 1089)]
    """
    chosen = choose(families)
    return [sized(family, replace(case, T=T)) for T in counts for family in chosen]


def decades(low: int, high: int, per_decade: int = 1) -> list[int]:
    """Whole numbers from low to high, evenly spaced on a logarithmic scale.

    >>> decades(100, 10**5)
    [100, 1000, 10000, 100000]
    """
    steps = max(1, round(per_decade * math.log10(high / low))) if high > low else 0
    if steps == 0:
        return [low]
    ratio = high / low
    return sorted({low, high, *(round(low * ratio ** (i / steps)) for i in range(1, steps))})


def crossings(
    case: Case, low: int, high: int, families: Sequence[str] | None = None
) -> list[Crossing]:
    """Where, between low and high facts, one family becomes smaller than another.

    Found on a grid of ten points a decade, then by bisection: within a step of whole heads, where
    two families may cross several times, one of the crossings.

    >>> case = facts_case(None, T=100, N=1000, S=2)
    >>> crossing, = crossings(case, 100, 10**4, ["attention-2", "multi-head"])
    >>> crossing.winner, crossing.loser, crossing.T
    ('attention-2', 'multi-head', 1334)
    """
    chosen = choose(families)
    grid = decades(low, high, 10)
    tables = {f.id: [f.size(replace(case, T=T)).parameters for T in grid] for f in chosen}
    found = []
    for i, a in enumerate(chosen):
        for b in chosen[i + 1 :]:
            signs = [x < y for x, y in zip(tables[a.id], tables[b.id], strict=True)]
            for before, after, left, right in zip(signs, signs[1:], grid, grid[1:], strict=False):
                if before != after:
                    winner, loser = (a, b) if after else (b, a)
                    found.append(_locate(case, winner, loser, left, right))
    return sorted(found, key=lambda crossing: (crossing.T, crossing.winner, crossing.loser))


def _locate(case: Case, winner: Family, loser: Family, left: int, right: int) -> Crossing:
    def wins(T: int) -> bool:
        at = replace(case, T=T)
        return winner.size(at).parameters < loser.size(at).parameters

    while right - left > 1:
        middle = (left + right) // 2
        left, right = (left, middle) if wins(middle) else (middle, right)
    count = winner.size(replace(case, T=right)).parameters
    return Crossing(right, winner.id, loser.id, count)
