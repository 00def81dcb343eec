"""Rounds of edits, builds, certificates and reads of one memory, all at once.

Each replacement of the memory is noted while its lock is held; what the notes say, one after the
other, must be what the memory holds in the end.
"""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import time
from pathlib import Path

from forks import RELATIONS, TABLE, command, ended, fresh, in_a_fork, unexpected, warm, whole

from byheart import _folders
from byheart.models.memory_files import inspect

Facts = dict[tuple[str, ...], str]
BUILD = ["build", "t.csv", "-o", "m.memory", "--method", "sharded", "--certify", "--force"]
CERTIFY = ["certify", "m.memory"]
STALE = "was replaced while it was proved"


def changes(number: int) -> tuple[list[str], Facts]:
    """An edit of two keys that no other edit of the round touches, and what it makes true."""
    made = {(f"c{number}", relation): f"new{number}" for relation in RELATIONS[:2]}
    sets = [f"{','.join(key)}={answer}" for key, answer in made.items()]
    return ["edit", "m.memory", "--set", sets[0], "--set", sets[1]], made


def writer(args: list[str], place: Path, note: str) -> int:
    """A process that runs a command and notes when it replaces the memory."""

    def work() -> None:
        os.chdir(place)
        put_in_place = _folders._put_in_place

        def noted(*args: object) -> None:
            put_in_place(*args)  # type: ignore[arg-type]
            with open(place.with_name("notes"), "a") as notes:
                notes.write(f"{note}\n")

        _folders._put_in_place = noted
        command(args)

    return in_a_fork(work, place.with_name(f"said-{note}"))


def reader(place: Path) -> int:
    """A process that reads until it is told to stop; every memory must be whole, and a certificate
    beside it its own."""

    def work() -> None:
        reads = 0
        while not place.with_name("stop").exists() or not reads:
            found, proof = whole(place / "m.memory")
            assert found.damage == (), found.damage
            assert proof is None or proof.about(found.memory), "a certificate of another memory"
            reads += 1
            time.sleep(0.01)
        place.with_name("reads").open("a").write("." * reads)

    return in_a_fork(work, place.with_name("said-read"))


def held(folder: Path) -> Facts:
    facts = inspect(folder).memory.facts
    return {facts.key(i): facts.answer(i) for i in range(facts.T)}  # type: ignore[union-attr]


def together(place: Path, template: Path, number: int, edits: int) -> list[str]:
    """One round; what went wrong in it."""
    for name in ("notes", "stop", *(f"said-{who}" for who in (*range(edits), "build", "certify"))):
        place.joinpath(name).unlink(missing_ok=True)
    work = fresh(place / "work", template)
    readers = [reader(work), reader(work)]
    writers = {str(i): writer(changes(i)[0], work, str(i)) for i in range(edits)}
    if number % 2:
        writers["build"] = writer(BUILD, work, "build")
    writers["certify"] = writer(CERTIFY, work, "certify")
    codes = {name: ended(pid) for name, pid in writers.items()}
    (place / "stop").touch()
    wrong = [f"a reader ended with {code}" for code in map(ended, readers) if code]
    said = place / "said-certify"
    if codes["certify"] and STALE in said.read_text():
        codes["certify"] = 0  # it says so
    wrong += [f"{name} ended with {code}" for name, code in codes.items() if code]
    rows = list(csv.reader(io.StringIO(TABLE)))[1:]
    built = {tuple(row[:-1]): row[-1] for row in rows}
    expected, notes = dict(built), (place / "notes").read_text().split()
    for note in notes:
        expected = dict(built) if note == "build" else expected | changes(int(note))[1]
    if sorted(notes) != sorted(writers.keys() - {"certify"}):
        wrong.append(f"replaced by {notes}")
    if held(work / "m.memory") != expected:
        wrong.append(f"an update is lost after {notes}")
    wrong += [f"left: {name}" for name in unexpected(work, {"t.csv", "mine.py", "m.memory"})]
    return wrong


def rounds(place: Path, number: int, edits: int = 3) -> dict[str, object]:
    template = fresh(place / "template")
    for args in (BUILD, changes(0)[0], CERTIFY, BUILD):
        warm(args, template)
    began, wrong = time.monotonic(), []
    for i in range(number):
        wrong += [f"round {i}: {text}" for text in together(place, template, i, edits)]
    reads = len((place / "reads").read_text())
    seconds = time.monotonic() - began
    return {"rounds": number, "wrong": wrong, "reads": reads, "seconds": seconds}


if __name__ == "__main__":
    print(json.dumps(rounds(Path(sys.argv[1]), int(sys.argv[2]))))
