"""The site: no page without a place in the menu, no dead link, nothing fetched."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_every_page_has_a_place_in_the_menu():
    named = set(re.findall(r"[\w/-]+\.md", CONFIG[CONFIG.index("\nnav:") :]))
    made = {"index.md", "reference.md", "studies/README.md"}
    assert named - made == {page.name for page in (ROOT / "docs").glob("*.md")}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr  # warnings, dead links among them, are errors
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 768, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_open_from_disk(site: Path, browser: Any, width: int, scheme: str):
    """No message, no request, nothing wider than the screen, whatever the page."""
    view = {"width": width, "height": 900}
    context = browser.new_context(viewport=view, color_scheme=scheme, offline=True)
    page, wrong = context.new_page(), []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda r: r.url.startswith(("file:", "data:")) or wrong.append(r.url))
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        if page.evaluate("document.documentElement.scrollWidth") > width:
            wrong.append(f"{path.name} is wider than {width}")
        assert not wrong, (path.name, wrong)
    context.close()


def test_every_notebook_is_a_page_with_its_code_and_outputs():
    spec = importlib.util.spec_from_file_location("site", ROOT / "tools/site/notebook_pages.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = tool  # where dataclasses look their module up
    spec.loader.exec_module(tool)
    pages = tool.notebook_pages()
    files = sorted((ROOT / "notebooks").glob("*.ipynb"))
    assert list(pages) == [f"notebooks/{file.stem}.md" for file in files]
    tutorial = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    for file, page in zip(files, pages.values(), strict=True):
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        assert page.markdown.startswith(f"# {page.title}\n")
        assert all(f"```python\n{text}\n```" in page.markdown for text in code)
        assert page.outputs and all(mark in page.markdown for mark in page.outputs)
        whole = page.filled(page.markdown)
        assert "data-output" not in whole and all(o in whole for o in page.outputs.values())
        assert f"(../notebooks/{file.name})" in tutorial


@pytest.mark.slow
def test_frames_in_the_pages_of_notebooks_open(site: Path, browser: Any):
    """A memory in a cell is a page in a frame, which is opened when it is scrolled to."""
    page = browser.new_context(viewport={"width": 390, "height": 900}, offline=True).new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text))
    page.goto((site / "notebooks" / "size_a_model.html").as_uri())
    page.locator(".output iframe").first.scroll_into_view_if_needed()
    page.frame_locator(".output iframe").first.locator("#verdict", has_text="Proved").wait_for()
    assert not wrong


@pytest.mark.slow
def test_search_works_from_disk(site: Path, browser: Any):
    page = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True).new_page()
    page.goto((site / "index.html").as_uri())
    page.fill("input.md-search__input", "saturation")
    page.wait_for_selector(".md-search-result__item")
    assert page.locator(".md-search-result__item").count() > 3
