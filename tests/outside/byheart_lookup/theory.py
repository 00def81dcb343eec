"""What counting says: a bound that holds for every model, and that a look-up layer attains."""

from byheart.theory.bound import Bound, Capacity, Claim, Hypothesis, Statement
from byheart.theory.case import Case


def few_keys(case: Case) -> str | None:
    bits = case["n"] * (case["N"] - 1).bit_length()
    return f"N^n has about {bits} bits: no table has so many rows" if bits > 64 else None


BOUND = Bound(
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
)
