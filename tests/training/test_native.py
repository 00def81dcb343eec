"""Compiled kernels are an accelerator: where there are none, a reason is told and work goes on."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from byheart import random_associations
from byheart.cli.main import app
from byheart.errors import ByheartError
from byheart.specs import AttentionOnlySpec
from byheart.training import Recipe, native, token_data, train_stack

SOURCE = '#include "common.h"\nAPI int answer() { return 42; }\n'
LOAD = """
import sys
from pathlib import Path
from byheart.training import native
native.HERE = Path(sys.argv[1])
native.sgemm = lambda: 0  # torch takes seconds to load
library = native.load("tiny")
print(native.missing("tiny") if library is None else library.answer())
"""


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """Nothing is loaded, nothing is in the cache."""
    monkeypatch.setenv(native.CACHE, str(tmp_path / "cache"))
    monkeypatch.delenv(native.SWITCH, raising=False)
    native.load.cache_clear()
    yield monkeypatch
    native.load.cache_clear()


@pytest.fixture
def tiny(fresh, tmp_path):
    """A kernel that compiles at once."""
    (tmp_path / "common.h").write_text((native.HERE / "common.h").read_text())
    (tmp_path / "tiny.cpp").write_text(SOURCE)
    fresh.setattr(native, "HERE", tmp_path)
    return tmp_path / "tiny.cpp"


def compiler():
    try:
        return native._compiler()
    except native.NoKernels:
        pytest.skip("no compiler here")


def test_a_kernel_is_compiled_once_and_again_when_its_source_changes(tiny, tmp_path):
    compiler()
    assert not native.ready("tiny")
    assert native.load("tiny").answer() == 42  # type: ignore[union-attr]
    assert native.missing("tiny") is None and native.ready("tiny")
    folder = tmp_path / "cache" / "byheart" / "kernels"
    (first,) = [f.name for f in folder.iterdir() if f.suffix == ".so"]
    assert folder.stat().st_mode & 0o077 == 0
    tiny.write_text(SOURCE.replace("42", "43"))
    native.load.cache_clear()
    assert not native.ready("tiny")
    assert native.load("tiny").answer() == 43  # type: ignore[union-attr]
    assert len([f for f in folder.iterdir() if f.suffix == ".so" and f.name != first]) == 1


@pytest.mark.parametrize("word", ["off", "0", "No", "FALSE"])
def test_they_can_be_switched_off(fresh, word):
    fresh.setenv(native.SWITCH, word)
    assert native.load("stack") is None
    assert native.missing("stack") == f"{native.SWITCH}={word} switches compiled kernels off"


def test_without_a_compiler_there_are_none(fresh):
    fresh.setenv(native.COMPILER, "/nonexistent")
    assert native.load("stack") is None and native.ready("stack")
    assert native.missing("stack") == "no C++ compiler was found (/nonexistent)"


def test_a_compilation_that_fails_says_why(tiny):
    compiler()
    tiny.write_text("this is no C++\n")
    assert native.load("tiny") is None
    assert "does not compile tiny.cpp" in native.missing("tiny")  # type: ignore[operator]


def test_a_compiler_that_does_not_run_is_none(tiny, tmp_path, fresh):
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF nothing")
    broken.chmod(0o755)
    fresh.setenv(native.COMPILER, str(broken))
    assert "does not run" in native.missing("tiny")  # type: ignore[operator]


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
def test_libraries_of_a_folder_that_others_may_write_are_not_loaded(tiny, tmp_path):
    compiler()
    folder = tmp_path / "cache" / "byheart" / "kernels"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert f"{folder} can be written by others" in native.missing("tiny")  # type: ignore[operator]
    assert not list(folder.iterdir())


def test_two_processes_at_once_compile_it_once(tiny, tmp_path):
    compiler()
    command = [sys.executable, "-c", LOAD, str(tmp_path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[0].strip() for process in both] == ["42", "42"]
    folder = tmp_path / "cache" / "byheart" / "kernels"
    assert len([name for name in os.listdir(folder) if name.endswith(".so")]) == 1


def test_the_command_line_says_once_what_is_missing(fresh, tmp_path):
    """On stderr, with the reason; and nothing where kernels are there or cannot help."""
    fresh.setenv(native.SWITCH, "off")
    facts = "random:N=8,S=2,T=8,seed=1"
    train = ["train", facts, "-o", str(tmp_path / "memory"), "--force", "--steps", "20"]
    search = [
        "capacity",
        "--vocab",
        "4",
        "--d-model",
        "2",
        "--heads",
        "1",
        "--steps",
        "5",
        "--json",
    ]
    for command in (train, search):
        told = CliRunner().invoke(app, command).stderr
        assert told.count("note: no compiled training kernels") == 1, told
        assert f"{native.SWITCH}=off" in told and "2.5 times as long" in told
    for other in (["--loss", "hinge"], ["--dtype", "float64"]):
        told = CliRunner().invoke(app, [*train, *other]).stderr
        assert "kernels" not in told


SPEC = AttentionOnlySpec(N=8, S=2, d=4, d_h=4, H=3, layers=2, positions="attention")


class Cut(Exception):
    """The power goes out."""


def train(place, path="auto", steps=40, cut_at=None):
    def progress(message):
        if cut_at is not None and message.done >= cut_at:
            raise Cut

    data = token_data(random_associations(N=8, S=2, T=40, seed=0))
    recipe = Recipe(steps=steps, evaluate_every=10, stop_at=None)
    return train_stack(
        SPEC, data, recipe, [0, 1], path=path, checkpoint=place, checkpoint_seconds=0,
        progress=progress,
    )  # fmt: skip


def test_a_checkpoint_goes_on_with_the_path_that_computed_it(tmp_path, monkeypatch):
    if native.missing("stack") is not None:
        pytest.skip(f"no compiled kernels here: {native.missing('stack')}")
    for path, name in (("auto", "compiled pairs"), ("torch", "deep pairs")):
        place = tmp_path / name
        with pytest.raises(Cut):
            train(place, path, cut_at=20)
        with pytest.raises(ByheartError, match=f"by the path '{name}', `path` is 'autograd'"):
            train(place, "autograd")
        assert train(place).path == name
    # without compiled kernels, the run of one is not carried on by others
    place = tmp_path / "compiled"
    with pytest.raises(Cut):
        train(place, cut_at=20)
    monkeypatch.setenv(native.SWITCH, "off")
    native.load.cache_clear()
    try:
        with pytest.raises(ByheartError, match="'compiled pairs', and others round differently"):
            train(place)
        assert train(None).path == "deep pairs"
    finally:
        monkeypatch.undo()
        native.load.cache_clear()
