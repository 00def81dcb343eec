"""Training lengths of the experiments, and the disagreements that several figures share."""

from __future__ import annotations

from typing import Any

# As the paper prints it: .1 -> .05, 64 batches of 1,024, positions at the input, no 1/sqrt(d_h).
PUBLISHED: dict[str, Any] = {
    "schedule": "as-published",
    "batch": 1024,
    "positions": "input",
    "scale": False,
}


def large(profile: str) -> dict[str, Any]:
    """N = 200: 64 batches of 1,024; 64 epochs in the paper's code, 16 in `full`, 8 in `quick`."""
    epochs = {"quick": 8, "full": 16, "paper": 64}[profile]
    return {"N": 200, "batch": 1024, "batches": 64, "epochs": epochs}


def deep(profile: str) -> dict[str, Any]:
    """N = 70, 3 layers, .0025: 128 batches of 512, 64 epochs; fewer in `full` and `quick`."""
    shared = {"N": 70, "layers": 3, "schedule": 0.0025, "batch": 512}
    if profile == "paper":
        return {**shared, "batches": 128, "epochs": 64}
    return {**shared, "batches": 64, "epochs": 32 if profile == "full" else 8}


def seventy(profile: str) -> dict[str, Any]:
    """N = 70: 256 batches of 1,024, 64 epochs; 64 of 512 and 32 epochs in `full`."""
    if profile == "paper":
        return {"N": 70, "batch": 1024, "batches": 256, "epochs": 64}
    return {"N": 70, "batch": 512, "batches": 64, "epochs": 32 if profile == "full" else 16}


SAMPLE = (
    "A fixed sample of 256 x 64 pairs, 64 epochs, Adam, .01 -> .0005 in effect "
    "(as published: .1 -> .05, 1,024 x 64, positions at the input, no scale)."
)
LARGE = "1,024 x 64 pairs, .01 -> .0005; 64 epochs in the authors' code (`paper`), 16 in `full`."
DEEP = (
    "Constant rate .0025. The authors' code (`paper`): 512 x 128 pairs, 64 epochs, 13.4 samples a "
    "pair; `full`: 512 x 64 pairs, 32 epochs, 6.7 samples a pair."
)
SEVENTY = (
    ".01 -> .0005. The authors' code (`paper`): 1,024 x 256 pairs, 64 epochs, 53 samples a pair; "
    "`full`: 512 x 64 pairs, 32 epochs, 6.7 samples a pair as in experiment 1."
)
RATE = "Learning rate: paper .1 -> .05; code .01 -> .0005 in effect (a factor passed as a rate)."
BATCHES = "Batches: paper 64 of 1,024 for all; code 64 of 256 (1-4, 6), 256 of 1,024 (5), 64 of \
1,024 (larger dimension), 128 of 512 (depth)."
ACCURACY = "Accuracy is measured on the training sample, where pairs drawn often count more; \
Corollary 2 speaks of the uniform prior (`corrected`)."
BOTTLENECK = "For d != d_h the code compresses once for all heads (heads are d_h x d_h, 4 d_h² \
numbers each); the paper has W_Q, W_K, W_V, W_O of d x d_h for every head (`corrected`)."
SPARSE = (
    "1.6 samples a pair: 19 % of the pairs are never drawn, so the associations of φ^{-1} with \
T0 = N² are not comparable with Corollary 2."
)
LAYERS = "Layers: paper text and captions 5; notebook and titles 3 (used here)."
