"""`make docs`: write docs/cli.md from the commands' own help. `--check` only compares."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs" / "cli.md"
HEAD = "<!-- Written by `make docs` from the commands' own help: do not edit. -->\n\n"


def reference() -> str:
    """Markdown of all commands, by typer's own generator."""
    command = [sys.executable, "-m", "typer", "--app", "app", "byheart.cli.main", "utils", "docs"]
    # Colour and width would otherwise depend on the terminal that runs this.
    environment = {**os.environ, "TERM": "dumb", "COLUMNS": "100"}
    done = subprocess.run(
        [*command, "--name", "byheart", "--title", "The command line"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return HEAD + done.stdout.strip() + "\n"


def main() -> None:
    text = reference()
    if "--check" in sys.argv:
        if DOCS.read_text() != text:
            sys.exit("docs/cli.md is out of date: run `make docs`")
        return
    DOCS.write_text(text)


if __name__ == "__main__":
    main()
