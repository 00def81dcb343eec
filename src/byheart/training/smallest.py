"""The smallest model that learns a given table, found by training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from byheart.errors import ByheartError
from byheart.facts import Facts
from byheart.training.data import token_data
from byheart.training.recipe import Recipe
from byheart.training.trainer import train_stack


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
    """The smallest `vary` (H, d_h, w, ...) for which one of `starts` models, trained on `facts`,
    gets the share `threshold` right; the other sizes are those of `spec`.

    Doubles, then bisects; a size is taken as too small when no start succeeds. Diverged starts are
    no evidence: a size at which all diverged is not counted as too small.
    """
    recipe = (recipe if recipe is not None else Recipe()).but(stop_at=threshold)
    if not hasattr(spec, vary):
        raise ByheartError(f"{spec} has no size {vary!r}")
    data = token_data(facts, facts.N if spec.S > facts.S else None)
    tried: dict[int, dict[str, Any]] = {}

    def passes(size: int) -> bool:
        own = replace(spec, **{vary: size})
        progress(f"{vary} = {size}: training {starts} models on {facts.T:,} facts")
        outcomes = train_stack(
            own, data, recipe, [seed * 10_007 + i for i in range(starts)], device=device
        ).outcomes
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
        spec=replace(spec, **{vary: high}) if found else None,
        interval=(max(failed, default=None), min(sure, default=None)),
        tried=tuple(tried[n] for n in sorted(tried)),
    )
