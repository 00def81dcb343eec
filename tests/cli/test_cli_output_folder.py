"""Where `byheart build` writes: whole or not at all, and never over something else."""

import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

import byheart as bh
from byheart._folders import new_folder
from byheart.methods import Method

Run = Callable[..., Result]
RunJson = Callable[..., dict[str, Any]]
Refused = Callable[..., str]
Contents = Callable[[Path], dict[str, str]]

NOBODY = 65534


def test_existing_folder_is_refused(refused: Refused, memory: Path):
    message = refused("build", "elements", "-o", memory)
    assert str(memory) in message
    assert "exists already" in message
    assert "--force" in message


def test_force_replaces_the_memory_and_its_certificate(
    run: Run, run_json: RunJson, memory: Path, tmp_path: Path
):
    assert (memory / "certificate.json").exists()
    assert run("build", "elements", "-o", memory, "--force").exit_code == 0
    assert not (memory / "certificate.json").exists()
    assert run_json("recall", memory, "Fe", "name")["answer"] == "iron"
    assert run_json("recall", memory, "--all")["facts"] == 236
    assert [path.name for path in tmp_path.iterdir()] == [memory.name]


def test_force_without_anything_to_replace(run: Run, tmp_path: Path):
    assert run("build", "elements", "-o", tmp_path / "m", "--force").exit_code == 0


def test_force_replaces_a_damaged_memory(run: Run, run_json: RunJson, memory: Path):
    (memory / "weights.safetensors").unlink()
    (memory / "memory.json").write_text("{")
    assert run("build", "elements", "-o", memory, "--force").exit_code == 0
    assert run_json("certify", memory)["certified"] is True


def test_force_never_replaces_another_folder(refused: Refused, tmp_path: Path):
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "summer.txt").write_text("irreplaceable")
    message = refused("build", "elements", "-o", photos, "--force")
    assert "not a byheart memory" in message
    assert "another -o DIR" in message
    assert (photos / "summer.txt").read_text() == "irreplaceable"


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_target_is_a_file(refused: Refused, capitals: Path, force: tuple[str, ...]):
    assert str(capitals) in refused("build", "elements", "-o", capitals, *force)


def test_parent_is_a_file(refused: Refused, capitals: Path):
    message = refused("build", "elements", "-o", capitals / "m")
    assert "cannot be written" in message
    assert str(capitals / "m") in message
    assert "another -o DIR" in message


def test_name_too_long(refused: Refused, tmp_path: Path):
    assert "File name too long" in refused("build", "elements", "-o", tmp_path / ("m" * 300))


def test_parents_are_made(run: Run, tmp_path: Path):
    assert run("build", "elements", "-o", tmp_path / "new" / "er" / "m").exit_code == 0
    assert (tmp_path / "new" / "er" / "m" / "memory.json").is_file()


def test_parents_of_a_failed_build_go_again(refused: Refused, tmp_path: Path):
    refused("build", "elements", "-o", tmp_path / "new" / "er" / "m", "--heads", 1)


@contextmanager
def without_rights() -> Iterator[None]:
    """Root may write anywhere: be nobody for a moment, who may perhaps not even read byheart."""
    if os.geteuid():
        yield
        return
    try:
        os.seteuid(NOBODY)
    except OSError as error:
        pytest.skip(f"this root cannot become nobody: {error}")
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="no user ids on this system")
def test_read_only_directory(run: Run, monkeypatch: pytest.MonkeyPatch):
    @contextmanager
    def without_writing(*args: Any, **options: Any) -> Iterator[Path]:
        with without_rights(), new_folder(*args, **options) as temporary:
            yield temporary

    monkeypatch.setattr("byheart.pipeline.new_folder", without_writing)
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o555)
        said = run("build", "elements", "-o", Path(place) / "m")
        assert os.listdir(place) == []
    assert said.exit_code == 2
    assert "Permission denied" in said.stderr
    assert place in said.stderr


def test_full_disk(refused: Refused, memory: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("byheart.models.memory_files.write_text", full)
    for target, force in ((memory.with_name("n"), ()), (memory, ("--force",))):
        message = refused("build", "elements", "-o", target, *force)
        assert str(target) in message
        assert "No space left on device" in message


def test_a_failed_build_with_force_keeps_the_old_memory(
    refused: Refused, run_json: RunJson, memory: Path
):
    refused("build", "elements", "-o", memory, "--force", "--heads", 1)
    assert run_json("certify", memory)["certified"] is True


def test_interrupt(run: Run, memory: Path, tmp_path: Path, contents: Contents, monkeypatch):
    def interrupt(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("byheart.methods.Method.build", interrupt)
    before = contents(tmp_path)
    for target in (tmp_path / "m", memory):
        said = run("build", "elements", "-o", target, "--force", "--json")
        assert said.exit_code == 130
        assert "interrupted" in said.stderr
        assert "interrupted" in json.loads(said.stdout)["error"]
        assert contents(tmp_path) == before


def test_interrupt_while_modules_are_loaded(run: Run, tmp_path: Path, monkeypatch):
    """Compiled modules that are stopped while they are loaded raise something else."""

    def interrupt(*args: object, **options: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("initialization failed") from None

    monkeypatch.setattr("byheart.methods.Method.build", interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job may ignore it
    try:
        said = run("build", "elements", "-o", tmp_path / "m")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert said.exit_code == 130 and "interrupted" in said.stderr
    assert list(tmp_path.iterdir()) == []


def test_interrupt_after_the_memory_is_there(run: Run, tmp_path: Path, monkeypatch):
    def interrupt(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("byheart.cli.build.show", interrupt)
    said = run("build", "elements", "-o", tmp_path / "m")
    assert (tmp_path / "m").is_dir() != ("nothing was written" in said.stderr)


def test_force_through_a_link(run: Run, memory: Path, tmp_path: Path):
    link = tmp_path / "link"
    link.symlink_to(memory)
    assert run("build", "elements", "-o", link, "--force").exit_code == 0
    assert run("recall", link, "Fe", "name").exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {link.name, memory.name}


def test_a_target_that_appears_meanwhile_is_kept(run: Run, tmp_path: Path, monkeypatch):
    target = tmp_path / "m"
    construct = Method.build

    def slowly(*args: Any, **options: Any) -> bh.Memory:
        target.mkdir()
        (target / "mine.txt").write_text("of another program")
        return construct(*args, **options)

    monkeypatch.setattr(Method, "build", slowly)
    assert run("build", "elements", "-o", target).exit_code == 2
    assert (target / "mine.txt").exists()
