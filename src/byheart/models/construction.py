"""How a memory came to be, as data: one record a method, the same in Python and in memory.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar

from byheart._json import Json, plain, record


@dataclass(frozen=True)
class LostFact:
    """A fact that a memory was given and does not recall; `key` is empty for vectors."""

    row: int
    answer: str | int
    key: tuple[str, ...] = ()


def finite(value: float) -> float | None:
    """JSON has no infinity: a margin without competitors is null."""
    return value if math.isfinite(value) else None


def shown(value: float | None) -> str:
    """Three significant digits; words where there is nothing to compare with."""
    return "no competitor" if value is None or not math.isfinite(value) else f"{value:.3g}"


@dataclass(frozen=True, kw_only=True)
class Construction:
    """What every method tells of its work.

    `facts` were given, `recalled` of them are recalled from the weights as they are stored, `lost`
    lists the others; `capacity` is what the theorem promises (None: there is none), `margin` the
    smallest margin of the held facts (None: no competitor, or no margins), `why` the reasons.
    """

    method: ClassVar[str]
    kind: ClassVar[str]  # the name of the record: its method's, unless that has several
    kinds: ClassVar[dict[str, type[Construction]]] = {}
    promise: ClassVar[str] = ""  # the theorem behind `capacity`
    unit: ClassVar[str] = "facts"
    remedy: ClassVar[str] = "a larger `d`"  # against lost facts

    facts: int = 0
    recalled: int = 0
    lost: tuple[LostFact, ...] = ()
    capacity: int | None = None
    margin: float | None = None
    readout: str = ""
    dtype: str = ""
    seed: int = 0
    seconds: float = 0.0
    why: tuple[str, ...] = ()

    def __init_subclass__(cls, method: str, kind: str = "", **options: object) -> None:
        super().__init_subclass__(**options)
        cls.method, cls.kind = method, kind or method
        Construction.kinds[cls.kind] = cls

    @property
    def theorem(self) -> str:
        """The theorem behind `capacity`."""
        return self.promise

    def rows(self) -> list[tuple[str, str]]:
        """What there is to say, as (what, value)."""
        rows = []
        if self.capacity is not None and self.theorem:
            rows.append(("promised", f"{self.capacity:,} {self.unit} ({self.theorem})"))
        rows.append(("recalled", self._recalled()))
        return [*rows, *self._quality(), ("seconds", f"{self.seconds:.2f}")]

    def _recalled(self) -> str:
        return f"{self.recalled:,} of {self.facts:,} from the stored {self.dtype} weights"

    def _quality(self) -> list[tuple[str, str]]:
        return [("smallest margin", shown(self.margin))]

    def to_json(self) -> dict[str, Json]:
        """The record as JSON: every field, null where there is nothing to say."""
        kind = {} if self.kind == self.method else {"kind": self.kind}
        values = {"method": self.method, **kind, **asdict(self)}
        return {name: plain(value) for name, value in values.items()}

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> Construction:
        """The record that `to_json` wrote; a ValueError names what is wrong with it, such as a
        method that nobody knows."""
        kind = str(values.get("kind") or values.get("method"))
        if kind not in cls.kinds:
            raise ValueError(f"made by the unknown method {kind!r}")
        return cls.kinds[kind]._read(values)

    @classmethod
    def _read(cls, values: Mapping[str, object]) -> Construction:
        return record(values, cls, "construction")


@dataclass(frozen=True, kw_only=True)
class AttentionConstruction(Construction, method="attention"):
    """One dense layer: by the solve of Corollary 1 (`condition`, relative `residual`, `solver`,
    how the `skip` is taken care of), or by a convex read-out (`iterations`)."""

    promise: ClassVar[str] = "H·d_h + d, Dana et al. 2025, Corollary 1"
    remedy: ClassVar[str] = "more `H` or a larger `d`"

    ideal_margin: float | None = None
    beta: float = 0.0
    condition: float | None = None
    residual: float | None = None
    solver: str | None = None
    skip: str | None = None
    iterations: int | None = None

    def _quality(self) -> list[tuple[str, str]]:
        rows = super()._quality()
        if self.condition is None:
            return rows
        return [*rows, ("condition number", f"{self.condition:.1e} ({self.solver})")]


@dataclass(frozen=True)
class Abstention:
    """Fingerprints of the keys (`construct/sharded/fingerprint.py`): `coordinates` of them, the
    `tolerance` τ within which a key counts as stored, and the share of other keys that do."""

    coordinates: int
    seed: int
    tolerance: float
    largest_error: float
    false_positive_bound: float
    false_positive_rate: float
    sampled_keys: int


@dataclass(frozen=True, kw_only=True)
class ShardedConstruction(Construction, method="sharded"):
    """Shards: the worst `condition` and `residual` of the shards looked at, the largest score
    `s_max` of a stored key, `edits` since the build."""

    promise: ClassVar[str] = "H·d_h, Corollary 1 shard by shard"

    start_id: int
    ideal_margin: float
    residual: float
    condition: float
    s_max: float
    beta: float
    slack: float
    abstain: Abstention | None = None
    edits: int = 0

    def _quality(self) -> list[tuple[str, str]]:
        condition = f"{self.condition:.1e} (largest of the shards looked at)"
        rows = [*super()._quality(), ("condition number", condition)]
        if self.abstain is not None:
            share = shown(self.abstain.false_positive_rate)
            rows.append(("other keys", f"answered all the same: a share of {share} (`abstain`)"))
        return rows


@dataclass(frozen=True, kw_only=True)
class AssociativeConstruction(Construction, method="associative"):
    """The Hebbian sum: nothing is solved."""

    promise: ClassVar[str] = "order d"


@dataclass(frozen=True)
class Unknowns:
    """How sure "unknown" is: `proved` for all `asked` keys that are not stored, or `answered` of
    `asked` random ones; `rate` is the expected share."""

    proved: bool
    asked: int
    answered: int
    rate: float


@dataclass(frozen=True, kw_only=True)
class SquareRootConstruction(Construction, method="sqrt"):
    """Exact integers: the token ids of the classes 1, 2, ..., and how keys are grouped."""

    answers: tuple[int, ...]
    grouping: str = "sorted"
    unknown: Unknowns

    def _recalled(self) -> str:
        return f"{self.recalled:,} of {self.facts:,}, exactly"

    def _quality(self) -> list[tuple[str, str]]:
        keys = self.unknown
        text = f"all {keys.asked:,} other keys of these tokens are answered `unknown`"
        if not keys.proved:
            text = (
                f"`unknown`, but for an expected share of {shown(keys.rate)} (measured: "
                f"{keys.answered:,} of {keys.asked:,} random keys answered by mistake)"
            )
        return [("other keys", text)]


@dataclass(frozen=True)
class NewtonStart:
    """One start of Levenberg-Marquardt: where it began and the largest error it ended with."""

    seed: int
    iterations: int
    error: float


@dataclass(frozen=True, kw_only=True)
class MultiHeadConstruction(Construction, method="multihead"):
    """Multi-head attention over vectors by one of four proofs. `groups` (and the one example
    `over`): which head owns which examples, by the proof; `error`: the largest error of an output
    for labels that are numbers, `error_float32` the same in float32."""

    unit: ClassVar[str] = "examples"
    remedy: ClassVar[str] = "more `H`"
    promises: ClassVar[dict[str, str]] = {
        "one-hot": "H(r-1)+1, Mahdavi et al. 2024, Theorem 1",
        "literal": "H(r-1)+1, Mahdavi et al. 2024, Theorem 1",
        "random": "generic rank",
        "newton": "effective parameters P: an upper limit, no promise",
    }

    proof: str
    tolerance: float | None = None
    error: float | None = None
    error_float32: float | None = None
    condition: float | None = None
    strength: float | None = None
    groups: tuple[tuple[int, ...], ...] | None = None
    over: int | None = None
    pivot: float | None = None
    residual: float | None = None
    iterations: int | None = None
    starts: tuple[NewtonStart, ...] | None = None
    effective_parameters: int | None = None
    theorem1: int | None = None
    conditions_seen: tuple[float, ...] | None = None

    @property
    def theorem(self) -> str:
        return self.promises.get(self.proof, "")

    def _quality(self) -> list[tuple[str, str]]:
        rows = super()._quality()
        if self.error is not None:
            rows = [("largest error", f"{self.error:.1e}")]
            if self.error_float32 is not None:
                rows.append(("in float32", f"{self.error_float32:.1e}"))
        if self.condition is not None:
            rows.append(("condition number", f"{self.condition:.1e}"))
        return rows


@dataclass(frozen=True)
class Theorem1Excess:
    """ε, C in two ways and the bounds of Theorem 1 on d_KL(π, T) - d_KL(π, f); `reason` where
    they cannot be evaluated (Dana et al. 2025)."""

    C: float | None = None
    C_svd: float | None = None
    norm: float | None = None
    excess: float | None = None
    sharp: float | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Theorem3Quantities:
    """δ, max f - min f, its quotient by log 1/p, and ε log 1/ε (Dana et al. 2025, Theorem 3)."""

    delta: float
    logit_range: float
    per_log: float
    eps_log: float


@dataclass(frozen=True, kw_only=True)
class DistributionConstruction(Construction, method="attention", kind="distribution"):
    """A memory whose softmax follows distributions: divergences in nats, of the memory (`kl`) and
    of the `encoder` it follows, and what Theorems 1 and 3 say about them."""

    promise: ClassVar[str] = AttentionConstruction.promise

    encoder: str
    kl: float
    kl_encoder: float
    total_variation: float
    max_log_ratio: float
    entropy: float
    eps: float = 0.0
    beta: float = 0.0
    skip: str = ""
    condition: float | None = None
    ridge: float | None = None
    kl_ridge: float | None = None
    kl_convex: float | None = None
    iterations: int | None = None
    theorem1: Theorem1Excess | None = None
    theorem3: Theorem3Quantities | None = None

    def rows(self) -> list[tuple[str, str]]:
        rows = [
            ("d_KL of the encoder", f"{self.kl_encoder:.4g} nats"),
            ("d_KL of the memory", f"{self.kl:.4g} nats, from the stored {self.dtype} weights"),
            ("total variation", f"{self.total_variation:.4g}"),
            ("max |log π - log q|", f"{self.max_log_ratio:.4g}"),
            ("most probable answer", f"recalled for {self.recalled:,} of {self.facts:,}"),
        ]
        bound = self.theorem1
        if bound is not None and bound.C is not None and bound.sharp is not None and self.eps > 0:
            text = (
                f"ε = {self.eps:.3g}, C = {bound.C:.3g}: the square solve would stay within "
                f"{bound.sharp:.3g} nats of the encoder"
            )
            rows.append(("Theorem 1", text))
        return [*rows, ("seconds", f"{self.seconds:.2f}")]


@dataclass(frozen=True)
class Curve:
    """Loss and accuracy of some steps of a training, evenly spaced, each of the step's batch before
    its update (four digits; None: not finite, or not told by the kernel)."""

    steps: tuple[int, ...]
    loss: tuple[float | None, ...]
    accuracy: tuple[float | None, ...]

    def __post_init__(self) -> None:
        if not len(self.steps) == len(self.loss) == len(self.accuracy):
            raise ValueError("curve: lists of different lengths")

    def brief(self, most: int = 32) -> dict[str, Json]:
        """As JSON, at most so many points: what a row of a study hands over as its `curve`.

        >>> Curve(tuple(range(100)), (0.5,) * 100, (None,) * 100).brief(10)["steps"]
        [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]
        """
        every = -(-len(self.steps) // most)
        return {k: plain(v[:: max(1, every)]) for k, v in vars(self).items()}


@dataclass(frozen=True)
class Outcome:
    """What became of one model. `accuracy`: share of all its facts that are right, from the
    returned weights; `train_accuracy`: mean over the 100 training batches before the last one, each
    measured before its update (as Dana et al.'s code has it). `diverged`: the step after which a
    weight or the loss was no longer finite (no evidence about capacity); `stopped`: the step at
    which `stop_at` was reached. `seconds`: its share of the wall time. `curve`: the way there."""

    seed: int
    steps: int
    accuracy: float
    train_accuracy: float | None
    loss: float = math.nan
    diverged: int | None = None
    stopped: int | None = None
    seconds: float = 0.0
    curve: Curve | None = None


@dataclass(frozen=True)
class Training:
    """The recipe as JSON, the path of the gradients, and all starts, of which `best` was kept."""

    recipe: Mapping[str, object]
    path: str
    best: int
    models: tuple[Outcome, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.best < len(self.models):
            raise ValueError(f"best: start {self.best} of {len(self.models)}")


@dataclass(frozen=True, kw_only=True)
class TrainedConstruction(Construction, method="train"):
    """Gradient descent, the best of several starts; `bits_per_parameter` of what it recalls."""

    promise: ClassVar[str] = "by construction, Dana et al. 2025, Corollary 1"
    remedy: ClassVar[str] = "more `H`, a larger `d` or more `steps`"

    training: Training
    bits_per_parameter: float | None = None

    def _quality(self) -> list[tuple[str, str]]:
        models = self.training.models
        perfect = sum(model.accuracy == 1 for model in models)
        steps = f"{models[self.training.best].steps:,}"
        starts = f"{perfect} of {len(models)} recalled all; the best took {steps} steps"
        rows = [("starts", starts), *super()._quality()]
        if self.bits_per_parameter is not None:
            rows.append(("bits per parameter", f"{self.bits_per_parameter:.3g}"))
        diverged = [f"{model.diverged:,}" for model in models if model.diverged is not None]
        if diverged:
            text = f"{len(diverged)} of {len(models)} starts, at step {', '.join(diverged)}"
            rows.append(("diverged", text))
        return rows


@dataclass(frozen=True, kw_only=True)
class ImportedConstruction(Construction, method="import"):
    """A model of another tool: `source` says which form it came in."""

    remedy: ClassVar[str] = "further training"

    source: str = ""

    def to_json(self) -> dict[str, Json]:
        values = super().to_json()
        return values | {"from": values.pop("source")}

    @classmethod
    def _read(cls, values: Mapping[str, object]) -> Construction:
        return super()._read({**values, "source": values.get("from", "")})
