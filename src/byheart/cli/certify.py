"""`byheart certify`: re-prove a memory from its files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from byheart.cli import _options as opt
from byheart.cli._group import option
from byheart.cli._show import emit, guarded, key_text, progress, say, table
from byheart.errors import ByheartError, MemoryFileError

if TYPE_CHECKING:
    from byheart.certificates import Certificate

LISTED = 20


@guarded
@opt.reading(opt.ANY_TABLE)
def certify(
    folder: opt.Folder,
    facts: str | None = option(
        None, "Prove these facts instead of the ones in DIR.", metavar="FILE"
    ),
    interval: bool = option(
        False, "Ball arithmetic (Arb): slower, assumes nothing of exp.", "--interval"
    ),
    plain_float: bool = option(False, "Plain float64: a check, not a proof.", "--float"),
    precision: int | None = option(
        None, "Bits, with --interval. Default: 128.", min=64, max=65_536
    ),
    tolerance: float | None = option(
        None, "Vector memories: what an output may differ from its label by."
    ),
    no_write: bool = option(False, "Leave DIR/certificate.json alone.", "--no-write"),
    as_json: opt.Json = False,
    *,
    reading: opt.Given,
) -> None:
    """Prove, from the files in DIR alone, that the stored weights recall every fact.

    Default: float64 with a proven rounding-error bound. Exit code 1 if any fact is not proved or
    any file differs from its hash; what failed is listed. A proof is written to
    DIR/certificate.json.
    """
    if interval and plain_float:
        raise ByheartError("give --interval or --float, not both.")
    if precision is not None and not interval:
        raise ByheartError("--precision belongs to --interval: give both or neither.")
    if reading and facts is None:
        raise ByheartError(f"{opt.flags(reading)} says how to read a table: give it with --facts.")
    try:
        opt.check_memory_folder(folder)
        examples = None if facts is None else opt.read_any(facts, reading)

        from byheart.certificates import certify_folder

        with progress() as tell:
            certificate = certify_folder(
                folder,
                examples,
                "ball" if interval else "float" if plain_float else "rounding",
                precision=precision or 128,
                tolerance=tolerance,
                write=not no_write,
                progress=tell,
            )
    except MemoryFileError as error:
        # A folder that is there but cannot be read is a check that failed, not wrong use.
        error.exit_code = 1 if Path(folder).is_dir() else 2
        raise
    if as_json:
        emit(certificate.to_json())
    else:
        _report(certificate, folder)
    if not certificate.passed:
        raise typer.Exit(1)


def _report(certificate: Certificate, folder: str) -> None:
    say(certificate.verdict())
    for damage in certificate.damage:
        say(f"  changed: {damage}")
    say()
    table([*certificate.rows()])
    failures = certificate.failures
    if failures:
        say()
        listed = [(str(f.row), key_text(f.key), f.answer, f.reason) for f in failures[:LISTED]]
        table([*listed], header=("row", "key", "answer", "why"))
        if certificate.failed > LISTED:
            say(f"... and {certificate.failed - LISTED:,} more (--json lists up to 1,000)")
        if any((f.margin or 0) > 0 for f in failures):
            say("Margins above 0 but below the error bound: --interval has smaller bounds.")
    if certificate.certified:
        say(f"\nRe-prove it any time: byheart certify {folder}")
