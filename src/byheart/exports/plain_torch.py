"""The plainest export: one readable PyTorch file with its weights, which needs no byheart."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path

from safetensors.torch import save as dump_tensors

from byheart.exports import folders, readmes
from byheart.exports.folders import Export
from byheart.exports.normal import dense_layer, dense_spec
from byheart.facts import VectorFacts
from byheart.models import Memory, VectorMemory
from byheart.models.modules import reading, torch_config, torch_state, vector_config, vector_state

WEIGHTS = "weights.safetensors"
ASKED = """from model import load

model = load()
answer, margin = model.ask({words})
assert answer == {answer!r}"""
SILENCED = """

def silence(module, inputs, written):  # (batch, position, head, d): what each head adds
    written = written.clone()
    written[:, :, fact["heads"]] = 0
    return written


hook = model.layers[fact["layer"]].hook_heads.register_forward_hook(silence)
assert model.ask(*fact["key"])[0] != fact["answer"]  # without its heads the fact is lost
hook.remove()"""
FILES = {
    "model.py": "the model, with hook points (`hook_heads`, `hook_pattern`, ...: see its top)",
    "config.json, weights.safetensors": "its sizes and its state dict, TransformerLens names",
    "vocabulary.json, facts.safetensors": "words by id; keys as the model reads them, answers",
}


@singledispatch
def export_torch(memory: Memory, folder: str | Path, *, force: bool = False) -> Path:
    """Write `model.py`, `config.json`, `weights.safetensors` (a state dict) and the vocabulary.
    Another package registers its own."""
    return torch_export(memory).write(folder, force=force)


DEFAULT = export_torch.dispatch(Memory)


@singledispatch
def torch_export(memory: Memory, *, large: bool = False) -> Export:
    """The folder that `export_torch` writes."""
    spec, dtype = dense_spec(memory), memory.dtype  # type: ignore[attr-defined]
    folders.check_size(spec.parameters, dtype, "torch", large=large)
    dense, _ = dense_layer(memory)
    state, owners = torch_state(spec, dense.weights), memory.owners()
    weights, parameters = dump_tensors(state), folders.count(state)
    shown = readmes.example(dense, owners)
    files = {
        "model.py": (folders.STANDALONE / "attention_only.py").read_text(encoding="utf-8"),
        "config.json": torch_config(spec) | reading(dense),
        WEIGHTS: weights,
        **folders.token_files(dense),
        **folders.owner_files(memory),
        folders.README: readmes.readme(
            str(spec),
            [
                ASKED.format(words=shown.words, answer=shown.answer),
                *shown.owners_code(SILENCED),
            ],
            ("Keys", readmes.keys_text(dense, shown, *readmes.reading_text(dense, "encode"))),
            ("Owners", readmes.owners_text(owners)),
            ("Size", readmes.size_text(parameters, weights, memory.spec.parameters)),
            ("Rounding", readmes.rounding_text(memory)),
            files=FILES,
        ),
    }
    record = {"family": spec.family, "parameters": parameters}
    return folders.make_export("torch", files, record, memory.spec.parameters)


VECTORS = """import torch
from model import load

model = load()
config = model.config
context = {context}
query = torch.zeros(1, config["d_model"], dtype=model.W_Q.dtype)
print(model(context, query).shape)"""
OWN_CONTEXT = 'torch.zeros(1, config["n_ctx"], config["d_model"], dtype=model.W_Q.dtype)'


@torch_export.register
def _(memory: VectorMemory, *, large: bool = False) -> Export:
    spec, state = memory.spec, vector_state(memory)
    weights, parameters, owners = dump_tensors(state), folders.count(state), memory.owners()
    shared = memory.context is not None
    files: dict[str, object] = {
        "model.py": (folders.STANDALONE / "multi_head.py").read_text(encoding="utf-8"),
        "config.json": vector_config(memory),
        WEIGHTS: weights,
    }
    if owners is not None and memory.facts is not None:
        files[folders.OWNERS] = owners.to_json(NumberedExamples(memory.facts))  # type: ignore[arg-type]
    files[folders.README] = readmes.readme(
        str(spec),
        [VECTORS.format(context="None  # all examples share that of the file" if shared
                        else OWN_CONTEXT)],
        ("Owners", vector_owners_text(memory)),
        ("Size", readmes.size_text(parameters, weights, spec.parameters)),
        ("Rounding", readmes.rounding_text(memory)),
        files={"model.py": FILES["model.py"],
               "config.json, weights.safetensors": "its sizes and its state dict"},
    )  # fmt: skip
    record = {"family": spec.family, "parameters": parameters}
    return folders.make_export("torch", files, record, spec.parameters)


def vector_owners_text(memory: VectorMemory) -> str:
    owners = memory.owners()
    if owners is None:
        return "No head holds an example alone."
    return (
        f"`{folders.OWNERS}` says which head holds which example, by construction: `facts` (the "
        "key is the\nrow of the example in its table) and `heads` (`layer.head` -> examples).\n"
        f"What else depends on the heads: {owners.others}."
    )


@dataclass(frozen=True)
class NumberedExamples:
    """Vectors as a table of keys: an example is named by its row, and its answer has no word."""

    facts: VectorFacts

    @property
    def T(self) -> int:
        return self.facts.T

    def key(self, i: int) -> tuple[str, ...]:
        return (str(self.facts.rows[i]),)

    def answer(self, i: int) -> None:
        return None
