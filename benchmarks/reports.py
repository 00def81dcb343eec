"""What pages cost: size, time to write, first paint, search and scroll, by number of facts.

python benchmarks/reports.py        prints the tables of docs/reports.md
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import byheart as bh

CHROMIUM = os.environ.get("BYHEART_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
TIMED = """async (text) => {
    const search = document.getElementById("search"), list = document.getElementById("list");
    const times = { search: 0, scroll: 0, click: 0 };
    const after = async () => { await new Promise(requestAnimationFrame); };
    for (let i = 0; i < 5; i++) {
        let from = performance.now();
        search.value = text[i % text.length]; search.dispatchEvent(new Event("input"));
        times.search = Math.max(times.search, performance.now() - from);
        search.value = ""; search.dispatchEvent(new Event("input"));
        for (let k = 1; k <= 10; k++) {
            from = performance.now();
            list.scrollTop = k * list.scrollHeight / 11; await after();
            times.scroll = Math.max(times.scroll, performance.now() - from);
        }
        from = performance.now();
        document.querySelector(".row:nth-child(3)").click();
        times.click = Math.max(times.click, performance.now() - from);
    }
    return times;
}"""


def pages() -> list[dict[str, Any]]:
    """Random facts, N = 400; one dense layer up to 1,000 facts, shards beyond."""
    from playwright.sync_api import sync_playwright

    rows = []
    with sync_playwright() as play, tempfile.TemporaryDirectory() as name:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for T in (100, 1_000, 5_000, 20_000, 100_000):
            method = "attention" if T <= 1_000 else "sharded"
            memory = bh.build(bh.random_associations(400, 2, T), method)
            path = Path(name) / f"{T}.html"
            begun = time.process_time()
            (written,) = bh.report(memory, path)
            spent = time.process_time() - begun
            context = browser.new_context(offline=True)
            page = context.new_page()
            page.goto(path.as_uri())
            paint = None
            while paint is None:  # playwright's own waiting needs eval, which the policy forbids
                page.wait_for_timeout(20)
                paint = page.evaluate(
                    "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
                )
            times = page.evaluate(TIMED, ["12 7", "39", "no such"])
            listed = page.inner_text("#found")
            rows.append(
                {
                    "facts": f"{T:,}", "listed": listed.split()[0], "MB": written.bytes / 1e6,
                    "write, CPU s": spent, "first paint ms": paint, "search ms": times["search"],
                    "scroll ms": times["scroll"], "click ms": times["click"],
                }
            )  # fmt: skip
            context.close()
        browser.close()
    return rows


def explorer() -> list[dict[str, Any]]:
    """Translating the theory, the size of the page, one answer to all questions."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play, tempfile.TemporaryDirectory() as name:
        begun = time.process_time()
        written = bh.explore(Path(name) / "explorer.html")
        spent = time.process_time() - begun
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page()
        page.goto(written.path.as_uri())
        one = page.evaluate(
            """() => { const from = performance.now();
            for (let i = 0; i < 50; i++) explore({...settings, T: 1000 + i});
            return (performance.now() - from) / 50; }"""
        )
        browser.close()
    return [{"MB": written.bytes / 1e6, "write, CPU s": spent, "all answers ms": one}]


def show(title: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{title}\n")
    names = list(rows[0])
    print("| " + " | ".join(names) + " |")
    print("|" + "---|" * len(names))
    for row in rows:
        cells = [f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()]
        print("| " + " | ".join(cells) + " |")


def main() -> None:
    show("Memory pages", pages())
    show("Capacity explorer", explorer())


if __name__ == "__main__":
    main()
