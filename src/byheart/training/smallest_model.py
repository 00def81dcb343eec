"""The smallest model that learns a given table, found by training."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from byheart._progress import Report, quiet
from byheart._search import bisect
from byheart.errors import OptionError, check_choice
from byheart.facts import Facts
from byheart.training.data import token_data
from byheart.training.largest_table import SEED_STRIDE
from byheart.training.method import fitting
from byheart.training.recipe import Recipe, TrainableSpec
from byheart.training.trainer import train_stack

SIZES: tuple[str, ...] = ("H", "d_h", "d", "w", "layers")
REPEATS = 2  # how often a size is tried again at which every start diverged


@dataclass(frozen=True)
class SizeTried:
    """What became of the `seeds` starts at one size."""

    size: int
    parameters: int
    passed: int
    diverged: int
    seeds: int
    accuracy: float


@dataclass(frozen=True)
class Smallest:
    """The smallest size at which training memorized given facts: `size` of `vary` (null: none up
    to `tried`), `interval` from the largest size at which no start succeeded to the smallest at
    which every start did (null: not seen)."""

    vary: str
    size: int | None
    spec: TrainableSpec | None
    interval: tuple[int | None, int | None]
    tried: tuple[SizeTried, ...]

    def to_json(self) -> dict[str, object]:
        spec = None if self.spec is None else {"family": self.spec.family, **self.spec.to_json()}
        return {
            "vary": self.vary,
            "size": self.size,
            "interval": list(self.interval),
            "spec": spec,
            "parameters": None if self.spec is None else self.spec.parameters,
            "tried": [asdict(row) for row in self.tried],
        }


def smallest(
    facts: Facts,
    spec: TrainableSpec,
    *,
    vary: str = "H",
    limit: int = 4096,
    seeds: int = 3,
    threshold: float = 1.0,
    recipe: Recipe | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: Report = quiet,
) -> Smallest:
    """The smallest `vary` (H, d_h, d, w, layers) for which one of `seeds` models, trained on
    `facts`, gets the share `threshold` right; the other sizes are those of `spec`, except that a
    rank of W_QK equal to d_h stays equal to it.

    Doubles, then bisects; a size is taken as too small when no start succeeds. Diverged starts are
    no evidence: a size at which all diverge is tried again from other starts, and never counts as
    too small.
    """
    recipe = (recipe if recipe is not None else Recipe()).but(stop_at=threshold)
    check_choice("vary", vary, [name for name in SIZES if hasattr(spec, name)])
    for name, count in (("seeds", seeds), ("limit", limit)):
        if count < 1:
            raise OptionError(name, "at least 1", count)
    _, start_id = fitting(facts, spec)
    data = token_data(facts, start_id)
    tried: dict[int, SizeTried] = {}

    def passes(size: int) -> bool:
        resized = _resized(spec, vary, size)
        progress(f"{vary} = {size}: training {seeds} models on {facts.T:,} facts")
        outcomes = ()
        for attempt in range(1 + REPEATS):
            first = seed * SEED_STRIDE + seeds * attempt
            starts = range(first, first + seeds)
            outcomes = train_stack(resized, data, recipe, starts, device=device).outcomes
            if any(o.diverged is None for o in outcomes):
                break
        passed = sum(o.accuracy >= threshold for o in outcomes)
        tried[size] = SizeTried(
            size=size,
            parameters=resized.parameters,
            passed=passed,
            diverged=sum(o.diverged is not None for o in outcomes),
            seeds=seeds,
            accuracy=max(o.accuracy for o in outcomes),
        )
        return passed > 0

    start = getattr(spec, vary)
    low, high = 0, start if 0 < start <= limit else 1
    while not (found := passes(high)) and high < limit:
        low, high = high, min(2 * high, limit)
    size = bisect(passes, low, high) if found else None
    failed = [n for n, row in tried.items() if not row.passed and row.diverged < seeds]
    sure = [n for n, row in tried.items() if row.passed == seeds]
    return Smallest(
        vary=vary,
        size=size,
        spec=None if size is None else _resized(spec, vary, size),
        interval=(max(failed, default=None), min(sure, default=None)),
        tried=tuple(tried[n] for n in sorted(tried)),
    )


def _resized(spec: TrainableSpec, vary: str, size: int) -> TrainableSpec:
    changes = {vary: size}
    if vary == "d_h" and getattr(spec, "qk_rank", None) == spec.d_h:
        changes["qk_rank"] = size
    return replace(spec, **changes)
