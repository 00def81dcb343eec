"""Adam, AdamW and SGD on one flat tensor that holds all weights of a stack.

The fused kernels of torch are called directly where they exist, since on small stacks that is three
times as fast as `torch.optim`. They are private: the formula stands beside them as the fall-back.
"""

from __future__ import annotations

import torch
from torch import Tensor

from byheart.errors import check_choice
from byheart.training.recipe import OPTIMIZERS

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


class FlatOptimizer:
    """`step(lr)` moves `theta` along `grad`, in place. What it keeps is `t`, the steps so far, and
    the tensors that `state` names: to go on from an earlier run, write to both."""

    def __init__(
        self,
        name: str,
        theta: Tensor,
        grad: Tensor,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        fused: bool = True,
    ) -> None:
        check_choice("optimizer", name, OPTIMIZERS)
        self.name, self.theta, self.grad = name, theta, grad
        self.weight_decay, self.momentum = weight_decay, momentum
        self.t = torch.zeros((), dtype=torch.float32, device=theta.device)
        moments = ("m", "v") if name != "sgd" else (("m",) if momentum else ())
        self.state = {key: torch.zeros_like(theta) for key in moments}
        kernel = {"adam": "_fused_adam_", "adamw": "_fused_adamw_"}.get(name, "")
        self._fused = getattr(torch, kernel, None) if fused else None

    def step(self, lr: float) -> None:
        self.t += 1
        if self._fused is not None:
            lists = [[x] for x in (self.theta, self.grad, *self.state.values())]
            rates = {"lr": lr, "beta1": BETA1, "beta2": BETA2, "eps": EPS}
            how = {"weight_decay": self.weight_decay, "amsgrad": False, "maximize": False}
            try:
                self._fused(*lists, [], [self.t], **rates, **how)
                return
            except (RuntimeError, TypeError):  # not on this device, or another signature
                self._fused = None
        change = self.grad
        if self.weight_decay and self.name == "adamw":  # decays θ itself, the others the gradient
            self.theta.mul_(1 - lr * self.weight_decay)
        elif self.weight_decay:
            change = change.add(self.theta, alpha=self.weight_decay)
        if self.name == "sgd":
            if self.momentum:
                change = self.state["m"].mul_(self.momentum).add_(change)
            self.theta.add_(change, alpha=-lr)
        else:
            self._adam(lr, change)

    def _adam(self, lr: float, change: Tensor) -> None:
        """θ -= lr (m / (1 - β_1^t)) / (sqrt(v / (1 - β_2^t)) + ε), m and v the running means of
        the gradient and its square."""
        (m, v), t = self.state.values(), float(self.t)
        m.lerp_(change, 1 - BETA1)
        v.mul_(BETA2).addcmul_(change, change, value=1 - BETA2)
        spread = (v / (1 - BETA2**t)).sqrt_().add_(EPS)
        self.theta.addcdiv_(m, spread, value=-lr / (1 - BETA1**t))
