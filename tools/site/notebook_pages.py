"""The notebooks as pages of the site: their text, their code, and what came out when they ran."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path

import nbformat

FOLDER = Path(__file__).parents[2] / "notebooks"


@dataclass(frozen=True)
class NotebookPage:
    """A page: its title, its Markdown, and the HTML that its empty `div`s stand for.

    The outputs join the page after Markdown was read, because they are not Markdown: a frame with a
    whole page in it, a table, a picture.
    """

    title: str
    markdown: str
    outputs: dict[str, str]

    def filled(self, text: str) -> str:
        """The page's HTML with every output in its place."""
        for mark, output in self.outputs.items():
            text = text.replace(mark, f'<div class="output">{output}</div>')
        return text


def notebook_pages() -> dict[str, NotebookPage]:
    """Every notebook by the address of its page, in the order of their names."""
    found = sorted(FOLDER.glob("*.ipynb"))
    return {f"notebooks/{p.stem}.md": read(p.read_text(encoding="utf-8")) for p in found}


def read(text: str) -> NotebookPage:
    """The page of a notebook, given as JSON."""
    parts: list[str] = []
    outputs: dict[str, str] = {}
    for cell in nbformat.reads(text, as_version=4).cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source.replace("](../docs/", "](../"))
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in joined(cell.outputs):
            mark = f'<div data-output="{len(outputs)}"></div>'
            outputs[mark] = shown(output)
            parts.append(mark)
    title = parts[0].partition("\n")[0].removeprefix("# ")
    return NotebookPage(title, "\n\n".join(parts) + "\n", outputs)


def joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """The outputs, with what was printed in pieces as one."""
    found: list[nbformat.NotebookNode] = []
    for output in outputs:
        if found and output.output_type == found[-1].output_type == "stream":
            found[-1] = nbformat.v4.new_output("stream", text=found[-1].text + output.text)
        else:
            found.append(output)
    return found


def shown(output: nbformat.NotebookNode) -> str:
    """One output as HTML: the richest form that it has.

    >>> shown(nbformat.v4.new_output("stream", text="1 < 2\\n"))
    '<pre><code>1 &lt; 2\\n</code></pre>'
    """
    if output.output_type == "stream":
        return preformatted(output.text)
    data = output.data
    if "text/html" in data:
        return data["text/html"]
    if "image/png" in data:
        picture = "".join(data["image/png"].split())
        return f'<img alt="The figure that this cell draws" src="data:image/png;base64,{picture}">'
    return preformatted(data["text/plain"])


def preformatted(text: str) -> str:
    return f"<pre><code>{html.escape(text, quote=False)}</code></pre>"
