"""One way to a memory on disk, which build, train, edit and import share.

The target folder is checked before any work, the memory is made and verified by its method, proved
if asked, and appears whole or not at all.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from byheart._folders import new_folder
from byheart._progress import Report, quiet
from byheart.certificates import Certificate, certify
from byheart.errors import ByheartError
from byheart.models import Memory
from byheart.models.folder import MEMORY
from byheart.models.memory_files import write_files


def store(
    make: Callable[[Report], Memory],
    folder: str | Path,
    *,
    force: bool = False,
    with_facts: bool = True,
    prove: Callable[[Memory, Report], Certificate | None] | None = None,
    keep: Iterable[Path] = (),
    progress: Report = quiet,
) -> tuple[Memory, Certificate | None]:
    """Make a memory and write it. `prove`: how to prove it, `proof` usually; a certificate that
    does not hold is returned, not written. `keep`: other files that belong into the folder."""
    with new_folder(folder, marker=MEMORY, force=force, progress=progress) as temporary:
        memory = make(progress)
        certificate = None if prove is None else prove(memory, progress)
        progress(f"writing {folder}")
        write_files(memory, temporary, with_facts=with_facts)
        if certificate is not None and certificate.certified:
            certificate.write(temporary)
        for path in keep:
            shutil.copy2(path, temporary / path.name)
    return memory, certificate


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
