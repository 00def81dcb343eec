"""The method: facts -> a look-up layer. torch is loaded when a memory is built, not before."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from byheart.errors import CapacityError
from byheart.facts import Facts
from byheart.methods import Method, option
from byheart.specs import DTYPES
from byheart_lookup.spec import LookupSpec

if TYPE_CHECKING:
    from byheart_lookup.memory import LookupMemory


@dataclass(frozen=True)
class Lookup(Method):
    """One hidden unit for each fact: nothing is solved."""

    name: ClassVar[str] = "lookup"
    summary: ClassVar[str] = "one hidden unit for each fact"

    gain: float = option(1.0, "The logit of a right answer; that of others is 0.", min=1e-6)
    spare: int = option(0, "Units beyond one for each fact.", min=0)
    dtype: str = option("float32", "How the weights are stored.", choices=DTYPES)

    def _build(self, facts: Facts, seed: int, progress: object) -> LookupMemory:
        import torch

        from byheart_lookup.memory import LookupConstruction, LookupMemory

        spec = LookupSpec(N=facts.N, S=facts.S, K=facts.T + self.spare)
        if spec.parameters > 10**9:
            raise CapacityError(f"{facts.T:,} facts need {spec.parameters:,} parameters.")
        dtype = getattr(torch, self.dtype)
        weights = {n: torch.zeros(s, dtype=dtype) for n, s in spec.weight_shapes().items()}
        units, tokens = torch.arange(facts.T), torch.tensor(facts.tokens)
        for s in range(facts.S):  # the unit of a fact reads 1 for each token of its key
            weights["W_in"][s, tokens[:, s], units] = 1.0
        weights["W_U"][units, torch.tensor(facts.answers)] = self.gain  # and writes its answer
        made = LookupConstruction(capacity=spec.K, spare=self.spare)
        memory = LookupMemory(
            spec=spec, weights=weights, vocabulary=facts.vocabulary, construction=made,
            facts=facts, pad_id=facts.pad_id,
        )  # fmt: skip
        margins = memory.margins()  # of the weights as they are stored
        recalled, margin = int((margins > 0).sum()), float(margins.min())
        return replace(memory, construction=replace(made, recalled=recalled, margin=margin))
