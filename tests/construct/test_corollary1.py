"""Corollary 1 as software: H d_h + d facts are held exactly, one more is refused."""

import re

import pytest
import torch
from torch import Tensor

import byheart as bh
from byheart._progress import quiet
from byheart.construct.attention_only import (
    BETAS,
    SEED_STRIDE,
    Layer,
    check_admissible,
    features,
    in_basis,
    random_attention,
    rounded,
)
from byheart.construct.frames import coherence, frame
from byheart.construct.solve import RankError
from byheart.errors import CapacityError
from byheart.facts import Facts
from byheart.models.attention_only import head_outputs, residual
from byheart.models.construction import AttentionConstruction
from byheart.models.token_memory import TokenMemory
from byheart.specs import AttentionOnlySpec

EPS = torch.finfo(torch.float64).eps
# (N, S, d, d_h, H)
BOUNDARIES = [
    (10, 2, 2, 2, 20),
    (10, 8, 2, 2, 249),
    pytest.param((50, 32, 10, 10, 99), marks=pytest.mark.slow),
    (50, 2, 10, 10, 199),
    pytest.param((100, 32, 20, 20, 249), marks=pytest.mark.slow),
]


def record(memory: TokenMemory) -> AttentionConstruction:
    assert isinstance(memory.construction, AttentionConstruction)
    return memory.construction


def change_of_basis(memory: TokenMemory) -> Tensor:
    """M_0 from e = e' M_0, with the e' that the construction started from (I for a fixed skip)."""
    beta = record(memory).beta
    seed = memory.construction.seed + SEED_STRIDE * BETAS.index(beta)
    assert isinstance(memory.spec, AttentionOnlySpec)
    nominal = random_attention(memory.spec, seed, beta)
    return torch.linalg.lstsq(nominal["W_E"], memory.weights["W_E"]).solution


def row_errors(memory: TokenMemory, facts: Facts) -> Tensor:
    """|residual(t) - w_g(t)|_2 of every fact, in float64."""
    assert isinstance(memory.spec, AttentionOnlySpec)
    weights = {name: w[None].to(torch.float64) for name, w in memory.weights.items()}
    found = residual(memory.spec, weights, memory.with_start(facts.tokens))[0]
    rows = weights["W_U"][0][:, torch.tensor(facts.answers)].T
    return (found - rows).norm(dim=1)


def allowed_error(memory: TokenMemory) -> float:
    """How far residual(t) may be from the row it was solved for.

    W_O has norm <= cond |w_g - x_S| / |X|, so every relative error ε of the features moves the
    residual by ε cond |w_g - x_S|, and |w_g - x_S| <= 3 (a unit vector, and |x_S|² ≈ 1).
    Features are good to some eps, or after x -> x M_0, W -> M_0^{-1} W to some eps cond(M_0), which
    the scores (standard deviation β, hence the factor) pass on to the softmax. 4 for "some".
    """
    condition, beta = record(memory).condition, record(memory).beta
    assert condition is not None
    basis = float(torch.linalg.cond(change_of_basis(memory)))
    return 4 * 3 * beta * EPS * condition * basis


@pytest.mark.parametrize("sizes", BOUNDARIES, ids=str)
def test_at_the_boundary_all_facts_are_recalled_and_certified(sizes):
    N, S, d, d_h, H = sizes
    T = H * d_h + d
    facts = bh.random_associations(N=N, S=S, T=T, seed=3)
    memory = bh.build(facts, "attention", d=d, d_h=d_h, H=H, dtype="float64")
    assert memory.spec == AttentionOnlySpec(N=N, S=S, d=d, d_h=d_h, H=H)
    assert memory.construction.recalled == memory.construction.capacity == T
    assert record(memory).skip == "change of basis"

    errors = row_errors(memory, facts)
    assert float(errors.max()) <= allowed_error(memory) < 1e-3
    # Margin = min_j (w_g - w_j)·residual, |w_g - w_j| <= 2: as far from the ideal one as twice the
    # error of the residual, and a rounding of logits of order 1.
    ideal = 1 - coherence(frame(len(facts.answer_ids), d))
    margins = memory.margins(facts)
    assert record(memory).ideal_margin == ideal
    assert bool((margins >= ideal - 2 * errors.numpy() - 100 * EPS).all())
    certificate = bh.certify(memory, arithmetic="rounding")
    assert (certificate.certified, certificate.facts) == (True, T)


@pytest.mark.parametrize("sizes", BOUNDARIES[:3], ids=str)
def test_one_fact_more_is_refused_with_the_way_out(sizes):
    N, S, d, d_h, H = sizes
    T = H * d_h + d + 1
    facts = bh.random_associations(N=N, S=S, T=T, seed=3)
    with pytest.raises(CapacityError, match="Corollary 1") as caught:
        bh.build(facts, "attention", d=d, d_h=d_h, H=H, dtype="float64")
    message = str(caught.value)
    assert f"{T:,} facts" in message and f"= {T - 1:,}," in message
    advice = re.search(r"`H=(\d+)`", message)
    assert advice is not None
    heads = int(advice[1])
    assert heads == H + 1
    memory = bh.build(facts, "attention", d=d, d_h=d_h, H=heads, dtype="float64")
    assert memory.construction.recalled == T


@pytest.mark.parametrize("T", [30, 40])
def test_within_the_heads_the_skip_is_left_alone(T):
    """T <= H d_h: no change of basis, so only W_O is rounded after the solve."""
    facts = bh.random_associations(N=10, S=2, T=T, seed=1)
    memory = bh.build(facts, "attention", d=4, d_h=4, H=10, dtype="float64")
    assert record(memory).skip == "fixed"
    nominal = random_attention(memory.spec, 0, record(memory).beta)  # pyright: ignore
    for name in ("W_E", "W_pos", "W_Q", "W_K", "W_V"):
        assert torch.equal(memory.weights[name], nominal[name])
    assert float(row_errors(memory, facts).max()) <= allowed_error(memory) < 1e-6


@pytest.mark.parametrize("T", [18, 20, 22])
def test_few_last_tokens_leave_fewer_directions_to_the_skip(T, make_table):
    """d = 5 but two last tokens: x_S spans two directions, so H d_h + 2 = 22, not 25."""
    facts = make_table(N=20, S=2, T=T, seed=0, keys="few last tokens")
    assert (facts.T, facts.last_tokens) == (T, 2)
    memory = bh.build(facts, "attention", d=5, d_h=5, H=4, dtype="float64")
    assert memory.construction.recalled == T
    assert memory.construction.capacity == 22
    assert float(row_errors(memory, facts).max()) <= min(allowed_error(memory), 0.1)


def test_one_fact_more_than_few_last_tokens_allow(make_table):
    facts = make_table(N=20, S=2, T=23, seed=0, keys="few last tokens")
    with pytest.raises(CapacityError, match=r"23 facts .*min\(5, 2 distinct last tokens\) = 22"):
        bh.build(facts, "attention", d=5, d_h=5, H=4, dtype="float64")
    # It is not caution: the matrix of the theorem has rank 22 < 23 and there is no solution.
    spec = AttentionOnlySpec(N=20, S=2, d=5, d_h=5, H=4)
    x_S, F = features(spec, random_attention(spec, 0, 4.0), torch.tensor(facts.tokens))
    assert int(torch.linalg.matrix_rank(torch.cat([F, x_S], 1))) == 22


def test_changing_the_basis_keeps_scores_and_features_and_turns_the_skip():
    spec = AttentionOnlySpec(N=8, S=3, d=4, d_h=3, H=5)
    weights = random_attention(spec, seed=0, beta=4.0)
    M_0 = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    moved = in_basis(weights, M_0)
    tokens = torch.randint(spec.N, (20, 3), generator=torch.Generator().manual_seed(2))
    # x M_0 and M_0^{-1} W meet again with an error of some eps cond(M_0).
    tolerance = 100 * EPS * float(torch.linalg.cond(M_0))
    x_S, F = features(spec, weights, tokens)
    new_x_S, new_F = features(spec, moved, tokens)
    assert torch.allclose(new_F, F, rtol=0, atol=tolerance)
    assert torch.allclose(new_x_S, x_S @ M_0, rtol=0, atol=tolerance)
    assert float((new_x_S - x_S).abs().max()) > 0.1
    for h in range(spec.H):
        x, new_x = weights["W_E"] + weights["W_pos"][-1], moved["W_E"] + moved["W_pos"][-1]
        scores = x @ weights["W_Q"][0, h] @ (x @ weights["W_K"][0, h]).T
        new_scores = new_x @ moved["W_Q"][0, h] @ (new_x @ moved["W_K"][0, h]).T
        assert torch.allclose(new_scores, scores, rtol=0, atol=10 * tolerance)


def test_features_in_batches_are_features_at_once(monkeypatch):
    from byheart.construct import attention_only

    spec = AttentionOnlySpec(N=8, S=3, d=4, d_h=3, H=5)
    weights = random_attention(spec, seed=0, beta=4.0)
    tokens = torch.randint(spec.N, (7, 3), generator=torch.Generator().manual_seed(2))
    x_S, F = features(spec, weights, tokens)
    stacked = {name: w[None] for name, w in weights.items()}
    skip, heads = head_outputs(spec, stacked, tokens)
    assert torch.equal(x_S, skip[0]) and torch.equal(F, heads[0].flatten(1))
    monkeypatch.setattr(attention_only, "BATCH_BYTES", 3 * spec.row_bytes(8))
    parts = features(spec, weights, tokens)
    assert torch.allclose(parts[1], F, rtol=0, atol=100 * EPS)
    assert torch.equal(parts[0], x_S)


def test_random_attention_is_as_announced():
    """|x|² ≈ 1, scores of standard deviation β, W_V with orthonormal columns."""
    for r, scale in ((1, False), (4, False), (16, False), (4, True)):
        spec = AttentionOnlySpec(N=400, S=2, d=16, d_h=8, H=50, qk_rank=r, scale=scale)
        weights = random_attention(spec, seed=0, beta=5.0)
        x = weights["W_E"] + weights["W_pos"][0]
        # 400 tokens of 16 coordinates: a mean square within 10 %, pos_0 (0.3 ± 0.11) included 40 %.
        assert float((x**2).sum(1).mean()) == pytest.approx(1.0, rel=0.4)
        W_QK = weights["W_Q"][0] @ weights["W_K"][0].transpose(-1, -2)
        unit = torch.nn.functional.normalize(x)
        scores = unit @ W_QK @ unit.T / (r**0.5 if scale else 1)
        assert float(scores.std()) == pytest.approx(5.0, rel=0.2)
        identity = torch.eye(8, dtype=torch.float64).expand(50, 8, 8)
        gram = weights["W_V"][0].transpose(-1, -2) @ weights["W_V"][0]
        assert torch.allclose(gram, identity, rtol=0, atol=100 * EPS)


def test_one_token_keys_get_a_start_token_and_are_told():
    facts = bh.random_associations(N=20, S=1, T=20, seed=0)
    memory = bh.build(facts, "attention", d=4, d_h=4, H=5, dtype="float64")
    assert memory.spec.S == 2 and memory.spec.N == 21
    assert memory.start_id == 20 and memory.vocabulary.token(20) == "<start>"
    assert any("start token" in reason for reason in memory.construction.why)
    assert memory.construction.recalled == 20


def test_why_one_token_keys_need_the_start_token():
    """Attention over one position is 1 whatever the scores: F(t) = x_S W_V is linear in x_S, the
    features have rank d instead of H d_h, and the theorem's system has no solution."""
    facts = bh.random_associations(N=20, S=1, T=20, seed=0)
    spec = AttentionOnlySpec(N=20, S=1, d=4, d_h=4, H=5)  # the same sizes hold 20 facts at S = 2
    check_admissible(spec, facts.T, facts.last_tokens)  # by counting alone it would fit
    tokens = torch.tensor(facts.tokens)
    x_S, F = features(spec, random_attention(spec, 0, 4.0), tokens)
    assert int(torch.linalg.matrix_rank(torch.cat([F, x_S], 1))) == spec.d
    W_U = torch.zeros(4, 20, dtype=torch.float64)
    ids = torch.from_numpy(facts.answer_ids.copy())
    W_U[:, ids] = frame(len(ids), 4).T
    targets = W_U[:, torch.tensor(facts.answers)].T
    for beta in BETAS:
        with pytest.raises((RankError, CapacityError)):
            Layer(facts, spec, torch.float64, 0, quiet).solved(targets, W_U, beta)


def test_rounded_weights_are_what_the_format_stores():
    weights = {"w": torch.tensor([0.1, 1.0, 1e-50], dtype=torch.float64)}
    found = rounded(weights, torch.float32)["w"]
    assert found.dtype == torch.float64
    assert found.tolist() == [0.10000000149011612, 1.0, 0.0]


# A^h(t) is a weighted mean of the vectors x_s = e(t_s) + pos_s. For n tokens in S positions these
# span k = n + S - 1 dimensions, also if d is larger. So a head with d_h >= k has k features, of
# which one, the sum of the attention weights, is the same 1 for all heads and for the skip: what
# "generic" in Lemma 2 leaves is at most H min(d_h, k - 1) + min(d, last tokens).
BINARY = [(3, 6, 1), (4, 20, 3), (6, 7, 9), (6, 20, 3)]  # (S, d, H), d_h = d > S = k - 1


@pytest.mark.parametrize(("S", "d", "H"), [(2, 4, 1), *BINARY])
def test_few_tokens_leave_fewer_features_to_a_head(binary_facts, independence, S, d, H):
    """Two tokens: H S + 2 facts have independent rows, so the system of Theorem 1 has a solution
    and they are to be recalled."""
    facts = binary_facts(S, H * S + 2)
    spec = AttentionOnlySpec(N=2, S=S, d=d, d_h=d, H=H)
    assert independence(facts, spec) > 1e-9
    memory = bh.build(facts, "attention", d=d, d_h=d, H=H, dtype="float64")
    assert memory.construction.recalled == facts.T


@pytest.mark.parametrize(("S", "d", "H"), BINARY)
def test_few_tokens_beyond_their_features_are_refused(binary_facts, independence, S, d, H):
    """One fact more: H d_h + min(d, last tokens) would let it pass, but the rows are dependent.
    That the theorem does not cover it is for `CapacityError` to say, not for the number format."""
    facts = binary_facts(S, H * S + 3)
    spec = AttentionOnlySpec(N=2, S=S, d=d, d_h=d, H=H)
    assert facts.T <= H * d + 2
    assert independence(facts, spec) < 1e-14
    with pytest.raises(CapacityError):
        bh.build(facts, "attention", d=d, d_h=d, H=H, dtype="float64")


def test_heads_chosen_for_few_tokens_are_enough(binary_facts):
    """Given the width only, the number of heads is byheart's to choose, so it must suffice."""
    memory = bh.build(binary_facts(6, 60), "attention", d=64)
    assert memory.construction.recalled == 60


# At the boundary [W_O; M_0] = X^{-1} Y has no more rank than the targets Y. Fewer than d + 1
# answers leave directions of R^d that no logit reads; unless the targets use them too, M_0 is
# singular.
@pytest.mark.parametrize("answers", [1, 2, 3])
@pytest.mark.parametrize(("d", "d_h", "H"), [(2, 2, 1), (4, 1, 7), (5, 5, 4), (7, 3, 6)])
def test_few_answers_at_the_boundary(d, d_h, H, answers):
    """However few the answers: H d_h + d facts are recalled, and well enough to be certified."""
    T = H * d_h + d
    random = bh.random_associations(N=30, S=3, T=T, seed=0)
    facts = Facts.make(random.tokens, random.answers % answers, random.vocabulary)
    assert facts.last_tokens >= d
    memory = bh.build(facts, "attention", d=d, d_h=d_h, H=H, dtype="float64")
    assert memory.construction.recalled == T
    assert bh.certify(memory).certified
