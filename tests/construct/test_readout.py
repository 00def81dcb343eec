"""The convex read-out by itself: its gradient, its logits, what it drops."""

import numpy as np
import torch

from byheart.construct.frames import frame
from byheart.construct.readout import _Problem, convex_readout, whitened
from byheart.models.memory import answer_margins

EPS = torch.finfo(torch.float64).eps


def problem(T: int, m: int, d: int, A: int, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Random features F (T, m), x_S (T, d), a frame (A, d) and right answers (T,)."""
    generator = torch.Generator().manual_seed(seed)
    F = torch.randn(T, m, generator=generator, dtype=torch.float64)
    x_S = torch.randn(T, d, generator=generator, dtype=torch.float64)
    right = torch.randint(A, (T,), generator=generator)
    return F, x_S, frame(A, d), right


def uniform(T: int) -> torch.Tensor:
    return torch.full((T,), 1 / T, dtype=torch.float64)


def test_gradient_is_that_of_autograd():
    F, x_S, rows, right = problem(T=12, m=6, d=3, A=5)
    prior = torch.rand(12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    task = _Problem(torch.cat([F, x_S], 1), x_S, rows, right, prior, safe=0.0)
    V = torch.randn(9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    value, gradient = task.loss_and_gradient(V.flatten().numpy())
    V.requires_grad_()
    log_p = torch.log_softmax((x_S + task.X @ V) @ rows.T, dim=1)
    loss = -(prior / prior.sum() * log_p[torch.arange(12), right]).sum()
    loss.backward()
    # Sums of 12 · 9 terms of order 10 in two orders.
    assert abs(value - float(loss.detach())) <= 1000 * EPS * float(loss.detach())
    assert V.grad is not None
    assert np.allclose(gradient, V.grad.flatten().numpy(), rtol=0, atol=1e4 * EPS)


def test_whitened_features_have_unit_covariance():
    F, x_S, _, _ = problem(T=60, m=8, d=4, A=4)
    X = torch.cat([F, x_S], 1)
    white, unwhiten = whitened(X)
    # The ridge of 1e-10 of the mean variance is all that separates it from the identity.
    assert torch.allclose(white.T @ white / 60, torch.eye(12, dtype=X.dtype), rtol=0, atol=1e-7)
    assert torch.allclose(X @ unwhiten, white, rtol=0, atol=1e-12)


def test_the_returned_matrices_recall_what_they_can():
    for T, everything in ((20, True), (400, False)):
        F, x_S, rows, right = problem(T=T, m=30, d=4, A=10)
        fit = convex_readout(F, x_S, rows, right, uniform(T))
        margins = answer_margins((F @ fit.W_O + x_S @ fit.M_0) @ rows.T, right)
        assert bool((margins > 0).all()) is everything
        assert int((margins > 0).sum()) >= min(T, 34)  # equations that can be met exactly
        assert fit.iterations > 0


def test_lengths_are_of_order_one():
    """z is scaled to mean length 1, so that margins compare with the frame's own."""
    F, x_S, rows, right = problem(T=30, m=30, d=4, A=10)
    fit = convex_readout(F, x_S, rows, right, uniform(30))
    z = F @ fit.W_O + x_S @ fit.M_0
    assert abs(float(z.norm(dim=1).mean()) - 1) < 1e-9


def test_a_heavy_fact_is_held_before_a_light_one():
    """Overloaded: the facts that carry the prior are the ones that stay."""
    F, x_S, rows, right = problem(T=300, m=20, d=4, A=10)
    prior = torch.cat([torch.full((15,), 1e3), torch.ones(285)]).to(torch.float64)
    fit = convex_readout(F, x_S, rows, right, prior / prior.sum())
    held = answer_margins((F @ fit.W_O + x_S @ fit.M_0) @ rows.T, right) > 0
    assert bool(held[:15].all())
    assert not bool(held.all())
