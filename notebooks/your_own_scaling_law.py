# %% [markdown]
# # Your own scaling law
#
# How many random facts does a small attention layer learn, as its number of heads grows? The
# theorem of Dana et al. promises H·d_h + d by construction. What does training reach?

# %%
import byheart as bh

heads = (2, 4, 8)
found = {}
for H in heads:
    spec = bh.AttentionOnlySpec(N=20, S=2, d=4, d_h=4, H=H)
    found[H] = bh.capacity(spec, seeds=3, restarts=1, resolution=0.1)
    low, high = found[H].interval
    per = found[H].per_parameter
    print(f"H = {H}: {found[H].facts} facts ({low} to {high}), {per:.2f} a parameter")

# %% [markdown]
# Each result has an interval over random tables. A picture, with the theorem's promise beside it:

# %%
import matplotlib.pyplot as plt

facts = [found[H].facts for H in heads]
figure, axes = plt.subplots(figsize=(6, 3.6))
axes.plot(heads, facts, "o-", label="trained")
axes.plot(heads, [4 * H + 4 for H in heads], "--", label="promised: H·d_h + d")
axes.set_xlabel("heads H")
axes.set_ylabel("facts")
axes.set_title("Facts that a layer of width 4 learns", loc="left")
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# Three sizes make no law. `byheart reproduce mine.py` runs a study of your own, with many seeds,
# an interval for every number, a band that you write down before, and a verdict:
# [docs/studies.md](../docs/studies.md).
