"""The page of a memory: what was memorized, how we know, where it lives, what theory promised."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path

import numpy as np
import torch

from byheart.certificates import Certificate
from byheart.facts import Facts, VectorFacts
from byheart.models.memory import Memory
from byheart.models.memory_files import inspect
from byheart.models.token_memory import DistributionMemory
from byheart.reports import memory_words as words
from byheart.reports.carriers import HeadMap, contributions, head_count, head_map, why_no_heads
from byheart.reports.page import Page, json_text, packed, render, shown, smallest_code

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
        loaded = inspect(source)
        memory, damage, folder = loaded.memory, loaded.damage, Path(source).name
        proof = Certificate.read(source)
    else:
        memory, damage, folder = source, (), ""
    facts, meaning, no_heads = memory.facts, memory.page_words().margin, why_no_heads(memory)
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
            heads = head_map(memory, budget.rows)
            room = budget.bytes - len(json_text(data).encode())
            data["split"] = _split(memory, chosen, room, budget)
            data["map"] = _map(heads, chosen, budget)
    verdict = words.verdict(memory, proof, damage, held, folder)
    return render(
        "memory.html",
        ("core.js", "memory.js"),
        data,
        title=shown(facts.name if facts is not None else folder or "memory"),
        line=f"{verdict.headline}. A memory: {memory.name}.",
        memory=memory,
        verdict=verdict,
        tiles=words.tiles(memory, held, smallest),
        bars=words.capacity_bars(memory),
        loading="\n".join(map(shown, words.loading(memory, folder).split("\n"))),
        condition=getattr(memory.construction, "condition", None),
        meaning=meaning,
        sample_note=note,
        heads_note=no_heads,
        map=heads,
    )


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
    if len(chosen) == T:
        return chosen, ""
    return chosen, (
        f"{len(chosen):,} of the {T:,} facts are listed, spread evenly, and every lost one: the "
        "page stays small. All of them were asked, and all count in the numbers above."
    )


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
    return {
        "width": int(label.shape[1]),
        "vectors": True,
        "classes": facts.classes,
        "labels": packed(label[:, :LABELS], "f4"),
    }


def _histogram(margins: np.ndarray) -> Data | None:
    real = margins[np.isfinite(margins)]
    if not len(real):
        return None
    low, high = float(real.min()), float(real.max())
    seen = {"least": low, "most": high}
    if high - low < 1e-9 * max(1.0, abs(high)):
        high = low + max(abs(low), 1e-9) * 0.01
    counts, edges = np.histogram(real, bins=40, range=(low, high))
    return {"counts": counts.tolist(), "low": float(edges[0]), "high": float(edges[-1]), **seen}


def _map(heads: HeadMap, chosen: np.ndarray, budget: Budget) -> Data:
    """The head map as bytes: 127 is the `scale`, the 99th percentile of what is not 0."""
    effect, lost = heads.effect, heads.lost
    rows, H = effect.shape
    group = -(-H // budget.columns)
    if group > 1:  # neighbouring heads share a column: the largest of them is drawn
        short = (0, 0), (0, -H % group)
        blocks = np.pad(effect, short).reshape(rows, -1, group)
        largest = np.abs(blocks).argmax(2)[..., None]
        effect = np.take_along_axis(blocks, largest, 2)[..., 0]
        lost = np.pad(lost, short).reshape(blocks.shape).any(2)
    size = np.abs(effect[effect != 0])
    scale = (float(np.quantile(size, 0.99)) if len(size) else 1.0) or 1.0
    at = np.minimum(np.searchsorted(chosen, heads.rows), len(chosen) - 1)
    return {
        "rows": packed(heads.rows, "i4"),
        "height": rows,
        "width": effect.shape[1],
        "heads": H,
        "group": group,
        "scale": scale,
        "what": heads.what,
        "cells": packed(np.clip(np.round(127 * effect / scale), -127, 127), "i1"),
        "lost": packed(np.packbits(lost), "u1"),
        "index": packed(np.where(chosen[at] == heads.rows, at, -1), "i4"),
    }


def _split(memory: Memory, chosen: np.ndarray, room: int, budget: Budget) -> Data:
    """The parts of the margins in `room` bytes: as many heads of a fact as fit, one at least."""
    positions = memory.page_words().positions
    fit = 0.75 * (room - budget.names) / max(1, len(chosen)) - 16
    most = max(1, min(MOST_HEADS, int(fit / (HEAD_BYTES + len(positions)))))
    largest = contributions(memory, chosen, most)
    used, runners = np.unique(largest.runners_up, return_inverse=True)
    H = head_count(memory)
    return {
        "K": largest.heads.shape[1],
        "H": H,
        "own": largest.most,
        "positions": list(positions),
        "heads": packed(np.where(largest.heads < 0, 65535, largest.heads), smallest_code(H)),
        "parts": packed(largest.parts, "f4"),
        "attention": packed(np.round(255 * largest.attention), "u1"),
        "skip": packed(largest.skip, "f4"),
        "rest": packed(largest.rest, "f4"),
        "runners": packed(runners, smallest_code(len(used))),
        "runner_names": _names(memory, used, budget),
    }


def _names(memory: Memory, ids: np.ndarray, budget: Budget) -> list[str]:
    """Answers beside those of the listed facts, cut short where they would fill the page."""
    names = [str(memory.answer_name(int(t))) for t in ids]
    most = max(8, budget.names // (4 * max(1, len(names))))
    if len(json_text(names).encode()) <= budget.names:
        return names
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
        "top": top,
        "names": _names(memory, table.support, budget),
        "ids": packed(order, smallest_code(len(table.support))),
        "stored": packed(np.take_along_axis(stored, order, 1), "f4"),
        "recalled": packed(np.take_along_axis(recalled, order, 1), "f4"),
    }
