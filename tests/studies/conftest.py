"""A tiny study that workers in other processes can import too, and a scheduler for them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # spawned workers inherit it


from study_tools import Cluster  # noqa: E402


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in paths if p))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "tiny.db"


@pytest.fixture
def cluster(importable: None) -> Iterator[Cluster]:
    pytest.importorskip("distributed")
    made = Cluster()
    yield made
    made.close()
