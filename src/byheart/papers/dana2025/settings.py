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
    """N = 200: 64 batches of 1,024 and 64 epochs; in `full` the same sample in 256 batches of 256
    and 8 epochs (2,048 steps), in `quick` 2 epochs."""
    if profile == "paper":
        return {"N": 200, "batch": 1024, "batches": 64, "epochs": 64}
    return {"N": 200, "batch": 256, "batches": 256, "epochs": 8 if profile == "full" else 2}


def deep(profile: str) -> dict[str, Any]:
    """N = 70, 3 layers, .0025: 128 batches of 512, 64 epochs; in `full` half the sample in 256
    batches of 128 and 16 epochs (4,096 steps), in `quick` 4 epochs."""
    shared = {"N": 70, "layers": 3, "schedule": 0.0025}
    if profile == "paper":
        return {**shared, "batch": 512, "batches": 128, "epochs": 64}
    return {**shared, "batch": 128, "batches": 256, "epochs": 16 if profile == "full" else 4}


def seventy(profile: str) -> dict[str, Any]:
    """N = 70: 256 batches of 1,024, 64 epochs; in `full` 128 of 256 and 24 epochs (3,072 steps),
    in `quick` 8."""
    if profile == "paper":
        return {"N": 70, "batch": 1024, "batches": 256, "epochs": 64}
    return {"N": 70, "batch": 256, "batches": 128, "epochs": 24 if profile == "full" else 8}


SAMPLE = (
    "A fixed sample of 256 x 64 pairs, 64 epochs, Adam, .01 -> .0005 in effect "
    "(as published: .1 -> .05, 1,024 x 64, positions at the input, no scale)."
)
LARGE = (
    ".01 -> .0005 on a fixed sample of 65,536 pairs. The authors' code (`paper`): 64 batches of "
    "1,024, 64 epochs, 4,096 steps; `full`: 256 batches of 256, 8 epochs, 2,048 steps."
)
DEEP = (
    "Constant rate .0025. The authors' code (`paper`): 128 batches of 512, 64 epochs, 8,192 steps, "
    "13.4 samples a pair; `full`: 256 batches of 128, 16 epochs, 4,096 steps, 6.7 samples a pair."
)
SEVENTY = (
    ".01 -> .0005. The authors' code (`paper`): 256 batches of 1,024, 64 epochs, 16,384 steps, 53 "
    "samples a pair; `full`: 128 batches of 256, 24 epochs, 3,072 steps, 6.7 samples a pair as in "
    "experiment 1."
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
