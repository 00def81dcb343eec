"""The searches for the largest table and the smallest model, on planted outcomes and for real."""

import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import byheart as bh
from byheart.errors import ByheartError
from byheart.specs import (
    AttentionOnlySpec,
    MLPTransformerSpec,
    MultiHeadSpec,
    SharedBottleneckSpec,
)
from byheart.theory.related import memorized_bits
from byheart.training import Recipe, capacity, dana2025, smallest, training_spec
from byheart.training import search as searches
from byheart.training.recipe import SAMPLINGS
from byheart.training.search import (
    SEED_STRIDE,
    STACK,
    START_STRIDE,
    Bracket,
    Capacity,
    _Search,
    _stacks,
)
from byheart.training.trainer import Outcome

SPEC = AttentionOnlySpec(N=30, S=2, d=4, d_h=4, H=3, scale=True)  # 900 facts, promise 16
SMALL = AttentionOnlySpec(N=10, S=2, d=2, d_h=2, H=3, scale=True)  # 100 facts, promise 8
TINY = AttentionOnlySpec(N=6, S=2, d=2, d_h=2, H=1, scale=True)
QUICK = Recipe(steps=200, evaluate_every=50)

# (number of the table, T, attempt) -> memorized, not memorized, diverged (None), or a crash
Rule = Callable[[int, int, int], bool | Exception | None]


def outcome(seed: int, passed: bool | None) -> Outcome:
    accuracy = {True: 1.0, False: 0.5, None: 0.0}[passed]
    diverged = 7 if passed is None else None
    return Outcome(seed, 10, accuracy, accuracy, 1.0, diverged=diverged, seconds=0.25)


@contextmanager
def planted(rule: Rule) -> Iterator[list[tuple[int, bh.Facts]]]:
    """Outcomes by `rule` in place of training; yields the (seed, table) of every run."""
    seen: list[tuple[int, bh.Facts]] = []

    def run(spec, tables, recipe, starts, device, progress):
        found = []
        for table, start in zip(tables, starts, strict=True):
            seed = int(table.name.rpartition("=")[2])
            seen.append((seed, table))
            attempt, rest = divmod(start - seed, START_STRIDE)
            assert rest == 0
            said = rule(seed % SEED_STRIDE, table.T, attempt)
            if isinstance(said, Exception):
                raise said
            found.append(outcome(start, said))
        return tuple(found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searches, "_run", run)
        yield seen


def search(rule: Rule, spec: Any = SMALL, **options: Any) -> Capacity:
    with planted(rule):
        return capacity(spec, **{"restarts": 1, **options})


def as_record(found: Capacity) -> dict[str, Any]:
    """Everything but the clock."""
    record: dict[str, Any] = {**found.to_json()}
    del record["seconds"]
    for trial in record["trials"]:
        del trial["seconds"]
    return record


# --- brackets ---


@given(
    planted_at=st.lists(st.integers(1, 900), min_size=1, max_size=5),
    resolution=st.floats(0.01, 1),
    first=st.none() | st.integers(1, 2000),
    seed=st.integers(0, 3),
)
@settings(max_examples=60, deadline=None)
def test_brackets_enclose_what_was_planted_and_are_narrow(planted_at, resolution, first, seed):
    found = search(
        lambda table, T, attempt: T <= planted_at[table],
        SPEC,
        seeds=len(planted_at),
        resolution=resolution,
        first=first,
        seed=seed,
    )
    assert found.undecided == 0
    for largest, b in zip(planted_at, found.brackets, strict=True):
        assert b.inversions == b.undecided == []
        assert b.lower <= largest
        if largest == found.all_facts:
            assert (b.lower, b.upper) == (900, None)
        else:
            assert b.upper is not None and b.upper > largest
            assert b.upper - b.lower <= max(1, resolution * b.lower)
    lowers = sorted(b.lower for b in found.brackets)
    uppers = [b.upper for b in found.brackets]
    assert found.facts == lowers[(len(lowers) - 1) // 2]
    assert found.interval[0] == lowers[0]
    assert found.interval[1] == (None if None in uppers else max(u for u in uppers if u))
    # A ladder, a bisection and one look above: the runs of a seed grow with the logarithm.
    assert len(found.trials) <= len(planted_at) * 24


@given(st.integers(0, 10**6), st.integers(1, 3), st.floats(0.02, 0.5))
@settings(max_examples=60, deadline=None)
def test_whatever_the_outcomes_every_end_of_a_bracket_was_seen(noise, restarts, resolution):
    """Arbitrary outcomes, a fifth of them diverged: no end of a bracket, no inversion and no
    undecided T without the runs that say so."""

    def rule(table, T, attempt):
        draw = hash((noise, table, T, attempt)) % 100
        return None if draw < 20 else draw < 20 + max(0, 80 - T)

    found = search(rule, seeds=3, restarts=restarts, resolution=resolution)
    for b in found.brackets:
        trials = [t for t in found.trials if t.seed == b.seed]
        passed = {t.T for t in trials if t.passed}
        failed = {t.T for t in trials if t.passed is False}
        assert b.lower == max(passed, default=0)
        if b.upper is not None:
            assert b.upper in failed and b.upper > b.lower
        assert all(low in failed and high in passed and low <= high for low, high in b.inversions)
        for T in b.undecided:
            assert [t.passed for t in trials if t.T == T].count(None) >= 3
    for t in found.trials:
        assert t.passed is (None if rule(t.seed, t.T, t.start) is None else t.accuracy == 1)


def test_all_facts_there_are_is_the_end():
    found = search(lambda table, T, attempt: True)
    assert found.interval == (100, None)
    assert found.facts == found.all_facts == 100
    assert {t.T for t in found.trials} == {8, 16, 32, 64, 100}
    mixed = search(lambda table, T, attempt: T <= (100, 50, 50)[table])
    assert mixed.interval[1] is None
    assert mixed.facts <= 50 < found.facts


def test_nothing_is_memorized():
    found = search(lambda table, T, attempt: False)
    assert (found.facts, found.interval) == (0, (0, 1))
    assert found.bits_per_parameter == found.per_parameter == 0


def test_a_share_of_the_facts_is_enough_below_threshold_1():
    """The planted failures have accuracy 1/2."""
    assert search(lambda table, T, attempt: T <= 30, threshold=0.5).facts == 100
    assert search(lambda table, T, attempt: T <= 30, threshold=0.51).facts <= 30


# --- outcomes that are not monotone, diverge, crash, or need another start ---


def test_a_success_above_a_failure_is_found_reported_and_reopens_the_bracket():
    found = search(lambda table, T, attempt: T <= 60 and T not in (21, 22), seeds=1, first=22)
    (b,) = found.brackets
    assert b.inversions == [(21, 23)]
    assert b.lower <= 60 and b.upper is not None and b.upper > 60
    assert b.upper - b.lower <= 3


def test_every_size_has_a_guard_even_the_smallest():
    found = search(lambda table, T, attempt: T != 3, seeds=1, first=3)
    assert found.brackets[0].inversions == [(3, 4)]
    assert found.facts == 100


def test_a_better_start_above_the_bracket_reopens_it():
    """The first start fails above 20, the guard's succeed up to 60: three guards, then an end."""
    found = search(lambda table, T, attempt: T <= (20 if attempt == 0 else 60), seeds=1, first=10)
    (b,) = found.brackets
    assert len(b.inversions) == 3
    assert 20 < b.lower <= 60
    for failed, passed in b.inversions:
        assert failed <= passed


def test_a_table_that_is_complete_does_not_send_the_others_to_the_top():
    """After a guard's success the ladder goes on from there, not from all facts there are."""
    found = search(
        lambda table, T, attempt: table == 0 or (T <= 30 and T not in (21, 22)), seeds=2, first=22
    )
    assert found.brackets[0].lower == 100
    assert found.brackets[1].inversions == [(21, 23)]
    after = [t.T for t in found.trials if t.seed == 1]
    after = after[after.index(23) + 1 :]
    assert after[0] == 29


@pytest.mark.parametrize("lost", [None, RuntimeError("out of memory"), MemoryError()])
def test_runs_that_diverge_or_crash_are_repeated_and_are_no_failures(lost):
    def rule(table, T, attempt):
        return lost if attempt % 3 < 2 else T <= 40

    found = search(rule, seeds=1)
    plain = search(lambda table, T, attempt: T <= 40, seeds=1)
    assert as_record(found)["seeds"] == as_record(plain)["seeds"]
    assert found.undecided == 0
    assert len(found.trials) == 3 * len(plain.trials)
    lost_trials = [t for t in found.trials if t.passed is None]
    assert len(lost_trials) == 2 * len(plain.trials)
    for t in lost_trials:
        assert (t.crash is None) == (lost is None)
        if isinstance(lost, RuntimeError):
            assert t.crash == "RuntimeError: out of memory"


def test_runs_that_never_end_well_are_undecided():
    found = search(lambda table, T, attempt: None, seeds=2)
    assert found.facts == 0
    assert found.interval == (0, None)
    assert found.undecided == 2
    assert [b.undecided for b in found.brackets] == [[8], [8]]
    assert len(found.trials) == 2 * 3


@pytest.mark.parametrize("first", [8, 45, 70])
def test_undecided_sizes_are_left_alone_and_reported(first):
    """Diverging between 40 and 60, failing above: the bracket may stay wide but is never wrong,
    and no run is made twice."""

    def rule(table, T, attempt):
        return T < 40 or (None if T < 60 else False)

    found = search(rule, seeds=2, first=first)
    for b in found.brackets:
        assert b.undecided
        assert all(40 <= T < 60 for T in b.undecided)
        assert b.lower < 40
        assert b.upper is None or b.upper >= 60
    assert found.undecided == sum(len(b.undecided) for b in found.brackets)
    runs = [(t.seed, t.T, t.start) for t in found.trials]
    assert len(runs) == len(set(runs))


def test_errors_of_the_user_and_of_the_program_are_no_crashes():
    for error in (ByheartError("a wrong recipe"), TypeError("a bug")):
        with pytest.raises(type(error), match=str(error)):
            search(lambda table, T, attempt, error=error: error)


@pytest.mark.parametrize("restarts", [1, 2, 5])
def test_restarts_are_starts_before_a_failure_counts(restarts):
    """Every further start memorizes ten facts more: up to 10, 20, ... with 1, 2, ... starts."""

    def rule(table, T, attempt):
        return T <= 10 * (attempt + 1) if attempt < restarts + 2 else False

    found = search(rule, seeds=2, restarts=restarts, resolution=0.01, first=4)
    for b in found.brackets:
        assert (b.lower, b.upper) == (10 * restarts, 10 * restarts + 1)
    failed = [t for t in found.trials if t.T == 10 * restarts + 1 and t.start < restarts + 2]
    assert len(failed) == 2 * restarts


def test_diverged_runs_do_not_use_up_the_restarts():
    def rule(table, T, attempt):
        return (None, False, None, T <= 30)[attempt] if attempt < 4 else False

    found = search(rule, seeds=1, restarts=2)
    (b,) = found.brackets
    assert b.lower <= 30 and b.upper is not None and b.upper > 30
    assert found.undecided == 0


# --- tables and stacks ---


@given(st.lists(st.integers(1, 900), min_size=2, max_size=6), st.integers(0, 50))
@settings(max_examples=40, deadline=None)
def test_facts_of_a_seed_are_nested_and_reproducible(sizes, seed):
    """Also where the table has to grow: the facts of T are the first of those of T' > T."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searches, "TABLE", 16)
        one, other = (a_search(), a_search())
        tables = [one._facts(seed, T) for T in sizes]
        again = {T: other._facts(seed, T) for T in sorted(set(sizes))}
    longest = max(tables, key=lambda table: table.T)
    for T, table in zip(sizes, tables, strict=True):
        assert table.T == T
        assert (table.tokens == longest.tokens[:T]).all()
        assert (table.answers == longest.answers[:T]).all()
        assert table.digest() == again[T].digest()
    assert longest.T < 20 or longest.digest() != a_search()._facts(seed + 1, longest.T).digest()


def a_search() -> _Search:
    executor: Any = None
    return _Search(SPEC, [Bracket(0)], 1.0, 1, Recipe(), "cpu", executor, lambda _: None)


@pytest.mark.slow
def test_a_search_over_long_keys_draws_no_more_tokens_than_it_may_need(monkeypatch):
    """65,536 keys of 3,000 tokens would be 1.6 GB, drawn twice over."""
    drawn: list[int] = []

    def draw(N, S, T, seed):
        drawn.append(S * T)
        return bh.random_associations(N, S, T, seed)

    monkeypatch.setattr(searches, "random_associations", draw)
    long = replace(a_search(), spec=replace(SPEC, S=3000))
    first = long._facts(0, 50)
    assert long._facts(0, 1500).subset(np.arange(50)).digest() == first.digest()
    assert drawn == [3000 * 1398, 3000 * 2 * 1398]
    assert drawn[0] <= searches.CELLS < 3000 * 1399
    short = a_search()
    assert short._facts(0, 2).T == 2 and short.tables[0].T == min(searches.TABLE, short.all_facts)


def test_a_search_tells_how_long_a_run_may_still_take():
    told: list[str] = []
    recipe = Recipe(steps=130, evaluate_every=130)
    capacity(SMALL, seeds=1, restarts=1, resolution=1.0, recipe=recipe, progress=told.append)
    steps = re.compile(
        r"training 1 model on \d+ facts; brackets so far: .*; step [\d,]+ of at most 130, at most "
        r"\d+ s left"
    )
    assert any(steps.fullmatch(text) for text in told), told


def test_the_search_trains_on_nested_tables():
    with planted(lambda table, T, attempt: T <= 70 + 10 * table) as seen:
        capacity(SPEC, seeds=3, seed=2, restarts=1)
    for seed in {seed for seed, _ in seen}:
        tables = sorted((table for s, table in seen if s == seed), key=lambda table: table.T)
        for shorter in tables:
            assert (shorter.tokens == tables[-1].tokens[: shorter.T]).all()
            assert (shorter.answers == tables[-1].answers[: shorter.T]).all()
    assert {seed for seed, _ in seen} == {2 * 10_007 + i for i in range(3)}


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 300)), max_size=40), st.booleans())
def test_stacks_hold_every_job_once_and_pad_little(jobs, mixed):
    jobs = sorted(jobs, key=lambda job: job[1])
    stacks = _stacks(jobs, mixed)
    assert [job for stack in stacks for job in stack] == jobs
    for stack in stacks:
        assert 1 <= len(stack) <= STACK
        assert stack[-1][1] <= (2 if mixed else 1) * stack[0][1]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_only_tables_that_can_be_padded_share_a_stack(sampling):
    """A fixed sample and an epoch without replacement depend on the number of rows."""
    stacks: list[set[int]] = []

    def run(spec, tables, recipe, starts, device, progress):
        stacks.append({table.T for table in tables})
        largest = [20 + int(table.name.rpartition("=")[2]) for table in tables]
        return tuple(
            outcome(start, table.T <= most)
            for start, table, most in zip(starts, tables, largest, strict=True)
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searches, "_run", run)
        capacity(SMALL, seeds=5, recipe=Recipe(sampling=sampling), resolution=0.01, restarts=1)
    padded = any(len(sizes) > 1 for sizes in stacks)
    assert padded == (sampling in ("full", "with-replacement"))


# --- numbers ---


def test_facts_and_bits_per_parameter_by_hand():
    spec = AttentionOnlySpec(N=16, S=2, d=4, d_h=4, H=2, scale=True)
    assert spec.parameters == 4 * (2 + 2 * 16 + 4 * 4 * 2) == 264
    found = search(lambda table, T, attempt: T <= 66, spec, seeds=1, resolution=0.001)
    assert found.facts == 66
    assert found.per_parameter == 66 / 264
    assert found.bits_per_parameter == 66 * 4 / 264 == 1.0
    half = search(lambda table, T, attempt: T <= 66, spec, seeds=1, threshold=0.75)
    assert 60 <= half.facts <= 66  # the planted failures have accuracy 1/2
    lost = 0.25 * math.log2(15) - 0.25 * math.log2(0.25) - 0.75 * math.log2(0.75)
    assert half.bits_per_parameter == pytest.approx(half.facts * (4 - lost) / 264)


def mutual_information(N: int, accuracy: float) -> float:
    """Σ p(x, y) log2 p(x, y) / (p(x) p(y)) from the table of joint probabilities."""
    wrong = (1 - accuracy) / (N - 1)
    joint = [[(accuracy if x == y else wrong) / N for y in range(N)] for x in range(N)]
    left = [math.fsum(row) for row in joint]
    right = [math.fsum(column) for column in zip(*joint, strict=True)]
    return math.fsum(
        p * math.log2(p / (left[x] * right[y]))
        for x, row in enumerate(joint)
        for y, p in enumerate(row)
        if p > 0
    )


@given(N=st.integers(2, 25), accuracy=st.floats(0, 1), T=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_memorized_bits_are_the_mutual_information_of_the_channel(N, accuracy, T):
    # N^2 terms of size at most log2 N, each right to some units in the last place.
    tolerance = max(1, T) * N * 1e-13
    assert memorized_bits(T, N, accuracy) == pytest.approx(
        T * mutual_information(N, accuracy), rel=1e-12, abs=tolerance
    )


@given(N=st.integers(2, 1000), T=st.integers(1, 1000), a=st.floats(0, 1), b=st.floats(0, 1))
def test_memorized_bits_grow_from_0_at_chance_to_T_log2_N(N, T, a, b):
    low, high = sorted(1 / N + share * (1 - 1 / N) for share in (a, b))
    assert memorized_bits(T, N, 1.0) == T * math.log2(N)
    assert memorized_bits(T, N, 1 / N) == pytest.approx(0, abs=T * 1e-12)
    assert memorized_bits(T, N, low) <= memorized_bits(T, N, high) + T * 1e-12
    assert memorized_bits(T, 1, a) == 0


# --- for real ---


def test_a_real_search_is_consistent_and_reproducible():
    found = capacity(TINY, seeds=3, restarts=1, recipe=QUICK)
    assert 4 <= found.interval[0] <= found.facts <= 36
    for b in found.brackets:
        assert b.upper is not None and b.upper - b.lower <= max(1, 0.05 * b.lower)
        assert any(t.seed == b.seed and t.T == b.lower and t.passed for t in found.trials)
        assert any(t.seed == b.seed and t.T == b.upper and not t.passed for t in found.trials)
    for t in found.trials:
        assert t.passed is (t.accuracy == 1)
        assert t.steps <= 200
        assert abs(t.accuracy * t.T - round(t.accuracy * t.T)) < 1e-9
    json.dumps(found.to_json())
    assert as_record(capacity(TINY, seeds=3, restarts=1, recipe=QUICK)) == as_record(found)


@pytest.mark.parametrize(
    "recipe",
    [
        dana2025(batch=8, batches=8, epochs=4),
        Recipe(steps=60, sampling="without-replacement", batch=8, evaluate_every=30),
        Recipe(steps=60, sampling="with-replacement", batch=8, epoch_steps=10, evaluate_every=30),
    ],
    ids=lambda recipe: recipe.sampling,
)
def test_every_way_of_sampling_can_be_searched(recipe):
    """A fixed sample cannot be padded: tables of different lengths are trained apart."""
    found = capacity(TINY, seeds=3, restarts=1, recipe=recipe, resolution=0.2)
    assert 0 < found.facts < 36
    assert found.undecided == 0


@pytest.mark.parametrize(
    "spec",
    [
        MLPTransformerSpec(N=5, S=2, d=3, d_h=3, H=1, w=4, scale=True),
        SharedBottleneckSpec(N=5, S=2, d=3, d_h=2, H=2),
        AttentionOnlySpec(N=5, S=2, d=2, d_h=2, H=1, layers=2, scale=True),
    ],
    ids=lambda spec: spec.family,
)
def test_other_models_can_be_searched(spec):
    found = capacity(spec, seeds=1, restarts=1, recipe=QUICK, resolution=0.5, threshold=0.9)
    assert 0 < found.facts <= 25
    assert as_record(found)["spec"]["family"] == spec.family


def test_a_real_search_with_a_huge_learning_rate_is_undecided():
    found = capacity(TINY, seeds=2, restarts=1, recipe=QUICK.but(optimizer="sgd", lr=1e30))
    assert (found.facts, found.undecided) == (0, 2)
    assert all(t.passed is None and t.crash is None for t in found.trials)


@pytest.mark.slow
def test_two_workers_find_what_one_finds():
    """Eleven seeds are two stacks."""
    pytest.importorskip("distributed")
    one = capacity(TINY, seeds=11, restarts=1, recipe=QUICK, resolution=0.2)
    two = capacity(TINY, seeds=11, restarts=1, recipe=QUICK, resolution=0.2, workers=2)
    assert as_record(two) == as_record(one)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"threshold": 0}, "threshold"),
        ({"threshold": 1.5}, "threshold"),
        ({"threshold": math.nan}, "threshold"),
        ({"resolution": 0}, "resolution"),
        ({"resolution": -1}, "resolution"),
        ({"seeds": 0}, "`seeds` must be at least 1, found 0"),
        ({"restarts": 0}, "`restarts` must be at least 1, found 0"),
        ({"first": 0}, "`first` must be at least 1, found 0"),
        ({"workers": "many"}, "`workers`"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(options, words):
    with pytest.raises(ByheartError, match=words):
        search(lambda table, T, attempt: True, **options)


def test_a_model_without_token_keys_is_refused():
    with pytest.raises(ByheartError, match="Transformer over token keys"):
        capacity(MultiHeadSpec(d=6, n=4, d_h=3, H=3, d_out=5, shared=True))  # type: ignore[arg-type]


# --- the smallest model ---

# (size, number of the start, over all attempts) -> memorized, not memorized, diverged (None)
SizeRule = Callable[[int, int], bool | None]


def shrink(rule: SizeRule, vary: str = "H", size: int = 6, **options: Any) -> Any:
    """`smallest` on planted outcomes, and the specs it trained."""
    facts = bh.random_associations(N=10, S=2, T=40, seed=0)
    spec = AttentionOnlySpec(**{**SMALL.to_json(), "qk_rank": 0, vary: size})
    specs = []

    def train_stack(spec, data, recipe, seeds, device):
        specs.append(spec)
        own = getattr(spec, vary)
        return SimpleNamespace(outcomes=tuple(outcome(s, rule(own, s)) for s in seeds))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searches, "train_stack", train_stack)
        return smallest(facts, spec, vary=vary, **options), specs


@given(least=st.integers(1, 200), size=st.integers(1, 100), seeds=st.integers(1, 4))
@settings(deadline=None)
def test_the_smallest_size_is_found(least, size, seeds):
    found, specs = shrink(lambda own, start: own >= least, size=size, seeds=seeds, limit=256)
    assert found.size == least
    assert found.spec.H == least
    assert found.interval == (least - 1 if least > 1 else None, least)
    sizes = [row.size for row in found.tried]
    assert sizes == sorted(set(sizes))
    assert len(sizes) <= 18
    assert {spec.H for spec in specs} == set(sizes)
    for row in found.tried:
        assert row.passed == (seeds if row.size >= least else 0)
        assert row.parameters == replace(SMALL, H=row.size).parameters
    assert json.loads(json.dumps(found.to_json()))["parameters"] == found.spec.parameters


def test_one_start_is_enough_and_the_interval_says_how_many_did():
    found, _ = shrink(lambda own, start: own >= 8 or (own >= 5 and start == 1), size=16)
    assert found.size == 5
    assert found.interval == (4, 8)
    assert {row.size: row.passed for row in found.tried}[5] == 1


def test_no_size_up_to_the_limit():
    found, _ = shrink(lambda own, start: False, size=6, limit=40)
    assert (found.size, found.spec, found.interval) == (None, None, (40, None))
    assert [row.size for row in found.tried] == [6, 12, 24, 40]
    assert found.to_json()["parameters"] is None
    above, _ = shrink(lambda own, start: own > 3, size=100, limit=40)
    assert above.size == 4


def test_sizes_at_which_all_diverged_are_tried_again_and_are_no_failures():
    found, specs = shrink(lambda own, start: None if own == 4 else own > 4, size=4)
    assert found.size == 5
    assert found.interval == (None, 5)  # 4 diverged, which is no failure
    assert [spec.H for spec in specs].count(4) == 3
    assert next(row for row in found.tried if row.size == 4).diverged == 3
    # The second attempt has other starts, which succeed.
    again, _ = shrink(lambda own, start: None if start < 3 else own >= 4, size=4)
    assert again.size == 4
    assert again.interval == (3, 4)
    # One that ends is evidence.
    some, _ = shrink(lambda own, start: own > 4 or (None if start else False), size=4)
    assert some.interval == (4, 5)


def test_the_rank_of_the_scores_follows_the_head_width():
    found, specs = shrink(lambda own, start: own >= 3, vary="d_h", size=8)
    assert found.spec.d_h == found.spec.qk_rank == 3
    assert all(spec.qk_rank == spec.d_h for spec in specs)


@pytest.mark.parametrize("vary", ["N", "S", "parameters", "w", "bogus"])
def test_only_sizes_can_be_varied(vary):
    facts = bh.random_associations(N=10, S=2, T=40, seed=0)
    with pytest.raises(
        ByheartError, match=f"`vary` must be one of H, d_h, d, layers, found '{vary}'"
    ):
        smallest(facts, SMALL, vary=vary)


def test_wrong_searches_for_the_smallest_are_refused():
    facts = bh.random_associations(N=10, S=2, T=40, seed=0)
    with pytest.raises(ByheartError, match="does not fit the facts: they have 10 tokens"):
        smallest(facts, SPEC)
    with pytest.raises(ByheartError, match="`seeds` must be at least 1, found 0"):
        smallest(facts, SMALL, seeds=0)
    with pytest.raises(ByheartError, match=r"\(0, 1\]"):
        smallest(facts, SMALL, threshold=2)


@pytest.mark.parametrize(
    ("S", "T", "sizes", "model", "vary"),
    [
        (2, 40, {"d": 3, "H": 4}, "attention", "H"),
        (1, 20, {"d": 2, "H": 1}, "attention", "d_h"),
        (2, 40, {"d": 3, "H": 1}, "mlp", "w"),
    ],
)
def test_a_real_search_for_the_smallest(S, T, sizes, model, vary):
    facts = bh.random_associations(N=20, S=S, T=T, seed=1)
    spec = training_spec(facts, model, d_h=2, **sizes)
    found = smallest(facts, spec, vary=vary, recipe=QUICK, seeds=2)
    assert found.size is not None and found.spec is not None
    assert getattr(found.spec, vary) == found.size > 1
    own = next(row for row in found.tried if row.size == found.size)
    assert own.passed >= 1 and own.accuracy == 1
    below = [row for row in found.tried if row.size < found.size]
    assert all(row.passed == 0 and row.accuracy < 1 for row in below)
    assert found.interval[0] == max(row.size for row in below) == found.size - 1
    # Other starts, trained through the front door, do about as well.
    memory = bh.train(facts, found.spec, recipe=QUICK.but(keep_best=True), seeds=6)
    assert memory.construction.recalled >= 0.9 * T
