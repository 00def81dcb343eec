# %% [markdown]
# # Plant, hide, find
#
# Which tool finds the heads that hold a fact? On a trained model nobody knows, because nobody
# knows where the fact is. Here we plant facts in heads that we choose, hide the model behind a
# disguise, and send the tools in. All tools see the same models, and we know the answer.

# %% [markdown]
# ## Plant
#
# Twenty facts, a head for each. The memory names the owner of every fact.

# %%
import tempfile
from pathlib import Path

import torch

import byheart as bh
from byheart.interpret import METHODS, Subject, evaluate, tables, truth

facts = bh.random_associations(N=16, S=2, T=20, seed=7)
memory = bh.build(facts, bh.Sharded(facts_per_head=1), seed=7)
print(bh.owner(memory, *facts.key(0)))

# %% [markdown]
# ## Hide
#
# The same memory in a random basis, its heads in a random order, between two layers of heads that
# read the key and write other things. It recalls the same facts; the owners moved with their heads.

# %%
hidden = bh.disguise(
    memory, bh.Disguise(rotate=True, permute=True, layers=3, layer=1, distractors=8, seed=7)
)
print(hidden.spec)
print(bh.owner(hidden, *facts.key(0)))
assert (hidden.margins() > 0).all()

# %% [markdown]
# ## Find
#
# Direct logit attribution by hand: what each head adds to the logit of the answer, one forward
# pass. `Subject` gives plain PyTorch access to what heads write, and counts the passes.

# %%
model = Subject(hidden)
key, answer = model.keys[0], int(model.answers[0])
written = model.run(key[None]).heads[:, 0, -1]  # (layers, heads, d), at the last position
scores = written @ model.W_U[:, answer]
best = torch.topk(scores.flatten(), 3).indices
print("most for the answer, layer and head:", [divmod(int(i), model.H) for i in best])
print("passes:", model.forwards)

# %% [markdown]
# All methods on all facts. `misplaced` is the share of a method's score that stands on heads which
# do not hold the fact.

# %%
where = truth(hidden)
found = [evaluate(hidden, name, where) for name in METHODS]
for one in found:
    m = one.measurements
    print(
        f"{one.method:12} average precision {m['average_precision']:.2f}"
        f"  misplaced {m['misplaced']:.2f}  passes {m['passes']:.0f}"
    )

# %% [markdown]
# A tool of your own is a function of the model, the key and the answer. This one takes what a head
# writes for this key apart from what it writes on average, and asks how much of that points to the
# answer.


# %%
def surprise(model, key, answer):
    """What the head writes beyond its mean, towards the answer."""
    own = model.run(key[None]).heads[:, 0, -1] - model.mean_heads[:, :, -1]
    return own @ model.W_U[:, answer]


print(evaluate(hidden, surprise, where))

# %% [markdown]
# ## The whole benchmark
#
# `bh.localise()` sends every method into every disguise, three memories each; the rows of byheart's
# own methods come with the package. `bh.localise([..., surprise])` adds yours.

# %%
store = Path(tempfile.mkdtemp()) / "localise.db"  # by default byheart-studies/localise.db
chosen = ["direct", "zero", "patch", "attention", surprise]
result = bh.localise(chosen, disguises=["rotated", "cancelling"], store=store)
for line in tables.lines(tables.by_method(result.rows)):
    print("  ".join(cell.ljust(22) for cell in line))

# %%
from IPython.display import Image

figure = Path(tempfile.mkdtemp()) / "localise.png"
result.figure.savefig(figure, dpi=80)
Image(figure)
