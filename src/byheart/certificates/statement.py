"""Certificates as data: what was proved about which weights and facts, in which arithmetic."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from byheart._folders import write_text
from byheart._version import __version__
from byheart.errors import MemoryFileError

SCHEMA = 1
FILE = "certificate.json"
LISTED = 1000  # failures kept in a certificate; all are counted

INTEGERS = "exact integers"  # how the arithmetic of an exact memory's certificate begins
ARITHMETICS = {
    "rounding": "float64 with a proven rounding-error bound (u = 2^-53, exp within 2^-47)",
    "ball": "ball arithmetic (Arb)",
    "float": "plain float64: a check, not a proof",
}


@dataclass(frozen=True)
class Failure:
    """A fact that is not proved, and why."""

    row: int
    key: tuple[str, ...]
    answer: str
    margin: float | None
    error_bound: float | None
    reason: str


@dataclass(frozen=True)
class DistributionProof:
    """Proved bounds, in nats: kl_lower <= d_KL(π, T) <= kl, and max_t |log π - log softmax T| <=
    max_log_ratio over answers with π > 0. `claimed_*` is what the memory says of itself."""

    kl: float
    kl_lower: float
    max_log_ratio: float
    claimed_kl: float | None
    claimed_max_log_ratio: float | None
    answers: int


@dataclass(frozen=True)
class Certificate:
    """The statement: in exact real arithmetic on the stored weights, argmax T(t) = g(t) for every
    fact t, because margin(t) > error_bound(t).

    `margin` is the smallest computed margin, `error_bound` the largest bound on its error
    (null: no other token to compete with). `certified` is never true for the plain float check.
    `shard_errors` (sharded memories) is the largest own error of each shard: after an edit only
    the shards that changed are proved again (`update`). `distribution` (memories of
    distributions): bounds on d_KL and on the log ratios; the statement is then about these.
    Vector memories with numbers as labels: `margin` is `tolerance` minus the error of an output,
    and `largest_error` a proven bound on that error over all examples.
    """

    certified: bool
    passed: bool
    facts: int
    failed: int
    arithmetic: str
    margin: float | None
    error_bound: float | None
    seconds: float
    weights_sha256: str
    facts_digest: str
    failures: tuple[Failure, ...] = ()
    damage: tuple[str, ...] = ()
    schema: int = SCHEMA
    byheart: str = __version__
    shard_errors: tuple[float, ...] | None = None
    distribution: DistributionProof | None = None
    tolerance: float | None = None
    largest_error: float | None = None
    competitors: str = "tokens"
    statement: str = field(init=False)

    def __post_init__(self) -> None:
        said = "proved" if self.certified else "NOT proved"
        text = (
            f"{said}: the Transformer with these weights, in exact real arithmetic, gives the "
            f"right answer of each of the {self.facts} facts the largest logit of all "
            f"{self.competitors}"
        )
        proof = self.distribution
        if proof is not None:
            text = (
                f"{said}: the Transformer with these weights, in exact real arithmetic, has "
                f"d_KL(π, softmax T) <= {proof.kl:.9g} nats over the {self.facts} sequences, and "
                f"|log π - log softmax T| <= {proof.max_log_ratio:.9g} wherever π > 0 (softmax "
                f"over the {proof.answers} answers)"
            )
        if self.tolerance is not None:
            text = (
                f"{said}: the layer with these weights, in exact real arithmetic, gives every "
                f"label of the {self.facts} examples within {self.tolerance:.3g}"
            )
        if self.arithmetic.startswith(INTEGERS):
            text = (
                f"{said}: the network with these integer weights outputs the class of the right "
                f"answer for each of the {self.facts} facts, exactly"
            )
        object.__setattr__(self, "statement", text)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def write(self, folder: str | Path) -> Path:
        """Write `certificate.json` into a memory folder, atomically."""
        path = Path(folder) / FILE
        try:
            write_text(path, json.dumps(self.to_json(), ensure_ascii=False, indent=1) + "\n")
        except OSError as error:
            raise MemoryFileError(f"{path} cannot be written: {error.strerror}.") from None
        return path


def arithmetic_name(name: str, precision: int, spec: object) -> str:
    """The arithmetic in words, as a certificate states it."""
    text = ARITHMETICS[name]
    if name == "ball":
        return f"{text}, {precision} bits"
    if name == "rounding" and getattr(spec, "activation", None) == "gelu":
        return text.replace("exp within", "exp and erf within")
    return text
