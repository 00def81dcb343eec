"""The smallest model of each candidate for given facts, and where two candidates cross."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

from byheart._search import bisect
from byheart.errors import ByheartError, OptionError, check_choice
from byheart.specs.base import LARGEST
from byheart.theory.bound import Size
from byheart.theory.case import Case, Number
from byheart.theory.registry import BOUNDS, Rows, shown

if TYPE_CHECKING:
    from byheart.facts import Facts

SIZED = {bound.id: bound.size for bound in BOUNDS if bound.size is not None}


@dataclass(frozen=True)
class Candidate:
    """An architecture that could hold the facts: the id of the bound that sizes it, and the sizes
    that are fixed beforehand. `practical`: float32 weights that `byheart build` makes (with some
    slack) or that training reaches. The others need longer numbers, take vectors and real labels in
    place of tokens and answers, or are limits."""

    id: str
    title: str
    bound: str
    fixed: Mapping[str, int]
    practical: bool = False

    def size(self, case: Case) -> Size:
        return SIZED[self.bound](replace(case, **self.fixed))


CANDIDATES = (
    Candidate("trained", "trained, 2 bits a parameter", "empirical.knowledge_capacity", {}, True),
    Candidate("associative", "associative memory", "related.associative_memory", {}, True),
    Candidate("attention-64", "attention-only, d = 64", "dana2025.corollary1",
              {"d": 64, "d_h": 64}, True),
    Candidate("rank1-64", "attention-only, d = 64, rank-1 W_QK", "dana2025.corollary1_rank1",
              {"d": 64, "d_h": 64}, True),
    Candidate("sharded", "sharded attention, d = 20", "sharded.layer", {"d_h": 16}, True),
    Candidate("attention-2", "attention-only, d = 2", "dana2025.corollary1", {"d": 2, "d_h": 2}),
    Candidate("multi-head", "multi-head, smallest", "mahdavi2024.theorem1", {}),
    Candidate("multi-head-64", "multi-head, d = 64, n = 32", "mahdavi2024.theorem1",
              {"d": 64, "n": 32, "d_h": 32}),
    Candidate("sqrt", "sqrt(T) as published", "kajitsuka2025.theorem41", {}),
    Candidate("sqrt-sparse", "sqrt(T) sparse", "kajitsuka2025.sparse", {}),
    Candidate("information", "information limit", "related.information", {}),
)  # fmt: skip
EXACTNESS = {bound.id: bound.claim.exactness for bound in BOUNDS}


@dataclass(frozen=True)
class Sized:
    """One row of `byheart size`; `family` is the id of the candidate."""

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
    practical: bool

    @property
    def facts_per_parameter(self) -> float:
        return self.T / self.parameters

    @property
    def bits_per_parameter(self) -> float:
        return self.facts_per_parameter * math.log2(self.answers)

    def to_json(self) -> dict[str, object]:
        names = [*vars(self), "facts_per_parameter", "bits_per_parameter"]
        return {name: getattr(self, name) for name in names}


class Sizes(Rows[Sized]):
    """The smallest model of every candidate: the practical ones, then the others, each smallest
    first."""

    header = ("family", "parameters", "facts/p", "bits/p", "sizes")

    def heading(self) -> str:
        return f"Fewest parameters for {self[0].T:,} facts" if self else "no candidates"

    def chosen(self) -> list[Sized]:
        return self.practical() + self.practical(False)

    def practical(self, wanted: bool = True) -> list[Sized]:
        return [row for row in self if row.practical is wanted]

    def cells(self, row: Sized) -> tuple[str, ...]:
        sizes = ", ".join(f"{name} = {value:,}" for name, value in row.sizes.items())
        rates = shown(row.facts_per_parameter), shown(row.bits_per_parameter)
        return (row.title, shown(row.parameters), *rates, sizes)


@dataclass(frozen=True)
class Crossing:
    """From `T` facts on, `winner` has fewer parameters than `loser`."""

    T: int
    winner: str
    loser: str
    parameters: Number


def size(
    facts: Facts | None = None,
    *,
    T: int | None = None,
    N: int | None = None,
    S: int | None = None,
    answers: int | None = None,
    last_tokens: int | None = None,
    bits: int = 32,
    families: Sequence[str] | None = None,
) -> Sizes:
    """The smallest model of every candidate for a table of facts, or for T facts over N tokens,
    smallest first.

    Keys have S tokens; `answers` different ones (default N); `bits` a parameter for the information
    limit; `families`: only the candidates with these ids.

    >>> rows = {row.family: row.parameters for row in size(T=1000, N=50, S=2)}
    >>> rows["attention-2"] == 2 * (2 + 2 * 50 + 4 * (1000 - 2))
    True
    """
    return Sizes(sizes(facts_case(facts, T, N, S, answers, last_tokens, bits), choose(families)))


def sizes(case: Case, candidates: Sequence[Candidate] = CANDIDATES) -> list[Sized]:
    """The smallest model of each of the `candidates`, smallest first."""
    rows = [sized(candidate, case) for candidate in candidates]
    return sorted(rows, key=lambda row: row.parameters)


def facts_case(
    facts: Facts | None, T: int | None, N: int | None, S: int | None,
    answers: int | None = None, last_tokens: int | None = None, bits: int = 32,
) -> Case:  # fmt: skip
    """The sizes of the facts, checked."""
    if facts is not None:
        if (T, N, S, answers, last_tokens) != (None,) * 5:
            raise ByheartError("give a table of facts or sizes (T, N, S, ...), not both.")
        if isinstance(facts, int):
            raise ByheartError("a number of facts needs a vocabulary: size(T=..., N=..., S=...)")
        T, N, S = int(facts.T), int(facts.N), int(facts.S)
        answers, last_tokens = len(facts.answer_ids), int(facts.last_tokens)
    if T is None or N is None or S is None:
        given = {"T": T, "N": N, "S": S}
        missing = ", ".join(f"`{name}`" for name, value in given.items() if value is None)
        expected = "expected the number of facts T, the vocabulary N and the key length S"
        raise ByheartError(f"{expected}: {missing} missing.")
    whole = {"T": T, "N": N, "S": S, "bits": bits, "answers": 1 if answers is None else answers}
    for name, value in whole.items():
        least = 2 if name == "N" else 1
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise OptionError(name, f"a whole number of at least {least}", value)
        if value > LARGEST:
            raise OptionError(name, "a whole number below 2^63", value)
    if answers is not None and answers > N:
        raise ByheartError(f"{answers:,} answers are more than the vocabulary of {N:,} tokens.")
    if S < T.bit_length() and T > N**S:
        hint = f"Give `N={math.ceil(T ** (1 / S))}` or more, or a greater `S`."
        keys = f"{N:,}^{S} = {N**S:,} different keys"
        raise ByheartError(f"{T:,} facts are more than the {keys}. {hint}")
    return Case(T=T, N=N, S=S, n=None, answers=answers, last_tokens=last_tokens, bits=bits)


def choose(families: Sequence[str] | None) -> Sequence[Candidate]:
    """The candidates with these ids; all of them by default."""
    if families is None:
        return CANDIDATES
    by_id = {candidate.id: candidate for candidate in CANDIDATES}
    for name in families:
        check_choice("families", name, by_id)
    return [by_id[name] for name in families]


def sized(candidate: Candidate, case: Case) -> Sized:
    """One candidate, one number of facts."""
    model = candidate.size(case)
    return Sized(
        candidate.id, candidate.title, candidate.bound, case["T"], model.parameters, model.sizes,
        model.bits, exactness=EXACTNESS[candidate.bound], note=model.note,
        answers=max(2, case.answer_count), practical=candidate.practical,
    )  # fmt: skip


def sweep(case: Case, counts: Sequence[int], families: Sequence[str] | None = None) -> list[Sized]:
    """Every candidate at every number of facts."""
    return [sized(one, replace(case, T=T)) for T in counts for one in choose(families)]


def decades(low: int, high: int, per_decade: int = 1) -> list[int]:
    """Whole numbers from low to high, evenly spaced on a logarithmic scale."""
    if high <= low:
        return [low]
    ratio = high / low
    steps = max(1, round(per_decade * math.log10(ratio)))
    return sorted({low, high, *(round(low * ratio ** (i / steps)) for i in range(1, steps))})


def crossings(
    case: Case, low: int, high: int, families: Sequence[str] | None = None
) -> list[Crossing]:
    """Where, between low and high facts, one candidate becomes smaller than another.

    Looked for on a grid of ten points a decade, then by bisection: within a step of whole heads,
    where two candidates may cross several times, one of the crossings.

    >>> case = facts_case(None, T=100, N=1000, S=2)
    >>> crossing, = crossings(case, 100, 10**4, ["attention-2", "multi-head"])
    >>> crossing.winner, crossing.loser, crossing.T
    ('attention-2', 'multi-head', 1334)
    """
    chosen, grid = choose(families), decades(low, high, 10)

    def parameters(candidate: Candidate, T: int) -> Number:
        return candidate.size(replace(case, T=T)).parameters

    def crossing(winner: Candidate, loser: Candidate, left: int, right: int) -> Crossing:
        T = bisect(lambda T: parameters(winner, T) < parameters(loser, T), left, right)
        return Crossing(T, winner.id, loser.id, parameters(winner, T))

    tables = {candidate.id: [parameters(candidate, T) for T in grid] for candidate in chosen}
    rows = []
    for a, b in combinations(chosen, 2):
        signs = [x < y for x, y in zip(tables[a.id], tables[b.id], strict=True)]
        for before, after, left, right in zip(signs, signs[1:], grid, grid[1:], strict=False):
            if before != after:
                rows.append(crossing(*((a, b) if after else (b, a)), left, right))
    return sorted(rows, key=lambda row: (row.T, row.winner, row.loser))
