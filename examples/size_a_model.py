"""How large must a model be for my facts, and is the answer right? Ask the theorems, then build.

The countries of the world: what each family needs, the smallest attention-only layer by Corollary
1, one built at exactly that size, and one head less, which the theorem does not promise and the
builder refuses.
"""

from __future__ import annotations

import byheart as bh


def main() -> None:
    facts = bh.read_facts("countries")
    print(f"{facts.name}: {facts.T} facts, keys of {facts.S} tokens, {facts.N} tokens")
    for row in sorted(bh.size(facts), key=lambda row: row.parameters)[:6]:
        print(f"  {row.title:45} {row.parameters:>12,.0f} parameters")

    d, spare = 11, min(11, facts.last_tokens)
    H = -(-(facts.T - spare) // d)  # T <= H d_h + min(d, last tokens), with d_h = d
    memory = bh.build(facts, d=d, d_h=d, H=H, qk_rank=1, slack=0.0, dtype="float64")
    proved = bh.certify(memory, arithmetic="ball")  # at the limit float64 bounds are too coarse
    print(f"built: {memory.spec}, {memory.spec.parameters:,} parameters")
    print(f"  promised {memory.construction.capacity} facts, certified: {proved.certified}")
    try:
        bh.build(facts, d=d, d_h=d, H=H - 1, qk_rank=1, slack=0.0)
    except bh.ByheartError as error:
        print(f"one head less: {str(error).splitlines()[0]}")


if __name__ == "__main__":
    main()
