# %% [markdown]
# # Edit facts, and count what else is lost
#
# An editor of a model promises to change one fact and no other. In a language model nobody can
# check the second half: the other facts are not known. Here they are, every one of them.

# %%
import numpy as np

import byheart as bh
from byheart.interpret.edits import benchmark_memory, draw_edits

trained = benchmark_memory("trained", 300, seed=1)
trained

# %% [markdown]
# An MLP Transformer that was trained on 300 random facts and recalls all of them. Twenty of them
# get another answer, by ROME's closed form (rank-one edits), MEMIT's (least squares), AlphaEdit's
# (null space), and by fine-tuning. Every other fact is asked afterwards.

# %%
editors = ["rank-one", "least-squares", "null-space", "fine-tune"]
result = bh.edit_benchmark(trained, editors, counts=(1, 20), seed=1, name="trained")
result

# %% [markdown]
# Why do others suffer? A rank-one edit of key k adds δ · (k_j C⁻¹ kᵀ) / (k C⁻¹ kᵀ) to fact j:
# entries of the hat matrix of all keys. With 300 facts and 128 hidden units it cannot be the
# identity.

# %%
from byheart.interpret.readout import readout_of


def hat(memory):
    """K C⁺ Kᵀ / T, over the first block of facts that share weights."""
    K = readout_of(memory).blocks[0].K.numpy()
    return K @ np.linalg.pinv(K)


H = hat(trained)
off = np.abs(H - np.diag(np.diag(H)))
size = f"{len(H)} facts, rank {np.trace(H):.0f}"
print(f"trained: {size}, largest entry off the diagonal {off.max():.2f}")

# %% [markdown]
# A built memory has as many features as facts, so its keys are linearly independent: the hat matrix
# is the identity, and the closed forms touch nothing else. Exact shard edits (`bh.edit`) do not
# even need the keys of other shards.

# %%
sharded = benchmark_memory("sharded", 300, seed=1)
H = hat(sharded)
away = np.abs(H - np.eye(len(H))).max()
print(f"sharded: {len(H)} facts in the first shard, |H - I| at most {away:.0e}")
exact = bh.edit_benchmark(sharded, ["shards", "rank-one"], counts=(1, 20), seed=1, name="sharded")
assert all(row.lost == 0 and row.held == row.edits for row in exact.rows)
(result + exact).figure

# %% [markdown]
# An editor of your own is a function: a memory and edits in words go in, a memory comes out.


# %%
from byheart.interpret.editors import RankOne

rank_one = RankOne()


def cautious(memory, edits):
    """Rank-one edits, of which only the first half of the change is made."""
    readout = readout_of(memory)
    edited = readout_of(rank_one(memory, edits), memory.facts)
    return readout.written(memory, (readout.W + edited.W) / 2)


mine = {"half of it": cautious, "all of it": rank_one}
bh.edit_benchmark(trained, mine, counts=(20,), seed=1, name="trained")

# %%
edits = draw_edits(trained.facts, 1, seed=1)
((key, answer),) = edits.items()
print(key, trained.recall(*key).answer, "->", rank_one(trained, edits).recall(*key).answer)
assert rank_one(trained, edits).recall(*key).answer == answer
