"""Proofs that a memory, as stored, recalls given facts.

`certify` proves a memory in hand, `certify_folder` one on disk. `rounding` is float64 with a
proven error bound, `ball` is Arb. The package is a noun so that `byheart.certify` can be the verb.
"""

from byheart.certificates.certificate import certify, certify_folder
from byheart.certificates.statement import ARITHMETICS, Certificate

__all__ = ["ARITHMETICS", "Certificate", "certify", "certify_folder"]
