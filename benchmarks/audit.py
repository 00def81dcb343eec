"""Audits of real models, round trips of exports: the tables of docs/audit.md and docs/export.md.

python benchmarks/audit.py                      everything (about half an hour on two cores)
python benchmarks/audit.py minilm               some of it: minilm, smollm2, heads, digits, exports,
                                                probe
python benchmarks/audit.py --contexts 200       fewer contexts than the default of each part
python benchmarks/audit.py --out DIR            where JSON records and figures go (audit-results)

Needs `make models` for minilm and smollm2. Seconds are CPU seconds of this process unless said
otherwise. The text is what the machine has: licences of the operating system, docstrings of Python.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

import byheart as bh
from byheart.audits import (
    AuditSettings,
    HeadSettings,
    audit_figure,
    audit_heads,
    head_rows,
    heads_figure,
    table_rows,
)
from byheart.audits.head_tables import HEAD_HEADER, PAIR_HEADER, head_lines, pair_rows
from byheart.audits.tables import HEADER
from byheart.exports import TARGETS, import_memory
from byheart.exports.folders import KEYS
from byheart.papers.mahdavi2024.representations import text_files, vit_of_digits
from byheart.theory.plots import save

PARTS = ("minilm", "smollm2", "heads", "digits", "exports", "probe")


def audited(name: str, out: Path, model: Any, **options: Any) -> dict[str, Any]:
    shown = {name: options.pop(name) for name in ("text", "images") if name in options}
    found = bh.audit(model, **shown, settings=AuditSettings(**options), progress=_log())
    found.save(out / f"{name}.json")
    save(audit_figure(found.record), out / f"{name}.png")
    record = found.record
    m, data = record["model"], record["data"]
    print(f"\n## {name}: {m['type']}, {m['weights']}, {m['parameters']:,} parameters, d={m['d']}, "
          f"H={m['H']}, kv_heads={m['kv_heads']}, d_h={m['d_h']}, {data['contexts']:,} contexts of "
          f"n={data['n']} from {data['source']}, {data['repeated']} repeated\n")  # fmt: skip
    markdown(HEADER, table_rows(record))
    ladder(record)
    print(
        f"\n{record['seconds']:.0f} s wall, {record['cpu_seconds']:.0f} s CPU, of which "
        f"{record['forward_cpu_seconds']:.0f} s in the model; peak memory "
        f"{record['peak_bytes'] / 1e9:.2f} GB"
    )
    return record


def ladder(record: dict[str, Any]) -> None:
    """What changes with the tolerance: first layers, middle, last; trained; float64 states."""
    layers = [x for x in record["layers"] if x["weights"] == "trained"]
    main = record["settings"]["queries"][0]
    chosen = sorted({0, 1, len(layers) // 2, len(layers) - 1})
    steps = list(layers[0]["queries"][main]["settings"][-1]["ladder"])
    print("\nRelative tolerance: share of independent n-subsets (rank of all queries), float64\n")
    rows = []
    for i in chosen:
        for s in layers[i]["queries"][main]["settings"]:
            if s["dtype"] == "float64":
                name = f"{i}, {'centred' if s['centred'] else 'raw'}"
                cells = [f"{s['ladder'][t]:.2g} ({s['rank_ladder'][t]})" for t in steps]
                rows.append((name, *cells))
    markdown(("layer", *steps), rows)


def minilm(out: Path, contexts: int | None) -> None:
    with tempfile.TemporaryDirectory() as place:
        audited("minilm", out, "minilm", text=text_files(Path(place)), length=64,
                contexts=contexts or 2000)  # fmt: skip


def smollm2(out: Path, contexts: int | None) -> None:
    with tempfile.TemporaryDirectory() as place:
        audited("smollm2", out, "smollm2", text=text_files(Path(place)), length=32,
                contexts=contexts or 640, draws=100, ranked=60, batch=16)  # fmt: skip


def heads(out: Path, contexts: int | None) -> None:
    """What the heads of SmolLM2 store, on the beginnings of the licences, then docstrings."""
    with tempfile.TemporaryDirectory() as place:
        *licences, docs = text_files(Path(place))
        begins = Path(place) / "licences.txt"
        read = (file.read_text(encoding="utf-8", errors="replace") for file in licences)
        begins.write_text("\n".join(text[:500] for text in read), encoding="utf-8")
        settings = HeadSettings(contexts=contexts or 80, top=6)
        found = audit_heads("smollm2", text=[begins, docs], settings=settings, progress=_log())
    found.save(out / "heads.json")
    save(heads_figure(found.record), out / "heads.png")
    print("\n## heads\n", *head_lines(found.record), "", sep="\n")
    markdown(HEAD_HEADER, head_rows(found.record))
    print()
    markdown(PAIR_HEADER, pair_rows(found.record))


def digits(out: Path, contexts: int | None) -> None:
    with tempfile.TemporaryDirectory() as place:
        accuracy, seconds = train_vit(Path(place) / "vit")
        record = audited("digits-vit", out, Path(place) / "vit", images="digits",
                         contexts=contexts or 1797)  # fmt: skip
    print(f"\nViT trained here: test accuracy {accuracy:.3f} on 360 digits, {seconds:.0f} s CPU")
    (out / "digits-vit.json").write_text(json.dumps(record | {"test_accuracy": accuracy}))


def train_vit(folder: Path, epochs: int = 40) -> tuple[float, float]:
    """The small ViT, saved; its accuracy on digits it has not seen, and the seconds it took."""
    start = time.process_time()
    model, accuracy = vit_of_digits(epochs, seed=0)
    model.vit.save_pretrained(folder)
    return accuracy, time.process_time() - start


def exports(out: Path, contexts: int | None) -> None:
    """Build, export, load elsewhere: all facts, largest difference of a logit."""
    tables = {
        "countries": bh.build(bh.read_facts("countries")),
        "countries, float64": bh.build(bh.read_facts("countries"), dtype="float64"),
        "countries, sharded": bh.build(bh.read_facts("countries"), "sharded"),
        "elements": bh.build(bh.read_facts("elements")),
    }
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for name, memory in tables.items():
            dense: Any = memory.to_dense()
            tokens, right = dense.with_start(dense.facts.tokens), torch.tensor(dense.facts.answers)
            own, exact = dense.outputs(tokens), dense.outputs(tokens, torch.float64)
            for to in TARGETS:
                folder = bh.export(memory, Path(place) / f"{name} {to}", to=to)
                logits, double = elsewhere(to, folder, load_file(folder / KEYS)["tokens"])
                answered = "?" if logits is None else int((logits.argmax(1) == right).sum())
                back = import_memory(folder) if to in ("torch", "transformer-lens") else None
                rows.append(
                    (
                        name, to, f"{answered} of {len(right)}",
                        _number(_words(logits, own), own), _number(_words(double, own), exact),
                        "" if back is None else f"{bh.accuracy(back):.0%}, certified "
                        f"{bh.certify(back).certified}",
                    )
                )  # fmt: skip
    print("\n## exports: logits elsewhere against the memory's\n")
    markdown(("memory", "to", "right", "largest difference", "in float64", "imported back"), rows)


def _words(logits: torch.Tensor | None, own: torch.Tensor) -> torch.Tensor | None:
    """The logits of the memory's own tokens: a GPT-2 has [UNK], [END] and [ASK] besides."""
    return None if logits is None else logits[:, : own.shape[1]]


def elsewhere(to: str, folder: Path, tokens: torch.Tensor) -> tuple[Any, Any]:
    """Logits in the memory's format and in float64, as the other tool computes them."""
    with torch.no_grad():
        if to == "torch":
            from byheart.models.standalone.attention_only import load

            model = load(folder)
            return model(tokens), model.double()(tokens)
        if to == "hugging-face":
            from transformers import AutoModelForCausalLM

            gpt2: Any = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
            return gpt2(tokens).logits[:, -1], gpt2.double()(tokens).logits[:, -1]
        if to == "onnx":
            import onnxruntime

            session = onnxruntime.InferenceSession(folder / "model.onnx")
            found = torch.tensor(np.asarray(session.run(None, {"tokens": tokens.numpy()})[0]))
            return found, found if found.dtype == torch.float64 else None
    return in_transformer_lens(folder, tokens)


LENS = """
import torch
from safetensors.torch import load_file, save_file
from load import load
tokens = load_file("asked.safetensors")["tokens"]
with torch.no_grad():
    model = load()
    own = model(tokens)[:, -1].contiguous()
    double = model.double()(tokens)[:, -1].contiguous()
save_file({"own": own, "double": double}, "said.safetensors")
"""


def in_transformer_lens(folder: Path, tokens: torch.Tensor) -> tuple[Any, Any]:
    """In a process of its own, by the interpreter that BYHEART_LENS_PYTHON names if it is set."""
    python = os.environ.get("BYHEART_LENS_PYTHON", sys.executable)
    save_file({"tokens": tokens.contiguous()}, folder / "asked.safetensors")
    done = subprocess.run([python, "-c", LENS], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": ""})  # fmt: skip
    if done.returncode:
        print(f"TransformerLens: {done.stderr.splitlines()[-1]}", file=sys.stderr)
        return None, None
    said = load_file(folder / "said.safetensors")
    return said["own"], said["double"]


def probe(out: Path, contexts: int | None) -> None:
    import runpy

    print("\n## probe\n")
    example = Path(__file__).parents[1] / "examples" / "build_and_probe.py"
    runpy.run_path(str(example), run_name="__main__")


def markdown(header: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(str(cell).replace("|", "&#124;") for cell in row) + " |")


def _number(found: Any, wanted: torch.Tensor) -> str:
    return "" if found is None else f"{float((found - wanted).abs().max()):.1e}"


def _log() -> Any:
    last = [time.monotonic()]

    def report(text: str) -> None:
        if time.monotonic() - last[0] > 15:
            last[0] = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="which parts (all)")
    parser.add_argument("--contexts", type=int)
    parser.add_argument("--out", type=Path, default=Path("audit-results"))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in asked.parts or PARTS:
        globals()[name](asked.out, asked.contexts)


if __name__ == "__main__":
    main()
