"""One way to a memory on disk, which build, train, edit and import share.

refuse early -> make -> verify as stored -> prove -> write -> describe: the target folder is checked
before any work, the memory is made and verified by its method, proved if asked, and appears whole
or not at all.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from byheart._folders import new_folder
from byheart._json import Json
from byheart._progress import Report, quiet
from byheart.certificates import Certificate, certify
from byheart.errors import ByheartError
from byheart.models import Memory
from byheart.models.folder import MEMORY
from byheart.models.memory_files import write_files

AnyMemory = TypeVar("AnyMemory", bound=Memory)
Prove = Callable[[Memory, Report], Certificate | None]


@dataclass(frozen=True)
class Stored:
    """A memory that was written to `folder`, with its certificate if one was asked for."""

    memory: Memory
    folder: str
    certificate: Certificate | None

    @property
    def good(self) -> bool:
        """Whether no fact was lost, and what was asked for was proved."""
        proved = self.certificate is None or self.certificate.certified
        return proved and not self.memory.construction.lost

    def rows(self) -> list[tuple[str, str]]:
        """What there is to say, as (what, value)."""
        rows = list(self.memory.describe().rows)
        if self.certificate is not None:
            rows.append(("certificate", self.certificate.summary()))
        return rows

    def to_json(self) -> dict[str, Json]:
        """The description as JSON, with the folder and the certificate."""
        record = self.memory.describe().record
        proof = None if self.certificate is None else self.certificate.brief()
        return {**record, "path": self.folder, "certificate": proof}


def store(
    make: Callable[[Report], AnyMemory],
    folder: str | Path,
    *,
    force: bool = False,
    with_facts: bool = True,
    prove: Prove | None = None,
    keep: Iterable[Path] = (),
    progress: Report = quiet,
) -> Stored:
    """Make a memory and write it. `prove`: how to prove it, `proof` usually; a certificate that
    does not hold is told, not written. `keep`: other files that belong into the folder."""
    with new_folder(folder, marker=MEMORY, force=force) as temporary:
        memory = make(progress)
        certificate = None if prove is None else prove(memory, progress)
        progress(f"writing {folder}")
        write_files(memory, temporary, with_facts=with_facts)
        if certificate is not None and certificate.certified:
            certificate.write(temporary)
        for path in keep:
            shutil.copy2(path, temporary / path.name)
    return Stored(memory, str(folder), certificate)


def proof(memory: Memory, progress: Report = quiet) -> Certificate:
    """float64 with an error bound; ball arithmetic where that bound is too coarse and the layer
    small enough for it."""
    certificate = certify(memory, progress=progress)
    if certificate.certified:
        return certificate
    try:
        return certify(memory, arithmetic="ball", progress=progress)
    except ByheartError:  # integers, or too many heads for it: the first verdict stands
        return certificate
