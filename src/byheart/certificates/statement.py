"""Certificates as data: what was proved about which weights and facts, in which arithmetic.

`Certificate` is a small sum type: one class for each thing that can be proved, each with its own
statement and words. All have the same JSON keys; what a kind has nothing to say about is null.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from byheart._files import read_json
from byheart._folders import locked, write_text
from byheart._json import Json
from byheart._json import record as typed_record
from byheart._version import __version__
from byheart.errors import ByheartError, MemoryFileError
from byheart.models.construction import shown

if TYPE_CHECKING:
    from byheart.models import Memory
    from byheart.models.description import Description
    from byheart.models.memory import Identity

SCHEMA = 2  # 1: a certificate did not bind spec, vocabulary and arithmetic
FILE = "certificate.json"
LISTED = 1000  # failures kept in a certificate; all are counted

BRIEF = ("certified", "facts", "failed", "arithmetic", "margin", "error_bound", "seconds",
         "distribution")  # fmt: skip
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
class EvaluationProof:
    """What holds of every evaluation of the stored weights in their number `format`, in any order
    of summation, exp within 4 (float32) or 64 (float64) units in the last place: `proved` facts are
    recalled by all of them; `rows` lists those for which that is not shown. `covers`: which
    evaluations, where not all. Of sharded memories, for edits: `shard_errors` is the largest own
    error of the proved facts of each shard, `shard_failed` the places of the others among the
    facts of that shard."""

    format: str
    proved: int
    failed: int
    margin: float | None
    error_bound: float | None
    rows: tuple[int, ...] = ()
    covers: str = ""
    shard_errors: tuple[float, ...] | None = None
    shard_failed: tuple[tuple[int, ...], ...] = ()

    def text(self) -> str:
        """The second statement in one sentence."""
        every = f"every {self.format} evaluation" + (f" ({self.covers})" if self.covers else "")
        if not self.failed:
            return f"{every} recalls all {self.proved:,} facts"
        remedy = "`dtype=float64`, more `slack`" if self.format == "float32" else "more `slack`"
        return (
            f"that {every} recalls it too is proved for {self.proved:,} of "
            f"{self.proved + self.failed:,} facts, and open for the others (what would help: "
            f"{remedy})"
        )


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


@dataclass(frozen=True, kw_only=True, repr=False)
class Certificate:
    """What every certificate says; the statement is the subclass's.

    `margin` is the smallest computed margin, `error_bound` the largest bound on its error; a fact
    is proved where its margin is above its bound. None: no other token to compete with, or a
    statement without margins. `certified` is never true for the plain float check.

    >>> import byheart as bh
    >>> bh.certify(bh.build("elements")).verdict()
    'CERTIFIED: all 236 facts are recalled by the stored weights.'
    """

    certified: bool
    passed: bool
    facts: int
    failed: int
    arithmetic: str
    margin: float | None = None
    error_bound: float | None = None
    seconds: float
    weights_sha256: str
    facts_digest: str
    digest: str = ""
    premises: tuple[tuple[str, str], ...] = ()
    evaluation: EvaluationProof | None = None
    failures: tuple[Failure, ...] = ()
    damage: tuple[str, ...] = ()
    schema: int = SCHEMA
    byheart: str = __version__

    # What is said

    # In `str.format`, where c is the certificate: what is proved; that it holds; in plain words.
    claim: ClassVar[str]
    holds: ClassVar[str] = "all {c.facts:,} facts are recalled by the stored weights"
    plain: ClassVar[str]

    @property
    def statement(self) -> str:
        """What is proved, in one sentence."""
        return f"{'proved' if self.certified else 'NOT proved'}: {self.claim.format(c=self)}"

    def verdict(self) -> str:
        """What came of it, in one sentence."""
        if self.certified:
            return f"CERTIFIED: {self.holds.format(c=self)}."
        if self.passed:
            return f"CHECKED, NOT PROVED: all {self.facts:,} facts are recalled in float64."
        return f"NOT CERTIFIED: {self.failed:,} of {self.facts:,} facts fail."

    def summary(self) -> str:
        """The same in one line, with its numbers."""
        if self.certified:
            return f"proved in {self.seconds:.2f} s: {self.found}"
        if self.failures:
            first = self.failures[0]
            key = " · ".join(t if t.isprintable() else repr(t) for t in first.key)
            return f"NOT proved for {self.failed:,} facts, first {key}: {first.reason}"
        return "NOT proved: " + ("; ".join(self.damage) or self.arithmetic)

    @property
    def found(self) -> str:
        """The numbers of the proof."""
        return f"every margin >= {shown(self.margin)}, error <= {shown(self.error_bound)}"

    def rows(self) -> list[tuple[str, str]]:
        """What there is to say, as (what, value)."""
        evaluation = self.evaluation
        return [
            ("arithmetic", self.arithmetic),
            *self._numbers(),
            *([("as it runs", evaluation.text())] if evaluation else []),
            *((f"premise: {name}", check) for name, check in self.premises),
            ("weights", f"sha256 {self.weights_sha256[:16]}..."),
            ("facts", f"digest {self.facts_digest[:16]}..."),
            ("seconds", f"{self.seconds:.2f}"),
        ]

    def _numbers(self) -> list[tuple[str, str]]:
        def said(value: float | None) -> str:
            return "not evaluated" if value is None and self.failed else shown(value)

        return [
            ("smallest margin", said(self.margin)),
            ("largest error bound", said(self.error_bound)),
        ]

    def sentences(self) -> tuple[str, ...]:
        """A proof in plain words, for a page."""
        return (
            self.plain.format(c=self),
            *self._comparison(),
            *([f"As it runs: {self.evaluation.text()}."] if self.evaluation else []),
            f"Arithmetic of the proof: {self.arithmetic}.",
            f"It is about the weights with SHA-256 {self.weights_sha256[:12]}… and the facts "
            f"{self.facts_digest[:12]}…; anyone can check it again from the files alone.",
        )

    def _comparison(self) -> tuple[str, ...]:
        return ()

    def _description(self) -> Description:
        from byheart.models.description import Description

        return Description(self.verdict(), tuple(self.rows()), (), (), {})

    def __repr__(self) -> str:
        return f"<{self._description().text()}>"

    def _repr_html_(self) -> str:
        return self._description().html()

    # Files

    def names(self, memory: Memory) -> bool:
        """Whether this claims a proof about the weights and facts of `memory`."""
        table = memory.table
        return (
            self.certified
            and self.weights_sha256 == memory.weights_sha256()
            and (table is None or self.facts_digest == table.digest())
        )

    def about(self, memory: Memory) -> bool:
        """Whether this is a proof about `memory` and what it holds, as it is now: about its
        architecture and how it reads keys too, which certificates of schema 1 did not bind."""
        tolerance = getattr(self, "tolerance", None)
        bound = binding(memory.identity(), self.facts_digest, self.arithmetic, tolerance)
        return self.schema == SCHEMA and self.names(memory) and self.digest == bound

    def to_json(self) -> dict[str, Json]:
        """Every key of every kind of certificate."""
        return {**_ABSENT, **asdict(self), "statement": self.statement}

    def brief(self) -> dict[str, Json]:
        """The keys that belong into the record of another work, such as a build."""
        record = self.to_json()
        return {name: record[name] for name in BRIEF if name != "distribution" or record[name]}

    @staticmethod
    def from_json(record: Mapping[str, object]) -> Certificate:
        """The certificate that `to_json` wrote, now or before; an error where it is none."""
        kind = AnswerCertificate
        if str(record.get("arithmetic")).startswith(INTEGERS):
            kind = IntegerCertificate
        elif record.get("distribution") is not None:
            kind = DistributionCertificate
        elif record.get("tolerance") is not None:
            kind = NumberCertificate
        try:
            return typed_record(record, kind)
        except ValueError as error:
            raise MemoryFileError(f"{FILE} is no certificate: {error}.") from None

    @staticmethod
    def read(folder: str | Path) -> Certificate | None:
        """The certificate in a memory folder; None where there is none that can be read."""
        with suppress(MemoryFileError):
            record = read_json(Path(folder) / FILE, error=MemoryFileError)
            return Certificate.from_json(record) if isinstance(record, dict) else None
        return None

    def write(self, folder: str | Path) -> Path:
        """Write `certificate.json` into a memory folder, atomically."""
        path = Path(folder) / FILE
        try:
            with locked(folder):
                write_text(path, json.dumps(self.to_json(), ensure_ascii=False, indent=1) + "\n")
        except OSError as error:
            raise ByheartError(f"{path} cannot be written: {error.strerror}.") from None
        return path


@dataclass(frozen=True, kw_only=True, repr=False)
class AnswerCertificate(Certificate):
    """In exact real arithmetic on the stored weights, argmax T(t) = g(t) for every fact t, because
    margin(t) > error_bound(t).

    `shard_errors` (sharded memories) is the largest own error of each shard, `shard_sha256` that of
    its W_O: after an edit only the shards that changed are proved again (`update`); the others, the
    `inherited` ones, rest on the certificate before. `competitors`: tokens, or classes.
    """

    shard_errors: tuple[float, ...] | None = None
    shard_sha256: tuple[str, ...] | None = None
    inherited: tuple[int, ...] = ()
    competitors: str = "tokens"

    claim = (
        "the Transformer with these weights, in exact real arithmetic, gives the right answer of "
        "each of the {c.facts} facts the largest logit of all {c.competitors}"
    )
    plain = (
        "For each of the {c.facts:,} facts, in exact real arithmetic on these weights, the right "
        "answer gets the largest score of all {c.competitors}."
    )

    def rows(self) -> list[tuple[str, str]]:
        rows = super().rows()
        if self.inherited and self.shard_sha256:
            text = f"{len(self.inherited):,} of {len(self.shard_sha256):,} shards are those of the "
            text += "certificate before the edit, bit for bit (`byheart certify` proves all)"
            rows.insert(1, ("inherited", text))
            if self.evaluation is None:
                missing = "not stated, as before the edit (`byheart certify` looks for a proof)"
                rows.insert(2, ("as it runs", missing))
        return rows

    def _comparison(self) -> tuple[str, ...]:
        margin, error = self.margin, self.error_bound
        if margin is None or not error:
            return ()
        return (
            f"The smallest lead of a right answer is {margin:.3g}; the arithmetic can be wrong by "
            f"at most {error:.2g}, {float(f'{margin / error:.2g}'):,.0f} times less.",
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class NumberCertificate(Certificate):
    """Labels that are numbers: `margin` is `tolerance` minus the error of an output, and
    `largest_error` a proven bound on that error over all examples."""

    tolerance: float
    largest_error: float | None = None
    competitors: str = "classes"

    claim = (
        "the layer with these weights, in exact real arithmetic, gives every label of the "
        "{c.facts} examples within {c.tolerance:.3g}"
    )
    plain = "Each of the {c.facts:,} labels is recalled within {c.tolerance:.3g}."

    @property
    def found(self) -> str:
        error = self.largest_error
        return "every label within " + (shown(error) if error is None else f"{error:.1e}")

    def _numbers(self) -> list[tuple[str, str]]:
        labels = [("labels", f"within {shown(self.largest_error)}")] if self.largest_error else []
        return [*super()._numbers(), *labels]

    def _comparison(self) -> tuple[str, ...]:
        return (f"The largest proven error is {shown(self.largest_error)}.",)


@dataclass(frozen=True, kw_only=True, repr=False)
class DistributionCertificate(Certificate):
    """Memories of distributions: bounds on d_KL and on the log ratios."""

    distribution: DistributionProof

    claim = (
        "the Transformer with these weights, in exact real arithmetic, has d_KL(π, softmax T) <= "
        "{c.distribution.kl:.9g} nats over the {c.facts} sequences, and |log π - log softmax T| <= "
        "{c.distribution.max_log_ratio:.9g} wherever π > 0 (softmax over the "
        "{c.distribution.answers} answers)"
    )
    holds = "the stored weights follow {c.facts:,} distributions as claimed"
    plain = (
        "For all {c.facts:,} keys together the recalled distribution is within "
        "{c.distribution.kl:.3g} nats (KL divergence) of the stored one, and no log probability is "
        "off by more than {c.distribution.max_log_ratio:.3g}."
    )

    @property
    def found(self) -> str:
        proof = self.distribution
        return f"d_KL <= {shown(proof.kl)} nats, |log π - log q| <= {shown(proof.max_log_ratio)}"

    def summary(self) -> str:
        proof = self.distribution
        if self.certified or self.failures:
            return super().summary()
        return f"NOT proved: d_KL <= {shown(proof.kl)}, claimed {shown(proof.claimed_kl)}"

    def _numbers(self) -> list[tuple[str, str]]:
        proof = self.distribution
        kl = f"{shown(proof.kl_lower)} to {shown(proof.kl)} nats, claimed {shown(proof.claimed_kl)}"
        ratio = f"at most {shown(proof.max_log_ratio)}, claimed "
        ratio += shown(proof.claimed_max_log_ratio)
        return [("d_KL", kl), ("max |log π - log q|", ratio)]


@dataclass(frozen=True, kw_only=True, repr=False)
class IntegerCertificate(Certificate):
    """Exact memories: outputs equal to the classes, in integers; nothing is rounded."""

    error_bound: float | None = 0.0

    claim = (
        "the network with these integer weights outputs the class of the right answer for each of "
        "the {c.facts} facts, exactly"
    )
    plain = (
        "For each of the {c.facts:,} facts the integer network outputs the class of the right "
        "answer, exactly: there is nothing to round."
    )

    @property
    def found(self) -> str:
        return self.arithmetic

    def _numbers(self) -> list[tuple[str, str]]:
        return [("tolerance", "none: outputs are equal or not")]


def binding(identity: Identity, facts: str, arithmetic: str, tolerance: object) -> str:
    """One digest of all that a certificate speaks of: its schema, the architecture and its sizes,
    how keys are read (order, start, padding, vocabulary), weights, facts, arithmetic."""
    spec, weights, reading, _ = identity
    about = [SCHEMA, type(spec).__name__, str(spec), repr(spec), weights, reading, facts]
    content = json.dumps([*about, arithmetic, tolerance], default=str, ensure_ascii=True)
    return hashlib.sha256(content.encode()).hexdigest()


_ABSENT: dict[str, Json] = {
    "margin": None,
    "error_bound": None,
    "shard_errors": None,
    "shard_sha256": None,
    "inherited": [],
    "distribution": None,
    "tolerance": None,
    "largest_error": None,
    "competitors": "tokens",
}
