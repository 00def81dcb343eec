"""Adam, AdamW and SGD on one flat tensor that holds all weights of a stack.

The fused kernels of torch are called directly where they exist (they are private: the public
optimizer is the fall-back and the test oracle); on small stacks that is three times as fast.
"""

from __future__ import annotations

import torch
from torch import Tensor

from byheart.errors import ByheartError

OPTIMIZERS: tuple[str, ...] = ("adam", "adamw", "sgd")


class FlatOptimizer:
    """`step(lr)` moves `theta` along `grad`, in place. `state` names the tensors it keeps."""

    def __init__(
        self,
        name: str,
        theta: Tensor,
        grad: Tensor,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        fused: bool = True,
    ) -> None:
        if name not in OPTIMIZERS:
            raise ByheartError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, found {name!r}")
        self.name, self.theta, self.grad = name, theta, grad
        self.betas, self.eps, self.weight_decay, self.momentum = betas, eps, weight_decay, momentum
        self.t = torch.zeros((), dtype=torch.float32, device=theta.device)
        moments = ("m", "v") if name != "sgd" else (("m",) if momentum else ())
        self.state = {key: torch.zeros_like(theta) for key in moments}
        self._public: torch.optim.Optimizer | None = None
        kernel = {"adam": "_fused_adam_", "adamw": "_fused_adamw_"}.get(name, "")
        self._fused = getattr(torch, kernel, None) if fused else None
        if name != "sgd" and self._fused is None:
            self._make_public()

    def step(self, lr: float) -> None:
        if self.name == "sgd":
            self._sgd(lr)
            return
        if self._fused is not None:
            try:
                self.t += 1
                self._fused(
                    [self.theta],
                    [self.grad],
                    [self.state["m"]],
                    [self.state["v"]],
                    [],
                    [self.t],
                    lr=lr,
                    beta1=self.betas[0],
                    beta2=self.betas[1],
                    weight_decay=self.weight_decay,
                    eps=self.eps,
                    amsgrad=False,
                    maximize=False,
                )
                return
            except (RuntimeError, TypeError):  # not on this device, or another signature
                self.t -= 1
                self._fused = None
                self._make_public()
        assert self._public is not None
        for group in self._public.param_groups:
            group["lr"] = lr
        self._parameter.grad = self.grad
        self._public.step()
        self.t.copy_(self._public.state[self._parameter]["step"])

    def _sgd(self, lr: float) -> None:
        self.t += 1
        change = self.grad
        if self.weight_decay:
            change = change.add(self.theta, alpha=self.weight_decay)
        if self.momentum:
            change = self.state["m"].mul_(self.momentum).add_(change)
        self.theta.add_(change, alpha=-lr)

    def _make_public(self) -> None:
        """torch.optim over the same memory, carrying on from the state there is."""
        self._parameter = torch.nn.Parameter(self.theta)
        make = torch.optim.Adam if self.name == "adam" else torch.optim.AdamW
        self._public = make(
            [self._parameter], betas=self.betas, eps=self.eps, weight_decay=self.weight_decay
        )
        self._public.state[self._parameter] = {
            "step": self.t.detach().cpu().clone(),
            "exp_avg": self.state["m"],
            "exp_avg_sq": self.state["v"],
        }

    def set_time(self, t: int) -> None:
        """Continue after `t` steps (the moments are restored by writing to `state`)."""
        self.t.fill_(t)
        if self._public is not None:
            self._make_public()
