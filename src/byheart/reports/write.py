"""Reports: folders and files in, one page out (an index and a page each for several)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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
    """Write the page of a memory folder, a study (.db) or an audit (.json), or of several.

    `sources`: one source or a list of them; a memory in hand will do, too. Several give an index
    page `output` and a page each beside it. Nothing is written unless every page could be made.
    A file that is there is replaced if byheart wrote it, or with `force`.

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
        names = _names(target, pages)
        for name in names:
            check_target(name, force)
        paths, pages = [*names, target], [*pages, _index(names, pages)]
    return [_write(path, page) for path, page in zip(paths, pages, strict=True)]


def explore(output: str | os.PathLike[str] = "explorer.html", *, force: bool = False) -> Written:
    """Write the capacity explorer: every bound and every family, computed in the page."""
    from byheart.reports.explorer import explorer_page

    target = Path(output)
    check_target(target, force)
    return _write(target, explorer_page())


def kind_of(source: Source) -> str:
    """memory, study or audit; anything else is refused with what was expected.

    >>> kind_of("nowhere.memory")
    Traceback (most recent call last):
    ...
    byheart.errors.ByheartError: nowhere.memory: there is no such file or folder. A report takes a \
memory folder (`byheart build`), a study (.db of `byheart reproduce`) or an audit (.json of \
`byheart audit`).
    """
    if not isinstance(source, (str, os.PathLike)):
        return MEMORY
    path = Path(source)
    expected = (
        "A report takes a memory folder (`byheart build`), a study (.db of `byheart reproduce`) "
        "or an audit (.json of `byheart audit`)."
    )
    if not path.exists():
        raise ByheartError(f"{source}: there is no such file or folder. {expected}")
    if path.is_dir():
        if (path / "memory.json").exists():
            return MEMORY
        raise ByheartError(f"{source}: a folder without memory.json. {expected}")
    with path.open("rb") as file:
        head = file.read(16)
    if head.startswith(b"SQLite format 3\0"):
        return STUDY
    if path.suffix == ".json":
        return AUDIT
    raise ByheartError(f"{source}: neither a study nor an audit. {expected}")


def check_target(path: Path, force: bool) -> None:
    """Refuse, before any work, a path that cannot be written or holds something else."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise ByheartError(f"`output` must end in .html, found {path}.")
    if not path.parent.is_dir():
        raise ByheartError(f"{path} cannot be written: there is no folder {path.parent}.")
    if path.is_dir():
        raise ByheartError(f"{path} cannot be written: it is a folder.")
    if path.exists() and not force:
        with path.open("rb") as file:
            if MARK.encode() not in file.read(4096):
                raise ByheartError(
                    f"{path} exists and is no page of byheart. Give another `output`, or `force` "
                    "to replace it."
                )


def _page(source: Source, kind: str) -> Page:
    from byheart.reports.audit_page import audit_page
    from byheart.reports.memory_page import memory_page
    from byheart.reports.study_page import study_page

    if not isinstance(source, (str, os.PathLike)):
        return memory_page(source)
    makers = {MEMORY: memory_page, STUDY: study_page, AUDIT: audit_page}
    return makers[kind](Path(source))


def _names(target: Path, pages: Sequence[Page]) -> list[Path]:
    """report.html -> report-1-countries.html, ...: ASCII, and no two alike."""
    names = []
    for number, page in enumerate(pages, start=1):
        slug = re.sub(r"[^a-z0-9]+", "-", page.title.lower().encode("ascii", "ignore").decode())
        slug = slug.strip("-")[:40] or page.kind
        names.append(target.with_name(f"{target.stem}-{number}-{slug}{target.suffix}"))
    return names


def _index(names: Sequence[Path], pages: Sequence[Page]) -> Page:
    cards = [(path.name, page) for path, page in zip(names, pages, strict=True)]
    title = f"{len(pages)} reports"
    return render("index.html", ("core.js",), {"kind": "index"}, title=title, cards=cards)


def _write(path: Path, page: Page) -> Written:
    save_file(path, page.html)
    return Written(path, page.kind, shown(page.title), len(page.html.encode("utf-8")))
