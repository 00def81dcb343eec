"""A real browser without network, and memories of every kind to show."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import byheart as bh

CHROMIUM = os.environ.get("BYHEART_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
# Set by .ci/run: there, a missing browser is a failure and not a reason to skip.
REQUIRED = os.environ.get("BYHEART_BROWSER") == "required"


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if not Path(CHROMIUM).exists():
        if REQUIRED:
            pytest.fail(f"no browser at {CHROMIUM}: apt-get install chromium")
        pytest.skip(f"no browser at {CHROMIUM}: apt-get install chromium, or set BYHEART_CHROMIUM")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@dataclass
class Watched:
    """A page and what went wrong in it: messages on the console, requests other than itself."""

    page: Any
    path: Path
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def until(self, script: str, seconds: float = 10) -> Any:
        """Ask until the answer is true. Playwright's own waiting needs `eval`, which the page's
        policy forbids."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            answer = self.page.evaluate(script)
            if answer:
                return answer
            self.page.wait_for_timeout(20)
        pytest.fail(f"{script}: not true after {seconds} s")

    def is_clean(self) -> bool:
        return not self.messages and not self.requests


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Watched]]:
    """`visit(path, width=, height=, scheme=, behind=)` opens a file offline, with what stands
    `behind` its address; a dirty page fails the test."""
    opened: list[Watched] = []
    contexts = []

    def go(
        path: Path, width: int = 1200, height: int = 900, scheme: str = "light", behind: str = ""
    ) -> Watched:
        context = browser.new_context(
            viewport={"width": width, "height": height}, offline=True, color_scheme=scheme
        )
        contexts.append(context)
        seen = Watched(context.new_page(), path)
        address = path.resolve().as_uri()
        seen.page.on("console", lambda message: seen.messages.append(message.text))
        seen.page.on("pageerror", lambda error: seen.messages.append(str(error)))
        seen.page.on("dialog", lambda dialog: (seen.messages.append("dialog"), dialog.dismiss()))
        seen.page.on(
            "request",
            lambda request: (
                request.url.partition("#")[0] == address or seen.requests.append(request.url[:200])
            ),
        )
        seen.page.goto(address + behind)
        opened.append(seen)
        return seen

    yield go
    for context in contexts:
        context.close()
    for seen in opened:
        assert seen.is_clean(), f"{seen.path.name}: {seen.messages} {seen.requests}"


@pytest.fixture(scope="session")
def memories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of every kind of memory; all but `associative` certified."""
    path = tmp_path_factory.mktemp("memories")
    elements = bh.read_facts("elements")
    vectors = bh.random_vectors(T=57, n=8, d=16, classes=5)
    made = {
        "attention": bh.build(elements),
        "sharded": bh.build(elements, "sharded"),
        "associative": bh.build(bh.random_associations(20, 2, 30), "associative"),
        "sqrt": bh.build(elements, "sqrt"),
        "distribution": bh.build(bh.random_distributions("gauss", N=6), d=5),
        "numbers": bh.build(bh.random_vectors(T=29, n=8, d=16)),
        "classes": bh.build(vectors),
        "own-contexts": bh.build(bh.random_vectors(T=29, n=8, d=16, context="random")),
        "one-token": bh.build(
            bh.read_facts(str(Path(__file__).parents[2] / "examples/capitals.csv"))
        ),
    }
    folders = {}
    for name, memory in made.items():
        folders[name] = memory.save(path / f"{name}.memory")
        if name != "associative":
            bh.certify(memory).write(folders[name])
    return folders
