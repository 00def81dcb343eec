"""The sizes of a look-up layer. Nothing here loads torch."""

from dataclasses import dataclass

from byheart.specs import TokenSpec


@dataclass(frozen=True)
class LookupSpec(TokenSpec):
    """`N` tokens, keys of `S` tokens, `K` hidden units.

    >>> LookupSpec(N=10, S=2, K=5).parameters
    150
    """

    K: int

    family = "lookup"
    title = "look-up layer"
    printed = ("N", "S", "K")

    @property
    def parameters(self) -> int:
        """K (S N + N): what each unit reads at each position, and what it writes."""
        return self.K * (self.S + 1) * self.N

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"W_in": (self.S, self.N, self.K), "W_U": (self.K, self.N)}
