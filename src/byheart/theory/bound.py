"""A bound: one theorem as an object that answers a case with a number or with a reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Literal

from byheart._search import smallest
from byheart.theory.case import Case, Number

Kind = Literal[
    "lower bound", "upper bound", "necessary size", "accuracy", "KL", "rank", "bits", "measurement"
]
Exactness = Literal[
    "exact count", "explicit constants", "up to constants", "up to logs", "heuristic", "measured",
    "false",
]  # fmt: skip
Check = Callable[[Case], str | None]

WORDS = {
    "d": "the width `d`",
    "d_h": "the head width `d_h`",
    "H": "the heads `H`",
    "n": "the context `n`",
    "N": "a vocabulary `N`",
    "T": "the number of `facts`",
    "S": "the length `S` of the keys",
    "layers": "the `layers`",
    "parameters": "the parameters of the whole model",
    "answers": "the number of answers",
    "d_in": "tokens in R^d that are (r, δ)-separated",
    "width": "feed-forward blocks (this one has none, or their width is not known)",
}


@dataclass(frozen=True)
class Statement:
    """What is claimed, in words and as a formula, and where it is from.

    `matrices` names the function for bounds that need actual matrices; `constants` and
    `corrections` say how constants are read and where we depart from what is printed.
    """

    title: str
    text: str
    formula: str
    source: str
    matrices: str = ""
    constants: str = ""
    corrections: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """What the number is: which side it bounds, how exactly, of what, about which part."""

    kind: Kind
    exactness: Exactness
    unit: str = "facts"
    scope: str = "one attention layer"


@dataclass(frozen=True)
class Hypothesis:
    """One hypothesis in words, and its check: None if it holds, else the reason with numbers.

    Without a check it is about data that sizes do not tell: it is assumed, and `explain` says so.
    """

    text: str
    check: Check | None = None


def model_parameters(case: Case) -> Number | None:
    return case.parameters


def layer_parameters(case: Case) -> Number | None:
    return case.layer_parameters


@dataclass(frozen=True)
class Capacity:
    """The number of a case, the parameters it takes, and what else there is to say."""

    value: Callable[[Case], Number]
    parameters: Callable[[Case], Number | None] = lambda case: None
    remark: Callable[[Case], str] = lambda case: ""


@dataclass(frozen=True)
class Size:
    """The smallest model that a theorem needs: its parameters, its sizes, bits a parameter."""

    parameters: Number
    sizes: Mapping[str, Number]
    note: str = ""
    bits: Number | None = None


@dataclass(frozen=True)
class Answer:
    """What a bound says about a case: one row of `byheart bound`.

    `applies` is True, False (`reason` says which hypothesis fails, with numbers) or None (sizes
    alone cannot tell; `reason` says what is needed). Only True comes with a `capacity`.
    """

    id: str
    applies: bool | None
    reason: str
    capacity: Number | None
    unit: str
    parameters: Number | None
    kind: Kind
    exactness: Exactness
    scope: str
    note: str = ""
    answers: int | None = None
    holds: bool | None = None

    @property
    def facts_per_parameter(self) -> float | None:
        """capacity / parameters, where both are known and capacity counts facts."""
        if self.capacity is None or not self.parameters or self.unit != "facts":
            return None
        return self.capacity / self.parameters

    @property
    def bits_per_parameter(self) -> float | None:
        """facts per parameter times log2 of the number of answers."""
        rate = self.facts_per_parameter
        return None if rate is None or self.answers is None else rate * math.log2(self.answers)

    def to_json(self) -> dict[str, object]:
        names = [field.name for field in fields(self) if field.name != "answers"]
        names += ["facts_per_parameter", "bits_per_parameter"]
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Bound:
    """One theorem: statement, claim, hypotheses, capacity of a case, and its inverse, the `size`
    for given facts.

    `reads` are the sizes that `capacity` uses.

    >>> rule = Bound(
    ...     "house.rule",
    ...     Statement("two", "Two facts a head.", "T = 2 H", "an example"),
    ...     Claim("lower bound", "exact count"),
    ...     reads=("H",),
    ...     capacity=Capacity(lambda case: 2 * case["H"]),
    ... )
    >>> rule.answer(Case(H=3)).capacity, rule.answer(Case()).reason
    (6, 'needs the heads `H`')
    """

    id: str
    statement: Statement
    claim: Claim
    reads: tuple[str, ...] = ()
    hypotheses: tuple[Hypothesis, ...] = ()
    capacity: Capacity | None = None
    size: Callable[[Case], Size] | None = None

    def why_not(self, case: Case) -> tuple[bool | None, str]:
        """(True, "") when every hypothesis that sizes can tell holds; else why not."""
        missing = case.missing(*self.reads)
        if "N" in missing and case.family:
            return False, "needs tokens from a vocabulary: this model reads vectors"
        if missing:
            return None, "needs " + ", ".join(WORDS.get(name, name) for name in missing)
        for hypothesis in self.hypotheses:
            reason = hypothesis.check(case) if hypothesis.check else None
            if reason:
                return False, reason
        if self.capacity is None:
            exactness = self.claim.exactness
            return (
                None,
                self.statement.matrices or f"{exactness}, no constant is published: no number",
            )
        return True, ""

    def answer(self, case: Case) -> Answer:
        """The number with its unit, or the reason why there is none."""
        applies, reason = self.why_not(case)
        capacity = self.capacity if applies else None
        value = capacity.value(case) if capacity else None
        return Answer(
            id=self.id,
            applies=applies,
            reason=reason,
            capacity=value,
            unit=self.claim.unit,
            parameters=capacity.parameters(case) if capacity else None,
            kind=self.claim.kind,
            exactness=self.claim.exactness,
            scope=self.claim.scope,
            note=capacity.remark(case) if capacity else "",
            answers=case.N if case.answers is None else case.answers,
            holds=self._holds(case, value),
        )

    def _holds(self, case: Case, value: Number | None) -> bool | None:
        """Does it promise (lower bound) or forbid (upper bound) the facts asked about?"""
        if value is None or case.T is None or self.claim.unit != "facts":
            return None
        if self.claim.kind == "lower bound":
            return True if value >= case.T else None
        if self.claim.kind in ("upper bound", "necessary size"):
            return False if value < case.T else None
        return None


def at_most(left: str, right: str) -> Hypothesis:
    """left <= right, where both are known.

    >>> at_most("n", "d").check(Case(n=1024, d=768))
    'needs n <= d: 1024 > 768'
    """

    def check(case: Case) -> str | None:
        a, b = getattr(case, left), getattr(case, right)
        if a is None or b is None or a <= b:
            return None
        return f"needs {left} <= {right}: {a} > {b}"

    return Hypothesis(f"{left} <= {right}", check)


def at_least(name: str, least: int, why: str = "", text: str = "") -> Hypothesis:
    """name >= least, where it is known.

    >>> at_least("N", 2).check(Case(N=1))
    'needs N >= 2: 1 < 2'
    """

    def check(case: Case) -> str | None:
        value = getattr(case, name)
        if value is None or value >= least:
            return None
        return f"needs {name} >= {least}: {value} < {least}" + (f" ({why})" if why else "")

    return Hypothesis(text or f"{name} >= {least}", check)


def requires(text: str, holds: Callable[[Case], bool], reason: str) -> Hypothesis:
    """A hypothesis whose reason needs no numbers."""
    return Hypothesis(text, lambda case: None if holds(case) else reason)


TOKENS = at_least("N", 2, text="N >= 2 tokens")
TWO_ANSWERS = Hypothesis(
    "at least 2 answers",
    lambda case: (
        None if case.answer_count >= 2 else f"needs at least 2 answers: {case.answer_count}"
    ),
)


def ceil_div(a: int, b: int) -> int:
    """ceil(a / b) in whole numbers of any size.

    >>> ceil_div(10**30 + 1, 10)
    100000000000000000000000000001
    """
    return -(-a // b)


def largest(holds: Callable[[int], bool], least: int = 1, most: int = 2**800) -> int:
    """The largest whole number in [least, most] with `holds`, which is true up to some number and
    false after it; least - 1 if it never is.

    >>> largest(lambda t: t * t <= 10**12)
    1000000
    """
    first_false = smallest(lambda k: not holds(k), least, most)
    return most if first_false is None else first_false - 1
