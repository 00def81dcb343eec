"""The command that a message gives is the one that works here, however byheart was installed."""

import json
import sys
from pathlib import Path

import pytest

from byheart import _install
from byheart._install import install


class Installed:
    """What importlib knows of the package: where it came from."""

    def __init__(self, record: object) -> None:
        self.record = record

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.record is None else json.dumps(self.record)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment in `tmp_path`/.venv, installed from an index, with pip, not activated."""
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(_install, "distribution", lambda name: Installed(None))
    monkeypatch.setattr(_install.shutil, "which", lambda name: "/usr/bin/pip")
    return tmp_path


def from_folder(folder: Path, editable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pyproject.toml").touch()
    record = {"url": folder.as_uri(), "dir_info": {"editable": True} if editable else {}}
    monkeypatch.setattr(_install, "distribution", lambda name: Installed(record))


def test_from_an_index(here: Path, monkeypatch: pytest.MonkeyPatch):
    assert install("hf") == f"{sys.executable} -m pip install 'byheart[hf]'"
    pip = str(Path(sys.executable).with_name("pip"))  # as after `. .venv/bin/activate`
    monkeypatch.setattr(_install.shutil, "which", lambda name: pip)
    assert install("hf") == "pip install 'byheart[hf]'"


def test_an_environment_without_pip(here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_install, "find_spec", lambda name: None)
    assert install("hf") == f"uv pip install --python {sys.executable} 'byheart[hf]'"


def test_a_clone_with_make(here: Path, monkeypatch: pytest.MonkeyPatch):
    """As `make setup` installs it: in place, into .venv, with the constraints."""
    from_folder(here, True, monkeypatch)
    (here / "constraints.txt").touch()
    run = ".venv/bin/python -m pip install -c constraints.txt -e '.[onnx]'"
    assert install("onnx") == f"cd {here} && {run}"


def test_a_copy_of_a_clone_in_an_own_environment(here: Path, monkeypatch: pytest.MonkeyPatch):
    clone = here / "my clone"
    clone.mkdir()
    from_folder(clone, False, monkeypatch)
    assert install("onnx") == f"cd '{clone}' && {sys.executable} -m pip install '.[onnx]'"


@pytest.mark.parametrize(
    ("file", "tool"),
    [
        ("pipx_metadata.json", "pipx install --force"),
        ("uv-receipt.toml", "uv tool install --force"),
    ],
)
def test_an_application(here: Path, monkeypatch: pytest.MonkeyPatch, file: str, tool: str):
    (here / ".venv" / file).touch()
    assert install("lens") == f"{tool} 'byheart[lens]'"
    from_folder(here, False, monkeypatch)
    assert install("lens") == f"{tool} '{here}[lens]'"


@pytest.mark.parametrize(
    "record",
    [{"url": "https://example.org/byheart.whl"}, {"url": "file:///gone"}, {}, [], {"url": 3}],
)
def test_a_source_that_is_no_folder_here(here: Path, monkeypatch: pytest.MonkeyPatch, record):
    monkeypatch.setattr(_install, "distribution", lambda name: Installed(record))
    assert install("hf").endswith("pip install 'byheart[hf]'")


def test_every_extra_that_a_message_names_exists():
    import re
    import tomllib

    root = Path(__file__).parents[1]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    named = {
        extra
        for path in (root / "src").rglob("*.py")
        for extra in re.findall(r"[^\w.]install\('(\w+)'\)", path.read_text())
    }
    assert len(named) >= 6
    assert named <= extras["optional-dependencies"].keys()
