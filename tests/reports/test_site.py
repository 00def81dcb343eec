"""The site: no page without a place in the menu, no dead link, nothing fetched."""

from __future__ import annotations

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


@pytest.mark.slow
def test_search_works_from_disk(site: Path, browser: Any):
    page = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True).new_page()
    page.goto((site / "index.html").as_uri())
    page.fill("input.md-search__input", "saturation")
    page.wait_for_selector(".md-search-result__item")
    assert page.locator(".md-search-result__item").count() > 3
