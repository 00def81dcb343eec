"""Ground truth for interpretability: which head carries which fact, to the last digit.

An attribution method that is right should find these numbers. Ablating a head (zeroing its W_O)
changes the gap between answer and runner-up by exactly its contribution.
"""

from __future__ import annotations

from dataclasses import replace

import byheart as bh
from byheart.measure import lost_without


def main() -> None:
    memory = bh.build("elements", "attention")
    question = ("Fe", "name")
    split = memory.split(*question)
    print(f"{question} -> {split.answer}, runner-up {split.runner_up}")
    print(f"margin {split.margin:+.4f} = skip {split.skip:+.4f} + heads")

    head = max(split.heads, key=lambda h: abs(split.parts[h]))
    answer, other = memory.vocabulary.ids([str(split.answer), str(split.runner_up)])
    W_O = memory.weights["W_O"].clone()
    W_O[0, head] = 0
    ablated = replace(memory, weights={**memory.weights, "W_O": W_O})
    before, after = (m.outputs(m.encode([question]))[0] for m in (memory, ablated))
    change = (before[answer] - before[other]) - (after[answer] - after[other])
    print(f"head {head} contributes {split.parts[head]:+.4f}")
    print(f"ablating it changes the gap by {float(change):+.4f}")

    # One fact, one head; then the same facts in a basis and an order that show nothing of it.
    known = bh.build("elements", bh.Sharded(facts_per_head=1))
    hidden = bh.disguise(known, bh.Disguise(rotate=True, permute=True))
    for name, one in (("known", known), ("hidden", hidden)):
        heads = one.owner(*question).heads
        assert one.facts is not None
        lost = [one.facts.key(i) for i in lost_without(one, heads)]
        print(f"{name}: without head {heads[0]} of {one.spec.H} it loses {lost}")


if __name__ == "__main__":
    main()
