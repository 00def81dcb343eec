"""Examples in docstrings (`>>>` up to a blank line) shown as code on the site's reference page."""

from __future__ import annotations

from typing import Any

import griffe


def fenced(text: str) -> str:
    """The docstring with every example in a fence.

    >>> print(fenced("One.\\n\\n>>> 1 + 1\\n2\\n").replace("`", "'"))
    One.
    <BLANKLINE>
    '''pycon
    >>> 1 + 1
    2
    '''
    """
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if not inside and line.lstrip().startswith(">>>"):
            lines.append("```pycon")
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line.strip() if inside and line.lstrip().startswith((">>>", "...")) else line)
    return "\n".join([*lines, "```"] if inside else lines)


class Examples(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
