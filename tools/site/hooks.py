"""What the site needs beside docs/: a first page from the README, the Python reference from the
package's public names, the notebooks, pages of studies in the menu, links to files outside docs/ as
text, and a search that works from disk without a network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from notebook_pages import notebook_pages

import byheart
from byheart.papers import all_studies

ROOT = Path(__file__).parents[2]
SHIM = "https://unpkg.com/iframe-worker/shim"  # the theme would fetch it at every page
NOTEBOOKS = notebook_pages()
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])+)\]\((\.\./[^)#\s]+)(#[^)]*)?\)")


def on_config(config: Any) -> Any:
    """Every study's page stands in the menu behind the table of verdicts, a section a paper; the
    notebooks stand behind what is to be learnt."""
    learn = next(part["Learn"] for part in config.nav if "Learn" in part)
    learn += [{"Notebooks": [{page.title: name} for name, page in NOTEBOOKS.items()]}]
    papers: dict[str, list[dict[str, str]]] = {}
    for study in all_studies():
        paper, _, short = study.name.partition("/")
        page = {f"{short}: {study.title}": f"studies/{paper}-{short}.md"}
        papers.setdefault(f"Studies of {paper}", []).append(page)
    section = next(part["Reproduce"] for part in config.nav if "Reproduce" in part)
    section += [{name: pages} for name, pages in papers.items()]
    return config


def on_files(files: Files, config: Any) -> Files:
    """The pages that no file of docs/ is."""
    made = {"index.md": front(), "reference.md": reference()}
    made |= {name: page.markdown for name, page in NOTEBOOKS.items()}
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    for name in ("iframe-worker.js", "site.css"):
        file = Path(__file__).parent / name
        files.append(File.generated(config, f"assets/{name}", abs_src_path=str(file)))
    return files


def on_post_build(config: Any) -> None:
    """A server's page for wrong addresses makes no sense on a disk."""
    (Path(config.site_dir) / "404.html").unlink(missing_ok=True)


def on_post_page(output: str, page: Any, config: Any) -> str:
    return output.replace(SHIM, "../" * page.url.count("/") + "assets/iframe-worker.js")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """A link that leads out of docs/ (to a source or an example) becomes its text: the site has no
    such page. Links to pages stay, those to notebooks lead to their pages, and `mkdocs build
    --strict` checks them."""
    here = (ROOT / "docs" / page.file.src_uri).parent
    up = "../" * page.file.src_uri.count("/")

    def kept(match: re.Match[str]) -> str:
        target = (here / match[2]).resolve()
        notebook = f"notebooks/{target.stem}.md"
        if target.suffix == ".ipynb" and notebook in NOTEBOOKS:
            return f"[{match[1]}]({up}{notebook})"
        inside = target.is_relative_to(ROOT / "docs")
        return match[0] if inside else match[1]

    return LINK.sub(kept, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """The outputs of a notebook's cells, which are no Markdown."""
    notebook = NOTEBOOKS.get(page.file.src_uri)
    return html if notebook is None else notebook.filled(html)


def front() -> str:
    """The README as the first page: its links are seen from docs/."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = text.replace("](docs/", "](").replace("](notebooks/", "](../notebooks/")
    return re.sub(r"\]\((?!https?:|#)([A-Z]+\.md|LICENSE)\)", r"](../\1)", text)


def reference() -> str:
    """Every public name with its signature and docstring, in the order of the jobs."""
    names = [name for name in byheart.__all__ if not name.startswith("_")]
    functions = [name for name in names if name[0].islower()]
    classes = [name for name in names if name[0].isupper()]
    lines = [
        "# Python reference",
        "",
        "`import byheart as bh`, then `bh.` and a name of this page.",
        "",
    ]
    for title, some in (("Functions", functions), ("Classes", classes)):
        lines += [f"## {title}", ""]
        for name in some:
            lines += [f"::: byheart.{name}", ""]
    return "\n".join(lines)
