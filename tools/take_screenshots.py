"""Make every picture of docs/gallery.md: `python tools/take_screenshots.py`.

Builds the memories, writes the pages, opens them in chromium and keeps small pictures in
docs/images. The study and the audit are real runs: give their files (`--study FILE.db --audit
FILE.json`), else those pictures stay as they are.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

import byheart as bh
from byheart.reports import figure

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
CHROMIUM = os.environ.get("BYHEART_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
LARGEST = 150_000  # bytes of a picture
VECTORS = {"T": 621, "n": 32, "d": 64, "context": "fixed", "classes": 100, "seed": 42}


def memories(folder: Path) -> dict[str, Path]:
    """countries (attention-only), layer (one-hot multi-head), next (distributions), shards,
    learned (trained)."""
    made: dict[str, Any] = {
        "countries": bh.build("countries"),
        "layer": bh.build(bh.random_vectors(**VECTORS)),  # type: ignore[arg-type]
        "next": bh.build(bh.read_distributions(str(ROOT / "examples" / "continuations.jsonl"))),
        "known": bh.build("countries", "sharded"),
        "learned": bh.train("countries", batch=64, seeds=3),
    }
    folders = {}
    for name, memory in made.items():
        folders[name] = memory.save(folder / f"{name}.memory")
        bh.certify(memory).write(folders[name])
    return folders


def keep(picture: bytes, name: str) -> None:
    """A PNG with few colours: half the width of what a dense screen shows, under 150 KB."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    for colours in (256, 128, 64, 32):
        out = io.BytesIO()
        image.quantize(colours, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
        if len(out.getvalue()) < LARGEST:
            break
    (IMAGES / name).write_bytes(out.getvalue())
    print(f"{name}: {len(out.getvalue()):,} bytes, {image.width} x {image.height}")


def pages(folder: Path, folders: dict[str, Path], study: str | None, audit: str | None) -> None:
    from playwright.sync_api import sync_playwright

    bh.report(folders["countries"], folder / "countries.html")
    bh.report(folders["layer"], folder / "layer.html")
    bh.explore(folder / "explorer.html")
    for name, source in (("study", study), ("audit", audit)):
        if source is not None:
            bh.report(source, folder / f"{name}.html")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)

        def take(page: str, name: str, height: int, *, part: str | None = None, **how: Any) -> None:
            if not (folder / page).exists():
                return
            size = {"width": how.get("width", 1100), "height": height}
            context = browser.new_context(
                viewport=size,  # type: ignore[arg-type]
                offline=True,
                color_scheme=how.get("scheme", "light"),
            )
            tab = context.new_page()
            tab.goto((folder / page).as_uri())
            if "search" in how:
                tab.fill("#search", how["search"])
            shot = tab.locator(part).screenshot() if part else tab.screenshot()
            keep(shot, name)
            context.close()

        take("countries.html", "memory-page.png", 1350, search="France")
        take("countries.html", "memory-page-dark.png", 1000, scheme="dark", search="Japan")
        take("countries.html", "memory-page-phone.png", 1400, width=390)
        heads = 'section[aria-labelledby="where"]'
        take("countries.html", "head-map-attention.png", 900, part=heads)
        take("layer.html", "head-map-multi-head.png", 900, part=heads)
        take("explorer.html", "explorer.png", 1250)
        take("study.html", "study-page.png", 1500)
        take("audit.html", "audit-page.png", 1150)
        browser.close()


def figures(folders: dict[str, Path], study: str | None, audit: str | None) -> None:
    wanted = [
        ("countries", "head-map", "figure-head-map.png"),
        ("layer", "head-map", "figure-head-map-multi-head.png"),
        ("layer", "ablation", "figure-ablation.png"),
        ("countries", "margins", "figure-margins.png"),
        ("countries", "attention", "figure-attention.png"),
        ("countries", "capacity", "figure-capacity.png"),
        ("countries", "condition", "figure-condition.png"),
        ("next", "kl", "figure-kl.png"),
        ("learned", "training", "figure-training.png"),
    ]
    sources = [(folders[s], name, out) for s, name, out in wanted]
    if study is not None:
        sources.append((Path(study), "dana2025/fig1a", "figure-study.png"))
    if audit is not None:
        sources.append((Path(audit), "layers", "figure-audit.png"))
    for source, name, out in sources:
        data = io.BytesIO()
        figure(source, name).savefig(data, format="png", dpi=100)
        keep(data.getvalue(), out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", help="store of `byheart reproduce dana2025/fig1a`")
    parser.add_argument("--audit", help="JSON of `byheart audit minilm`")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folders = memories(folder)
        figures(folders, given.study, given.audit)
        pages(folder, folders, given.study, given.audit)


if __name__ == "__main__":
    main()
