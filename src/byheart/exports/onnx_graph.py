"""A memory as an ONNX graph: token ids (batch, S) in, logits (batch, N) out. Needs `onnx`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from byheart._install import install
from byheart.errors import ByheartError
from byheart.exports import folders, readmes
from byheart.exports.folders import Export
from byheart.exports.normal import dense_layer, dense_spec, normal_form, normal_spec
from byheart.models.memory import Memory
from byheart.models.modules import PER_LAYER

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 17


ASKED = """from ask import ask

answer, margin = ask({words})
assert answer == {answer!r}"""
FILES = {
    "model.onnx": "`tokens (batch, S)` int64 -> `logits (batch, N)`; `z.0`, `heads.0`, ... inside",
    "ask.py": "`ask(...)` with onnxruntime, and `tokens(...)`: the ids of a key",
    "vocabulary.json, facts.safetensors": "words by id; keys as the model reads them, answers",
}


def onnx_export(memory: Memory, *, large: bool = False) -> Export:
    """`model.onnx`, run by any ONNX runtime, the vocabulary, and `ask.py`."""
    parameters = normal_spec(dense_spec(memory)).parameters
    folders.check_size(parameters, memory.dtype, "onnx", large=large)  # type: ignore[attr-defined]
    dense, _ = dense_layer(memory)
    weights, owners = graph(dense).SerializeToString(), memory.owners()
    shown, own = readmes.example(dense, owners), memory.spec.parameters
    files = {
        "model.onnx": weights,
        "ask.py": (folders.STANDALONE / "onnx_session.py").read_text(encoding="utf-8"),
        **folders.owner_files(memory),
        folders.README: readmes.readme(
            "A memory of byheart as an ONNX graph",
            [
                ASKED.format(words=shown.words, answer=shown.answer),
                *replace(shown, owned=False).owners_code(""),
            ],
            ("Keys", readmes.keys_text(dense, shown, *readmes.reading_text(dense, "tokens"))),
            ("Owners", readmes.owners_text(owners)),
            ("Size", readmes.size_text(parameters, weights, own)),
            ("Rounding", readmes.rounding_text(memory)),
            files=FILES,
        ),
    }
    return folders.layer_export(dense, "onnx", files, parameters, own)


def graph(memory: Memory) -> ModelProto:
    """The normal form of a memory, operation by operation, as an ONNX model."""
    form, spec = normal_form(memory)
    try:
        from onnx import TensorProto, checker, helper, numpy_helper
    except ModuleNotFoundError:
        raise ByheartError(
            f"ONNX is not installed: {install('onnx')}. `to=torch` needs nothing more."
        ) from None
    double = form.dtype == torch.float64
    kind, dtype = (TensorProto.DOUBLE, np.float64) if double else (TensorProto.FLOAT, np.float32)
    constants = {name: form.weights[name] for name in ("W_E", "W_pos", "W_U")}
    constants |= {f"{k}.{i}": form.weights[k][i] for i in range(spec.layers) for k in PER_LAYER}
    values = [numpy_helper.from_array(w.contiguous().numpy(), k) for k, w in constants.items()]
    # Not -inf: some runtimes compute 0 · inf. Nothing of the future is left at this depth.
    future = np.triu(np.full((spec.S, spec.S), -1e30, dtype), 1)
    values.append(numpy_helper.from_array(future, "future"))
    values.append(numpy_helper.from_array(np.array(spec.S - 1), "last"))
    nodes = []

    def node(kind: str, inputs: list[str], output: str, **options: int | str) -> str:
        step = helper.make_node(kind, inputs, [output])
        step.attribute.extend(helper.make_attribute(k, v) for k, v in options.items())
        nodes.append(step)
        return output

    x = node("Add", [node("Gather", ["W_E", "tokens"], "e"), "W_pos"], "x.0")
    for i in range(spec.layers):
        q, k, v = (
            node("Einsum", [x, f"W_{n}.{i}"], f"{n}.{i}", equation="bsd,hdr->bhsr") for n in "QKV"
        )
        scores = node("Einsum", [q, k], f"scores.{i}", equation="bhqr,bhsr->bhqs")
        masked = node("Add", [scores, "future"], f"masked.{i}")
        pattern = node("Softmax", [masked], f"pattern.{i}", axis=-1)
        z = node("MatMul", [pattern, v], f"z.{i}")
        heads = node("Einsum", [z, f"W_O.{i}"], f"heads.{i}", equation="bhsr,hrd->bsd")
        x = node("Add", [x, heads], f"x.{i + 1}")
    node("MatMul", [node("Gather", [x, "last"], "read", axis=1), "W_U"], "logits")
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "memory",
            [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", spec.S])],
            [helper.make_tensor_value_info("logits", kind, ["batch", spec.N])],
            values,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name="byheart",
        ir_version=8,
    )
    checker.check_model(model)
    return model
