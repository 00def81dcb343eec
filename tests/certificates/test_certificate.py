"""A certificate says yes to what is proved, and to nothing else."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import byheart as bh
from byheart.certificates import ARITHMETICS, certify_folder
from byheart.certificates.statement import FILE, LISTED
from byheart.errors import ByheartError, FactsError, MemoryFileError
from byheart.facts import Facts, Vocabulary
from byheart.models import TokenMemory
from byheart.models.folder import FACTS, MEMORY, WEIGHTS
from byheart.specs import AttentionOnlySpec

PROOFS = ["rounding", "ball"]
WORDS = Vocabulary(("a", "b", "c", "d"))


@pytest.fixture(scope="module")
def memory() -> TokenMemory:
    keys = [[0, 1], [1, 0], [2, 2], [1, 1], [3, 1], [0, 0]]
    made = bh.build(Facts.make(keys, [0, 1, 2, 0, 3, 1], WORDS, rows=range(2, 8)))
    assert isinstance(made, TokenMemory)
    return made


@pytest.fixture
def folder(memory, tmp_path) -> Path:
    return memory.save(tmp_path / "memory")


def plain(certificate: bh.Certificate) -> dict:
    """As strict JSON: NaN and infinities are not numbers there."""
    return json.loads(json.dumps(certificate.to_json(), allow_nan=False))


@pytest.mark.parametrize("arithmetic", PROOFS)
@pytest.mark.parametrize("method", ["attention", "associative"])
@pytest.mark.parametrize("S", [1, 3])
def test_built_memories_are_certified(arithmetic, method, S):
    facts = bh.random_associations(N=15, S=S, T=15, seed=0)
    memory = bh.build(facts, method)
    certificate = bh.certify(memory, arithmetic=arithmetic)
    assert certificate.certified and certificate.passed
    assert (certificate.facts, certificate.failed, certificate.failures) == (15, 0, ())
    assert certificate.arithmetic.startswith(ARITHMETICS[arithmetic])
    assert certificate.weights_sha256 == memory.weights_sha256()
    assert certificate.facts_digest == facts.digest()
    assert certificate.margin is not None and certificate.error_bound is not None
    assert 0 < certificate.error_bound < 1e-9 < certificate.margin
    assert certificate.statement.startswith("proved: ")
    assert plain(certificate)["certified"] is True


def test_precision_is_on_record(memory):
    assert bh.certify(memory, arithmetic="ball", precision=77).arithmetic.endswith("77 bits")


def test_the_plain_check_is_never_a_proof(memory):
    certificate = bh.certify(memory, arithmetic="float")
    assert certificate.passed and not certificate.certified
    assert certificate.statement.startswith("NOT proved")


def test_unknown_arithmetic_is_refused(memory):
    with pytest.raises(ByheartError, match=r"rounding.*ball.*float.*interval"):
        bh.certify(memory, arithmetic="interval")


@pytest.mark.parametrize("arithmetic", [*PROOFS, "float"])
@pytest.mark.parametrize("changed", range(6))
def test_a_changed_answer_is_caught_and_named(memory, arithmetic, changed):
    facts = memory.facts
    answers = facts.answers.copy()
    answers[changed] = (answers[changed] + 1) % 4
    other = Facts.make(facts.tokens, answers, WORDS, rows=facts.rows)
    certificate = bh.certify(memory, other, arithmetic)
    assert not certificate.certified and not certificate.passed
    assert (certificate.failed, len(certificate.failures)) == (1, 1)
    failure = certificate.failures[0]
    assert (failure.row, failure.key) == (changed + 2, facts.key(changed))
    assert failure.answer == WORDS.token(int(answers[changed]))
    assert failure.reason == f"lost: the memory answers {facts.answer(changed)!r}"
    assert failure.margin is not None and failure.margin < 0
    assert certificate.margin == failure.margin
    plain(certificate)


def test_a_failing_fact_that_is_never_asked_is_named_too(memory):
    """The prior does not enter: a proof is about every fact, also those of weight 0."""
    facts = memory.facts
    answers = [*facts.answers[:-1], (facts.answers[-1] + 1) % 4]
    other = Facts.make(facts.tokens, answers, WORDS, [1, 1, 1, 1, 1, 0])
    certificate = bh.certify(memory, other)
    assert [failure.key for failure in certificate.failures] == [facts.key(5)]


def test_all_failures_are_counted_and_the_first_are_listed(make_memory):
    facts = bh.random_associations(N=40, S=2, T=LISTED + 100, seed=0)
    spec = AttentionOnlySpec(N=40, S=2, d=1, d_h=1, H=1)
    weights = {name: torch.zeros(shape) for name, shape in spec.weight_shapes().items()}
    certificate = bh.certify(make_memory(spec, weights, facts.vocabulary, facts))
    assert (certificate.failed, len(certificate.failures)) == (LISTED + 100, LISTED)


def test_unknown_tokens_are_named(memory):
    words = Vocabulary(("a", "b", "x", "y"))
    certificate = bh.certify(memory, Facts.make([[0, 1], [2, 1], [1, 0]], [0, 1, 3], words))
    assert not certificate.certified
    assert [f.reason for f in certificate.failures] == [
        "lost: unknown to the memory: 'x'",
        "lost: unknown to the memory: 'y'",
    ]
    plain(certificate)


def test_nothing_known_is_not_a_proof(memory):
    certificate = bh.certify(memory, Facts.make([[0, 1]], [1], Vocabulary(("x", "y"))))
    assert not certificate.certified and certificate.margin is None
    plain(certificate)


def test_keys_of_another_length_are_refused(memory):
    with pytest.raises(FactsError, match="keys of 3 tokens, the memory takes 2"):
        bh.certify(memory, Facts.make([[0, 1, 1]], [0], WORDS))


def test_without_facts_a_table_is_needed(memory):
    bare = dataclasses.replace(memory, facts=None)
    with pytest.raises(FactsError, match="without its facts"):
        bh.certify(bare)
    assert bh.certify(bare, memory.facts).certified


@pytest.mark.parametrize("arithmetic", PROOFS)
def test_order_does_not_matter(memory, arithmetic):
    """Facts reordered, and the same words with other ids."""
    facts = memory.facts
    assert bh.certify(memory, facts.subset([3, 0, 5, 1, 4, 2]), arithmetic).certified
    words = Vocabulary(("d", "new", "b", "a", "c"))
    ids = np.array([words.id(token) for token in WORDS.tokens])
    other = Facts.make(ids[facts.tokens], ids[facts.answers], words)
    assert bh.certify(memory, other, arithmetic).certified
    wrong = Facts.make(ids[facts.tokens], np.roll(ids[facts.answers], 1), words)
    assert not bh.certify(memory, wrong, arithmetic).certified


@pytest.mark.parametrize("name", ["a", "<pad>"])
def test_padding_is_recognised_whatever_its_name(name):
    """A table with its own word "<pad>" pads with "<pad>'": the roles count, not the names."""
    words, pad = Vocabulary((name, "b", "c")).with_special("<pad>")
    facts = Facts.make([[pad, 0], [0, 1], [1, 0]], [1, 2, 2], words, pad_id=pad)
    memory = bh.build(facts)
    others, pad = Vocabulary(("c", "b", name, "z")).with_special("<pad>")
    again = Facts.make([[pad, 2], [2, 1], [1, 2]], [1, 0, 0], others, pad_id=pad)
    assert bh.certify(memory, again).certified


def test_a_token_called_start_is_not_the_start_token():
    words = Vocabulary(("<start>", "b", "c"))
    facts = Facts.make([[0], [1], [2]], [1, 2, 0], words)
    memory = bh.build(facts)
    assert isinstance(memory, TokenMemory) and memory.start_id is not None
    assert memory.vocabulary.token(memory.start_id) == "<start>'"
    assert bh.certify(memory).certified
    assert memory.answers(memory.with_start(facts.tokens)).tolist() == [1, 2, 0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("arithmetic", [*PROOFS, "float"])
def test_weights_that_are_no_numbers_prove_nothing(memory, arithmetic, bad):
    for name in memory.weights:
        w = memory.weights[name].clone()
        w.view(-1)[0] = bad
        changed = dataclasses.replace(memory, weights={**memory.weights, name: w})
        certificate = bh.certify(changed, arithmetic=arithmetic)
        assert not certificate.certified and not certificate.passed
        assert certificate.failed == 6
        assert "not finite" in certificate.failures[0].reason
        plain(certificate)


def test_overflow_proves_nothing(make_memory):
    """T_0 = (1.7 + 1.7 - 1.7) 1e308 may overflow on the way, its error bound does not: finite
    weights, an infinite margin, and no proof of it. Balls have no largest number."""
    spec = AttentionOnlySpec(N=2, S=1, d=3, d_h=1, H=1, positions="none")
    weights = {
        name: torch.zeros(shape, dtype=torch.float64)
        for name, shape in spec.weight_shapes().items()
    }
    weights["W_E"][0] = torch.tensor([1.0, 1.0, -1.0])
    weights["W_U"] = torch.tensor(
        [[1.7e308, 1e308], [1.7e308, 0], [1.7e308, 0]], dtype=torch.float64
    )
    words = Vocabulary(("right", "wrong"))
    memory = make_memory(spec, weights, words, Facts.make([[0]], [0], words))
    certificate = bh.certify(memory)
    assert not certificate.certified
    plain(certificate)
    assert bh.certify(memory, arithmetic="ball").certified


def test_error_bounds_that_overflow_prove_nothing(random_weights, make_memory):
    """Scores of 1e16 known up to some units: softmax bounds are infinite, and JSON still plain."""
    spec = AttentionOnlySpec(N=3, S=2, d=2, d_h=2, H=1)
    scales = dict.fromkeys(spec.weight_shapes(), 1.0) | {"W_Q": 1e9, "W_K": 1e9}
    words = Vocabulary(("a", "b", "c"))
    facts = Facts.make([[0, 1], [1, 2], [2, 2]], [0, 0, 0], words)
    certificate = bh.certify(make_memory(spec, random_weights(spec, 0, scales), words, facts))
    assert not certificate.certified
    plain(certificate)


@pytest.mark.parametrize("arithmetic", [*PROOFS, "float"])
def test_a_tie_is_not_a_proof(memory, arithmetic):
    """Two tokens with the same column of W_U have the same logit, whatever the arithmetic."""
    W_U = memory.weights["W_U"].clone()
    W_U[:, 3] = W_U[:, 0]  # "d" like "a"
    tied = dataclasses.replace(memory, weights={**memory.weights, "W_U": W_U})
    certificate = bh.certify(tied, arithmetic=arithmetic)
    assert not certificate.certified and not certificate.passed
    hurt = {memory.facts.key(i) for i in range(6) if memory.facts.answer(i) in "ad"}
    assert {failure.key for failure in certificate.failures} == hurt


def close_call(make_memory, margin: float) -> TokenMemory:
    """Logits 1 and 1 - margin through a head of zeros: T = W_U x, x = (1,)."""
    spec = AttentionOnlySpec(N=2, S=1, d=1, d_h=1, H=1, positions="none")
    weights = {
        name: torch.zeros(shape, dtype=torch.float64)
        for name, shape in spec.weight_shapes().items()
    }
    weights["W_E"][:] = 1.0
    weights["W_U"][0] = torch.tensor([1.0, 1.0 - margin], dtype=torch.float64)
    words = Vocabulary(("right", "wrong"))
    return make_memory(spec, weights, words, Facts.make([[0]], [0], words))


def test_a_margin_below_the_error_bound_is_not_proved(make_memory):
    """One unit in the last place: float64 says yes, its error bound does not, 128 bits do."""
    memory = close_call(make_memory, 2.0**-53)
    assert bh.certify(memory, arithmetic="float").passed
    certificate = bh.certify(memory, arithmetic="rounding")
    assert not certificate.certified
    assert certificate.margin == 2.0**-53 < certificate.error_bound  # pyright: ignore
    assert "is not above the error bound" in certificate.failures[0].reason
    assert bh.certify(memory, arithmetic="ball").certified
    # A ball of 20 bits cannot tell them apart either.
    assert not bh.certify(memory, arithmetic="ball", precision=20).certified
    # A thousand units are enough.
    assert bh.certify(close_call(make_memory, 2.0**-43)).certified


@pytest.mark.parametrize("arithmetic", PROOFS)
def test_one_token_has_no_rival(arithmetic):
    memory = bh.build(Facts.make([[0, 0]], [0], Vocabulary(("only",))))
    certificate = bh.certify(memory, arithmetic=arithmetic)
    assert certificate.certified and certificate.margin is None
    plain(certificate)


def test_architectures_without_a_proof_are_refused(random_memory):
    memory = random_memory(AttentionOnlySpec(N=3, S=2, d=2, d_h=2, H=1, attention="hardmax"), 0)
    for arithmetic in PROOFS:
        with pytest.raises(ByheartError, match="softmax attention"):
            bh.certify(memory, arithmetic=arithmetic)


def test_a_folder_is_certified_from_its_files(folder, memory):
    certificate = certify_folder(folder)
    assert certificate.certified and certificate.damage == ()
    written = json.loads((folder / FILE).read_text())
    assert written == plain(certificate)
    assert written["weights_sha256"] == json.loads((folder / MEMORY).read_text())["sha256"][WEIGHTS]
    assert sorted(p.name for p in folder.iterdir()) == sorted([FILE, MEMORY, WEIGHTS, FACTS])
    assert bh.load(folder).facts is not None  # the certificate does not disturb the memory


@pytest.mark.parametrize("arithmetic", [*PROOFS, "float"])
def test_a_certificate_is_written_on_success_only(folder, memory, arithmetic):
    wrong = Facts.make(memory.facts.tokens, np.roll(memory.facts.answers, 1), WORDS)
    assert not certify_folder(folder, wrong, arithmetic).certified
    assert not (folder / FILE).exists()
    good = certify_folder(folder, arithmetic=arithmetic)
    assert (folder / FILE).exists() == good.certified == (arithmetic != "float")


def test_a_failing_run_leaves_the_certificate_alone(folder, memory):
    certify_folder(folder)
    before = (folder / FILE).read_bytes()
    wrong = Facts.make(memory.facts.tokens, np.roll(memory.facts.answers, 1), WORDS)
    assert not certify_folder(folder, wrong).certified
    assert not certify_folder(folder, arithmetic="float").certified
    assert (folder / FILE).read_bytes() == before


def test_nothing_is_written_when_not_asked(folder):
    assert certify_folder(folder, write=False).certified
    assert not (folder / FILE).exists()


def test_a_place_that_cannot_be_written(folder, memory, tmp_path):
    certificate = bh.certify(memory)
    with pytest.raises(ByheartError, match="cannot be written"):
        certificate.write(tmp_path / "nowhere")


@pytest.fixture(scope="module")
def shared_folder(memory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return memory.save(tmp_path_factory.mktemp("certify") / "memory")


@settings(max_examples=60, deadline=None, derandomize=True)
@given(draw=st.data())
def test_a_flipped_bit_in_the_weights_is_caught(shared_folder, draw):
    """In the numbers: not certified, with the damage named. In the header: not even readable."""
    path = shared_folder / WEIGHTS
    good = path.read_bytes()
    header = 8 + int.from_bytes(good[:8], "little")
    offset = draw.draw(
        st.integers(0, header - 1) | st.integers(header, len(good) - 1), label="byte"
    )
    data = bytearray(good)
    data[offset] ^= 1 << draw.draw(st.integers(0, 7), label="bit")
    path.write_bytes(data)
    try:
        certificate = certify_folder(shared_folder)
    except MemoryFileError:
        assert offset < header
    else:
        assert not certificate.certified and not certificate.passed
        assert any(WEIGHTS in text for text in certificate.damage)
        assert certificate.statement.startswith("NOT proved")
    finally:
        path.write_bytes(good)
    assert not (shared_folder / FILE).exists()


def test_changed_facts_are_damage(folder):
    data = bytearray((folder / FACTS).read_bytes())
    data[-1] ^= 1  # the last byte of the last table
    (folder / FACTS).write_bytes(data)
    try:
        certificate = certify_folder(folder)
    except MemoryFileError:
        return
    assert not certificate.certified and any(FACTS in text for text in certificate.damage)


EDITS: dict[str, Callable[[dict], object]] = {
    "construction": lambda record: record["construction"].update(margin=9),
    "token renamed": lambda record: record["vocabulary"].__setitem__(0, "z"),
    "start token": lambda record: record.update(start_id=0),
    "start token outside": lambda record: record.update(start_id=10**6),
    "start token of another type": lambda record: record.update(start_id="0"),
    "padding outside": lambda record: record.update(pad_id=10**6),
    "skip": lambda record: record["spec"].update(skip=False),
    "positions": lambda record: record["spec"].update(positions="attention"),
}


@pytest.mark.parametrize("change", EDITS.values(), ids=EDITS.keys())
def test_an_edited_description_is_damage_or_an_error_of_ours(folder, change):
    record = json.loads((folder / MEMORY).read_text())
    change(record)
    (folder / MEMORY).write_text(json.dumps(record))
    try:
        certificate = certify_folder(folder)
    except ByheartError:
        return
    assert not certificate.certified
    assert f"{MEMORY} was changed by hand" in certificate.damage


def test_a_memory_without_facts_is_certified_with_a_table(memory, tmp_path):
    place = memory.save(tmp_path / "bare", with_facts=False)
    with pytest.raises(FactsError, match="without its facts"):
        certify_folder(place)
    assert certify_folder(place, memory.facts).certified
