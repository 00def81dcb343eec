"""Certificates of distributions: bounds contain the truth, agree, and fail where they must."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from flint import arb, ctx

import byheart as bh
from byheart.certificates import DistributionCertificate, certify_folder
from byheart.certificates.arithmetic import Bounded
from byheart.certificates.distribution import LOG_ERROR, log_ratios
from byheart.errors import FactsError
from byheart.facts import random_distributions


@pytest.fixture(scope="module")
def memory():
    table = random_distributions("gauss", 8, 2, 40, zipf=1.5)
    return bh.build(table, "distribution", d=4, H=4, dtype="float32")


def test_log_is_as_good_as_assumed():
    """torch.log against Arb on 20,000 points: 16 times better than the bounds need."""
    r = np.random.default_rng(0)
    points = np.concatenate([np.exp(r.uniform(-700, 0, 9000)), 1 - r.uniform(0, 0.5, 9000),
                             1 + np.exp(r.uniform(-36, 12, 2000))])  # fmt: skip
    logs = torch.log(torch.from_numpy(points)).numpy()
    old, ctx.prec = ctx.prec, 128
    try:
        worst = 0.0
        for x, y in zip(points.tolist(), logs.tolist(), strict=True):
            truth = arb(x).log()
            worst = max(worst, float(abs((arb(y) - truth) / truth)) if x != 1 else 0.0)
    finally:
        ctx.prec = old
    assert worst < LOG_ERROR / 16


@pytest.mark.parametrize("scale", [0.1, 5.0, 60.0])
def test_bounds_contain_the_truth(scale):
    """Logits anywhere within their errors: the exact KL and log ratios lie within the bounds."""
    r = np.random.default_rng(int(scale * 10))
    B, A = 12, 9
    f = r.normal(size=(B, A)) * scale
    error = 10.0 ** r.uniform(-13, -3, size=(B, A))
    pi = r.dirichlet(np.full(A, 0.3), size=B)
    pi[0, :3] = 0
    pi /= pi.sum(1, keepdims=True)
    found = log_ratios(Bounded(torch.tensor(f), torch.tensor(error)), torch.tensor(pi))
    old, ctx.prec = ctx.prec, 200
    try:
        for sign in (r.choice([-1, 1], size=(B, A)) for _ in range(4)):
            for t in range(B):
                exact = [arb(f[t, j]) + int(sign[t, j]) * arb(error[t, j]) for j in range(A)]
                total = sum((v.exp() for v in exact), arb(0)).log()
                Z = [arb(p).log() - v + total for p, v in zip(pi[t], exact, strict=True) if p > 0]
                kl = sum((arb(p) * z for p, z in zip(pi[t][pi[t] > 0], Z, strict=True)), arb(0))
                assert found.kl_lower[t] <= kl and kl <= found.kl_upper[t]
                assert all(abs(z) <= found.log_ratio[t] for z in Z)
    finally:
        ctx.prec = old


def test_two_arithmetics_agree_and_both_prove_the_claim(memory):
    claims = memory.construction
    fast, slow = bh.certify(memory), bh.certify(memory, arithmetic="ball")
    for made in (fast, slow):
        assert isinstance(made, DistributionCertificate)
        proof = made.distribution
        assert made.certified and made.failed == 0
        assert proof.kl_lower <= claims.kl * (1 + 1e-9) <= proof.kl * (1 + 1e-6)
        assert proof.max_log_ratio == pytest.approx(claims.max_log_ratio, rel=1e-5)
        assert made.statement.startswith("proved: ") and "d_KL" in made.statement
    assert isinstance(slow, DistributionCertificate) and isinstance(fast, DistributionCertificate)
    assert slow.distribution.kl <= fast.distribution.kl * (1 + 1e-12)
    assert slow.distribution.kl_lower >= fast.distribution.kl_lower * (1 - 1e-12)
    plain = bh.certify(memory, arithmetic="float")
    assert plain.passed and not plain.certified


def test_changed_weights_are_not_certified(memory):
    """One weight off by a tenth: log ratios exceed the claim, with the sequences named."""
    weights = {name: w.clone() for name, w in memory.weights.items()}
    weights["W_O"][0, 0, 0, 0] += 0.1
    made = bh.certify(replace(memory, weights=weights))
    assert not made.certified and not made.passed
    weights["W_O"][0, 0, 0, 0] = float("nan")
    broken = bh.certify(replace(memory, weights=weights))
    assert not broken.passed and broken.failed == 40
    assert "not evaluated" in broken.failures[0].reason


def test_a_smaller_claim_is_not_certified(memory):
    """The check compares with the claim: 1 % less KL, or 1 % less log ratio, is refused."""
    for name in ("kl", "max_log_ratio"):
        less = replace(memory.construction, **{name: getattr(memory.construction, name) * 0.99})
        made = bh.certify(replace(memory, construction=less))
        assert not made.passed
        assert bool(made.failures) == (name == "max_log_ratio")


def test_another_table_is_not_certified(memory):
    other = random_distributions("gauss", 8, 2, 40, zipf=1.5, seed=1)
    assert not bh.certify(memory, other).passed
    unknown = bh.Distributions.make([[0, 1]], [[0.5, 0.5]], bh.Vocabulary(("p", "q")))
    with pytest.raises(FactsError, match="does not know"):
        bh.certify(memory, unknown)
    associations = bh.build(bh.random_associations(8, 2, 20))
    with pytest.raises(FactsError, match="claims no distribution"):
        bh.certify(associations, random_distributions("gauss", 8, 2, 20))


def test_from_files_alone(memory, tmp_path):
    memory.save(tmp_path / "m")
    assert certify_folder(tmp_path / "m").certified
    assert (tmp_path / "m" / "certificate.json").exists()
    path = tmp_path / "m" / "weights.safetensors"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))
    made = certify_folder(tmp_path / "m")
    assert not made.certified and made.damage
