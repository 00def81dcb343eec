"""`byheart edit`: change facts of a sharded memory, one small solve a shard."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from byheart.cli import _options as opt
from byheart.cli._proof import certificate_json, certificate_line, prove
from byheart.cli._show import emit, guarded, number, progress, say, table

if TYPE_CHECKING:
    from byheart.certificates import Certificate
    from byheart.construct.sharded.edit import Edited

CELL = re.compile(r'"((?:[^"]|"")*)"|([^",=]*)')


@guarded
@opt.reading()
def edit(
    reading: opt.Given,
    folder: opt.Folder,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=ANSWER",
            help='A new answer for a stored key: "France,capital=Lyon". Quote tokens that hold '
            "commas or equals signs as in CSV: '\"Bonaire, Saba\",capital=Kralendijk'. Repeatable.",
        ),
    ] = None,
    add: Annotated[
        str | None, typer.Option("--add", metavar="FILE", help="A table of facts to add.")
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option("--delete", metavar="KEY", help='Forget a key: "France,capital". Repeatable.'),
    ] = None,
    certify: Annotated[
        bool,
        typer.Option(
            "--certify",
            help="Also prove it. A memory that has a certificate gets a new one anyway.",
        ),
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """Set, add and delete facts of the sharded memory in DIR.

    Each touched shard is solved again, everything else keeps every bit. The folder is replaced in
    one step: an edit that fails or is interrupted leaves the old memory.
    """
    from byheart.errors import ByheartError

    if not (sets or add or delete):
        raise ByheartError("nothing to do: give --set KEY=ANSWER, --add FILE or --delete KEY.")
    if add is None and reading:
        raise ByheartError(f"{opt.flags(reading)} read the table of --add: give it too.")
    pairs = [parse_set(text) for text in sets or []]
    gone = [parse_key(text) for text in delete or []]
    facts = None
    if add is not None:
        facts = opt.read(add, reading)
    from byheart.certificates.update import update_certificate, valid_certificate
    from byheart.construct.sharded.edit import edit_shards
    from byheart.models import load

    with progress() as tell:
        memory = load(folder)
        done = edit_shards(memory, set=pairs, add=facts, delete=gone, progress=tell)
        certificate = None
        if done.solved:
            before = valid_certificate(folder, memory)
            if before is not None:
                tell("proving what changed")
                certificate = update_certificate(before, done.memory, done.kept, tell)
            elif certify:
                certificate = prove(done.memory, tell)
            tell(f"writing {folder}")
            _replace(folder, done, certificate)
    _report(folder, done, certificate, as_json)
    if certificate is not None and not certificate.certified:
        raise typer.Exit(1)


def _replace(folder: str, done: Edited, certificate: Certificate | None) -> None:
    """Swap the folder for the edited memory; files that are not byheart's come along."""
    from byheart._folders import new_folder
    from byheart.certificates.statement import FILE
    from byheart.errors import MemoryFileError
    from byheart.models.memory_files import FACTS, INDEX, MEMORY, WEIGHTS, write_files

    ours = {FACTS, INDEX, MEMORY, WEIGHTS, FILE}
    others = [path for path in Path(folder).iterdir() if path.name not in ours]
    if any(not path.is_file() for path in others):
        raise MemoryFileError(
            f"{folder} holds a folder, {next(p.name for p in others if not p.is_file())!r}, which "
            "is no part of a memory and would be lost. Move it elsewhere."
        )
    with new_folder(folder, marker=MEMORY, force=True) as temporary:
        write_files(done.memory, temporary)
        if certificate is not None and certificate.certified:
            certificate.write(temporary)
        for path in others:
            shutil.copy2(path, temporary / path.name)


def parse_set(text: str) -> tuple[tuple[str, ...], str]:
    """KEY=ANSWER: cells as in CSV, the last one after an equals sign.

    >>> parse_set('"Bonaire, Saba",capital=Kralendijk')
    (('Bonaire, Saba', 'capital'), 'Kralendijk')
    """
    cells, separators = _cells(text)
    if separators != "," * (len(cells) - 2) + "=":
        raise _unclear("--set", text, 'KEY=ANSWER, such as "France,capital=Lyon"')
    return tuple(cells[:-1]), cells[-1]


def parse_key(text: str) -> tuple[str, ...]:
    """KEY: cells as in CSV.

    >>> parse_key('France,"a=b"')
    ('France', 'a=b')
    """
    cells, separators = _cells(text)
    if separators.strip(","):
        raise _unclear("--delete", text, 'KEY, such as "France,capital"')
    return tuple(cells)


def _cells(text: str) -> tuple[list[str], str]:
    """The cells of `text` and the commas and equals signs between them."""
    cells, separators, at = [], "", 0
    while True:
        found = CELL.match(text, at)
        assert found is not None  # the second alternative matches nothing, too
        quoted, plain = found.groups()
        cells.append(plain if quoted is None else quoted.replace('""', '"'))
        at = found.end()
        if at == len(text):
            return cells, separators
        if text[at] not in ",=":
            return cells, "?"
        separators += text[at]
        at += 1


def _unclear(option: str, text: str, form: str) -> Exception:
    from byheart.errors import ByheartError

    return ByheartError(
        f"{option}: expected {form}, found {text!r}. Put tokens that hold commas, equals signs or "
        "quotes in double quotes, and double the quotes inside: '\"Bonaire, Saba\",capital=K'."
    )


def _report(folder: str, done: Edited, certificate: Certificate | None, as_json: bool) -> None:
    counts: dict[str, Any] = done.counts
    facts = done.memory.construction["facts"]
    if as_json:
        emit(
            {
                **counts,
                "facts": facts,
                "shards": done.solved,
                "margin": done.memory.construction["margin"],
                "why": list(done.why),
                "path": folder,
                "certificate": certificate_json(certificate),
            }
        )
        return
    if not done.solved:
        say(f"Nothing to change: all {counts['unchanged']:,} facts are stored as given.")
        return
    what = [f"{counts[name]:,} {name}" for name in ("set", "added", "deleted") if counts[name]]
    if counts["unchanged"]:
        what.append(f"{counts['unchanged']:,} true already")
    say(f"{', '.join(what)}; {facts:,} facts in {folder}\n")
    rows = [
        (
            "solved again",
            f"{len(done.solved):,} of {len(done.kept):,} shards, the others keep every bit",
        ),
        ("smallest margin", number(done.memory.construction["margin"])),
    ]
    if counts["new_tokens"]:
        rows.append(("new tokens", f"{counts['new_tokens']:,}"))
    if counts["new_answers"]:
        rows.append(("new answers", f"{counts['new_answers']:,}"))
    if certificate is not None:
        rows.append(("certificate", certificate_line(certificate)))
    table(rows)
    if done.why:
        say()
    for reason in done.why:
        say(f"  - {reason}")
