"""The page of a memory: what was memorized, how we know, where it lives, what theory promised."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import singledispatch
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from byheart._folders import read_whole
from byheart.certificates import Certificate, DistributionCertificate
from byheart.certificates.statement import SCHEMA
from byheart.facts import Facts, VectorFacts
from byheart.models.memory import Memory
from byheart.models.memory_files import inspect
from byheart.models.token_memory import DistributionMemory
from byheart.reports import carriers
from byheart.reports.page import Page, json_text, packed, render, short, shown, smallest_code, whole
from byheart.theory import bounds
from byheart.theory.divergences import kl

MOST_HEADS = 12  # shown for one fact; the others are summed up
TOP = 5  # answers of a distribution
LABELS = 4  # coordinates of a label that is a vector
HEAD_BYTES = 8  # of one head of a fact, attention apart

Data = dict[str, object]


@dataclass(frozen=True)
class Budget:
    """What a page has room for: facts `listed` (more are sampled, and the page says so), `bytes` of
    facts and contributions, `tokens` of them for the text of keys and answers, `names` for other
    tokens, which are cut short beyond that; `rows` and `columns` of the head map."""

    listed: int = 20_000
    bytes: int = 2_500_000  # the rest of 3 MB is for the map, style and script
    tokens: int = 1_000_000
    names: int = 150_000
    rows: int = 600
    columns: int = 256


PAGE = Budget()


def memory_page(
    source: str | Path | Memory, budget: Budget = PAGE, proof: Certificate | None = None
) -> Page:
    """The page of a memory folder, or of a memory in hand with the certificate `proof`, if any.

    >>> import byheart as bh
    >>> "Not proved yet" in memory_page(bh.build("elements")).html
    True
    """
    if isinstance(source, (str, Path)):
        loaded, proof = read_whole(source, lambda: (inspect(source), Certificate.read(source)))
        memory, damage, folder = loaded.memory, loaded.damage, Path(source).name
    else:
        memory, damage, folder = source, (), ""
    facts, meaning = memory.facts, memory.page_words().margin
    no_heads = carriers.why_no_heads(memory)
    data: Data = {"kind": "memory"}
    held, smallest, note, heads = 0, None, "", None
    if facts is not None:
        margins = memory.margins()
        right = margins > 0
        held = int(right.sum())
        if meaning is not None and np.isfinite(margins).any():
            smallest = float(margins[np.isfinite(margins)].min())
        chosen, note = _chosen(memory, facts, right, budget)
        data["facts"] = listing(facts, chosen) | {
            "count": len(chosen),
            "rows": packed(facts.rows[chosen], "i4"),
            "right": packed(right[chosen], "u1"),
            "margins": meaning and packed(np.nan_to_num(margins[chosen]), "f4"),
            "bins": meaning and _histogram(margins),
        }
        data["distribution"] = probabilities(memory, chosen, budget)
        if no_heads is None:
            heads = carriers.head_map(memory, budget.rows)
            room = budget.bytes - len(json_text(data).encode())
            data["split"] = _split(memory, chosen, room, budget)
            data["map"] = _map(heads, chosen, budget)
    said = verdict(memory, proof, damage, held, folder)
    return render(
        "memory.html", ("core.js", "memory.js"), data,
        title=shown(facts.name if facts is not None else folder or "memory"),
        line=f"{said.headline}. A memory: {memory.name}.", memory=memory, verdict=said,
        tiles=tiles(memory, held, smallest), bars=capacity_bars(memory),
        loading="\n".join(map(shown, loading(memory, folder).split("\n"))),
        condition=getattr(memory.construction, "condition", None), meaning=meaning,
        sample_note=note, heads_note=no_heads, map=heads,
    )  # fmt: skip


def _chosen(
    memory: Memory, facts: Facts | VectorFacts, right: np.ndarray, budget: Budget
) -> tuple[np.ndarray, str]:
    """Which facts are listed: all, or as many as the page has room for, lost ones first."""
    T = facts.T
    room = min(budget.listed, int((budget.bytes - budget.tokens) / _fact_bytes(memory, facts)))
    while True:
        chosen = np.arange(T)
        if room < T:
            lost = np.flatnonzero(~right)[:room]
            held = np.flatnonzero(right)
            spread = np.linspace(0, len(held) - 1, max(0, room - len(lost))).astype(int)
            chosen = np.sort(np.concatenate([lost, held[np.unique(spread)]]))
        text = json_text(listing(facts, chosen).get("tokens"))
        if room <= 100 or len(text.encode()) <= budget.tokens:
            break
        room = min(room, T) // 2
    note = (
        f"{len(chosen):,} of the {T:,} facts are listed, spread evenly, and every lost one: the "
        "page stays small. All of them were asked, and all count in the numbers above."
    )
    return chosen, "" if len(chosen) == T else note


def _fact_bytes(memory: Memory, facts: Facts | VectorFacts) -> float:
    """Bytes of one fact in the page, its tokens apart: numbers, one head, the distribution."""
    some = listing(facts, np.arange(min(facts.T, 300)))
    listed = len(json_text(some | {"tokens": None})) / min(facts.T, 300)
    head = 0 if memory.no_heads else 16 + HEAD_BYTES + len(memory.page_words().positions)
    table = 0 if memory.table is facts else 12 * TOP
    return listed + 4 / 3 * (9 + head + table)  # in base64


@singledispatch
def listing(facts: Facts, chosen: np.ndarray) -> Data:
    """The keys and answers of the facts `chosen`, as the page's script reads them: the tokens that
    they use, and indices into those."""
    used = np.unique(np.concatenate([facts.tokens[chosen].ravel(), facts.answers[chosen]]))
    code, pad = smallest_code(len(used)), np.flatnonzero(used == facts.pad_id)
    return {
        "S": facts.S,
        "tokens": [facts.vocabulary.token(int(t)) for t in used],
        "keys": packed(np.searchsorted(used, facts.tokens[chosen]), code),
        "answers": packed(np.searchsorted(used, facts.answers[chosen]), code),
        "pad": int(pad[0]) if len(pad) else -1,
    }


@listing.register
def _(facts: VectorFacts, chosen: np.ndarray) -> Data:
    label = facts.targets[chosen] if facts.classes is None else facts.label[chosen, None]
    labels = packed(label[:, :LABELS], "f4")
    width = int(label.shape[1])
    return {"width": width, "vectors": True, "classes": facts.classes, "labels": labels}


def _histogram(margins: np.ndarray) -> Data | None:
    real = margins[np.isfinite(margins)]
    if not len(real):
        return None
    low, most = float(real.min()), float(real.max())
    flat = most - low < 1e-9 * max(1.0, abs(most))
    high = low + max(abs(low), 1e-9) * 0.01 if flat else most
    counts, edges = np.histogram(real, bins=40, range=(low, high))
    ends = {"low": float(edges[0]), "high": float(edges[-1])}
    return {"counts": counts.tolist(), **ends, "least": low, "most": most}


def _map(heads: carriers.HeadMap, chosen: np.ndarray, budget: Budget) -> Data:
    """The head map as bytes: 127 is the `scale`."""
    effect, lost = heads.effect, heads.lost
    rows, H = effect.shape
    group = -(-H // budget.columns)
    if group > 1:  # neighbouring heads share a column: the largest of them is drawn
        short = (0, 0), (0, -H % group)
        blocks = np.pad(effect, short).reshape(rows, -1, group)
        largest = np.abs(blocks).argmax(2)[..., None]
        effect = np.take_along_axis(blocks, largest, 2)[..., 0]
        lost = np.pad(lost, short).reshape(blocks.shape).any(2)
    scale = carriers.colour_scale(effect)
    at = np.minimum(np.searchsorted(chosen, heads.rows), len(chosen) - 1)
    return {
        "rows": packed(heads.rows, "i4"), "height": rows, "width": effect.shape[1], "heads": H,
        "group": group, "scale": scale, "what": heads.what,
        "cells": packed(np.clip(np.round(127 * effect / scale), -127, 127), "i1"),
        "lost": packed(np.packbits(lost), "u1"),
        "index": packed(np.where(chosen[at] == heads.rows, at, -1), "i4"),
    }  # fmt: skip


def _split(memory: Memory, chosen: np.ndarray, room: int, budget: Budget) -> Data:
    """The parts of the margins in `room` bytes: as many heads of a fact as fit, one at least."""
    positions = memory.page_words().positions
    fit = 0.75 * (room - budget.names) / max(1, len(chosen)) - 16
    most = max(1, min(MOST_HEADS, int(fit / (HEAD_BYTES + len(positions)))))
    largest = carriers.contributions(memory, chosen, most)
    used, runners = np.unique(largest.runners_up, return_inverse=True)
    H = carriers.head_count(memory)
    return {
        "K": largest.heads.shape[1], "H": H, "own": largest.most, "positions": list(positions),
        "heads": packed(np.where(largest.heads < 0, 65535, largest.heads), smallest_code(H)),
        "parts": packed(largest.parts, "f4"),
        "attention": packed(np.round(255 * largest.attention), "u1"),
        "skip": packed(largest.skip, "f4"), "rest": packed(largest.rest, "f4"),
        "runners": packed(runners, smallest_code(len(used))),
        "runner_names": _names(memory, used, budget),
    }  # fmt: skip


def _names(memory: Memory, ids: np.ndarray, budget: Budget) -> list[str]:
    """Answers beside those of the listed facts, cut short where they would fill the page."""
    names = [str(memory.answer_name(int(t))) for t in ids]
    if len(json_text(names).encode()) <= budget.names:
        return names
    most = max(8, budget.names // (4 * max(1, len(names))))
    return [name if len(name) <= most else f"{name[:most]}…" for name in names]


@singledispatch
def probabilities(memory: Memory, chosen: np.ndarray, budget: Budget) -> Data | None:
    """The likeliest answers of each key, stored and recalled; None where keys have one answer."""
    return None


@probabilities.register
def _(memory: DistributionMemory, chosen: np.ndarray, budget: Budget) -> Data | None:
    table = memory.distribution
    if table is None:
        return None
    recalled = torch.softmax(torch.tensor(memory.answer_logits(table)[chosen]), 1).numpy()
    stored = table.probabilities[chosen]
    top = min(TOP, stored.shape[1])
    order = np.argsort(-np.maximum(stored, recalled), axis=1, kind="stable")[:, :top]
    return {
        "top": top, "names": _names(memory, table.support, budget),
        "ids": packed(order, smallest_code(len(table.support))),
        "stored": packed(np.take_along_axis(stored, order, 1), "f4"),
        "recalled": packed(np.take_along_axis(recalled, order, 1), "f4"),
    }  # fmt: skip


class Verdict(NamedTuple):
    """`state` is proved, unproved or damaged; `words` are sentences."""

    state: str
    headline: str
    words: tuple[str, ...]


def verdict(
    memory: Memory, proof: Certificate | None, damage: tuple[str, ...], held: int, folder: str
) -> Verdict:
    """The certificate in plain words; one that belongs to anything else is no proof, and neither is
    one whose facts are not recalled when they are asked here."""
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
    words = (*proof.sentences(), *measured)
    if not proof.about(memory):
        why = "The certificate in the folder is about other weights, facts or another architecture."
        if not proof.certified:
            why = f"{proof.verdict()} {proof.summary()}."
        elif proof.names(memory) and proof.schema < SCHEMA:
            why = (
                "The certificate is of an earlier version of byheart. It names these weights, "
                f"SHA-256 {proof.weights_sha256[:12]}…, and these facts, and nothing else: neither "
                f"architecture nor vocabulary. Make it again: `byheart certify {folder}`."
            )
        return Verdict("unproved", "Not proved", (why, *measured))
    if memory.facts is None:
        missing = "The facts are not here, so that nothing could be asked again."
        return Verdict("unproved", "Certified, not asked again", (*words, missing))
    if not _agrees(memory, proof, held):
        return Verdict("unproved", "Certified in exact arithmetic, lost as it runs", words)
    return Verdict("proved", "Proved", words)


def _agrees(memory: Memory, proof: Certificate, held: int) -> bool:
    """Whether what is counted here, in the stored number format, is what the certificate says."""
    if isinstance(proof, DistributionCertificate):
        if not isinstance(memory, DistributionMemory) or memory.distribution is None:
            return False
        table = memory.distribution
        found = float(table.prior @ kl(table.probabilities, memory.answer_logits(table)))
        return found <= proof.distribution.kl * 1.001 + 1e-5  # the prior, and float32
    return memory.facts is not None and held == memory.facts.T


def tiles(memory: Memory, held: int, smallest: float | None) -> list[tuple[str, str, str]]:
    """(number, what it is, how it is counted)."""
    facts, spec = memory.facts, memory.spec
    rows = []
    if facts is not None:
        rows.append((f"{held:,} of {facts.T:,}", "facts recalled", "asked again for this page"))
    rows.append((whole(spec.parameters), "parameters", str(spec)))
    bits = stored_bits(memory)
    if bits is not None:
        counted = f"{bits:,.0f} bits: T·log2(answers)"
        rows.append((short(bits / spec.parameters), "bits per parameter", counted))
    if smallest is not None:
        how = f"{memory.page_words().margin}, as stored"
        rows.append((short(smallest), "smallest margin", how))
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
    if getattr(spec, "d_out", None) == 1:  # counts of facts that no weights can hold
        for a in bounds(spec):
            if a.applies and a.id.startswith("mahdavi2024.effective"):
                bars.append(Bar("no weights can hold more", a.capacity or 0, "upper bound", a.id))
    bars.append(Bar("parameters", spec.parameters, "size", "numbers in the weights"))
    stored, bits = stored_bits(memory), memory.page_words().bits
    if facts is not None and stored and bits:
        note = "bits of all weights / log2 A"
        bars.append(Bar("information limit", bits * facts.T / stored, "upper bound", note))
    top = math.log10(max(bar.value for bar in bars) or 1)
    return [replace(b, share=math.log10(max(b.value, 1)) / top if top else 1.0) for b in bars]


def loading(memory: Memory, folder: str) -> str:
    """Python that loads the memory and asks it, from where the folder is."""
    load = ("import byheart as bh", f"memory = bh.load({folder or 'DIR'!r})")
    return "\n".join((*load, *memory.page_words().asking))
