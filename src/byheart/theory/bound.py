"""A bound: one theorem as an object that answers a case with a number or with a reason.

What it says stands in theorems.toml, what it needs and computes in Python: `theorem` joins the two.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
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
    "d": "the width `d`", "d_h": "the head width `d_h`", "H": "the heads `H`",
    "n": "the context `n`", "N": "a vocabulary `N`", "T": "the number of `facts`",
    "S": "the length `S` of the keys", "layers": "the `layers`",
    "parameters": "the parameters of the whole model",
    "layer_parameters": "the parameters of one layer", "answers": "the number of answers",
    "d_in": "tokens in R^d that are (r, δ)-separated",
    "width": "feed-forward blocks (this one has none, or their width is not known)",
}  # fmt: skip


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
            no_constant = f"{self.claim.exactness}, no constant is published: no number"
            return None, self.statement.matrices or no_constant
        return True, ""

    def answer(self, case: Case) -> Answer:
        """The number with its unit, or the reason why there is none."""
        applies, reason = self.why_not(case)
        capacity = self.capacity if applies else None
        value = capacity.value(case) if capacity else None
        return Answer(
            self.id, applies, reason, capacity=value, unit=self.claim.unit,
            parameters=capacity.parameters(case) if capacity else None, kind=self.claim.kind,
            exactness=self.claim.exactness, scope=self.claim.scope,
            note=capacity.remark(case) if capacity else "",
            answers=case.N if case.answers is None else case.answers,
            holds=self._holds(case, value),
        )  # fmt: skip

    def _holds(self, case: Case, value: Number | None) -> bool | None:
        """Does it promise (lower bound) or forbid (upper bound) the facts asked about?"""
        if value is None or case.T is None or self.claim.unit != "facts":
            return None
        if value >= case.T:
            return True if self.claim.kind == "lower bound" else None
        return False if self.claim.kind in ("upper bound", "necessary size") else None


@cache
def statements() -> dict[str, tuple[Statement, Claim]]:
    """Statement and claim of every theorem that byheart knows, by id."""
    text = files("byheart.theory").joinpath("theorems.toml").read_text(encoding="utf-8")
    claimed = {field.name for field in fields(Claim)}
    entries = {}
    for name, entry in tomllib.loads(text).items():
        entry["corrections"] = tuple(entry.get("corrections", ()))
        claim = {key: entry.pop(key) for key in claimed & entry.keys()}
        entries[name] = (Statement(**entry), Claim(**claim))
    return entries


def model_parameters(case: Case) -> Number | None:
    return case.parameters


def layer_parameters(case: Case) -> Number | None:
    return case.layer_parameters


def theorem(
    bound_id: str,
    reads: str = "",
    hypotheses: tuple[Hypothesis | str, ...] = (),
    value: Callable[[Case], Number] | None = None,
    parameters: Callable[[Case], Number | None] = model_parameters,
    remark: Callable[[Case], str] = lambda case: "",
    size: Callable[[Case], Size] | None = None,
) -> Bound:
    """The bound whose statement stands in theorems.toml under this id. `reads` are names with
    spaces between; a hypothesis that is text alone is assumed.

    >>> theorem("related.vc_dimension").statement.formula
    'T = O(W²) (Goldberg and Jerrum 1995); O(W L log W) with depth L'
    """
    given = tuple(Hypothesis(one) if isinstance(one, str) else one for one in hypotheses)
    capacity = None if value is None else Capacity(value, parameters, remark)
    words, claim = statements()[bound_id]
    return Bound(bound_id, words, claim, tuple(reads.split()), given, capacity, size)


def explanation(bound: Bound) -> dict[str, str | list[str]]:
    """Statement, formula, hypotheses (checked or assumed), source, corrections."""
    words = bound.statement
    lines: dict[str, str | list[str]] = {
        "id": bound.id,
        "about": words.title,
        "statement": words.text,
        "formula": words.formula,
        "source": words.source,
        **vars(bound.claim),
        "needs": [h.text + ("" if h.check else " (assumed)") for h in bound.hypotheses],
        "constants": words.constants,
        "call": words.matrices,
        "inverse": "sizes a model for given facts" if bound.size else "",
        "corrections": list(words.corrections),
    }
    return {name: value for name, value in lines.items() if value}


def at_most(left: str, right: str, printed: str = "") -> Hypothesis:
    """left <= right, where both are known; `printed`: what the paper has in its place."""

    def check(case: Case) -> str | None:
        a, b = getattr(case, left), getattr(case, right)
        fine = a is None or b is None or a <= b
        return None if fine else f"needs {left} <= {right}: {a} > {b}"

    return Hypothesis(f"{left} <= {right}" + (f" ({printed})" if printed else ""), check)


def at_least(name: str, least: int, why: str = "", text: str = "") -> Hypothesis:
    """name >= least, where it is known."""

    def check(case: Case) -> str | None:
        value = getattr(case, name)
        if value is None or value >= least:
            return None
        return f"needs {name} >= {least}: {value} < {least}" + (f" ({why})" if why else "")

    return Hypothesis(text or f"{name} >= {least}", check)


def requires(
    text: str, holds: Callable[[Case], bool], reason: str | Callable[[Case], str]
) -> Hypothesis:
    """A hypothesis that holds or not, and the reason to give where it does not."""

    def check(case: Case) -> str | None:
        if holds(case):
            return None
        return reason if isinstance(reason, str) else reason(case)

    return Hypothesis(text, check)


TOKENS = at_least("N", 2, text="N >= 2 tokens")
ONE_MATRIX = requires(
    "one matrix", lambda case: case.family in ("", "associative"),
    lambda case: f"is about one d x d matrix W between keys and answers, not {case.family}",
)  # fmt: skip
TWO_ANSWERS = requires("at least 2 answers", lambda case: case.answer_count >= 2,
                       lambda case: f"needs at least 2 answers: {case.answer_count}")  # fmt: skip


def ceil_div(a: int, b: int) -> int:
    """ceil(a / b) in whole numbers of any size."""
    return -(-a // b)


def largest(holds: Callable[[int], bool], least: int = 1, most: int = 2**800) -> int:
    """The largest whole number in [least, most] with `holds`, which is true up to some number and
    false after it; least - 1 if it never is.

    >>> largest(lambda t: t * t <= 10**12)
    1000000
    """
    first_false = smallest(lambda k: not holds(k), least, most)
    return most if first_false is None else first_false - 1
