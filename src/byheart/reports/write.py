"""Reports: folders and files in, one page out (an index and a page each for several)."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from byheart._files import open_regular
from byheart._folders import save_file
from byheart._json import Json
from byheart.errors import ByheartError
from byheart.reports.page import LIMIT, Page, render, shown

if TYPE_CHECKING:
    from byheart.models import Memory

    Source = str | os.PathLike[str] | Memory

MARK = '<meta name="generator" content="byheart '
MEMORY, STUDY, AUDIT = "memory", "study", "audit"


@dataclass(frozen=True)
class Written:
    """A page that was written: where, of what, how large."""

    path: Path
    kind: str
    title: str
    bytes: int

    def to_json(self) -> dict[str, Json]:
        return {**vars(self), "path": str(self.path)}


def report(
    sources: Source | list[Source] | tuple[Source, ...],
    output: str | os.PathLike[str] = "report.html",
    *,
    force: bool = False,
) -> list[Written]:
    """Write the page of a memory (its folder or in hand), a study (.db) or an audit (.json).

    Several `sources` give an index page `output` and a page each beside it. Nothing is written
    unless every page could be made. A file that is there is replaced if byheart wrote it, or with
    `force`.

    >>> import byheart as bh, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "elements.html"
    >>> [page.kind for page in report(bh.build("elements"), path)]
    ['memory']
    """
    several = list(sources) if isinstance(sources, (list, tuple)) else [sources]
    if not several:
        raise ByheartError("a report needs a memory folder, a study (.db) or an audit (.json).")
    target = Path(output)
    check_target(target, force)
    kinds = [kind_of(one) for one in several]  # all of them, before the work on the first
    pages = [_page(one, kind) for one, kind in zip(several, kinds, strict=True)]
    for one, page in zip(several, pages, strict=True):
        if len(page.html.encode("utf-8")) > LIMIT:
            raise ByheartError(f"{one}: its page would be larger than {LIMIT:,} bytes.")
    paths = [target]
    if len(pages) > 1:
        paths = [_beside(target, number, page) for number, page in enumerate(pages, start=1)]
        for path in paths:
            check_target(path, force)
        cards = [
            (quote(os.fsencode(path.name)), page) for path, page in zip(paths, pages, strict=True)
        ]
        title, data = f"{len(pages)} reports", {"kind": "index"}
        pages.append(render("index.html", ("core.js",), data, title=title, cards=cards))
        paths.append(target)
    return [_write(path, page) for path, page in zip(paths, pages, strict=True)]


def explore(output: str | os.PathLike[str] = "explorer.html", *, force: bool = False) -> Written:
    """Write the capacity explorer: every bound and every family, computed in the page."""
    from byheart.reports.explorer import explorer_page

    target = Path(output)
    check_target(target, force)
    return _write(target, explorer_page())


def kind_of(source: Source) -> str:
    """memory, study or audit; anything else is refused with what was expected."""
    if not isinstance(source, (str, os.PathLike)):
        return MEMORY
    path = Path(source)
    if not os.path.exists(path):
        wrong = "there is no such file or folder"
    elif os.path.isdir(path):
        if os.path.exists(path / "memory.json"):
            return MEMORY
        wrong = "a folder without memory.json"
    else:
        with open_regular(path) as file:
            if file.read(16).startswith(b"SQLite format 3\0"):
                return STUDY
        if path.suffix == ".json":
            return AUDIT
        wrong = "neither a study nor an audit"
    raise ByheartError(
        f"{source}: {wrong}. A report takes a memory folder (`byheart build`), a study (.db of "
        "`byheart reproduce`) or an audit (.json of `byheart audit`)."
    )


def check_target(path: Path, force: bool) -> None:
    """Refuse, before any work, a path that cannot be written or holds something else."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise ByheartError(f"`output` must end in .html, found {path}.")
    if not os.path.isdir(path.parent):
        raise ByheartError(f"{path} cannot be written: there is no folder {path.parent}.")
    if os.path.isdir(path):
        raise ByheartError(f"{path} cannot be written: it is a folder.")
    if os.path.exists(path):
        with open_regular(path) as file:
            if MARK.encode() not in file.read(4096) and not force:
                hint = "Give another `output`, or `force` to replace it."
                raise ByheartError(f"{path} exists and is no page of byheart. {hint}")


def _page(source: Source, kind: str) -> Page:
    from byheart.reports.audit_page import audit_page
    from byheart.reports.memory_page import memory_page
    from byheart.reports.study_page import study_page

    if not isinstance(source, (str, os.PathLike)):
        return memory_page(source)
    return {MEMORY: memory_page, STUDY: study_page, AUDIT: audit_page}[kind](Path(source))


def _beside(target: Path, number: int, page: Page) -> Path:
    """report.html -> report-1-countries.html: ASCII, and no two alike."""
    slug = re.sub(r"[^a-z0-9]+", "-", page.title.lower().encode("ascii", "ignore").decode())
    slug = slug.strip("-")[:40] or page.kind
    return target.with_name(f"{target.stem}-{number}-{slug}{target.suffix}")


def _write(path: Path, page: Page) -> Written:
    save_file(path, page.html)
    return Written(path, page.kind, shown(page.title), len(page.html.encode("utf-8")))
