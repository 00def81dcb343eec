"""`byheart edit`: change facts of a sharded memory, one small solve a shard."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from byheart.cli import _options as opt
from byheart.cli._group import option
from byheart.cli._show import emit, guarded, number, progress, say, table
from byheart.errors import ByheartError, MemoryFileError

if TYPE_CHECKING:
    from byheart.construct.sharded.edit import Edited
    from byheart.pipeline import Stored

CELL = re.compile(r'"((?:[^"]|"")*)"|([^",=]*)')


@guarded
@opt.reading()
def edit(
    folder: opt.Folder,
    sets: list[str] | None = option(
        None,
        'A new answer for a stored key: "France,capital=Lyon". Quote tokens that hold '
        "commas or equals signs as in CSV: '\"Bonaire, Saba\",capital=Kralendijk'. Repeatable.",
        "--set",
        metavar="KEY=ANSWER",
    ),
    add: str | None = option(None, "A table of facts to add.", metavar="FILE"),
    delete: list[str] | None = option(
        None, 'Forget a key: "France,capital". Repeatable.', metavar="KEY"
    ),
    certify: bool = option(
        False, "Also prove it. A memory that has a certificate gets a new one anyway.", "--certify"
    ),
    as_json: opt.Json = False,
    *,
    reading: opt.Given,
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
        stored = pipeline.Stored(edited.memory, folder, None)
        if edited.solved:
            before = valid_certificate(folder, memory)
            prove: pipeline.Prove | None = pipeline.proof if certify else None
            if before is not None:
                prove = lambda _, tell: update_certificate(  # noqa: E731
                    before, edited.memory, edited.kept, tell
                )
            stored = pipeline.store(
                lambda _: edited.memory,
                folder,
                force=True,
                prove=prove,
                keep=_other_files(folder),
                progress=tell,
            )
    _report(stored, edited, as_json)
    if stored.certificate is not None and not stored.certificate.certified:
        raise typer.Exit(1)


def _other_files(folder: str) -> list[Path]:
    """Files in the folder that are not byheart's; they come along."""
    from byheart.certificates.statement import FILE
    from byheart.models.folder import FACTS, INDEX, MEMORY, WEIGHTS

    ours = {FACTS, INDEX, MEMORY, WEIGHTS, FILE}
    others = [path for path in Path(folder).iterdir() if path.name not in ours]
    folders = [path.name for path in others if not path.is_file()]
    if folders:
        raise MemoryFileError(
            f"{folder} holds a folder, {folders[0]!r}, which is no part of a memory and would be "
            "lost. Move it elsewhere."
        )
    return others


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
    return ByheartError(
        f"{option}: expected {form}, found {text!r}. Put tokens that hold commas, equals signs or "
        "quotes in double quotes, and double the quotes inside: '\"Bonaire, Saba\",capital=K'."
    )


def _report(stored: Stored, edited: Edited, as_json: bool) -> None:
    counts, made, certificate = edited.counts, stored.memory.construction, stored.certificate
    if as_json:
        emit(
            {
                **counts,
                "facts": made.facts,
                "shards": edited.solved,
                "margin": made.margin,
                "why": list(edited.why),
                "path": stored.folder,
                "certificate": None if certificate is None else certificate.brief(),
            }
        )
        return
    if not edited.solved:
        say(f"Nothing to change: all {counts['unchanged']:,} facts are stored as given.")
        return
    what = [f"{counts[name]:,} {name}" for name in ("set", "added", "deleted") if counts[name]]
    if counts["unchanged"]:
        what.append(f"{counts['unchanged']:,} true already")
    say(f"{', '.join(what)}; {made.facts:,} facts in {stored.folder}\n")
    solved = f"{len(edited.solved):,} of {len(edited.kept):,} shards, the others keep every bit"
    rows = [("solved again", solved), ("smallest margin", number(made.margin))]
    for name in ("new_tokens", "new_answers"):
        if counts[name]:
            rows.append((name.replace("_", " "), f"{counts[name]:,}"))
    if certificate is not None:
        rows.append(("certificate", certificate.summary()))
    table([*rows])
    if edited.why:
        say()
    for reason in edited.why:
        say(f"  - {reason}")
