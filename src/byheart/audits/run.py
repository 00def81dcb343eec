"""The audit: do the papers' assumptions hold in a real model, layer by layer?"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from pathlib import Path

from byheart._folders import write_text
from byheart._json import plain
from byheart._progress import Report, quiet
from byheart._version import __version__
from byheart.audits.inputs import PathLike, contexts_of
from byheart.audits.measures import LayerChecks, Record
from byheart.audits.models import find_model, open_model
from byheart.audits.settings import AuditSettings
from byheart.audits.states import collect
from byheart.audits.tables import HEADER, headline, summary, table_rows
from byheart.errors import ByheartError
from byheart.training.choose import check_device

SCHEMA = 1
KEPT_SETTINGS = ("draws", "search", "batch", "device", "seed")


@dataclass(frozen=True, repr=False)
class Measured:
    """What was measured, as one JSON object (docs/formats.md)."""

    record: Record

    def to_json(self) -> Record:
        return self.record

    def save(self, file: PathLike) -> None:
        """Write the record as JSON, whole or not at all."""
        try:
            write_text(Path(file), json.dumps(self.record, ensure_ascii=False) + "\n")
        except OSError as error:
            raise ByheartError(f"{file} cannot be written: {error.strerror}.") from None


class Audit(Measured):
    """`record["layers"]` has one entry a layer and kind of weights, with `checks` for tables and
    everything else below."""

    def layers(self, weights: str = "trained") -> list[Record]:
        """The layers of the trained or the random weights, first to last."""
        return [layer for layer in self.record["layers"] if layer["weights"] == weights]

    def __repr__(self) -> str:
        lines = [*headline(self.record), *summary(self.record)]
        if len(lines) > 8:
            lines[7:] = [f"... {len(lines) - 7} more: see `record`"]
        return "\n  ".join(lines)

    def _repr_html_(self) -> str:
        """Headline, verdicts and the table of `byheart audit`, for a notebook."""
        words = "<br>".join(map(escape, [*headline(self.record), *summary(self.record)]))
        rows = [HEADER, *table_rows(self.record)]
        body = "".join(f"<tr>{''.join(f'<td>{escape(x)}</td>' for x in row)}</tr>" for row in rows)
        return f"<div>{words}<table>{body}</table></div>"


def audit(
    model: PathLike,
    *,
    text: PathLike | Sequence[PathLike] | None = None,
    tokens: PathLike | None = None,
    images: PathLike | None = None,
    settings: AuditSettings | None = None,
    progress: Report = quiet,
) -> Audit:
    """Measure Assumptions 1 to 3 of Mahdavi et al. (2024), General Position and (r, δ)-separation
    on the hidden states of every layer of `model`.

    `model`: a folder of Hugging Face files (BERT, GPT-2, Llama, ViT) with safetensors weights, a
    GGUF file, a name in the local cache, "minilm" or "smollm2". One of `text` (files), `tokens`,
    `images` says what it is shown; `settings` how much, and how it is measured. Nothing is
    downloaded, no code of a model is run.
    """
    started, cpu = time.perf_counter(), time.process_time()
    settings = settings or AuditSettings()
    check_device(settings.device, ("cuda",))
    found = find_model(model)
    kinds = settings.kinds(found.causal)
    shown = contexts_of(
        found, {"text": text, "tokens": tokens, "images": images},
        n=settings.length, T=settings.contexts,
    )  # fmt: skip
    checks = LayerChecks(found, shown.n, kinds, settings, progress)
    layers: list[Record] = []
    forward = 0.0
    for weights in ("trained", "random") if settings.random else ("trained",):
        states, begin = {}, time.process_time()

        def tell(text: str, weights: str = weights) -> None:
            progress(f"{weights}: {text}")

        for dtype in settings.run_in:
            network = open_model(found, random=weights == "random", dtype=dtype, settings=settings)
            states[dtype] = collect(network, found, shown, kinds, dtype, settings, tell)
            del network
        forward += time.process_time() - begin
        for i, block in enumerate([*states["float64"].heads, None]):
            here = {dtype: s.layers[i] for dtype, s in states.items()}
            layers.append(checks.record(i, weights, here, block))
    record = plain(
        {
            "kind": "byheart audit",
            "schema": SCHEMA,
            "byheart": __version__,
            "model": found.to_json(),
            "data": shown.to_json(),
            "settings": {
                "queries": kinds,
                "formats": settings.run_in,
                "ranked": min(settings.ranked, shown.T),
                **{name: getattr(settings, name) for name in KEPT_SETTINGS},
            },
            "layers": layers,
            "forward_cpu_seconds": forward,
            **costs(started, cpu),
        }
    )
    assert isinstance(record, dict)
    return Audit(record)


def costs(started: float, cpu: float) -> Record:
    """Seconds since the two clocks' readings, peak memory, and what ran."""
    return {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - cpu,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "versions": {name: version(name) for name in ("torch", "transformers", "numpy")},
    }
