"""What a memory page says in words: verdict, sizes, capacity, architecture, how to load it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from byheart.certificates.statement import FILE
from byheart.models import VectorMemory
from byheart.models.exact import ExactMemory
from byheart.models.memory_files import weights_sha256
from byheart.reports.page import number_of, short, whole
from byheart.specs import AttentionOnlySpec, MLPTransformerSpec, ShardedSpec, SharedBottleneckSpec

PROMISES = {
    "attention": "Corollary 1 promises H·d_h + d",
    "train": "Corollary 1 promises H·d_h + d, without training",
    "sharded": "the shards have room for",
    "associative": "width d of the matrix",
    "multihead": "Theorem 1 promises H(r-1) + 1",
    "sqrt": "built for exactly",
}
NAMES = {
    "attention-only": "attention-only Transformer",
    "sharded": "sharded attention-only Transformer",
    "associative": "associative memory",
    "multi-head": "multi-head attention layer",
    "sqrt": "square-root Transformer in exact integers",
    "mlp-transformer": "Transformer with feed-forward layers",
    "shared-bottleneck": "attention-only Transformer with shared projections",
}


@dataclass(frozen=True)
class Verdict:
    """`state` is proved, unproved or damaged; `words` are sentences."""

    state: str
    headline: str
    words: tuple[str, ...]


def verdict(memory: Any, folder: Path | None, damage: tuple[str, ...], held: int) -> Verdict:
    """The certificate in plain words; one that belongs to other weights or facts is no proof."""
    facts = memory.facts
    count = facts.T if facts is not None else None
    where = "" if folder is None else f" {folder.name}"
    measured = () if count is None else (
        f"Asked here: {held:,} of {count:,} answers are right as the weights stand.",
    )  # fmt: skip
    if damage:
        said = tuple(f"{line[0].upper()}{line[1:]}." for line in damage)
        return Verdict("damaged", "Changed after it was built", (*said, *measured))
    record = None if folder is None else _record(folder / FILE)
    if record is None:
        return Verdict(
            "unproved",
            "Not proved yet",
            (*measured, f"`byheart certify{where}` proves it, and the proof goes into the folder."),
        )
    table = getattr(memory, "distribution", None) or facts
    same = record.get("weights_sha256") == weights_sha256(memory) and (
        table is None or record.get("facts_digest") == table.digest()
    )
    if not record.get("certified") or not same:
        why = "The certificate in the folder is about other weights or facts."
        return Verdict("unproved", "Not proved", (why, *measured))
    return Verdict("proved", "Proved", (*_proof(memory, record), *measured))


def _record(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _proof(memory: Any, record: dict[str, Any]) -> tuple[str, ...]:
    count, proof = record["facts"], record.get("distribution")
    margin, error = record.get("margin"), record.get("error_bound")
    how = f"Arithmetic of the proof: {record['arithmetic']}."
    hashes = (
        f"It is about the weights with SHA-256 {record['weights_sha256'][:12]}… and the facts "
        f"{record['facts_digest'][:12]}…; anyone can check it again from the files alone."
    )
    if proof is not None:
        said = (
            f"For all {count:,} keys together the recalled distribution is within "
            f"{proof['kl']:.3g} nats (KL divergence) of the stored one, and no log probability is "
            f"off by more than {proof['max_log_ratio']:.3g}."
        )
        return said, how, hashes
    if isinstance(memory, ExactMemory):
        return (
            f"For each of the {count:,} facts the integer network outputs the class of the right "
            "answer, exactly: there is nothing to round.",
            how,
            hashes,
        )
    if record.get("tolerance") is not None:
        said = (
            f"Each of the {count:,} labels is recalled within {record['tolerance']:.3g}; the "
            f"largest proven error is {short(record.get('largest_error'))}."
        )
        return said, how, hashes
    said = (
        f"For each of the {count:,} facts, in exact real arithmetic on these weights, the right "
        f"answer gets the largest score of all {record.get('competitors', 'tokens')}."
    )
    lead = ""
    if margin is not None and error:
        lead = (
            f"The smallest lead of a right answer is {margin:.3g}; the arithmetic can be wrong by "
            f"at most {error:.2g}, {float(f'{margin / error:.2g}'):,.0f} times less."
        )
    return tuple(line for line in (said, lead, how, hashes) if line)


def tiles(memory: Any, held: int, smallest: float | None) -> list[tuple[str, str, str]]:
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
        what = "smallest margin"
        if isinstance(memory, VectorMemory) and memory.classes is None:
            what = "tolerance left, at least"
        rows.append((short(smallest), what, "right answer minus the next best, as stored"))
    return rows


def stored_bits(memory: Any) -> float | None:
    """T log2 A of the facts; None for numbers as labels."""
    facts = memory.facts
    if facts is None:
        return None
    if isinstance(memory, VectorMemory):
        return None if facts.classes is None else facts.T * math.log2(max(2, facts.classes))
    return facts.T * math.log2(max(2, len(facts.answer_ids)))


@dataclass(frozen=True)
class Bar:
    """One bar of the capacity drawing; `share` of the width on a logarithmic scale."""

    label: str
    value: float
    kind: str
    note: str
    share: float = 0.0


def capacity_bars(memory: Any) -> list[Bar]:
    """Facts held, what the theorem promises, the parameters, the information limit."""
    facts, spec, made = memory.facts, memory.spec, memory.construction
    bars = []
    if facts is not None:
        bars.append(Bar("facts held", facts.T, "held", "what this memory recalls"))
    method = str(made.get("method", ""))
    promised = made.get("capacity") or made.get("promised")
    if promised:
        note = PROMISES.get(method, "the construction's count")
        bars.append(Bar("room by the theorem", float(promised), "lower bound", note))
    if isinstance(memory, VectorMemory):
        bars += _vector_limits(memory)
    bars.append(Bar("parameters", float(spec.parameters), "size", "numbers in the weights"))
    limit = _information(memory)
    if limit is not None:
        bars.append(Bar("information limit", limit, "upper bound", "bits of all weights / log2 A"))
    top = math.log10(max(bar.value for bar in bars) or 1)
    scaled = [math.log10(max(bar.value, 1)) / top if top else 1.0 for bar in bars]
    return [Bar(b.label, b.value, b.kind, b.note, s) for b, s in zip(bars, scaled, strict=True)]


def _vector_limits(memory: VectorMemory) -> list[Bar]:
    from byheart.theory import bounds

    found = [
        a for a in bounds(memory.spec)
        if a.applies and a.id.startswith("mahdavi2024.effective") and memory.spec.d_out == 1
    ]  # fmt: skip
    return [
        Bar("no weights can hold more", float(a.capacity or 0), "upper bound", a.id) for a in found
    ]


def _information(memory: Any) -> float | None:
    """How many such facts the bits of the weights could tell apart at most."""
    bits = stored_bits(memory)
    if not bits or memory.facts is None:
        return None
    if isinstance(memory, ExactMemory):
        total = memory.spec.total_bits
    else:
        total = memory.spec.parameters * memory.dtype.itemsize * 8
    return total / (bits / memory.facts.T)


@dataclass(frozen=True)
class Box:
    """One part of the architecture: `squares` draws that many heads."""

    name: str
    lines: tuple[str, ...]
    parameters: int | None = None
    squares: int = 0
    skip: bool = False


def boxes(memory: Any) -> list[Box]:
    """The parts that a key runs through, with shapes and counts that add up."""
    spec = memory.spec
    if isinstance(memory, ExactMemory):
        return _exact_boxes(memory)
    if isinstance(memory, VectorMemory):
        shapes = spec.weight_shapes()
        size = {name: math.prod(shape) for name, shape in shapes.items()}
        heads = sum(size[name] for name in ("W_Q", "W_K", "W_V", "W_O"))
        found = [Box("query and context", (f"e: {spec.d} numbers", f"E: {spec.n} × {spec.d}"))]
        if spec.embed:
            found.append(Box("embedding", (f"{spec.d} × {spec.d}",), size["W_E"] + size["b_E"]))
        found.append(Box(number_of(spec.H, "head"), _heads(shapes), heads, spec.H))
        if spec.decoder:
            found.append(Box("decoder", (f"{spec.d} × {spec.d_out}",), size["W_U"] + size["b_U"]))
        kind = f"logits of {memory.classes} classes" if memory.classes else "the label"
        return [*found, Box(kind, (f"{spec.d_out} number{'s'[: spec.d_out > 1]}",))]
    if isinstance(spec, ShardedSpec):
        return _dense_boxes(memory, spec.dense(), f"in {spec.shards} shards, gated")
    return _dense_boxes(memory, spec, "")


def _heads(shapes: dict[str, tuple[int, ...]]) -> tuple[str, ...]:
    return tuple(
        f"{name}: {' × '.join(map(str, shapes[name][-2:]))}"
        for name in ("W_Q", "W_K", "W_V", "W_O")
        if name in shapes
    )


def _dense_boxes(memory: Any, spec: Any, gated: str) -> list[Box]:
    shapes = spec.weight_shapes()
    size = {name: math.prod(shape) for name, shape in shapes.items()}
    tokens = getattr(spec, "S", 0)
    start = ("behind a start token",) if tokens > memory.key_length else ()
    found = [Box("key", (number_of(memory.key_length, "token"), f"of {spec.N:,}", *start))]
    if not isinstance(spec, (AttentionOnlySpec, MLPTransformerSpec, SharedBottleneckSpec)):
        parts = [Box(n, (" × ".join(map(str, s)),), size[n]) for n, s in shapes.items()]
        return [*found, *parts, Box("answer", ("largest logit",))]
    embeddings = size["W_E"] + size.get("W_pos", 0)
    lines = (f"W_E: {spec.N:,} × {spec.d}", f"W_pos: {tokens} × {spec.d}")
    found.append(Box("embedding", lines, embeddings))
    between = spec.parameters - embeddings - size["W_U"]
    layers = getattr(spec, "layers", 1)
    label = number_of(spec.H, "head") + (f" × {layers} layers" if layers > 1 else "")
    more = (gated,) if gated else ()
    if isinstance(spec, MLPTransformerSpec):
        more = (*more, f"feed-forward width {spec.w}")
    skip = getattr(spec, "skip", True)
    found.append(Box(label, (*_heads(shapes), *more), between, spec.H, skip))
    found.append(Box("W_U", (f"{spec.d} × {spec.N:,}",), size["W_U"]))
    kind = "distribution" if memory.construction.get("kind") == "distribution" else "answer"
    what = "softmax over the answers" if kind == "distribution" else "largest logit"
    return [*found, Box(kind, (what,))]


def _exact_boxes(memory: ExactMemory) -> list[Box]:
    spec = memory.spec
    found = [
        Box(
            "key", (number_of(spec.S, "token"), "(id, position)" if spec.ordered else "a multiset")
        ),
        Box("FF1", (f"{spec.ff1}: tokens to ids", "ReLU blocks")),
        Box("attention", ("uniform: adds the ids up",), None, 1),
        Box("FF2", ("the sum to a class", "by folds and tables")),
    ]
    size = f"{spec.depth:,} blocks of width {spec.width}, {spec.parameters:,} parameters in all"
    return [*found, Box("class", (f"one of {spec.classes:,}, 0: unknown", size))]


def loading(memory: Any, folder: Path | None) -> str:
    """Python that loads the memory and asks it, from where the folder is."""
    place = repr(folder.name if folder is not None else "DIR")
    lines = ["import byheart as bh", f"memory = bh.load({place})"]
    if isinstance(memory, VectorMemory):
        lines += [
            "module = memory.to_torch()  # a plain torch.nn.Module",
            "f = memory.facts",
            "module(torch.tensor(f.contexts()[:1]).to(memory.dtype), "
            "torch.tensor(f.query[:1]).to(memory.dtype))",
        ]
        return "\n".join(["import torch", *lines])
    key = ", ".join(repr(t) for t in memory.facts.key(0)) if memory.facts is not None else "..."
    lines.append(f"memory.recall({key})")
    if isinstance(memory, ExactMemory):
        return "\n".join([*lines, "# integers that no float holds: no torch module"])
    if memory.spec.family != "associative":
        if memory.spec.family == "sharded":
            lines.append("memory = memory.to_dense()  # every head and gate written out")
        comma = "," if memory.facts is not None and memory.facts.S == 1 else ""
        lines += [
            "module = memory.to_torch()  # a plain torch.nn.Module, weights named W_Q, W_K, ...",
            f"logits = module(memory.encode([({key}{comma})]))",
            "memory.vocabulary.token(int(logits.argmax()))",
        ]
    return "\n".join(lines)
