"""The same 90 head outputs: what Corollary 1 promises, and what a convex read-out holds."""

from __future__ import annotations

import byheart as bh


def main() -> None:
    promised = 9 * 10 + 10
    for T in (promised, 2 * promised, 6 * promised):
        facts = bh.random_associations(N=50, S=3, T=T)
        try:
            memory = bh.build(facts, d=10, H=9, d_h=10)
            exact = f"{memory.construction.recalled} recalled"
        except bh.ByheartError as error:
            exact = f"refused ({str(error).split(',')[0]})"
        convex = bh.build(facts, d=10, H=9, d_h=10, readout="convex").construction
        print(f"{T} facts: exact {exact}; convex {convex.recalled} recalled")


if __name__ == "__main__":
    main()
