"""The audit: do the papers' assumptions hold in a real model, layer by layer?"""

from __future__ import annotations

import json
import math
import os
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from byheart._folders import write_text
from byheart._version import __version__
from byheart.audits.inputs import Contexts, image_contexts, text_contexts, token_contexts
from byheart.audits.layers import layer_record
from byheart.audits.models import FoundModel, check_device, find_model, open_model, tokenizer_of
from byheart.audits.states import QUERIES, collect
from byheart.errors import ByheartError

SCHEMA = 1
FORMATS = ("float32", "float64")


@dataclass(frozen=True)
class Audit:
    """What was measured, as one JSON object (docs/formats.md): `record["layers"]` has one entry a
    layer and kind of weights, with `checks` for tables and everything else below."""

    record: dict[str, Any]

    def layers(self, weights: str = "trained") -> list[dict[str, Any]]:
        """The layers of the trained or the random weights, first to last."""
        return [layer for layer in self.record["layers"] if layer["weights"] == weights]

    def to_json(self) -> dict[str, Any]:
        return self.record

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the record as JSON, whole or not at all."""
        try:
            write_text(Path(file), json.dumps(self.record, ensure_ascii=False) + "\n")
        except OSError as error:
            raise ByheartError(f"{file} cannot be written: {error.strerror}.") from None


def audit(
    model: str | os.PathLike[str],
    *,
    text: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    tokens: str | os.PathLike[str] | None = None,
    images: str | os.PathLike[str] | None = None,
    length: int | None = None,
    contexts: int = 2000,
    queries: Sequence[str] | None = None,
    formats: Sequence[str] = FORMATS,
    random: bool = True,
    ranked: int = 200,
    draws: int = 200,
    search: int = 4,
    batch: int = 32,
    device: str = "cpu",
    seed: int = 0,
    report: Callable[[str], None] = lambda text: None,
) -> Audit:
    """Measure Assumptions 1 to 3 of Mahdavi et al. (2024), General Position and (r, δ)-separation
    on the hidden states of every layer of `model`.

    `model`: a folder of Hugging Face files (BERT, GPT-2, Llama, ViT) with safetensors weights, a
    GGUF file, a name in the local cache, "minilm" or "smollm2". One of `text` (files), `tokens`,
    `images` says what it is shown: at most `contexts` different contexts of `length` tokens.
    `queries`: "first", "last", "every" (the first named is the main one; default: last and every
    for causal models, all three for others). `formats`: number formats in which the model is run;
    float64 is always among them. `random`: also with weights drawn anew from the same config.
    `ranked` contexts are kept whole for their ranks, `draws` subsets are sampled, dependent sets of
    up to `search` rows are looked for. Nothing is downloaded, no code of a model is run.
    """
    started, cpu = time.perf_counter(), time.process_time()
    formats = tuple(dict.fromkeys((*formats, "float64")))
    _check(formats, contexts=contexts, ranked=ranked, draws=draws, batch=batch, search=search)
    check_device(device)
    found = find_model(model)
    kinds = _kinds(queries, found)
    shown = _inputs(found, text, tokens, images, length, contexts)
    layers: list[dict[str, Any]] = []
    forward = 0.0
    for weights in ("trained", "random") if random else ("trained",):
        states = {}
        for dtype in formats:
            begin = time.process_time()
            network = open_model(
                found, random=weights == "random", dtype=dtype, device=device, seed=seed
            )
            states[dtype] = collect(
                network, found, shown, kinds=kinds, dtype=dtype, batch=batch, ranked=ranked,
                device=device, seed=seed,
                report=lambda text, weights=weights: report(f"{weights}: {text}"),
            )  # fmt: skip
            del network
            forward += time.process_time() - begin
        for i in range(found.spec.layers + 1):
            here = {dtype: s.layers[i] for dtype, s in states.items()}
            heads = states["float64"].heads
            block = heads[i] if i < len(heads) else None
            one = layer_record(
                found, i, weights, here, block, n=shown.n, kinds=kinds, draws=draws, search=search,
                seed=seed, report=report,
            )  # fmt: skip
            layers.append(one)
    return Audit(
        plain(
            {
                "kind": "byheart audit",
                "schema": SCHEMA,
                "byheart": __version__,
                "model": found.to_json(),
                "data": shown.to_json(),
                "settings": {
                    "queries": list(kinds),
                    "formats": list(formats),
                    "ranked": int(min(ranked, shown.T)),
                    "draws": draws,
                    "search": search,
                    "batch": batch,
                    "device": device,
                    "seed": seed,
                },
                "layers": layers,
                "seconds": time.perf_counter() - started,
                "cpu_seconds": time.process_time() - cpu,
                "forward_cpu_seconds": forward,
                "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                "versions": _versions(),
            }
        )
    )


def plain(value: Any) -> Any:
    """JSON's own types only: text as keys, lists, no infinities (null).

    >>> plain({2: (float("inf"), 1)})
    {'2': [None, 1]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _kinds(queries: Sequence[str] | None, found: FoundModel) -> tuple[str, ...]:
    if queries is None:
        return ("last", "every") if found.causal else QUERIES
    kinds = tuple(dict.fromkeys(queries))
    unknown = [kind for kind in kinds if kind not in QUERIES]
    if unknown or not kinds:
        raise ByheartError(f"expected --queries among {', '.join(QUERIES)}, found {unknown}.")
    return kinds


def _inputs(
    found: FoundModel, text: Any, tokens: Any, images: Any, length: int | None, contexts: int
) -> Contexts:
    given = [name for name, v in (("text", text), ("tokens", tokens), ("images", images)) if v]
    if len(given) != 1:
        raise ByheartError(
            f"give one of --text, --tokens and --images, found {' and '.join(given) or 'none'}."
        )
    if found.images != (given[0] == "images"):
        needs = "--images" if found.images else "--text or --tokens"
        raise ByheartError(f"{found.name} is a {found.kind} model and reads {needs}.")
    if images:
        return image_contexts(images, found, T=contexts)
    if tokens:
        return token_contexts(tokens, found, n=length, T=contexts)
    files = [text] if isinstance(text, (str, os.PathLike)) else list(text)
    return text_contexts(files, tokenizer_of(found), found, n=length, T=contexts)


def _check(formats: Sequence[str], **counts: int) -> None:
    unknown = [f for f in formats if f not in FORMATS]
    if unknown:
        raise ByheartError(f"expected formats {', '.join(FORMATS)}, found {', '.join(unknown)}.")
    for name, value in counts.items():
        least = 2 if name in ("contexts", "search") else 1
        if value < least:
            raise ByheartError(f"{name} must be at least {least}, found {value}.")


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("torch", "transformers", "numpy")}
