"""The smallest model that learns a given table, found by training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from byheart.errors import ByheartError
from byheart.facts import Facts
from byheart.training.data import token_data
from byheart.training.recipe import Recipe
from byheart.training.train import fitting
from byheart.training.trainer import train_stack

SIZES: tuple[str, ...] = ("H", "d_h", "d", "w", "layers")
REPEATS = 2  # how often a size is tried again at which every start diverged


@dataclass(frozen=True)
class Smallest:
    """The smallest size at which training memorized given facts: `size` of `vary` (null: none up
    to `tried`), `interval` from the largest size at which no start succeeded to the smallest at
    which every start did (null: not seen)."""

    vary: str
    size: int | None
    spec: Any | None
    interval: tuple[int | None, int | None]
    tried: tuple[dict[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        spec = None if self.spec is None else {"family": self.spec.family, **self.spec.to_json()}
        return {
            "vary": self.vary,
            "size": self.size,
            "interval": list(self.interval),
            "spec": spec,
            "parameters": None if self.spec is None else self.spec.parameters,
            "tried": list(self.tried),
        }


def smallest(
    facts: Facts,
    spec: Any,
    *,
    vary: str = "H",
    limit: int = 4096,
    starts: int = 3,
    threshold: float = 1.0,
    recipe: Recipe | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: Callable[[str], None] = lambda _: None,
) -> Smallest:
    """The smallest `vary` (H, d_h, d, w, layers) for which one of `starts` models, trained on
    `facts`, gets the share `threshold` right; the other sizes are those of `spec`, except that a
    rank of W_QK equal to d_h stays equal to it.

    Doubles, then bisects; a size is taken as too small when no start succeeds. Diverged starts are
    no evidence: a size at which all diverge is tried again from other starts, and never counts as
    too small.
    """
    recipe = (recipe if recipe is not None else Recipe()).but(stop_at=threshold)
    if vary not in SIZES or not hasattr(spec, vary):
        known = ", ".join(name for name in SIZES if hasattr(spec, name))
        raise ByheartError(f"vary must be one of {known} for {spec}, found {vary!r}")
    if starts < 1 or limit < 1:
        raise ByheartError(f"starts and limit must be at least 1: found {starts}, {limit}")
    _, start_id = fitting(facts, spec)
    data = token_data(facts, start_id)
    tried: dict[int, dict[str, Any]] = {}

    def passes(size: int) -> bool:
        own = _resized(spec, vary, size)
        progress(f"{vary} = {size}: training {starts} models on {facts.T:,} facts")
        outcomes = ()
        for attempt in range(1 + REPEATS):
            first = seed * 10_007 + starts * attempt
            outcomes = train_stack(
                own, data, recipe, list(range(first, first + starts)), device=device
            ).outcomes
            if any(o.diverged is None for o in outcomes):
                break
        good = [o.accuracy >= threshold for o in outcomes]
        tried[size] = {
            "size": size,
            "parameters": own.parameters,
            "passed": sum(good),
            "diverged": sum(o.diverged is not None for o in outcomes),
            "starts": starts,
            "accuracy": max(o.accuracy for o in outcomes),
        }
        return any(good)

    low, high = 0, getattr(spec, vary) if 0 < getattr(spec, vary) <= limit else 1
    while not passes(high):
        low = high
        if high == limit:
            break
        high = min(2 * high, limit)
    found = bool(tried[high]["passed"])
    while found and high - low > 1:
        middle = (low + high) // 2
        if passes(middle):
            high = middle
        else:
            low = middle
    failed = [n for n, row in tried.items() if not row["passed"] and row["diverged"] < starts]
    sure = [n for n, row in tried.items() if row["passed"] == starts]
    return Smallest(
        vary=vary,
        size=high if found else None,
        spec=_resized(spec, vary, high) if found else None,
        interval=(max(failed, default=None), min(sure, default=None)),
        tried=tuple(tried[n] for n in sorted(tried)),
    )


def _resized(spec: Any, vary: str, size: int) -> Any:
    changes = {vary: size}
    if vary == "d_h" and getattr(spec, "qk_rank", None) == spec.d_h:
        changes["qk_rank"] = size
    return replace(spec, **changes)
