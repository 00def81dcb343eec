"""Hand-made memories that once were certified and wrong, or whose certificates misled."""

import json
from dataclasses import replace
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

import byheart as bh
from byheart.certificates import AnswerCertificate, Certificate, certify_folder, exact
from byheart.certificates.architectures import bounded_logits
from byheart.certificates.arithmetic import FLOAT32, Rounding, margins
from byheart.certificates.statement import binding
from byheart.certificates.update import update_certificate, valid_certificate
from byheart.construct.sharded.edit import edit_shards
from byheart.errors import ByheartError
from byheart.exact import files, memorize
from byheart.exact.parts import emit, premises
from byheart.exact.table import encode
from byheart.facts import Facts, Vocabulary
from byheart.models.exact_memory import ExactMemory
from byheart.models.memory_files import inspect
from byheart.models.sharded import own_features, shard_of
from byheart.models.sharded_memory import ShardedMemory
from byheart.reports.memory_page import memory_page, verdict
from byheart.specs import AssociativeSpec, AttentionOnlySpec, MLPTransformerSpec


def zeros(spec) -> dict[str, Tensor]:
    return {n: torch.zeros(s, dtype=torch.float64) for n, s in spec.weight_shapes().items()}


def one_fact(make_memory, spec, weights: dict[str, Tensor], right: int = 0) -> bh.Memory:
    words = Vocabulary(tuple(f"t{i}" for i in range(spec.N)))
    return make_memory(spec, weights, words, Facts.make([[0] * spec.S], [right], words))


@pytest.fixture(scope="module")
def sharded() -> ShardedMemory:
    return bh.build("countries", "sharded", shard_size=60)


# A1: intermediates overflow.


@pytest.mark.parametrize("family", ["attention-only", "mlp"])
def test_a_logit_that_overflows_is_not_proved(make_memory, family):
    """Eight layers that each multiply by 2^118, up to 2^1003; then a sum that passes 2^1024 on its
    way to something negative, against a rival of 0."""
    d, sizes = 6, {"N": 2, "S": 1, "layers": 8, "positions": "none"}
    if family == "mlp":
        spec = MLPTransformerSpec(**sizes, d=d, d_h=d, H=1, w=d, activation="relu")
        maps = "W_in", "W_out"
    else:
        spec = AttentionOnlySpec(**sizes, d=d, d_h=d, H=1, skip=False)
        maps = "W_V", "W_O"
    weights = zeros(spec)
    weights["W_E"][:] = 2.0**59
    for name in maps:
        weights[name][:] = 2.0**59 * torch.eye(d, dtype=torch.float64)
    weights["W_U"][:3, 0], weights["W_U"][3:, 0] = 2.0**20.5, -(2.0**20.9)
    memory = one_fact(make_memory, spec, weights)
    made = bh.certify(memory)
    assert not made.certified and made.failed == 1
    assert not bh.certify(memory, arithmetic="ball").certified


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_what_is_not_finite_poisons_every_later_bound(value):
    """Through every operation that could make it finite again."""
    A = Rounding({})
    bad = A.exact(torch.tensor([[1.0, value]], dtype=torch.float64))
    good = A.exact(torch.ones(1, 2, dtype=torch.float64))
    results = [
        A.add(bad, good),
        A.einsum("bd,bd->bd", bad, A.exact(torch.zeros(1, 2, dtype=torch.float64))),
        A.softmax(bad),
        A.softmax(A.negative(bad)),
        A.activation(A.negative(bad), "relu"),
        A.activation(A.negative(bad), "gelu"),
        A.over_root(bad, 4),
    ]
    for result in results:
        assert bool(torch.isnan(result.error[0, 1]))
    margin, bound = margins(bad, torch.tensor([1]))
    assert not bool(margin > bound)


# A2: underflow inside a product of S entries.


def test_a_product_that_underflows_is_not_zero_for_sure(make_memory):
    spec = AssociativeSpec(N=2, S=32, d=1)
    weights = zeros(spec)
    weights["W_E"][:8] = 2.0**-136
    weights["W_E"][8:] = 2.0**59
    weights["W"][:] = -1.0  # the true logit of token 0 is -2^328, that of token 1 is 0
    weights["W_U"][0, 0] = 1.0
    key = torch.zeros(1, 32, dtype=torch.long)
    found = bounded_logits(spec, weights, key)
    with mpmath.workprec(200):
        truth = -(mpmath.mpf(2) ** (24 * 59 - 8 * 136))
        error = float(found.error[0, 0])
        assert not np.isfinite(error) or abs(mpmath.mpf(float(found.value[0, 0])) - truth) <= error
    weights["W_U"][0, 1] = 2.0**-1000
    memory = one_fact(make_memory, spec, weights)
    assert not bh.certify(memory).certified
    assert not bh.certify(memory, arithmetic="ball").certified


# A3: a key that holds the start token.


def test_a_key_with_the_start_token_is_not_proved(sharded):
    """Keys (start token, country) that own heads are solved for: foreign heads read them too."""
    facts, spec = sharded.facts, sharded.spec
    assert facts is not None
    weights = {n: w.clone() for n, w in sharded.weights.items()}
    last = sharded.in_order(facts.tokens)[:, -1].unique()
    keys = torch.stack([torch.full_like(last, spec.N - 1), last], 1)
    right = torch.tensor(facts.answers[: len(last)])
    shards = shard_of(weights, keys)
    for g in shards.unique().tolist():
        (a, b), rows = weights["head_start"][g : g + 2].tolist(), shards == g
        x, F = own_features(spec, weights, keys[rows], b - a, torch.float64)
        target = weights["W_U"].double()[:, right[rows]].T - x
        found = torch.linalg.lstsq(F.flatten(1), target, driver="gelsd").solution
        weights["W_O"][a:b] = found.reshape(b - a, spec.d_h, -1).float()
    columns = np.empty_like(keys.numpy())
    columns[:, list(sharded.order or range(2))] = keys.numpy()
    held = Facts.make(columns, right.numpy(), sharded.vocabulary)
    forged = replace(sharded, weights=weights, facts=held)
    assert bool((forged.margins() > 0).all())  # by their own heads
    assert bh.certify(forged, arithmetic="float").failed > 0.9 * held.T  # by all of them
    assert bh.certify(forged).failed == held.T


# A4: a tensor that the spec does not name.


@pytest.mark.parametrize("name", ["deciding", "subject", "cancel", "bits", "W_X"])
def test_a_stray_tensor_is_refused(sharded, tmp_path, name):
    from safetensors.torch import load_file, save_file

    folder = sharded.save(tmp_path / "m")
    file = folder / "index.safetensors"
    save_file(load_file(file) | {name: torch.zeros(1, dtype=torch.int32)}, file)
    resign(folder)
    with pytest.raises(ByheartError, match=name):
        certify_folder(folder)
    with pytest.raises(ByheartError, match=name):
        bh.load(folder)


# A5: gates that do not exist in the stored format.


@pytest.mark.parametrize(
    "scales",
    [
        {"lam": 2.0**126},
        {"s1": 2.0**-80, "s2": 2.0**-160},
        {"lam": 2.0**-120, "s1": 2.0**20},
        {"s2": 2.0**127},
    ],
)
def test_gates_beyond_the_stored_format_are_refused(sharded, scales):
    with pytest.raises(ByheartError, match="does not exist in"):
        bh.certify(replace(sharded, spec=replace(sharded.spec, **scales)))


def test_lattice_points_whose_squares_overflow_are_refused(sharded):
    point = sharded.weights["point"].clone().long()
    point[0, 0] = 2**31 + 3
    with pytest.raises(ByheartError, match="lattice points"):
        bh.certify(replace(sharded, weights={**sharded.weights, "point": point}))


# A6: records that collide outside the facts that are evaluated block by block.


@pytest.fixture
def collided(monkeypatch) -> ExactMemory:
    """A square-root memory of 301 facts, 100 of which are evaluated literally, with a padding
    record that has the low bits of a fact which is not among them."""
    monkeypatch.setattr(exact, "LITERAL", 100)
    facts = bh.random_associations(N=40, S=2, T=301, seed=3)
    memory = bh.build(facts, "sqrt")
    assert isinstance(memory, ExactMemory) and bh.certify(memory).certified
    table = memory.integers.table
    _, low, value = (column.reshape(table.m, table.k) for column in table.records)
    padded = np.flatnonzero((value == 0).any(1) & (value > 0).any(1))
    assert len(padded)
    sampled = np.random.default_rng(301).choice(301, 100, replace=False)
    for j in padded:  # the padding stands last
        D, G, codes = low[j].tolist(), value[j].tolist(), list(table.codes)
        D[-1], G[-1] = D[0], 1
        codes[j] = encode(D, G, table.t, table.c, table.k)
        parts = replace(memory.integers, table=replace(table, codes=tuple(codes)))
        counts = emit(parts).counts().to_json()
        attack = replace(memory, integers=parts, spec=replace(memory.spec, **counts))
        wrong = np.flatnonzero(
            attack.literal_outputs(facts.tokens) != attack.classes(facts.answers)
        )
        if len(wrong) and not np.isin(wrong, sampled).any():
            assert (attack.outputs(facts.tokens) == attack.classes(facts.answers)).all()
            return attack
    raise AssertionError("no group could be attacked")


def test_records_with_equal_low_bits_are_refused(collided, tmp_path):
    with pytest.raises(ByheartError, match="same low bits"):
        bh.certify(collided)
    folder = collided.save(tmp_path / "m")  # self-consistent, hashes and all
    with pytest.raises(ByheartError, match="same low bits"):
        certify_folder(folder)


def test_premises_of_the_fast_evaluator_are_listed(monkeypatch):
    memory = bh.build(bh.random_associations(N=40, S=2, T=300, seed=3), "sqrt")
    assert bh.certify(memory).premises == ()  # every fact block by block: nothing is assumed
    monkeypatch.setattr(exact, "LITERAL", 100)
    told = bh.certify(memory)
    assert told.certified and [name for name, _ in told.premises] == ["ids", "range", "records"]


@pytest.mark.parametrize(
    "change",
    [
        lambda p: {"most": p.most // 2},
        lambda p: {"lcm": 3},
        lambda p: {"table": replace(p.table, largest=p.table.largest // 4)},
        lambda p: {"table": replace(p.table, starts=p.table.starts[::-1])},
        lambda p: {"table": replace(p.table, codes=(p.table.codes[0] + 1, *p.table.codes[1:]))},
        lambda p: {"table": replace(p.table, codes=(1 << p.table.T, *p.table.codes[1:]))},
        lambda p: {"ff1": replace(p.ff1, first=-1)},
        lambda p: {"ff1": replace(p.ff1, folds=((1, 1), *p.ff1.folds))},
    ],
)
def test_parts_that_the_blocks_do_not_compute_are_refused(change):
    """Numbers of the layout that are too small for what is asked: the blocks would not reduce."""
    memory = bh.build(bh.random_associations(N=40, S=2, T=300, seed=3), "sqrt")
    assert isinstance(memory, ExactMemory)
    parts = memory.integers
    assert premises(parts, 2)
    with pytest.raises(ByheartError):
        premises(replace(parts, **change(parts)), 2)


@pytest.mark.parametrize(
    "change",
    [
        {"codes": lambda table: (table.codes[0] << 200, *table.codes[1:])},
        {"codes": lambda table: (-table.codes[0], *table.codes[1:])},
        {"starts": lambda table: (*table.starts[:-1], 1 << 70)},
    ],
)
def test_a_table_of_numbers_that_are_too_long_is_no_network(change):
    memory = bh.build(bh.random_associations(N=40, S=2, T=300, seed=3), "sqrt")
    assert isinstance(memory, ExactMemory)
    ((name, make),), table = change.items(), memory.integers.table
    parts = replace(memory.integers, table=replace(table, **{name: make(table)}))
    with pytest.raises(ByheartError, match="does not describe this network"):
        files.load(files.dump(parts))
    with pytest.raises(ValueError, match="modulus"):
        replace(memory.integers, modulus=1 << 61)


@pytest.mark.parametrize("grouping", ["sorted", "interp"])
@pytest.mark.parametrize("ff1", ["hash", "product", "paper", "embedding"])
def test_premises_hold_of_what_is_built(ff1, grouping):
    rng = np.random.default_rng(5)
    rows = rng.permutation(900).reshape(300, 3)
    made = memorize(rows, rng.integers(1, 5, 300), ff1=ff1, grouping=grouping)
    assert premises(made.parts, 3)


# Priors.


@pytest.mark.parametrize("change", [lambda p: -p, lambda p: 2 * p, lambda p: p * float("nan")])
def test_a_prior_that_is_none_is_refused(sharded, tmp_path, change):
    from safetensors.torch import load_file, save_file

    folder = sharded.save(tmp_path / "m")
    tensors = load_file(folder / "facts.safetensors")
    save_file(tensors | {"prior": change(tensors["prior"])}, folder / "facts.safetensors")
    resign(folder)
    with pytest.raises(ByheartError, match="the prior: expected"):
        certify_folder(folder)


# B1: a certificate binds the architecture and how keys are read.


def resign(folder: Path, **changes: object) -> None:
    """Change the description of a memory and recompute every hash in it."""
    import hashlib

    from byheart.models.memory_files import _digest  # what a forger would copy

    record = json.loads((folder / "memory.json").read_text(encoding="utf-8"))
    for name in record["sha256"]:
        record["sha256"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    for key, value in changes.items():
        record[key] = {**record[key], **value} if isinstance(value, dict) else value
    record["digest"] = _digest(record)
    (folder / "memory.json").write_text(json.dumps(record), encoding="utf-8")


def test_sums_of_shards_that_lie_are_not_certified(sharded, tmp_path):
    """Recall by shards would refuse what a certificate says is whole."""
    from safetensors.torch import load_file, save_file

    folder = sharded.save(tmp_path / "m")
    index = load_file(folder / "index.safetensors")
    index["shard_sha256"][0, 0] ^= 1
    save_file(index, folder / "index.safetensors")
    resign(folder)
    made = bh.certify(folder)
    assert not made.certified and not made.failed and "index.safetensors" in made.damage[0]
    assert not (folder / "certificate.json").exists()


def test_a_certificate_is_not_about_another_architecture(tmp_path):
    folder = bh.build("elements").save(tmp_path / "m")
    made = bh.certify(folder)
    assert made.about(bh.load(folder))
    resign(folder, spec={"skip": False})
    changed = bh.load(folder)
    found = Certificate.read(folder)
    assert found is not None and found.names(changed) and not found.about(changed)
    bh.report(folder, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Proved" not in page


@pytest.mark.parametrize("change", [{"order": [0, 1]}, {"vocabulary": "permuted"}])
def test_a_certificate_is_not_about_another_reading(sharded, tmp_path, change):
    folder = sharded.save(tmp_path / "m")
    made = bh.certify(folder)
    if "vocabulary" in change:
        words = list(sharded.vocabulary.tokens)
        change = {"vocabulary": [*words[1:-1], words[0], words[-1]]}
    resign(folder, **change)
    memory = inspect(folder).memory
    assert not made.about(memory)


# B2: what an edit inherits.


def test_an_edit_inherits_no_shard_whose_bytes_changed(sharded):
    """The certificate is re-signed for damaged weights; the damaged shards are proved again."""
    before = bh.certify(sharded)
    W_O = sharded.weights["W_O"].clone()
    a, b = sharded.weights["head_start"][:2].tolist()
    W_O[a:b] = 0
    damaged = replace(sharded, weights={**sharded.weights, "W_O": W_O})
    assert damaged.facts is not None
    forged = replace(
        before,
        weights_sha256=damaged.weights_sha256(),
        digest=binding(damaged.identity(), damaged.facts.digest(), before.arithmetic, None),
    )
    assert forged.about(damaged)
    own = damaged.shards_of(damaged.facts)
    elsewhere = int(np.flatnonzero(own != own[np.flatnonzero(own == 0)[0]])[0])
    key = damaged.facts.key(elsewhere)
    done = edit_shards(damaged, set={key: damaged.facts.answer(elsewhere + 1)})
    made = update_certificate(forged, done.memory, done.kept)
    assert not made.certified and made.failed > 10


def test_an_edit_names_what_it_inherits(sharded):
    assert sharded.facts is not None
    done = edit_shards(sharded, set={sharded.facts.key(0): sharded.facts.answer(1)})
    made = update_certificate(bh.certify(sharded), done.memory, done.kept)
    assert isinstance(made, AnswerCertificate)
    assert made.certified and made.about(done.memory)
    assert list(made.inherited) == np.flatnonzero(done.kept >= 0).tolist() != []
    assert "inherited" in dict(made.rows())
    whole = bh.certify(done.memory)
    assert isinstance(whole, AnswerCertificate)
    assert whole.shard_sha256 == made.shard_sha256 and not whole.inherited


def edited(memory: ShardedMemory, row: int, before: Certificate) -> AnswerCertificate:
    """The certificate after the answer of one fact was set."""
    assert memory.facts is not None
    done = edit_shards(memory, set={memory.facts.key(row): memory.facts.answer(row + 1)})
    made = update_certificate(before, done.memory, done.kept)
    assert isinstance(made, AnswerCertificate) and made.certified and made.about(done.memory)
    whole = bh.certify(done.memory).evaluation
    assert whole is not None
    if made.evaluation is not None:
        assert made.evaluation.proved == whole.proved
        assert made.evaluation.rows == whole.rows
    return made


def test_an_edit_proves_what_is_run_too():
    """Three facts of the first shard are not covered before; they stay so, or are solved again."""
    memory = bh.build("countries", "sharded", shard_size=200, slack=0.0)
    before = bh.certify(memory)
    assert isinstance(memory, ShardedMemory) and memory.facts is not None
    assert before.evaluation is not None
    assert [len(part) for part in before.evaluation.shard_failed] == [
        before.evaluation.failed,
        0,
        0,
    ]
    assert before.evaluation.failed > 0
    shards = memory.shards_of(memory.facts)
    first, other = (int(np.flatnonzero(shards == g)[0]) for g in (0, 2))
    kept = edited(memory, other, before).evaluation
    assert kept is not None and kept.rows == before.evaluation.rows
    assert kept.shard_errors is not None and kept.covers == before.evaluation.covers
    again = edited(memory, first, before).evaluation
    assert again is not None and again.format == "float32"
    # What was written is read again, and bequeaths as much.
    stored = Certificate.from_json(json.loads(json.dumps(before.to_json())))
    assert edited(memory, other, stored).evaluation == kept


FORGERIES = {
    "absent": lambda e: None,
    "of before edits had one": lambda e: replace(e, shard_errors=None),
    "other shards": lambda e: replace(e, shard_errors=e.shard_errors[1:]),
    "another format": lambda e: replace(e, format="float64"),
    "other evaluations": lambda e: replace(e, covers=""),
    "other facts": lambda e: replace(e, proved=e.proved + 1),
    "smaller errors": lambda e: replace(e, shard_errors=(0.0, *e.shard_errors[1:])),
    "failures that are nowhere": lambda e: replace(e, proved=e.proved - 1, failed=1),
}


def test_errors_below_0_are_not_inherited(sharded):
    before = bh.certify(sharded)
    assert isinstance(before, AnswerCertificate) and before.shard_errors
    made = edited(sharded, 0, replace(before, shard_errors=(-1.0, *before.shard_errors[1:])))
    assert not made.inherited


@pytest.mark.parametrize("name", FORGERIES)
def test_a_second_statement_that_is_not_whole_is_not_inherited(sharded, name):
    before = bh.certify(sharded)
    made = edited(sharded, 0, replace(before, evaluation=FORGERIES[name](before.evaluation)))
    assert made.evaluation is None
    assert "not stated" in dict(made.rows())["as it runs"]


def test_a_second_statement_is_not_inherited_for_other_bytes(sharded):
    """A shard so ill scaled that float32 does not hold it, under a certificate that says it does:
    its bytes are not those that were proved, and it is evaluated again."""
    before = bh.certify(sharded)
    assert isinstance(before, AnswerCertificate) and before.evaluation is not None
    assert sharded.facts is not None and not before.evaluation.failed
    W_O = sharded.weights["W_O"].clone()
    a, b = sharded.weights["head_start"][:2].tolist()
    W_O[a:b] *= 1 + 2.0**-6  # a little off: proved in exact arithmetic, less well in float32
    changed = replace(sharded, weights={**sharded.weights, "W_O": W_O})
    truth = bh.certify(changed)
    assert isinstance(truth, AnswerCertificate) and truth.shard_errors and before.shard_errors
    assert truth.certified and truth.shard_errors[0] > 2 * before.shard_errors[0]
    digest = binding(changed.identity(), sharded.facts.digest(), before.arithmetic, None)
    forged = replace(before, weights_sha256=changed.weights_sha256(), digest=digest)
    assert forged.about(changed)
    shards = changed.shards_of(sharded.facts)
    made = edited(changed, int(np.flatnonzero(shards == 3)[0]), forged)
    assert 0 not in made.inherited and made.evaluation is not None and truth.evaluation is not None
    assert made.evaluation.shard_errors is not None and truth.evaluation.shard_errors is not None
    assert made.evaluation.shard_errors[0] == pytest.approx(truth.evaluation.shard_errors[0])


def test_a_certificate_of_schema_1_bequeaths_nothing(tmp_path):
    kept = Path(__file__).parents[1] / "kept" / "sharded"
    memory = bh.load(kept)
    assert isinstance(memory, ShardedMemory) and memory.facts is not None
    before = valid_certificate(kept, memory)
    assert before is not None and not before.digest
    done = edit_shards(memory, set={memory.facts.key(0): memory.facts.answer(1)})
    made = update_certificate(before, done.memory, done.kept)
    assert isinstance(made, AnswerCertificate)
    assert made.certified and made.inherited == ()


# B8: what is run is float32.


def test_float32_that_loses_what_exact_arithmetic_holds_is_said(make_memory):
    """Logits 2^30 + 1 and 2^30: apart in exact arithmetic, equal in float32."""
    spec = AttentionOnlySpec(N=2, S=1, d=2, d_h=1, H=1, positions="none")
    weights = {k: w.float() for k, w in zeros(spec).items()}
    weights["W_E"][0] = torch.tensor([2.0**15, 1.0])
    weights["W_U"] = torch.tensor([[2.0**15, 2.0**15], [1.0, 0.0]])
    memory = one_fact(make_memory, spec, weights)
    made = bh.certify(memory)
    assert made.certified and made.margin == 1.0
    assert made.evaluation is not None
    assert (made.evaluation.format, made.evaluation.proved) == ("float32", 0)
    assert "proved for 0 of 1" in dict(made.rows())["as it runs"]
    assert not bool((memory.margins() > 0).any())
    page = memory_page(memory, proof=made)
    assert verdict(memory, made, (), 0, "").state == "unproved"
    assert "lost as it runs" in page.html
    assert "that every float32 evaluation recalls it too is proved for 0 of 1" in page.html


def test_a_page_calls_proved_what_it_counted_again(sharded):
    made = bh.certify(sharded)
    T = sharded.facts.T
    assert verdict(sharded, made, (), T, "").state == "proved"
    assert verdict(sharded, made, (), T - 1, "").state == "unproved"
    old = verdict(sharded, replace(made, schema=1, digest=""), (), T, "m")
    assert old.state == "unproved" and "earlier version" in old.words[0]
    assert made.weights_sha256[:12] in old.words[0]
    other = replace(made, weights_sha256="0" * 64)
    assert "other weights" in verdict(sharded, other, (), T, "").words[0]


def test_another_order_of_a_product_that_overflows_is_not_covered(make_memory):
    """Keys are 2^-56 and scores 2^8, but W_K q is 2^128, which float32 does not have."""
    spec = AttentionOnlySpec(N=2, S=2, d=1, d_h=1, H=1, positions="none", qk_rank=1)
    weights = {k: w.float() for k, w in zeros(spec).items()}
    weights["W_E"][:, 0] = torch.tensor([2.0**-120, -(2.0**-120)])
    weights["W_Q"][:] = 2.0**127
    weights["W_K"][:] = 2.0**126
    weights["W_U"][0] = torch.tensor([1.0, -1.0])
    made = bh.certify(one_fact(make_memory, spec, weights))
    assert made.certified and made.evaluation is not None and made.evaluation.proved == 0


def test_a_score_that_is_no_number_is_not_left_out():
    """Queries that overflow against keys of 0: the largest score of the others still counts."""
    memory = bh.build("countries", "sharded", shard_size=60, dtype="float64")
    weights = {n: w.clone() for n, w in memory.weights.items()}
    weights["u"][0], weights["w"][0] = 2.0**1000, 0.0
    weights["u"][1:] *= 2.0**20
    made = bh.certify(replace(memory, weights=weights))
    assert memory.facts is not None and made.failed == memory.facts.T


@pytest.mark.parametrize("seed", range(20))
def test_float32_evaluations_lie_within_their_bounds(random_weights, seed):
    """Several orders of the sums, all in float32, against one bound."""
    spec = AttentionOnlySpec(N=5, S=3, d=6, d_h=3, H=7, qk_rank=2)
    weights = {k: w.float() for k, w in random_weights(spec, seed).items()}
    tokens = torch.randint(5, (6, 3), generator=torch.Generator().manual_seed(seed))
    wide = {k: w.double() for k, w in weights.items()}
    found = bounded_logits(spec, wide, tokens, FLOAT32)
    x = weights["W_E"][tokens] + weights["W_pos"]
    q = torch.einsum("bd,hdr->bhr", x[:, -1], weights["W_Q"][0])
    k = torch.einsum("bsd,hdr->bhsr", x, weights["W_K"][0])
    y = torch.einsum("bhr,hdr->bhd", q, weights["W_K"][0])
    for scores in ((k * q[:, :, None]).sum(-1), torch.einsum("bhd,bsd->bhs", y, x)):
        a = torch.softmax(scores, -1)
        mixed = torch.einsum("bhs,bsd->bhd", a, x)
        v = torch.einsum("bsd,hde->bhse", x, weights["W_V"][0])
        for F in (
            torch.einsum("bhd,hde->bhe", mixed, weights["W_V"][0]),
            (a[..., None] * v).sum(2),
        ):
            terms = torch.einsum("bhe,hed->bhed", F, weights["W_O"][0]).flatten(1, 2)
            for order in (range(21), reversed(range(21))):
                out = x[:, -1].clone()
                for i in order:
                    out = out + terms[:, i]
                logits = out @ weights["W_U"]
                assert bool(((logits.double() - found.value).abs() <= found.error).all())


# B10: what is lost is called lost.


def test_lost_facts_are_called_lost(sharded):
    W_O = sharded.weights["W_O"].clone()
    a, b = sharded.weights["head_start"][:2].tolist()
    W_O[a:b] = 0
    made = bh.certify(replace(sharded, weights={**sharded.weights, "W_O": W_O}))
    assert not made.certified
    lost = [f for f in made.failures if f.reason.startswith("lost: the memory answers")]
    assert len(lost) >= 0.9 * made.failed > 0


# Heads that the literal layer does not have.


def test_heads_that_no_group_owns_may_not_write():
    """With a subject sink all heads are cancelled together; those of an idle shard are not in the
    literal layer, and could hide what is left."""
    memory = bh.build("countries", "sharded", gate="subject-sink", shard_size=60)
    start, W_O = memory.weights["head_start"], memory.weights["W_O"]
    spec = replace(memory.spec, H=memory.spec.H + 1, shards=memory.spec.shards + 1)
    longer = torch.cat([start, start[-1:] + 1])
    for value, passes in ((0.0, True), (0.5, False)):
        wider = torch.cat([W_O, torch.full_like(W_O[:1], value)])
        weights = {**memory.weights, "head_start": longer, "W_O": wider}
        forged = replace(memory, spec=spec, weights=weights)
        if passes:
            assert bh.certify(forged).certified
        else:
            with pytest.raises(ByheartError, match="no group owns"):
                bh.certify(forged)
