"""A bound: one theorem as an object that answers a case with a number or with a reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

Number = int | float
Kind = Literal[
    "lower bound", "upper bound", "necessary size", "accuracy", "KL", "rank", "bits", "measurement"
]
Exactness = Literal[
    "exact count", "explicit constants", "up to constants", "up to logs", "heuristic", "measured",
    "false",
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """What a bound is asked about: sizes of an architecture and of the facts; None is not known.

    Architecture: width `d`, head width `d_h`, `H` heads (`kv_heads` of them with their own W_K and
    W_V), context of `n` positions, vocabulary `N`, `layers`, `d_ff` feed-forward units with
    `activation`, `width` = max(m, s, q) of Kajitsuka and Sato, `parameters` of the whole model,
    `layer_parameters` of one bare attention layer with embeddings, `bits` per parameter.
    Facts: `T` of them, keys of `S` tokens, `answers` different ones, `last_tokens` different last
    tokens, a `uniform` prior or not.
    Data: `kruskal` rank Q of the queries, tokens in R^`d_in` with norm / distance `spread` = r/δ.

    >>> Case(d=2, H=3).given("d", "H", "N")
    ['N']
    """

    family: str = ""
    d: int | None = None
    d_h: int | None = None
    H: int | None = None
    kv_heads: int | None = None
    n: int | None = None
    N: int | None = None
    layers: int | None = None
    d_ff: int | None = None
    d_v: int | None = None
    d_out: int | None = None
    qk_rank: int | None = None
    width: int | None = None
    activation: str | None = None
    attention: str = "softmax"
    positions: str = "input"
    skip: bool = True
    shared: bool | None = None
    parameters: int | None = None
    layer_parameters: int | None = None
    bits: int = 32
    T: int | None = None
    S: int | None = None
    answers: int | None = None
    last_tokens: int | None = None
    uniform: bool | None = None
    kruskal: int | None = None
    d_in: int | None = None
    spread: float | None = None
    facts: Any = field(default=None, compare=False, repr=False)

    def given(self, *names: str) -> list[str]:
        """Which of `names` are missing."""
        return [name for name in names if getattr(self, name) is None]

    def __getitem__(self, name: str) -> int:
        """A size that the bound has declared in `reads`: it is there when capacity is called."""
        value = getattr(self, name)
        if value is None:
            raise KeyError(f"{name} is not known: a bound must list it in `reads`")
        return value

    @property
    def free_heads(self) -> int:
        """Heads that have W_K and W_V of their own: what the constructions may count."""
        return self["H"] if self.kv_heads is None else min(self["H"], self.kv_heads)


FLAGS = {
    "d": "the width d (--d-model)",
    "d_h": "the head width d_h (--d-head)",
    "H": "the heads H (--heads)",
    "n": "the context n (--context)",
    "N": "a vocabulary N (--vocab)",
    "T": "the number of facts (--facts)",
    "S": "the length of the keys (--length)",
    "layers": "the layers (--layers)",
    "parameters": "the parameters of the whole model",
    "answers": "the number of answers",
    "d_in": "tokens in R^d that are (r, δ)-separated",
    "width": "feed-forward blocks (this one has none, or their width is not known)",
}

Check = Callable[[Case], str | None]


@dataclass(frozen=True)
class Hypothesis:
    """One hypothesis in words, and its check: None if it holds, else the reason with numbers.

    Without a check it is about data that sizes do not tell: it is assumed, and `explain` says so.
    """

    text: str
    check: Check | None = None


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

    def to_json(self) -> dict[str, Any]:
        row = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "answers"}
        return row | {
            "facts_per_parameter": self.facts_per_parameter,
            "bits_per_parameter": self.bits_per_parameter,
        }


@dataclass(frozen=True)
class Bound:
    """One theorem: statement, formula, source, hypotheses, capacity of a case, size for facts.

    `reads` are the sizes that `capacity` uses; `matrices` names the function for bounds that need
    actual matrices; `corrections` say where we depart from what is printed.

    >>> rule = Bound(
    ...     "house.rule", "two", "Two facts a head.", "T = 2 H", "an example", "lower bound",
    ...     "exact count", reads=("H",), capacity=lambda case: 2 * case["H"],
    ... )
    >>> rule.answer(Case(H=3)).capacity, rule.answer(Case()).reason
    (6, 'needs the heads H (--heads)')
    """

    id: str
    title: str
    statement: str
    formula: str
    source: str
    kind: Kind
    exactness: Exactness
    unit: str = "facts"
    scope: str = "one attention layer"
    reads: tuple[str, ...] = ()
    hypotheses: tuple[Hypothesis, ...] = ()
    capacity: Callable[[Case], Number] | None = None
    parameters: Callable[[Case], Number | None] | None = None
    size: Callable[[Case], Size] | None = None
    remark: Callable[[Case], str] | None = None
    matrices: str = ""
    corrections: tuple[str, ...] = ()
    constants: str = ""

    def why_not(self, case: Case) -> tuple[bool | None, str]:
        """(True, "") when every hypothesis that sizes can tell holds; else why not."""
        missing = case.given(*self.reads)
        if "N" in missing and case.family in ("transformer", "multi-head", "feed-forward"):
            return False, "needs tokens from a vocabulary: this model reads vectors"
        if missing:
            return None, "needs " + ", ".join(FLAGS.get(name, name) for name in missing)
        for hypothesis in self.hypotheses:
            reason = hypothesis.check(case) if hypothesis.check else None
            if reason:
                return False, reason
        if self.capacity is None:
            return None, self.matrices or f"{self.exactness}, no constant is published: no number"
        return True, ""

    def answer(self, case: Case) -> Answer:
        """The number with its unit, or the reason why there is none."""
        applies, reason = self.why_not(case)
        value = self.capacity(case) if applies and self.capacity else None
        count = self.parameters(case) if applies and self.parameters else None
        return Answer(
            id=self.id,
            applies=applies,
            reason=reason,
            capacity=value,
            unit=self.unit,
            parameters=count,
            kind=self.kind,
            exactness=self.exactness,
            scope=self.scope,
            note=self.remark(case) if applies and self.remark else "",
            answers=case.answers if case.answers is not None else case.N,
            holds=self._holds(case, value),
        )

    def _holds(self, case: Case, value: Number | None) -> bool | None:
        """Does it promise (lower bound) or forbid (upper bound) the facts asked about?"""
        if value is None or case.T is None or self.unit != "facts":
            return None
        if self.kind == "lower bound":
            return True if value >= case.T else None
        if self.kind in ("upper bound", "necessary size"):
            return False if value < case.T else None
        return None


def at_most(left: str, right: str) -> Check:
    """left <= right, where both are known.

    >>> at_most("n", "d")(Case(n=1024, d=768))
    'needs n <= d: 1024 > 768'
    """

    def check(case: Case) -> str | None:
        a, b = getattr(case, left), getattr(case, right)
        if a is None or b is None or a <= b:
            return None
        return f"needs {left} <= {right}: {a:,} > {b:,}".replace(",", "")

    return check


def at_least(name: str, least: int, why: str = "") -> Check:
    """name >= least, where it is known.

    >>> at_least("N", 2)(Case(N=1))
    'needs N >= 2: 1 < 2'
    """

    def check(case: Case) -> str | None:
        value = getattr(case, name)
        if value is None or value >= least:
            return None
        return f"needs {name} >= {least}: {value} < {least}" + (f" ({why})" if why else "")

    return check


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
    if not holds(least):
        return least - 1
    low, high = least, min(max(2, 2 * least), most + 1)
    while high <= most and holds(high):
        low, high = high, min(2 * high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
