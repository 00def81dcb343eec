# %% [markdown]
# # Plant a fact, then find it
#
# An instrument of interpretability claims to find where a model keeps a fact. To mark it, one
# needs a model in which the place is known. Here is one: every fact has a head of its own, by
# construction.

# %%
import numpy as np
import torch

import byheart as bh

facts = bh.read_facts("countries").subset(range(120))
memory = bh.build(facts, bh.Sharded(shard_size=1))
memory

# %% [markdown]
# The memory knows the owner of every fact: the heads that hold it.

# %%
owner = bh.owner(memory, *facts.key(0))
print(facts.key(0), facts.answer(0), "is held by the heads", owner.heads)

# %% [markdown]
# Now forget that we know, and look with the oldest instrument: switch off one head after the
# other, and see which facts are lost. `to_torch()` gives a plain module with named parts to hook.

# %%
module = memory.to_torch()
keys = [facts.key(t) for t in range(facts.T)]
inputs = memory.encode(keys)
right = torch.tensor(facts.answers)


@torch.no_grad()
def recalled_without(heads) -> np.ndarray:
    """Which facts are still recalled when these heads add nothing."""

    def silence(_part, _inputs, output):
        output = output.clone()
        output[:, :, list(heads)] = 0
        return output

    hook = module.get_submodule("layers.0.hook_heads").register_forward_hook(silence)
    logits = module(inputs)
    hook.remove()
    logits = logits[:, -1] if logits.dim() == 3 else logits
    return (logits.argmax(-1) == right).numpy()


assert recalled_without([]).all()
lost = [np.flatnonzero(~recalled_without(bh.owner(memory, *key).heads)).tolist() for key in keys]
print("facts lost when the owner of fact t is switched off:", lost[:5], "...")

# %% [markdown]
# No owner's removal loses a fact of another. A few facts survive the loss of their head: without
# it the layer still names some answer, the same for all keys that end in the same word, and for a
# few keys that happens to be the right one. Ablation calls such a head useless, and is wrong.

# %%
others = sum(t != u for t, found in enumerate(lost) for u in found)
alone = sum(found == [t] for t, found in enumerate(lost))
print(f"{alone} of {facts.T} owners lose exactly their own fact; {others} facts of others are lost")
assert others == 0 and alone > 0.9 * facts.T

# %% [markdown]
# In a dense memory there is nothing to find: every head carries a part of every fact.

# %%
dense = bh.build(facts, bh.AttentionOnly())
split = dense.split(*facts.key(0))
print("the margin", round(float(split.margin), 3), "is the sum of", split.largest()[:4], "...")
