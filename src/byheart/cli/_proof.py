"""What `byheart build` and `byheart edit` share: proving a memory, and saying how it went."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from byheart.cli._show import key_text, number
from byheart.errors import ByheartError

if TYPE_CHECKING:
    from byheart.certificates import Certificate
    from byheart.models import Memory, VectorMemory
    from byheart.models.exact import ExactMemory


def prove(memory: Memory | VectorMemory | ExactMemory, tell: Callable[[str], None]) -> Certificate:
    """float64 with an error bound; ball arithmetic where that bound is too coarse and the layer
    small enough for it."""
    from byheart.certificates import certify
    from byheart.models.exact import ExactMemory

    made = certify(memory, progress=tell)
    if made.certified or isinstance(memory, ExactMemory):
        return made
    try:
        return certify(memory, arithmetic="ball", progress=tell)
    except ByheartError:  # too many heads to evaluate one by one: the first verdict stands
        return made


def certificate_json(certificate: Certificate | None) -> dict[str, Any] | None:
    """The keys of `byheart certify` that belong into another command's object."""
    if certificate is None:
        return None
    record = certificate.to_json()
    names = ("certified", "facts", "failed", "arithmetic", "margin", "error_bound", "seconds")
    distribution = {"distribution": record["distribution"]} if record["distribution"] else {}
    return {name: record[name] for name in names} | distribution


def certificate_line(certificate: Certificate) -> str:
    """The verdict in one line."""
    proof = certificate.distribution
    if certificate.certified and proof is not None:
        return (
            f"proved in {certificate.seconds:.2f} s: d_KL <= {number(proof.kl)} nats, "
            f"|log π - log q| <= {number(proof.max_log_ratio)}"
        )
    if certificate.certified and certificate.arithmetic.startswith("exact integers"):
        return f"proved in {certificate.seconds:.2f} s: {certificate.arithmetic}"
    if certificate.certified:
        return (
            f"proved in {certificate.seconds:.2f} s: every margin >= {number(certificate.margin)}, "
            f"error <= {number(certificate.error_bound)}"
        )
    if not certificate.failures and proof is not None:
        return f"NOT proved: d_KL <= {number(proof.kl)}, claimed {number(proof.claimed_kl)}"
    first = certificate.failures[0]
    return (
        f"NOT proved for {certificate.failed:,} facts, first {key_text(first.key)}: {first.reason}"
    )
