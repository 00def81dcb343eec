"""`byheart certify` and `byheart edit`: re-prove a memory from its files; change facts of a sharded
memory, one small solve a shard."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from byheart.cli import _options as opt
from byheart.cli._options import grouped, guarded, option, switch
from byheart.cli._show import emit, key_text, number, progress, reasons, say, table
from byheart.errors import ByheartError, MemoryFileError

if TYPE_CHECKING:
    from byheart._progress import Report
    from byheart.certificates import Certificate
    from byheart.construct.sharded.edit import Edited
    from byheart.models import Memory

LISTED = 20
CELL = re.compile(r'("(?:[^"]|"")*"|[^",=]*)([,=]|\Z)')
QUOTING = (
    "Put tokens that hold commas, equals signs or quotes in double quotes, and double the quotes "
    "inside: '\"Bonaire, Saba\",capital=K'."
)


@guarded
@grouped("reading", opt.ANY_TABLE)
def certify(
    reading: opt.Given,
    folder: opt.Folder,
    facts: str | None = option(None, "Prove these facts instead of the ones in DIR.", "FILE"),
    interval: bool = switch("Ball arithmetic (Arb): slower, assumes nothing of exp.", "--interval"),
    plain_float: bool = switch("Plain float64: a check, not a proof.", "--float"),
    precision: int | None = option(None, "Bits, with --interval. Default: 128.", min=64, max=2**16),
    tolerance: float | None = option(
        None, "Vector memories: how far an output may be from its label."
    ),
    no_write: bool = switch("Leave DIR/certificate.json alone.", "--no-write"),
    independent: bool = switch(
        "By a second program of one file, which shares no code with byheart; writes nothing.",
        "--independent",
    ),
) -> None:
    """Prove, from the files in DIR alone, that the stored weights recall every fact.

    Default: float64 with a proven rounding-error bound. Exit code 1 if any fact is not proved or
    any file differs from its hash; what failed is listed. A proof is written to
    DIR/certificate.json.
    """
    if independent:
        if facts or interval or plain_float or precision or tolerance or reading:
            raise ByheartError("--independent takes DIR and --json only.")
        _second_opinion(folder)
        return
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

        arithmetic = "ball" if interval else "float" if plain_float else "rounding"
        chosen = {"precision": precision or 128, "tolerance": tolerance, "write": not no_write}
        with progress() as tell:
            certificate = certify_folder(folder, examples, arithmetic, progress=tell, **chosen)
    except MemoryFileError as error:
        # A folder that is there but cannot be read is a check that failed, not wrong use.
        error.exit_code = 1 if Path(folder).is_dir() else 2
        raise
    emit(certificate.to_json())
    _print(certificate, folder)
    if not certificate.passed:
        raise typer.Exit(1)


def _second_opinion(folder: str) -> None:
    """Run `byheart/certificates/independent.py` in a process of its own, which imports no byheart;
    its exit code is this one's."""
    script = Path(__file__).parents[1] / "certificates" / "independent.py"
    command = [sys.executable, "-I", str(script), str(Path(folder).absolute()), "--json"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        why = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        raise ByheartError(f"the independent checker did not run: {why}") from None
    emit(found)
    if done.returncode == 2:
        say(f"{folder}: {found['problem']}")
    elif "problem" in found:
        say(f"NOT proved: {found['problem']}")
    else:
        verb = "Proved" if found["certified"] else "NOT proved"
        say(f"{verb} by the independent checker: {found['proved']:,} of {found['facts']:,} facts\n")
        shown = ("family", "lost", "undecided", "margin", "seconds")
        rows = ((name, found[name]) for name in shown)
        table(*((name, f"{v:.4g}" if isinstance(v, float) else str(v)) for name, v in rows))
    if done.returncode:
        raise typer.Exit(done.returncode)


def _print(certificate: Certificate, folder: str) -> None:
    say(certificate.verdict())
    for damage in certificate.damage:
        say(f"  changed: {damage}")
    say()
    table(*certificate.rows())
    failures = certificate.failures
    if failures:
        say()
        listed = [(str(f.row), key_text(f.key), f.answer, f.reason) for f in failures[:LISTED]]
        table(*listed, header=("row", "key", "answer", "why"))
        if certificate.failed > LISTED:
            say(f"... and {certificate.failed - LISTED:,} more (--json lists up to 1,000)")
        if any((f.margin or 0) > 0 for f in failures):
            say("Margins above 0 but below the error bound: --interval has smaller bounds.")
    if certificate.certified:
        say(f"\nRe-prove it any time: byheart certify {folder}")


@guarded
@grouped("reading", opt.TABLE)
def edit(
    reading: opt.Given,
    folder: opt.Folder,
    sets: list[str] | None = option(
        None,
        'A new answer for a stored key: "France,capital=Lyon". Quote tokens that hold '
        "commas or equals signs as in CSV: '\"Bonaire, Saba\",capital=Kralendijk'. Repeatable.",
        "--set",
        "KEY=ANSWER",
    ),
    add: str | None = option(None, "A table of facts to add.", "FILE"),
    delete: list[str] | None = option(None, 'Forget a key: "France,capital". Repeatable.', "KEY"),
    certify: bool = switch(
        "Also prove it. A memory that has a certificate gets a new one anyway.", "--certify"
    ),
) -> None:
    """Set, add and delete facts of the sharded memory in DIR.

    Each touched shard is solved again, everything else keeps every bit. The folder is replaced in
    one step: an edit that fails or is interrupted leaves the old memory.
    """
    if not (sets or add or delete):
        raise ByheartError("nothing to do: give --set KEY=ANSWER, --add FILE or --delete KEY.")
    if add is None and reading:
        raise ByheartError(f"{opt.flags(reading)} read the table of --add: give it too.")
    pairs = [parse_set(text) for text in sets or []]
    gone = [parse_key(text) for text in delete or []]
    opt.check_memory_folder(folder)
    facts = None if add is None else opt.read(add, reading)

    from byheart import pipeline
    from byheart.certificates.update import update_certificate, valid_certificate
    from byheart.construct.sharded.edit import edit_shards
    from byheart.models import load

    with progress() as tell:
        memory = load(folder)
        edited = edit_shards(memory, set=pairs, add=facts, delete=gone, progress=tell)
        certificate = None
        if edited.solved:
            before, keep = valid_certificate(folder, memory), _other_files(folder)

            def prove(new: Memory, tell: Report) -> Certificate | None:
                if before is not None:
                    return update_certificate(before, edited.memory, edited.kept, tell)
                return pipeline.proof(new, tell) if certify else None

            make = lambda _: edited.memory  # noqa: E731
            _, certificate = pipeline.store(
                make, folder, force=True, prove=prove, keep=keep, progress=tell
            )
    _report(edited, certificate, folder)
    if certificate is not None and not certificate.certified:
        raise typer.Exit(1)


def _other_files(folder: str) -> list[Path]:
    """Files in the folder that are not byheart's; they come along."""
    from byheart.certificates.statement import FILE
    from byheart.models.folder import FACTS, INDEX, MEMORY, WEIGHTS

    ours = {FACTS, INDEX, MEMORY, WEIGHTS, FILE}
    others = [path for path in Path(folder).iterdir() if path.name not in ours]
    folders = [path.name for path in others if not path.is_file()]
    if folders:
        lost = f"{folders[0]!r}, which is no part of a memory and would be lost"
        raise MemoryFileError(f"{folder} holds a folder, {lost}. Move it elsewhere.")
    return others


def parse_set(text: str) -> tuple[tuple[str, ...], str]:
    """KEY=ANSWER: cells as in CSV, the last one after an equals sign.

    >>> parse_set('"Bonaire, Saba",capital=Kralendijk')
    (('Bonaire, Saba', 'capital'), 'Kralendijk')
    """
    cells, separators = _cells(text)
    if separators != "," * (len(cells) - 2) + "=":
        form = 'KEY=ANSWER, such as "France,capital=Lyon"'
        raise ByheartError(f"--set: expected {form}, found {text!r}. {QUOTING}")
    return tuple(cells[:-1]), cells[-1]


def parse_key(text: str) -> tuple[str, ...]:
    """KEY: cells as in CSV.

    >>> parse_key('France,"a=b"')
    ('France', 'a=b')
    """
    cells, separators = _cells(text)
    if separators.strip(","):
        form = 'KEY, such as "France,capital"'
        raise ByheartError(f"--delete: expected {form}, found {text!r}. {QUOTING}")
    return tuple(cells)


def _cells(text: str) -> tuple[list[str], str]:
    """The cells of `text` and the commas and equals signs between them; "?" for anything else."""
    cells, separators, at = [], "", 0
    while found := CELL.match(text, at):
        cell, separator = found.groups()
        cells.append(cell[1:-1].replace('""', '"') if cell.startswith('"') else cell)
        separators, at = separators + separator, found.end()
        if not separator:
            return cells, separators
    return cells, "?"


def _report(edited: Edited, certificate: Certificate | None, folder: str) -> None:
    counts, made = edited.counts, edited.memory.construction
    record = {**counts, "facts": made.facts, "shards": edited.solved, "margin": made.margin}
    proof = None if certificate is None else certificate.brief()
    emit(record | {"why": list(edited.why), "path": folder, "certificate": proof})
    if not edited.solved:
        say(f"Nothing to change: all {counts['unchanged']:,} facts are stored as given.")
        return
    what = [f"{counts[name]:,} {name}" for name in ("set", "added", "deleted") if counts[name]]
    if counts["unchanged"]:
        what.append(f"{counts['unchanged']:,} true already")
    say(f"{', '.join(what)}; {made.facts:,} facts in {folder}\n")
    solved = f"{len(edited.solved):,} of {len(edited.kept):,} shards, the others keep every bit"
    new = [n for n in ("new_tokens", "new_answers") if counts[n]]
    table(
        ("solved again", solved),
        ("smallest margin", number(made.margin)),
        *((name.replace("_", " "), f"{counts[name]:,}") for name in new),
        *([] if certificate is None else [("certificate", certificate.summary())]),
    )
    reasons(edited.why)
