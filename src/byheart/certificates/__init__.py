"""Proofs that a memory, as stored, recalls given facts.

`certify` proves a memory in hand or a folder, `check_memory` runs the contract of memories over
one. "rounding" is float64 with a proven error bound, "ball" is Arb (`arithmetic`, `ball`). Proofs
are dispatched on classes: another package adds its own with `prove.register(MyMemory, ...)` or
`residual.register(MySpec, ...)`. The package is a noun so that `byheart.certify` can be the verb.
"""

from typing import TYPE_CHECKING

from byheart._lazy import attach

if TYPE_CHECKING:
    from byheart.certificates.architectures import residual
    from byheart.certificates.arithmetic import Arithmetic
    from byheart.certificates.certificate import certify, certify_folder
    from byheart.certificates.contract import check_memory
    from byheart.certificates.proving import prove
    from byheart.certificates.statement import (
        ARITHMETICS,
        AnswerCertificate,
        Certificate,
        DistributionCertificate,
        IntegerCertificate,
        NumberCertificate,
    )

__all__ = [
    "ARITHMETICS",
    "AnswerCertificate",
    "Arithmetic",
    "Certificate",
    "DistributionCertificate",
    "IntegerCertificate",
    "NumberCertificate",
    "certify",
    "certify_folder",
    "check_memory",
    "prove",
    "residual",
]
__getattr__, __dir__ = attach(__name__)
