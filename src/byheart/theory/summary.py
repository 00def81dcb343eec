"""The answer in a few sentences: what trained models of a size hold, what theorems guarantee, and
what no model can exceed."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from byheart.theory.bound import Answer
from byheart.theory.registry import find

SCALES = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"))
# Their facts are given vectors with a real label each, not tokens with one of A answers.
LABELS = ("mahdavi2024.", "related.bubeck2020")
ALIKE = "Both laws were measured on other data than yours: here they are extrapolations."


def spoken(value: float) -> str:
    """A number as one says it: in full below a million, else three digits and a word.

    >>> spoken(1536), spoken(15_943_000), spoken(1e9), spoken(3e15)
    ('1,536', '15.9 million', '1 billion', '3e+15')
    """
    scale, word = next(((s, w) for s, w in SCALES if value >= s), (1, ""))
    if value >= 1e15:
        return f"{value:.3g}"
    return f"{value / scale:.3g} {word}" if word else f"{round(value):,}"


def measured(answers: Sequence[Answer]) -> list[Answer]:
    """What trained models were measured to hold, fewest facts first."""
    return _counts(answers, "measurement")


def guaranteed(answers: Sequence[Answer]) -> Answer | None:
    """The theorem that promises the most facts; one about real labels only where no other does."""
    rows = sorted(_counts(answers, "lower bound"), key=lambda row: not row.id.startswith(LABELS))
    return next(reversed(rows), None)


def limit(answers: Sequence[Answer]) -> Answer | None:
    """The bound that allows the fewest facts."""
    return next(iter(_counts(answers, "upper bound")), None)


def _counts(answers: Sequence[Answer], kind: str) -> list[Answer]:
    rows = [a for a in answers if a.kind == kind and a.applies and a.unit == "facts"]
    return sorted(rows, key=lambda row: row.capacity or 0)


def sentences(answers: Sequence[Answer], T: int | None = None) -> list[str]:
    """The answer, a sentence or two each about training, theorems, limits and your T facts.

    >>> from byheart.specs import LanguageModelSpec
    >>> from byheart.theory import bounds
    >>> print(sentences(bounds(LanguageModelSpec(N=1024, parameters=10**9)))[-1])
    No model of this size can hold more than 3.2 billion facts with random answers (related.information: 32 bits a parameter, 1,024 answers).
    """  # noqa: E501 the sentence is one line, wrapped where it is printed
    promise, most = guaranteed(answers), limit(answers)
    words = [_trained(measured(answers))]
    if promise is None or not promise.capacity:
        words.append("No theorem guarantees a number of facts for it; `all` says why.")
    else:
        what = "real labels of vectors" if promise.id.startswith(LABELS) else "facts"
        held = f"at least {spoken(promise.capacity)} {what} in {promise.scope}"
        words.append(f"Theorems guarantee {held} of these sizes ({promise.id}).")
    if most is not None and most.capacity is not None:
        because = f"{most.id}: {most.note}" if most.note else most.id
        facts = f"{spoken(most.capacity)} facts with random answers ({because})"
        words.append(f"No model of this size can hold more than {facts}.")
    if T is not None:
        words.append(_yours(T, answers))
    return words


def _trained(laws: list[Answer]) -> str:
    """Each law by its number, its rate and its source; two of them are the ends of an interval."""
    if not laws:
        known = "those that byheart knows are about trained language models and one small layer"
        return f"No measured law covers it: {known}. `byheart capacity` measures one."
    bits = f" of {math.log2(laws[0].answers):.3g} bits" if laws[0].answers else ""
    first, *others = [(spoken(law.capacity or 0), _law(law)) for law in laws]
    more = "".join(f", to {facts} ({law})" for facts, law in others)
    notes = ALIKE if others else f"{laws[0].note[:1].upper()}{laws[0].note[1:]}."
    return f"Trained, it holds about {first[0]} facts{bits} ({first[1]}){more}. {notes}"


def _law(answer: Answer) -> str:
    return f"{find(answer.id).statement.title}: {measured_by(answer.id)}"


def measured_by(bound_id: str) -> str:
    """The source of a law up to its year.

    >>> measured_by("empirical.memorization_capacity")
    'Morris et al. 2025'
    """
    source = find(bound_id).statement.source
    year = re.match(r".*?\b\d{4}\b", source)
    return year[0] if year else source.split(" (")[0]


def _yours(T: int, answers: Sequence[Answer]) -> str:
    """Where T facts lie between guarantee, measurement and limit."""
    promise, most, laws = guaranteed(answers), limit(answers), measured(answers)
    yours = f"Your {T:,} facts are"
    if most is not None and T > (most.capacity or 0):
        return f"{yours} more than it can hold if their answers are random."
    if promise is not None and T <= (promise.capacity or 0):
        return f"{yours} within what the theorem guarantees."
    if not laws:
        return f"{yours} more than a theorem guarantees, and not more than the limit."
    low, high = laws[0].capacity or 0, laws[-1].capacity or 0
    if T <= low:
        return f"{yours} {low / T:.3g} times fewer than the lower law says that training holds."
    within = "between the measurements" if T <= high else "more than was measured"
    return f"{yours} {within}: take a larger model, or measure with `byheart capacity`."
