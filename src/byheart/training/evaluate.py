"""Accuracy and loss over all facts, whatever the training batches were."""

from __future__ import annotations

import torch
from torch import Tensor

from byheart.models.architectures import module_of
from byheart.specs import Spec
from byheart.training.data import Data
from byheart.training.learner import CHUNK_BYTES, Goal, Weights
from byheart.training.losses import example_losses, right


@torch.no_grad()
def evaluate(spec: Spec, weights: Weights, data: Data, goal: Goal) -> tuple[Tensor, Tensor]:
    """Share of each model's examples that are right, and its mean loss: (models,) each."""
    forward = module_of(spec).forward
    first = next(iter(weights.values()))
    models = len(first)
    step = max(1, CHUNK_BYTES // (models * spec.row_bytes(first.element_size())))
    hits = torch.zeros(models, dtype=torch.float64)
    loss = torch.zeros(models, dtype=torch.float64)
    for start in range(0, data.T, step):
        inputs, targets = data.span(start, min(start + step, data.T))
        outputs = forward(spec, weights, *inputs)
        if not data.own:
            targets = targets.expand(models, *targets.shape)
        losses = example_losses(goal.loss, outputs, targets, data.kind)
        hit = right(outputs, targets, data.kind, goal.tolerance)
        share = data.row_weights(start, start + losses.shape[1])
        if share is not None:
            hit, losses = hit & (share > 0), torch.where(share > 0, losses, 0)
        hits += hit.sum(1).double().cpu()
        loss += losses.sum(1, dtype=torch.float64).cpu()
    rows = torch.tensor(float(data.T)) if data.rows is None else data.rows.cpu()
    return hits / rows, loss / rows
