"""Shell completion: what a shell offers for the value of an option or an argument. How help calls
the value decides it (`FACTS`, `DIR`, `quick|paper`). Nothing found: the shell offers its files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

Offers = list[tuple[str, str]]
"""Words, each with what a shell may show beside it."""
TABLE_FILES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".npz", ".safetensors")
MOST = 1000  # entries of a folder that are looked at


def completer(metavar: str | None) -> Callable[[str], Offers] | None:
    """What completes a value that help calls `metavar`, if anything does: `FACTS`, `DIR`, `STUDY`
    by what there is, words in small letters by themselves.

    >>> offers = completer("quick|part|paper")
    >>> offers and offers("pa")
    [('part', ''), ('paper', '')]
    """
    words = (metavar or "").split("|")
    sources = [KINDS[word] for word in words if word in KINDS]
    choices = [word for word in words if len(words) > 1 and word and word == word.lower()]
    if not sources and not choices:
        return None

    def offers(incomplete: str) -> Offers:
        found = [(word, "") for word in choices if word.startswith(incomplete)]
        return found + [offer for source in sources for offer in source(incomplete)]

    return offers


def tables(incomplete: str) -> Offers:
    """Built-in tables; beside them the files that may be tables, which they would hide."""
    from byheart.facts import builtin_tables

    found = _starting(builtin_tables().items(), incomplete)
    files = [p for p in _entries(incomplete) if p.name.endswith(TABLE_FILES)] if found else []
    return found + [(_typed(path, incomplete), "a file") for path in files]


def memories(incomplete: str) -> Offers:
    """Memory folders beside what is typed."""
    from byheart.models.folder import MEMORY

    found = [path for path in _entries(incomplete) if (path / MEMORY).is_file()]
    return [(_typed(path, incomplete), "a memory") for path in found]


def studies(incomplete: str) -> Offers:
    """Papers and studies, those of other packages too."""
    from byheart.papers import all_studies

    known = {"all": "every study"}
    for study in all_studies():
        known.setdefault(study.paper, "all studies of this paper")
        known[study.name] = study.title
    return _starting(known.items(), incomplete)


def _starting(words: Iterable[tuple[str, str]], incomplete: str) -> Offers:
    return [(word, help) for word, help in words if word.startswith(incomplete)]


def _entries(incomplete: str) -> list[Path]:
    """What the folder that is being typed holds: hidden things only where a dot is typed, names
    that a terminal would not show as they are not at all."""
    folder, start = os.path.split(incomplete)
    try:
        with os.scandir(os.path.expanduser(folder) or ".") as entries:
            names = [entry.name for entry, _ in zip(entries, range(MOST), strict=False)]
    except OSError:
        return []
    fitting = [name for name in names if name.startswith(start) and name.isprintable()]
    shown = sorted(name for name in fitting if start or name[0] != ".")
    return [Path(os.path.expanduser(folder), name) for name in shown]


def _typed(path: Path, incomplete: str) -> str:
    """The path as it was begun: `./x` stays `./x`."""
    return os.path.join(os.path.split(incomplete)[0], path.name)


KINDS = {"FACTS": tables, "DIR": memories, "STUDY": studies}
