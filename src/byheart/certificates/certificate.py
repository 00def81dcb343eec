"""`certify`: the entry to all proofs, of a memory in hand or of one on disk."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from byheart._folders import locked
from byheart._progress import Report, quiet

# The modules that prove the families: each registers with `prove` and `bounded_logits`.
from byheart.certificates import exact, sharded, tokens, vectors  # noqa: F401
from byheart.certificates.proving import Asked, prove
from byheart.certificates.statement import ARITHMETICS, Certificate
from byheart.errors import MemoryFileError, OptionError, check_choice
from byheart.facts import as_facts
from byheart.models.devices import on_cpu
from byheart.models.folder import read_record
from byheart.models.memory import Memory
from byheart.models.memory_files import inspect


@on_cpu
def certify(
    memory: Memory | str | Path,
    facts: object = None,
    arithmetic: str = "rounding",
    *,
    precision: int = 128,
    tolerance: float | None = None,
    progress: Report = quiet,
) -> Certificate:
    """Prove that `memory`, as stored, recalls `facts` (its own by default; anything that `as_facts`
    reads). `memory` may be the path of a memory folder (`certify_folder`, which writes the
    certificate there). `tolerance` (vector memories with numbers as labels): how far an output may
    be off; the memory's own by default.

    `arithmetic`: "rounding" (float64 with a proven error bound, vectorised), "ball" (Arb at
    `precision` bits) or "float" (a check, not a proof).

    >>> import byheart as bh
    >>> certificate = bh.certify(bh.build("elements"))
    >>> certificate.certified, certificate.facts, certificate.failed
    (True, 236, 0)
    """
    if isinstance(memory, (str, Path)):
        return certify_folder(
            memory, facts, arithmetic,
            precision=precision, tolerance=tolerance, progress=progress,
        )  # fmt: skip
    if not isinstance(memory, Memory):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError("memory", "a Memory or the path of a memory folder", memory)
    started = time.perf_counter()
    check_choice("arithmetic", arithmetic, ARITHMETICS)
    table = memory.own(None if facts is None else as_facts(facts))
    made = prove(memory, table, Asked(arithmetic, precision, tolerance, progress))
    return replace(made, seconds=time.perf_counter() - started)


def certify_folder(
    folder: str | Path,
    facts: object = None,
    arithmetic: str = "rounding",
    *,
    precision: int = 128,
    tolerance: float | None = None,
    write: bool = True,
    progress: Report = quiet,
) -> Certificate:
    """Re-prove a memory from its files alone, and write `certificate.json` if that succeeds.

    Files that differ from their hashes make `certified` false, whatever the evaluation says; it
    still runs, to say which facts are lost.
    """
    loaded = inspect(folder)
    try:
        made = certify(
            loaded.memory,
            facts,
            arithmetic,
            precision=precision,
            tolerance=tolerance,
            progress=progress,
        )
    except Exception as error:
        if not loaded.damage:
            raise
        raise MemoryFileError(
            f"{folder}: {'; '.join(loaded.damage)}, and cannot be evaluated any more ({error}). "
            "Restore it from a copy or build it again."
        ) from error
    if loaded.damage:
        made = replace(made, certified=False, passed=False, damage=loaded.damage)
    if write and made.certified:
        with locked(folder, progress=progress):
            if read_record(folder) != loaded.record:
                raise MemoryFileError(
                    f"{folder} was replaced while it was proved: the certificate of the former "
                    "memory is not written. Certify it again."
                )
            made.write(folder)
    return made
