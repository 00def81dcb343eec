"""`byheart certify`: re-prove a memory from its files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from byheart.cli import _options as opt
from byheart.cli._distribution import certificate_rows
from byheart.cli._show import emit, guarded, key_text, number, progress, say, table

if TYPE_CHECKING:
    from byheart.certificates import Certificate

LISTED = 20


@guarded
@opt.reading(opt.ANY_TABLE)
def certify(
    reading: opt.Given,
    folder: opt.Folder,
    facts: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Prove these facts instead of the ones in DIR."),
    ] = None,
    interval: Annotated[
        bool,
        typer.Option("--interval", help="Ball arithmetic (Arb): slower, assumes nothing of exp."),
    ] = False,
    plain_float: Annotated[
        bool, typer.Option("--float", help="Plain float64: a check, not a proof.")
    ] = False,
    precision: Annotated[
        int | None,
        typer.Option(min=64, max=65_536, help="Bits, with --interval. Default: 128."),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(help="Vector memories: what an output may differ from its label by."),
    ] = None,
    no_write: Annotated[
        bool, typer.Option("--no-write", help="Leave DIR/certificate.json alone.")
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """Prove, from the files in DIR alone, that the stored weights recall every fact.

    Default: float64 with a proven rounding-error bound. Exit code 1 if any fact is not proved or
    any file differs from its hash; what failed is listed. A proof is written to
    DIR/certificate.json.
    """
    from byheart.certificates import certify_folder
    from byheart.errors import ByheartError, MemoryFileError

    if interval and plain_float:
        raise ByheartError("give --interval or --float, not both.")
    if precision is not None and not interval:
        raise ByheartError("--precision belongs to --interval: give both or neither.")
    if reading and facts is None:
        raise ByheartError(f"{opt.flags(reading)} says how to read a table: give it with --facts.")
    table_ = None if facts is None else opt.read_any(facts, reading)
    arithmetic = "ball" if interval else "float" if plain_float else "rounding"
    try:
        with progress() as tell:
            made = certify_folder(
                folder,
                table_,
                arithmetic,
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
        emit(made.to_json())
    else:
        _report(made, folder)
    if not made.passed:
        raise typer.Exit(1)


def _report(made: Certificate, folder: str) -> None:
    if made.distribution is not None and made.certified:
        verdict = f"CERTIFIED: the stored weights follow {made.facts:,} distributions as claimed."
    elif made.certified:
        verdict = f"CERTIFIED: all {made.facts:,} facts are recalled by the stored weights."
    elif made.passed:
        verdict = f"CHECKED, NOT PROVED: all {made.facts:,} facts are recalled in float64."
    else:
        verdict = f"NOT CERTIFIED: {made.failed:,} of {made.facts:,} facts fail."
    say(verdict)
    for damage in made.damage:
        say(f"  changed: {damage}")
    say()
    rows = [
        ("arithmetic", made.arithmetic),
        *_margin_rows(made),
        ("weights", f"sha256 {made.weights_sha256[:16]}..."),
        ("facts", f"digest {made.facts_digest[:16]}..."),
        ("seconds", f"{made.seconds:.2f}"),
    ]
    table(rows)
    if made.failures:
        say()
        listed = [(str(f.row), key_text(f.key), f.answer, f.reason) for f in made.failures[:LISTED]]
        table(listed, header=("row", "key", "answer", "why"))
        if made.failed > LISTED:
            say(f"... and {made.failed - LISTED:,} more (--json lists up to 1,000)")
        if any((f.margin or 0) > 0 for f in made.failures):
            say("Margins above 0 but below the error bound: --interval has smaller bounds.")
    if made.certified:
        say(f"\nRe-prove it any time: byheart certify {folder}")


def _margin_rows(made: Certificate) -> list[tuple[str, str]]:
    if made.arithmetic.startswith("exact integers"):
        return [("tolerance", "none: outputs are equal or not")]
    if made.distribution is not None:
        return certificate_rows(made)
    labels = [("labels", f"within {number(made.largest_error)}")] if made.largest_error else []
    return [
        ("smallest margin", _number(made.margin, made)),
        ("largest error bound", _number(made.error_bound, made)),
        *labels,
    ]


def _number(value: float | None, made: Certificate) -> str:
    return "not evaluated" if value is None and made.failed else number(value)
