"""How fast this machine is: measured once, kept, and believed only where it can be."""

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_study import alone, tiny

from byheart._machine import CACHE
from byheart.studies import Procedure, speed
from byheart.studies.run import run


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE, str(tmp_path))
    return tmp_path / "byheart" / "speed.json"


def test_a_measured_factor_is_kept(cache: Path, monkeypatch: pytest.MonkeyPatch):
    assert speed.factor() is None
    monkeypatch.setattr(speed, "probe", lambda: 3 * speed.REFERENCE)
    assert speed.calibrate() == speed.factor() == 3
    monkeypatch.setattr(speed, "_name", lambda: "another machine with this home")
    assert speed.factor() is None
    assert speed.calibrate() == 3 and cache.read_text().count(": 3") == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"x": 1', "\udcff", "[1]"])
def test_a_damaged_cache_is_measured_again(cache: Path, text: str, monkeypatch: pytest.MonkeyPatch):
    cache.parent.mkdir()
    cache.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert speed.factor() is None
    monkeypatch.setattr(speed, "probe", lambda: speed.REFERENCE)
    assert speed.calibrate() == speed.factor() == 1


@pytest.mark.parametrize("value", ["nan", "-1", "0", "Infinity", '"fast"', "null"])
def test_no_factor_is_believed_that_cannot_be(cache: Path, value: str):
    cache.parent.mkdir()
    cache.write_text(f'{{"{speed._name()}": {value}}}')
    assert speed.factor() is None


def test_a_home_that_may_not_be_written(cache: Path, monkeypatch: pytest.MonkeyPatch):
    cache.parent.write_text("a file is in the way")
    monkeypatch.setattr(speed, "probe", lambda: speed.REFERENCE)
    assert speed.calibrate() == 1 and speed.factor() is None


def test_the_probe_trains():
    assert 0.01 < speed.probe() < 60


def test_a_run_says_at_once_how_long_it_will_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """20 jobs of three seconds on a machine that takes twice as long; nothing of a study whose
    seconds nobody knows."""
    monkeypatch.setattr(speed, "probe", lambda: 2 * speed.REFERENCE)
    said: list[str] = []
    timed = Procedure(alone, seconds=lambda params: 3.0).grid(x=range(10))
    study = replace(tiny(), grid=timed, variants=("as-coded",))
    run(study, tmp_path / "tiny.db", seeds=2, progress=said.append)
    assert said[0] == "measuring how fast this machine is"
    assert said[1].endswith("computing the others, about 2 min 0 s")
    run(tiny(), tmp_path / "other.db", profile="paper", progress=(others := []).append)
    assert others[0].endswith("computing the others")
