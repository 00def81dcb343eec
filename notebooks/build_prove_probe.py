# %% [markdown]
# # Build a memory, prove it, look inside
#
# A table of facts becomes the weights of a small Transformer, without training. This notebook
# builds one, has it proved, and looks at it with hooks, as one would at any model.

# %%
import torch

import byheart as bh

memory = bh.build(
    {
        ("France", "capital"): "Paris",
        ("France", "currency"): "euro",
        ("Peru", "capital"): "Lima",
        ("Peru", "currency"): "sol",
        ("Japan", "capital"): "Tokyo",
        ("Japan", "currency"): "yen",
    }
)
memory

# %% [markdown]
# Ask it. `known` says whether the key was among the facts.

# %%
print(memory.recall("Peru", "currency"))
print(memory.recall("Peru", "Paris"))

# %% [markdown]
# The proof: every margin is larger than what rounding can do.

# %%
certificate = bh.certify(memory)
print(certificate.certified, certificate.margin, certificate.error_bound)

# %% [markdown]
# Inside. The exact parts of one margin, head by head, add up to the margin itself:

# %%
split = memory.split("Japan", "capital")
print(float(split.margin), split.skip, split.largest())

# %% [markdown]
# The same model as a plain `torch.nn.Module`, with parts to hook. Attention of every head at the
# last token of every key:

# %%
module, seen = memory.to_torch(), {}
module.get_submodule("layers.0.hook_pattern").register_forward_hook(
    lambda _part, _inputs, output: seen.update(pattern=output)
)
keys = [(country, what) for country in ("France", "Peru") for what in ("capital", "currency")]
with torch.no_grad():
    module(memory.encode(keys))
for key, attention in zip(keys, seen["pattern"][:, :, -1, 0], strict=True):
    print(f"{' '.join(key):16}", " ".join(f"{a:.2f}" for a in attention))

# %% [markdown]
# In TransformerLens the same memory is a `HookedTransformer` (`pip install transformer-lens`):

# %%
import importlib.util
import tempfile

if importlib.util.find_spec("transformer_lens") is None:
    print("TransformerLens is not installed here; docs/export.md shows what it gives.")
else:
    folder = bh.export(memory, tempfile.mkdtemp() + "/lens", to="transformer-lens")
    print(sorted(path.name for path in folder.iterdir()))
