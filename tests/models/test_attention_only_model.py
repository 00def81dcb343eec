"""The fast forward is the formula; the spec counts what the weights hold."""

import dataclasses
import json

import pytest
import torch
from oracles.literal import literal_forward

from byheart.models.attention_only import forward, head_outputs, residual
from byheart.specs import AttentionOnlySpec

# A logit of these specs is a chain of some 200 float64 operations, each off by 2^-53 relative to
# intermediates of order 10; three layers multiply the errors by another 10^3. Both paths together
# stay below 200 · 10 · 10^3 · 2 · 2^-53 = 4e-10 of the largest entry.
RELATIVE = 4e-10


def tokens_for(spec: AttentionOnlySpec, *batch: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(spec.N, (*batch, spec.S), generator=generator)


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.shape == expected.shape
    error = float((found - expected).detach().abs().max())
    assert error <= RELATIVE * float(expected.detach().abs().max())


def test_fast_forward_is_the_formula(spec, random_weights):
    weights, tokens = random_weights(spec, models=2), tokens_for(spec, 5)
    logits = forward(spec, weights, tokens)
    assert logits.shape == (2, 5, spec.N)
    assert_close(logits, literal_forward(spec, weights, tokens))


def test_every_model_reads_its_own_batch(spec, random_weights):
    weights, tokens = random_weights(spec, models=3), tokens_for(spec, 3, 4)
    logits = forward(spec, weights, tokens)
    assert_close(logits, literal_forward(spec, weights, tokens))
    for m in range(3):  # model m alone, on batch m alone
        alone = forward(spec, {name: w[m : m + 1] for name, w in weights.items()}, tokens[m])
        assert_close(logits[m], alone[0])


def test_gradients_are_those_of_the_formula(spec, random_weights):
    weights, tokens = random_weights(spec, models=2), tokens_for(spec, 4)
    for w in weights.values():
        w.requires_grad_()
    cotangent = torch.randn(2, 4, spec.N, dtype=torch.float64)
    gradients = []
    for way in (forward, literal_forward):
        total = (way(spec, weights, tokens) * cotangent).sum()
        # One position: attention is constant, so W_Q and W_K get no gradient but zeros.
        gradients.append(torch.autograd.grad(total, list(weights.values())))
    scale = max(float(g.abs().max()) for g in gradients[1])
    for name, fast, literal in zip(weights, *gradients, strict=True):
        assert float((fast - literal).abs().max()) <= RELATIVE * scale, name


def test_literal_skip_and_heads_add_up_to_the_residual(spec, random_weights):
    weights, tokens = random_weights(spec, models=2), tokens_for(spec, 4)
    skip, F = head_outputs(spec, weights, tokens)
    assert F.shape == (2, 4, spec.H, spec.d_h)
    assert bool((skip == 0).all()) is not spec.skip
    total = skip + torch.einsum("mbhe,mhed->mbd", F, weights["W_O"][:, -1])
    assert_close(residual(spec, weights, tokens), total)


def test_one_head_by_hand():
    """N = 2, S = 2, d = 1: T(t) = W_U (x_2 + w_o w_v (a x_1 + (1 - a) x_2)), all numbers small."""
    spec = AttentionOnlySpec(N=2, S=2, d=1, d_h=1, H=1)
    one = {
        "W_E": [[1.0], [3.0]],
        "W_pos": [[0.0], [-1.0]],
        "W_Q": [[[[1.0]]]],
        "W_K": [[[[0.5]]]],
        "W_V": [[[[2.0]]]],
        "W_O": [[[[5.0]]]],
        "W_U": [[1.0, -1.0]],
    }
    weights = {name: torch.tensor([w], dtype=torch.float64) for name, w in one.items()}
    # t = (0, 1): x = (1, 2), scores = x_2 · 0.5 · x = (1, 2), a = 1 / (1 + e).
    a = 1 / (1 + torch.e)
    expected = 2 + 2 * 5 * (a * 1 + (1 - a) * 2)
    logits = forward(spec, weights, torch.tensor([[0, 1]]))[0, 0]
    assert logits.tolist() == pytest.approx([expected, -expected], rel=1e-14)


def test_parameters_are_the_entries_of_the_weights(spec, random_weights):
    entries = sum(w[0].numel() for w in random_weights(spec).values())
    assert spec.parameters == entries


@pytest.mark.parametrize("sizes", [(50, 2, 10, 10, 99), (10, 8, 2, 2, 249), (7, 3, 5, 2, 4)])
def test_parameters_of_the_paper(sizes):
    """d (S + 2N + 4 d_h H), and d (S + 2N + 2 (d_h + 1) H) with rank-1 W_QK (Remark 2)."""
    N, S, d, d_h, H = sizes
    spec = AttentionOnlySpec(N=N, S=S, d=d, d_h=d_h, H=H)
    assert spec.parameters == d * (S + 2 * N + 4 * d_h * H)
    rank1 = dataclasses.replace(spec, qk_rank=1)
    assert rank1.parameters == d * (S + 2 * N + 2 * (d_h + 1) * H)


@pytest.mark.parametrize("name", ["N", "S", "d", "d_h", "H", "layers"])
@pytest.mark.parametrize("value", [0, -1, 2.0, True, "3", None])
def test_sizes_must_be_whole_and_positive(name, value):
    sizes = {"N": 5, "S": 2, "d": 3, "d_h": 3, "H": 2, "layers": 1} | {name: value}
    with pytest.raises(ValueError, match=f"^{name} must be a whole number >= 1"):
        AttentionOnlySpec(**sizes)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("options", [{"qk_rank": -1}, {"qk_rank": 1.5}, {"positions": "rotary"}])
def test_options_are_checked(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        AttentionOnlySpec(N=5, S=2, d=3, d_h=3, H=2, **options)


def test_rank_of_scores_is_d_h_by_default():
    assert AttentionOnlySpec(N=5, S=2, d=4, d_h=3, H=2).qk_rank == 3


def test_spec_survives_json(spec):
    again = AttentionOnlySpec(**json.loads(json.dumps(spec.to_json())))
    assert again == spec
    assert again.weight_shapes() == spec.weight_shapes()
