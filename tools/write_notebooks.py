"""Write the notebooks from their scripts, with the outputs of running them.

python tools/write_notebooks.py             run all and write notebooks/*.ipynb
python tools/write_notebooks.py --only size_a_model

A notebook is kept as notebooks/NAME.py, in which "# %%" begins a cell of code and "# %% [markdown]"
one of text, each line behind "# ": a form that reviews and linters can read.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"
CELL = re.compile(r"^# %%( \[markdown\])?\n", flags=re.M)


def notebook(source: str) -> nbformat.NotebookNode:
    """The cells of a script.

    >>> [cell.cell_type for cell in notebook("# %% [markdown]\\n# One.\\n# %%\\n1 + 1\\n").cells]
    ['markdown', 'code']
    """
    made = nbformat.v4.new_notebook()
    made.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    _, *parts = CELL.split(source)
    for number, (mark, text) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
        if mark:
            text = re.sub(r"^# ?", "", text, flags=re.M)
            cell = nbformat.v4.new_markdown_cell(text.strip())
        else:
            cell = nbformat.v4.new_code_cell(text.strip())
        cell["id"] = f"cell-{number}"  # the same at every run
        made.cells.append(cell)
    return made


def execute(made: nbformat.NotebookNode, folder: Path) -> None:
    """Run all cells in `folder`; an error is raised."""
    NotebookClient(made, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    for cell in made.cells:
        cell.metadata.clear()  # when a cell ran is of no interest


def main() -> None:
    reader = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    reader.add_argument("--only", help="the name of one notebook")
    asked = reader.parse_args()
    for script in sorted(FOLDER.glob("*.py")):
        if asked.only in (None, script.stem):
            made = notebook(script.read_text(encoding="utf-8"))
            execute(made, FOLDER)
            nbformat.write(made, script.with_suffix(".ipynb"))
            print(script.with_suffix(".ipynb").name)


if __name__ == "__main__":
    main()
