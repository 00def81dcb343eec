"""The same facts, built and trained: what the theorem promises and what gradient descent finds.

The construction needs about one head for each d_h facts, and is certain; training packs several
times as many facts into a head, and is certain only once it is certified.
"""

from __future__ import annotations

import byheart as bh
from byheart.theory.related import memorized_bits


def main() -> None:
    facts = bh.random_associations(N=50, S=2, T=300, seed=0)
    built = bh.build(facts, d=10, d_h=10, H=29, slack=0.0)
    spec = bh.AttentionOnlySpec(N=50, S=2, d=10, d_h=10, H=4, scale=True)
    trained = bh.train(facts, spec, seed=1)
    for name, memory, heads in (("built", built, 29), ("trained", trained, 4)):
        bits = memorized_bits(facts.T, facts.N) / memory.spec.parameters
        print(
            f"{name:8} {heads:3} heads, {memory.spec.parameters:6,} parameters, "
            f"{memory.construction.recalled} of {facts.T} recalled, "
            f"certified: {bh.certify(memory).certified}, {bits:.2f} bits per parameter"
        )
    promised = trained.construction.capacity
    print(f"Corollary 1 promises {promised} facts for the layer that was trained.")


if __name__ == "__main__":
    main()
