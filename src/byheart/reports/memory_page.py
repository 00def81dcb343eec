"""The page of a memory: what was memorized, how we know, where it lives, what theory promised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from byheart.models import Memory, VectorMemory
from byheart.models.exact import ExactMemory
from byheart.models.memory_files import inspect
from byheart.reports import memory_words as words
from byheart.reports.carriers import HeadMap, head_map, stories, why_no_heads
from byheart.reports.page import Page, json_text, packed, render, shown, smallest_code

LISTED = 20_000  # facts in the list; more are sampled, and the page says so
ROOM = 2_500_000  # bytes of facts and stories; the rest of 3 MB is for the map, style and script
TEXT = 1_000_000  # of them for tokens
NAMES = 150_000  # bytes of other names, which are cut short beyond that
MOST_HEADS = 12  # shown for one fact; the others are summed up
MAP_ROWS, MAP_HEADS = 600, 256
TOP = 5  # answers of a distribution
LABELS = 4  # coordinates of a label that is a vector
STORY = 8  # bytes of a head in a story, attention apart


def memory_page(source: str | Path | Memory | VectorMemory | ExactMemory) -> Page:
    """The page of a memory folder, or of a memory in hand (then without its certificate).

    >>> import byheart as bh
    >>> "Not proved yet" in memory_page(bh.build(bh.read_facts("elements"))).html
    True
    """
    if isinstance(source, (str, Path)):
        folder = Path(source)
        loaded = inspect(folder)
        memory, damage = loaded.memory, loaded.damage
    else:
        memory, folder, damage = source, None, ()
    margins = _margins(memory)
    right = None if memory.facts is None else _right(memory, margins)
    held = 0 if right is None else int(right.sum())
    smallest = None
    if margins is not None and np.isfinite(margins).any():
        smallest = float(margins[np.isfinite(margins)].min())
    data: dict[str, Any] = {"kind": "memory"}
    note, heads_note, found = "", why_no_heads(memory), None
    if memory.facts is not None and right is not None:
        chosen, note = _chosen(memory, right)
        data["facts"] = _facts(memory, chosen, margins, right)
        if heads_note is None and not isinstance(memory, ExactMemory):
            found = head_map(memory, MAP_ROWS)
            data["map"] = _map(found, chosen)
        if getattr(memory, "distribution", None) is not None:
            data["distribution"] = _distribution(memory, chosen)
        if found is not None:
            used = len(json_text({k: v for k, v in data.items() if k != "map"}).encode())
            data["story"] = _stories(memory, chosen, ROOM - used)
    title = memory.facts.name if memory.facts is not None else (folder.name if folder else "memory")
    verdict = words.verdict(memory, folder, damage, held)
    family = words.NAMES.get(memory.spec.family, memory.spec.family)
    return render(
        "memory.html",
        ("core.js", "memory.js"),
        data,
        title=shown(title),
        line=f"{verdict.headline}. A memory: {family}.",
        family=family,
        verdict=verdict,
        tiles=words.tiles(memory, held, smallest),
        bars=words.capacity_bars(memory),
        boxes=words.boxes(memory),
        loading=shown_lines(words.loading(memory, folder)),
        why=list(memory.construction.get("why") or ()),
        method=str(memory.construction.get("method", "")),
        condition=memory.construction.get("condition"),
        facts=memory.facts,
        sample_note=note,
        heads_note=heads_note,
        map=found,
        vectors=isinstance(memory, VectorMemory),
        exact=isinstance(memory, ExactMemory),
        distribution=getattr(memory, "distribution", None) is not None,
        spec=str(memory.spec),
    )


def shown_lines(text: str) -> str:
    return "\n".join(shown(line) for line in text.split("\n"))


def _margins(memory: Any) -> np.ndarray | None:
    if memory.facts is None or isinstance(memory, ExactMemory):
        return None
    return memory.margins(memory.facts).numpy()


def _right(memory: Any, margins: np.ndarray | None) -> np.ndarray:
    if margins is not None:
        return margins > 0
    return memory.outputs(memory.facts.tokens) == memory.classes(memory.facts.answers)


def _each(memory: Any) -> float:
    """Bytes of one fact in the page, its tokens apart: numbers, one head, the distribution."""
    spec = memory.spec
    columns = LABELS if isinstance(memory, VectorMemory) else spec.S + 1
    own = 0 if why_no_heads(memory) else 16 + STORY + _positions(memory)
    table = 0 if getattr(memory, "distribution", None) is None else 12 * TOP
    return 4 / 3 * (9 + 4 * columns + own + table)


def _positions(memory: Any) -> int:
    spec = memory.spec
    return spec.n if isinstance(memory, VectorMemory) else spec.S + (spec.family == "sharded")


def _chosen(memory: Any, right: np.ndarray) -> tuple[np.ndarray, str]:
    """Which facts are listed: all, or as many as the page has room for, lost ones first."""
    T = len(right)
    room = min(LISTED, int((ROOM - TEXT) / _each(memory)))
    while True:
        chosen = np.arange(T)
        if room < T:
            lost = np.flatnonzero(~right)[:room]
            held = np.flatnonzero(right)
            spread = np.linspace(0, len(held) - 1, max(0, room - len(lost))).astype(int)
            chosen = np.sort(np.concatenate([lost, held[np.unique(spread)]]))
        if isinstance(memory, VectorMemory) or room <= 100:
            break
        if len(json_text(_tokens(memory, chosen)[0]).encode()) <= TEXT:
            break
        room = min(room, T) // 2
    if len(chosen) == T:
        return chosen, ""
    return chosen, (
        f"{len(chosen):,} of the {T:,} facts are listed, spread evenly, and every lost one: the "
        "page stays small. All of them were asked, and all count in the numbers above."
    )


def _tokens(memory: Any, chosen: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The tokens that the chosen facts use, and a table from the memory's ids to theirs."""
    facts = memory.facts
    used = np.unique(np.concatenate([facts.tokens[chosen].ravel(), facts.answers[chosen]]))
    table = np.full(memory.spec.N, -1)
    table[used] = np.arange(len(used))
    return [memory.vocabulary.token(int(t)) for t in used], table


def _facts(
    memory: Any, chosen: np.ndarray, margins: np.ndarray | None, right: np.ndarray
) -> dict[str, Any]:
    facts = memory.facts
    found: dict[str, Any] = {
        "count": len(chosen),
        "rows": packed(facts.rows[chosen], "i4"),
        "right": packed(right[chosen], "u1"),
        "margins": None if margins is None else packed(np.nan_to_num(margins[chosen]), "f4"),
        "bins": None if margins is None else _histogram(margins),
    }
    if isinstance(memory, VectorMemory):
        label = facts.targets[chosen] if facts.classes is None else facts.label[chosen, None]
        return found | {
            "vectors": True,
            "classes": facts.classes,
            "tolerance": memory.tolerance,
            "columns": ["example"],
            "answer_column": "label" if facts.classes is None else "class",
            "width": int(label.shape[1]),
            "labels": packed(label[:, :LABELS], "f4"),
        }
    names, table = _tokens(memory, chosen)
    code = smallest_code(len(names))
    columns = facts.columns or [f"token {i + 1}" for i in range(facts.S)]
    return found | {
        "vectors": False,
        "columns": list(columns),
        "answer_column": facts.answer_column,
        "tokens": names,
        "keys": packed(table[facts.tokens[chosen]], code),
        "answers": packed(table[facts.answers[chosen]], code),
        "pad": -1 if facts.pad_id is None else int(table[facts.pad_id]),
    }


def _histogram(margins: np.ndarray) -> dict[str, Any] | None:
    real = margins[np.isfinite(margins)]
    if not len(real):
        return None
    low, high = float(real.min()), float(real.max())
    if high - low < 1e-9 * max(1.0, abs(high)):
        high = low + max(abs(low), 1e-9) * 0.01
    counts, edges = np.histogram(real, bins=40, range=(low, high))
    seen = {"least": float(real.min()), "most": float(real.max())}
    return {"counts": counts.tolist(), "low": float(edges[0]), "high": float(edges[-1])} | seen


def _map(found: HeadMap, chosen: np.ndarray) -> dict[str, Any]:
    """The head map as bytes: 127 is the `scale`, the 99th percentile of what is not 0."""
    effect, lost = found.effect, found.lost
    H = effect.shape[1]
    group = -(-H // MAP_HEADS)
    if group > 1:  # neighbouring heads share a column: the largest of them is drawn
        padded = np.zeros((len(effect), -(-H // group) * group))
        padded[:, :H] = effect
        blocks = padded.reshape(len(effect), -1, group)
        best = np.abs(blocks).argmax(2)[..., None]
        effect = np.take_along_axis(blocks, best, 2)[..., 0]
        broken = np.zeros(padded.shape, dtype=bool)
        broken[:, :H] = lost
        lost = broken.reshape(blocks.shape).any(2)
    size = np.abs(effect[effect != 0])
    scale = float(np.quantile(size, 0.99)) if len(size) else 1.0
    scale = scale or 1.0
    at = np.minimum(np.searchsorted(chosen, found.rows), len(chosen) - 1)
    listed = chosen[at] == found.rows
    return {
        "rows": packed(found.rows, "i4"),
        "height": len(found.rows),
        "width": int(effect.shape[1]),
        "heads": H,
        "group": group,
        "scale": scale,
        "what": found.what,
        "cells": packed(np.clip(np.round(127 * effect / scale), -127, 127), "i1"),
        "lost": packed(np.packbits(lost), "u1"),
        "index": packed(np.where(listed, at, -1), "i4"),
    }


def _stories(memory: Any, chosen: np.ndarray, room: int) -> dict[str, Any]:
    """The stories in `room` bytes: as many heads of each fact as fit, one at least."""
    spec = memory.spec
    most = spec.H
    if spec.family == "sharded":
        start = memory.weights["head_start"]
        most = int((start[1:] - start[:-1]).max())
    each = 0.75 * (room - NAMES) / max(1, len(chosen)) - 16
    K = max(1, min(most, MOST_HEADS, int(each / (STORY + _positions(memory)))))
    told = stories(memory, chosen, K)
    names = _position_names(memory)
    found = {
        "K": K,
        "H": spec.H,
        "own": most,
        "positions": names,
        "heads": packed(np.where(told.heads < 0, 65535, told.heads), smallest_code(spec.H)),
        "parts": packed(told.parts, "f4"),
        "attention": packed(np.round(255 * told.attention), "u1"),
        "skip": packed(told.skip, "f4"),
        "rest": packed(told.rest, "f4"),
    }
    runners = told.runners_up
    if isinstance(memory, VectorMemory):
        return found | {"runners": packed(runners, "i4")}
    used, place = np.unique(runners, return_inverse=True)
    return found | {
        "runners": packed(place, smallest_code(len(used))),
        "runner_names": _names(memory, used),
    }


def _names(memory: Any, ids: np.ndarray) -> list[str]:
    """Tokens beside the listed facts, cut short where they would fill the page."""
    names = [memory.vocabulary.token(int(t)) for t in ids]
    most = max(8, NAMES // (4 * max(1, len(names))))
    if len(json_text(names).encode()) <= NAMES:
        return names
    return [name if len(name) <= most else f"{name[:most]}…" for name in names]


def _position_names(memory: Any) -> list[Any]:
    """For each position the key column it reads, or a word."""
    if isinstance(memory, VectorMemory):
        return [f"token {i}" for i in range(memory.spec.n)]
    key = list(memory.order or range(memory.key_length))
    first = memory.start_id is not None or memory.spec.family == "sharded"
    return (["start"] if first else []) + key


def _distribution(memory: Any, chosen: np.ndarray) -> dict[str, Any]:
    """The likeliest answers of each key, stored and recalled."""
    from byheart.construct.distribution import answer_logits

    table = memory.distribution
    logits = torch.tensor(answer_logits(memory, table)[chosen])
    recalled = torch.softmax(logits.double(), 1).numpy()
    stored = table.probabilities[chosen]
    top = min(TOP, stored.shape[1])
    order = np.argsort(-np.maximum(stored, recalled), axis=1, kind="stable")[:, :top]
    return {
        "top": top,
        "names": _names(memory, table.support),
        "ids": packed(order, smallest_code(len(table.support))),
        "stored": packed(np.take_along_axis(stored, order, 1), "f4"),
        "recalled": packed(np.take_along_axis(recalled, order, 1), "f4"),
    }
