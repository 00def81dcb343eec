"""One HTML file that needs nothing else: templates, style, script and data in one.

The Content-Security-Policy allows exactly the style and the script that are in the file, by their
SHA-256, and no network. User text reaches the page in two ways only: through jinja2 with
autoescape, and as JSON in a block that no browser runs, from where it is set as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from byheart._words import visible, written

if TYPE_CHECKING:
    from jinja2 import Environment

LIMIT = 3_000_000  # bytes of a page
POLICY = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; "
    "img-src data:; base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True)
class Page:
    """A page: of what, its title, what it says in one line, and the HTML."""

    kind: str
    title: str
    line: str
    html: str


@lru_cache
def source(name: str) -> str:
    """A file of the package's templates."""
    return files("byheart.reports").joinpath("templates", name).read_text(encoding="utf-8")


@lru_cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(source), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"whole": whole, "short": short, "shown": shown}
    return environment


def render(
    template: str, scripts: tuple[str, ...], data: Mapping[str, object], *,
    title: str, line: str = "", extra: str = "", **context: object,
) -> Page:  # fmt: skip
    """The page: `template` with `context`, the `scripts` with `extra`, and `data` as JSON."""
    from byheart._version import __version__

    style = source("page.css")
    first, *others = map(source, scripts)
    script = "\n".join(['"use strict";', first, extra, *others])
    policy = POLICY.format(script=_sha256(script), style=_sha256(style))
    html = _environment().get_template(template).render(
        context, policy=policy, style=style, script=script, data=json_text(data),
        version=__version__, title=title,
    )  # fmt: skip
    return Page(str(data["kind"]), title, line, written(html))


def _sha256(text: str) -> str:
    """As browsers hash what stands between the tags."""
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()


def json_text(data: object) -> str:
    """JSON that can stand inside a script element: no tag can begin or end in it.

    >>> json_text({"a": "</script><script>alert(1)"})
    '{"a":"\\\\u003c/script\\\\u003e\\\\u003cscript\\\\u003ealert(1)"}'
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = written(text)  # JSON has the same escapes
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def packed(values: np.ndarray, code: str) -> dict[str, str]:
    """Numbers as base64, little-endian, as numpy names them: `core.js` has the inverse."""
    array = np.ascontiguousarray(values, dtype=f"<{code}")
    return {"t": code, "b": base64.b64encode(array.tobytes()).decode()}


def smallest_code(count: int) -> str:
    """The narrowest code for ids 0..count-1, with -1 for none."""
    return "u2" if count < 2**16 - 1 else "i4"


def shown(text: str) -> str:
    """User text on one line: control characters, lone surrogates and direction overrides escaped.

    >>> shown("a\\nb")
    'a\\\\nb'
    """
    return visible(str(text))


def whole(value: float | None) -> str:
    """A count: 12,345, or 1.2 · 10^21 where nobody would count."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) < 1e15 else f"{value:.3g}"


def short(value: float | None) -> str:
    """Three significant digits."""
    return "-" if value is None else f"{value:.3g}"
