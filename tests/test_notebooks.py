"""The notebooks run, and are what their scripts say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted((ROOT / "notebooks").glob("*.py"))
SPEC = importlib.util.spec_from_file_location("notebooks", ROOT / "tools" / "write_notebooks.py")
assert SPEC is not None and SPEC.loader is not None
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_is_its_script(script: Path):
    written = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
    made = tool.notebook(script.read_text(encoding="utf-8"))
    assert [c.source for c in written.cells] == [c.source for c in made.cells]
    shown = [c for c in written.cells if c.cell_type == "code" and c.outputs]
    assert len(shown) >= 2  # written with what came out


# A search for three capacities by training takes longer than the other notebooks together.
RUN = [
    pytest.param(path, marks=[pytest.mark.slow] if path.stem == "your_own_scaling_law" else [])
    for path in SCRIPTS
]


@pytest.mark.parametrize("script", RUN, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore")  # those of the machinery, which runs another process
def test_a_notebook_runs(script: Path, tmp_path: Path):
    made = tool.notebook(script.read_text(encoding="utf-8"))
    tool.execute(made, tmp_path)
    pages = [o.data for c in made.cells for o in c.get("outputs", ()) if "data" in o]
    assert any(kind in data for data in pages for kind in ("text/html", "image/png"))
