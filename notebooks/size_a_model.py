# %% [markdown]
# # Size a model for your facts
#
# You have a table of facts and want to know how large a model must be that holds them for
# certain. Any CSV file with a header will do, with the answer in the last column; here it is a
# table that comes with byheart.

# %%
import byheart as bh

facts = bh.read_facts("countries")
facts

# %% [markdown]
# What would each family of models need? Smallest first. The first rows are theory: they need
# weights that are longer than a float. What you can run in float32 begins with the attention
# layers.

# %%
bh.size(facts)

# %% [markdown]
# The other way round: an architecture that you have in mind, and what the theorems say about it.

# %%
spec = bh.AttentionOnlySpec(N=facts.N, S=2, d=16, d_h=16, H=40)
bh.bounds(spec, facts)

# %% [markdown]
# A promise is only as good as its proof. Build it at that size, and have the proof made.

# %%
memory = bh.build(facts, d=16, d_h=16, H=40)
certificate = bh.certify(memory)
print(certificate.certified, f"smallest margin {certificate.margin:.3f}")
memory

# %% [markdown]
# Training gets by with less, but says so only afterwards:

# %%
learned = bh.train(facts, H=8, d=16, d_h=16, seeds=2, steps=600)
learned
