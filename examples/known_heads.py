"""Ground truth for interpretability: which head carries which fact, to the last digit.

An attribution method that is right should find these numbers. Ablating a head (zeroing its W_O)
changes the gap between answer and runner-up by exactly its contribution.
"""

from __future__ import annotations

from dataclasses import replace

import byheart as bh


def main() -> None:
    memory = bh.build(bh.read_facts("elements"))
    question = ("Fe", "name")
    tokens = memory.encode([question])
    split = bh.head_split(memory, tokens)
    answer, other = int(split.answers[0]), int(split.runners_up[0])
    word = memory.vocabulary.token
    print(f"{question} -> {word(answer)}, runner-up {word(other)}")
    print(f"margin {float(split.margins[0]):+.4f} = skip {float(split.skip[0]):+.4f} + heads")

    head = int(split.heads[0].abs().argmax())
    before = memory.logits(tokens)[0]
    W_O = memory.weights["W_O"].clone()
    W_O[0, head] = 0
    ablated = replace(memory, weights={**memory.weights, "W_O": W_O})
    after = ablated.logits(tokens)[0]
    change = (before[answer] - before[other]) - (after[answer] - after[other])
    print(f"head {head} contributes {float(split.heads[0, head]):+.4f}")
    print(f"ablating it changes the gap by {float(change):+.4f}")


if __name__ == "__main__":
    main()
