"""What theory says: a bound that holds for every model, and the layer that attains it."""

from byheart.theory.bound import Bound, Capacity, Claim, Hypothesis, Size, Statement
from byheart.theory.case import Case

from byheart_lookup.spec import LookupSpec


def few_keys(case: Case) -> str | None:
    """The power is only of interest where it can be met."""
    bits = case["n"] * (case["N"] - 1).bit_length()
    return f"needs keys that can be counted: N^n has about {bits} bits" if bits > 64 else None


def size(case: Case) -> Size:
    """The look-up layer for T facts."""
    spec = LookupSpec(N=case["N"], S=case.key_length, K=case["T"])
    return Size(spec.parameters, {"K": spec.K})


BOUNDS = (
    Bound(
        "lookup.keys",
        Statement(
            title="as many facts as keys",
            text="A model holds at most one fact for each key; a look-up layer holds all of them.",
            formula="T <= N^n",
            source="counting",
        ),
        Claim("upper bound", "exact count", scope="any model"),
        reads=("N", "n"),
        hypotheses=(Hypothesis("N^n below 2^64", few_keys),),
        capacity=Capacity(lambda case: case["N"] ** case["n"]),
        size=size,
    ),
)
