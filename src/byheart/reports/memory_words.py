"""What a memory page says in words and numbers: verdict, tiles, capacity, how to load it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import singledispatch

from byheart.certificates import Certificate
from byheart.models.memory import Memory
from byheart.reports.page import short, whole
from byheart.specs import MultiHeadSpec, Spec


@dataclass(frozen=True)
class Verdict:
    """`state` is proved, unproved or damaged; `words` are sentences."""

    state: str
    headline: str
    words: tuple[str, ...]


def verdict(
    memory: Memory, proof: Certificate | None, damage: tuple[str, ...], held: int, folder: str
) -> Verdict:
    """The certificate in plain words; one that belongs to other weights or facts is no proof."""
    measured: tuple[str, ...] = ()
    if memory.facts is not None:
        answers = f"{held:,} of {memory.facts.T:,} answers"
        measured = (f"Asked here: {answers} are right as the weights stand.",)
    if damage:
        changes = tuple(f"{line[0].upper()}{line[1:]}." for line in damage)
        return Verdict("damaged", "Changed after it was built", (*changes, *measured))
    if proof is None:
        command = f"byheart certify {folder}".strip()
        hint = f"`{command}` proves it, and the proof goes into the folder."
        return Verdict("unproved", "Not proved yet", (*measured, hint))
    if not proof.about(memory):
        why = "The certificate in the folder is about other weights or facts."
        if not proof.certified:
            why = f"{proof.verdict()} {proof.summary()}."
        return Verdict("unproved", "Not proved", (why, *measured))
    return Verdict("proved", "Proved", (*proof.sentences(), *measured))


def tiles(memory: Memory, held: int, smallest: float | None) -> list[tuple[str, str, str]]:
    """(number, what it is, how it is counted)."""
    facts, spec = memory.facts, memory.spec
    rows = []
    if facts is not None:
        rows.append((f"{held:,} of {facts.T:,}", "facts recalled", "asked again for this page"))
    rows.append((whole(spec.parameters), "parameters", str(spec)))
    bits = stored_bits(memory)
    if bits is not None:
        per = bits / spec.parameters
        rows.append((short(per), "bits per parameter", f"{bits:,.0f} bits: T·log2(answers)"))
    if smallest is not None:
        meaning = memory.page_words().margin
        rows.append((short(smallest), "smallest margin", f"{meaning}, as stored"))
    return rows


def stored_bits(memory: Memory) -> float | None:
    """T log2 A of the facts; None for numbers as labels."""
    answers = memory.page_words().answers
    if memory.facts is None or answers is None:
        return None
    return memory.facts.T * math.log2(max(2, answers))


@dataclass(frozen=True)
class Bar:
    """One bar of the capacity drawing; `share` of the width on a logarithmic scale."""

    label: str
    value: float
    kind: str
    note: str
    share: float = 0.0


def capacity_bars(memory: Memory) -> list[Bar]:
    """Facts held, what the theorem promises, the parameters, the information limit."""
    facts, spec, made = memory.facts, memory.spec, memory.construction
    bars = []
    if facts is not None:
        bars.append(Bar("facts held", facts.T, "held", "what this memory recalls"))
    if made.capacity:
        note = made.theorem or "the construction's count"
        bars.append(Bar("room by the theorem", made.capacity, "lower bound", note))
    bars += hard_limits(spec)
    bars.append(Bar("parameters", spec.parameters, "size", "numbers in the weights"))
    stored, bits = stored_bits(memory), memory.page_words().bits
    if facts is not None and stored and bits:
        note = "bits of all weights / log2 A"
        bars.append(Bar("information limit", bits * facts.T / stored, "upper bound", note))
    top = math.log10(max(bar.value for bar in bars) or 1)
    return [replace(b, share=math.log10(max(b.value, 1)) / top if top else 1.0) for b in bars]


@singledispatch
def hard_limits(spec: Spec) -> list[Bar]:
    """Counts of facts that no weights of this spec can hold, where theory knows any."""
    return []


@hard_limits.register
def _(spec: MultiHeadSpec) -> list[Bar]:
    from byheart.theory import bounds

    if spec.d_out != 1:
        return []
    return [
        Bar("no weights can hold more", a.capacity or 0, "upper bound", a.id)
        for a in bounds(spec)
        if a.applies and a.id.startswith("mahdavi2024.effective")
    ]


def loading(memory: Memory, folder: str) -> str:
    """Python that loads the memory and asks it, from where the folder is."""
    load = ("import byheart as bh", f"memory = bh.load({folder or 'DIR'!r})")
    return "\n".join((*load, *memory.page_words().asking))
