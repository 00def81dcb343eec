"""Real sentences from the machine: licence texts, Python documentation; or any local path.

The paper takes MultiNLI and IMDb. Whoever has them sets BYHEART_MULTINLI or BYHEART_IMDB to a file
or folder; nothing is downloaded. Sentences are cut to their first n words, and those that a model
without positions cannot tell apart (same words, same first word) are kept once.
"""

from __future__ import annotations

import ast
import csv
import hashlib
import json
import os
import re
import sysconfig
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from byheart.errors import ByheartError, FactsError
from byheart.facts.vectors import read_arrays

SYSTEM = "system"
# The same texts with labels that nobody drew: where a sentence stands. As many of each are taken.
BY_SOURCE = {
    "system, by three sources": {"licence": "licence", "overview": "overview", "call": "call"},
    "system, by two sources": {"licence": "other", "overview": "other", "call": "call"},
}
LICENCES = Path("/usr/share/common-licenses")
# Modules of the standard library with long documentation strings.
MODULES = (
    "argparse", "bdb", "calendar", "cmd", "codecs", "collections/__init__", "configparser",
    "contextlib", "csv", "dataclasses", "difflib", "doctest", "email/message", "enum", "functools",
    "fractions", "ftplib", "getopt", "heapq", "http/client", "imaplib", "inspect", "ipaddress",
    "locale", "logging/__init__", "logging/handlers", "mailbox", "mimetypes", "optparse", "os",
    "pathlib", "pdb", "pickle", "pickletools", "platform", "poplib", "pprint", "queue", "random",
    "sched", "selectors", "shelve", "shlex", "shutil", "smtplib", "socket", "socketserver", "ssl",
    "statistics", "string", "subprocess", "symtable", "tarfile", "tempfile", "textwrap",
    "threading", "timeit", "tokenize", "trace", "turtle", "types", "typing", "unittest/case",
    "unittest/mock", "urllib/parse", "urllib/request", "uuid", "warnings", "weakref", "zipfile",
    "tkinter/__init__", "xml/dom/minidom", "wsgiref/handlers", "_pydecimal", "_pydatetime", "_pyio",
)  # fmt: skip
SENTENCE = re.compile(r"(?<=[.!?;:])\s+|\n\s*\n")
WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*|[0-9]+|[^\sA-Za-z0-9]")
Sentence = tuple[tuple[str, ...], str | None]
"""Words, and the label where the source has one."""


def words(text: str) -> tuple[str, ...]:
    """Lower-case words, numbers and signs.

    >>> words("Don't panic: 42!")
    ("don't", 'panic', ':', '42', '!')
    """
    return tuple(WORD.findall(text.lower()))


def sentences_of(text: str) -> Iterator[Sentence]:
    """Sentences of plain text, without labels."""
    return ((found, None) for part in SENTENCE.split(text) if (found := words(part)))


def read_path(path: str | os.PathLike[str]) -> Iterator[Sentence]:
    """Sentences of a file or a folder.

    Tables (.csv, .tsv, .jsonl) give one sentence a row, from `sentence1` and `sentence2`, or
    `text`, or `sentence`, with `gold_label` or `label`; .py files their documentation strings;
    files in folders named `pos` and `neg` are one sentence each, labelled so; other text is split.
    """
    place = Path(path)
    if place.is_dir():
        for file in files_in(place):
            if file.parent.name in ("pos", "neg"):
                yield words(_text(file)), file.parent.name
            else:
                yield from read_path(file)
    elif not place.is_file():
        raise FactsError(f"there is no file or folder {place}.")
    elif place.suffix in (".csv", ".tsv", ".jsonl"):
        yield from _table(place)
    elif place.suffix == ".py":
        yield from _documentation(place)
    else:
        yield from sentences_of(_text(place))


def files_in(place: Path) -> list[Path]:
    """A file, or all of a folder, without links."""
    files = sorted(place.rglob("*")) if place.is_dir() else [place]
    return [file for file in files if file.is_file() and not file.is_symlink()]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise FactsError(f"{path} cannot be read: {error.strerror}.") from None


def _documentation(path: Path) -> Iterator[Sentence]:
    return ((sentence, None) for sentence, _ in _documentation_by_kind(path))


def _documentation_by_kind(path: Path) -> Iterator[tuple[tuple[str, ...], str]]:
    """Sentences of documentation strings: an "overview" of a module or class, or a "call"."""
    try:
        tree = ast.parse(_text(path))
    except (SyntaxError, ValueError) as error:
        raise FactsError(f"{path} is no Python source: {error}.") from None
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            kind = "overview" if isinstance(node, (ast.Module, ast.ClassDef)) else "call"
            for sentence, _ in sentences_of(ast.get_docstring(node) or ""):
                yield sentence, kind


def _table(path: Path) -> Iterator[Sentence]:
    lines = _text(path).splitlines()
    if path.suffix == ".jsonl":
        records = [json.loads(line) for line in lines if line.strip()]
    else:
        # MultiNLI's tab-separated files have quotes inside that mean nothing.
        tabs = {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
        records = list(csv.DictReader(lines, **(tabs if path.suffix == ".tsv" else {})))
    for i, record in enumerate(records):
        parts = [record[k] for k in ("sentence1", "sentence2") if record.get(k)]
        text = " ".join(parts) or record.get("text") or record.get("sentence")
        if not text:
            raise FactsError(
                f"{path}, record {i + 1}: expected sentence1 and sentence2, text, or sentence; "
                f"found {', '.join(map(str, record))}."
            )
        label = record.get("gold_label", record.get("label"))
        yield words(str(text)), None if label in (None, "", "-") else str(label)


def places(name: str) -> list[Path]:
    """The files and folders of a corpus: a local path, or "system" (or a name of `BY_SOURCE`), the
    licence texts (where there are any) and the documentation of the standard library."""
    if name != SYSTEM and name not in BY_SOURCE:
        return [Path(name)]
    library = Path(sysconfig.get_paths()["stdlib"])
    modules = [library / f"{module}.py" for module in MODULES]
    return [place for place in (LICENCES, *modules) if place.exists()]


@lru_cache(maxsize=4)
def digest(name: str) -> str:
    """sha256 of the corpus's files, 16 digits: other machines may have other texts."""
    made = hashlib.sha256()
    for place in places(name):
        for file in files_in(place):
            made.update(file.name.encode() + b"\n" + file.read_bytes())
    return made.hexdigest()[:16]


@lru_cache(maxsize=4)
def corpus(name: str) -> tuple[Sentence, ...]:
    """All sentences of a corpus."""
    if name not in BY_SOURCE:
        return tuple(sentence for place in places(name) for sentence in read_path(place))
    labels = BY_SOURCE[name]
    return tuple(
        (sentence, labels[kind]) for place in places(name) for sentence, kind in _by_source(place)
    )


def _by_source(place: Path) -> Iterator[tuple[tuple[str, ...], str]]:
    if place != LICENCES:
        return _documentation_by_kind(place)
    return ((sentence, "licence") for sentence, _ in read_path(place))


def local(name: str) -> str | None:
    """The path that the user gave for "multinli" or "imdb"; None if there is none."""
    return os.environ.get(f"BYHEART_{name.upper()}") or None


def examples(
    name: str, N: int, n: int, classes: int, seed: int, known: Collection[str] | None = None
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """N sentences of n word numbers, (N, n), labels (N,): the source's, or else random; the words.

    Sentences with the same words (in any order) and the same first word are taken once: no model
    without positions, read at its first token, can give them different labels. Those with a word
    that is not `known` are left out.
    """
    rng = np.random.default_rng(seed)
    kept: dict[tuple[str, tuple[str, ...]], Sentence] = {}
    for sentence, label in corpus(name):
        cut = sentence[:n]
        if len(sentence) >= n and (known is None or all(word in known for word in cut)):
            kept.setdefault((cut[0], tuple(sorted(cut))), (cut, label))
    if len(kept) < N:
        raise FactsError(
            f"{name}: {len(kept):,} different sentences of {n} words"
            f"{'' if known is None else ' that have vectors'}, {N:,} are asked for. Give a "
            "longer text, or ask for fewer."
        )
    every = list(kept.values())
    drawn = [every[i] for i in rng.permutation(len(kept))]
    rows = balanced(drawn, N, name) if name in BY_SOURCE else drawn[:N]
    vocabulary: dict[str, int] = {}
    number = lambda word: vocabulary.setdefault(word, len(vocabulary))  # noqa: E731
    tokens = np.array([[number(word) for word in sentence] for sentence, _ in rows])
    given = [label for _, label in rows]
    names = sorted({label for label in given if label is not None})
    if names and None not in given:
        if len(names) > classes:
            raise FactsError(f"{name}: {len(names)} labels ({', '.join(names)}), not {classes}.")
        labels = np.array([names.index(str(label)) for label in given])
        return tokens, labels, list(vocabulary)
    return tokens, rng.integers(classes, size=N), list(vocabulary)


def balanced(sentences: Sequence[Sentence], N: int, name: str) -> list[Sentence]:
    """The first N sentences in which every label is as frequent, but for one that does not divide.

    >>> [label for _, label in balanced([((), "a"), ((), "a"), ((), "b"), ((), "b")], 3, "text")]
    ['a', 'a', 'b']
    """
    by_label: dict[str | None, list[int]] = {}
    for i, (_, label) in enumerate(sentences):
        by_label.setdefault(label, []).append(i)
    shares = [N // len(by_label) + (k < N % len(by_label)) for k in range(len(by_label))]
    groups = [by_label[label] for label in sorted(by_label, key=str)]
    for group, share in zip(groups, shares, strict=True):
        if len(group) < share:
            raise FactsError(
                f"{name}: {len(group):,} different sentences of one label, {share:,} are asked "
                "for. Ask for fewer."
            )
    kept = sorted(i for group, share in zip(groups, shares, strict=True) for i in group[:share])
    return [sentences[i] for i in kept]


def vectors_digest(name: str | None) -> str:
    """sha256 of a file of vectors and of its words, 32 digits."""
    if name is None:
        raise ByheartError("`embedding=given` takes a file of `vectors`, found none.")
    return digest(name) + digest(str(Path(name).with_suffix(".txt")))


@lru_cache(maxsize=2)
def vectors(name: str) -> dict[str, np.ndarray]:
    """The vector of every word: rows of the one array of a .npy, .npz or .safetensors file, whose
    words are the lines of the file of the same name that ends in .txt."""
    arrays = read_arrays(name)
    if len(arrays) != 1:
        raise FactsError(f"{name}: expected one array of vectors, found {', '.join(arrays) or 0}.")
    [table] = arrays.values()
    names = Path(name).with_suffix(".txt")
    lines = _text(names).split("\n")
    lines = lines[:-1] if lines[-1] == "" else lines
    if table.ndim != 2 or table.dtype.kind != "f" or len(table) != len(lines):
        raise FactsError(
            f"{name}: expected a vector for each of the {len(lines):,} words of {names}, found "
            f"{table.dtype} of shape {table.shape}."
        )
    if not np.isfinite(table).all():
        row = int(np.isfinite(table).all(1).argmin())
        raise FactsError(f"{name}: the vector of {lines[row]!r} (row {row + 1}) is not finite.")
    if len(set(lines)) < len(lines):
        raise FactsError(f"{names}: a word occurs twice; give every word one line.")
    return dict(zip(lines, table, strict=True))
