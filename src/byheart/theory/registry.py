"""All bounds, those of other packages too, and the question `bounds(spec, facts)`.

A package adds bounds with an entry point of the group `byheart.bounds` that names one `Bound` or a
sequence of them:

    [project.entry-points."byheart.bounds"]
    mine = "my_package.bounds:BOUNDS"
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, TypedDict, Unpack

from byheart._plugins import leave_out, plugins
from byheart.errors import ByheartError, did_you_mean
from byheart.specs import Spec
from byheart.theory import dana2025_bounds, kajitsuka2025_bounds, mahdavi2024, related
from byheart.theory.bound import Answer, Bound
from byheart.theory.case import Case, case_of
from byheart.theory.tables import Answers

if TYPE_CHECKING:
    from byheart.facts import Facts

BOUNDS: tuple[Bound, ...] = (
    *dana2025_bounds.BOUNDS,
    *mahdavi2024.BOUNDS,
    *kajitsuka2025_bounds.BOUNDS,
    *related.BOUNDS,
)


class Options(TypedDict, total=False):
    """What else `bounds` may be told."""

    kruskal: int | None
    bits: int | None
    answers: int | None
    spread: float | None


def bounds(spec: Spec, facts: Facts | int | None = None, **options: Unpack[Options]) -> Answers:
    """What every theorem says about `spec`: a number, or the hypothesis that fails.

    `facts`: a table (anything with T, S, N, last_tokens, prior, answer_ids), their number, or None.
    `kruskal`: Kruskal rank Q of the queries, where it was measured; `bits` of a parameter (default:
    32, or those of the integers of an exact memory); `answers`: how many different ones (default:
    those of the facts, else the vocabulary); `spread` = r/δ: largest norm over smallest distance of
    input tokens that are vectors.

    >>> from byheart.specs import AttentionOnlySpec
    >>> rows = {a.id: a for a in bounds(AttentionOnlySpec(N=50257, S=1024, d=768, d_h=64, H=12))}
    >>> rows["dana2025.corollary1"].capacity, rows["mahdavi2024.theorem1"].reason
    (1536, 'needs n <= d: 1024 > 768')
    """
    return Answers(ask(case_of(spec, facts, **options), tuple(all_bounds().values())))


def ask(case: Case, theorems: Sequence[Bound] = BOUNDS) -> list[Answer]:
    """What each of the `theorems` says about a case."""
    return [bound.answer(case) for bound in theorems]


@cache
def all_bounds() -> dict[str, Bound]:
    """Every bound by id, ours first, then those of other packages."""
    theorems = {bound.id: bound for bound in BOUNDS}
    sources = dict.fromkeys(theorems, "byheart")
    for plugin in plugins("byheart.bounds"):
        value = plugin.value
        for bound in value if isinstance(value, Sequence) else [value]:
            if not isinstance(bound, Bound):
                wrong = f"must name a Bound or a sequence of them, found {type(bound).__name__}."
                leave_out("byheart.bounds", f"{plugin.source} {wrong}")
            elif bound.id in theorems:
                twice = f"two bounds are called {bound.id!r}: one of {sources[bound.id]}, one of"
                leave_out("byheart.bounds", f"{twice} {plugin.source}. Rename one of them.")
            else:
                theorems[bound.id], sources[bound.id] = bound, plugin.source
    return theorems


def find(bound_id: str) -> Bound:
    """The bound with this id; a wrong one names the nearest.

    >>> find("dana2025.corollary1").statement.formula.split(" with")[0]
    'T0 = H d_h + d'
    """
    theorems = all_bounds()
    if bound_id in theorems:
        return theorems[bound_id]
    hint = did_you_mean(bound_id, theorems)
    raise ByheartError(f"there is no bound {bound_id!r}. {hint}".rstrip())
