"""A memory as an ONNX graph: token ids (batch, S) in, logits (batch, N) out. Needs `onnx`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from byheart._install import install
from byheart.errors import ByheartError
from byheart.exports import folders
from byheart.exports.normal import (
    check_export,
    dense_layer,
    dense_spec,
    normal_form,
    normal_spec,
)
from byheart.models.memory import Memory
from byheart.models.modules import PER_LAYER

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 17


def export_onnx(memory: Memory, folder: str | Path, *, force: bool = False) -> Path:
    """Write `model.onnx` and the vocabulary; run by any ONNX runtime."""
    parameters = normal_spec(dense_spec(memory)).parameters
    check_export(parameters, "onnx")
    dense, _ = dense_layer(memory)
    files = {"model.onnx": graph(dense).SerializeToString()}
    return folders.write_layer(dense, folder, "onnx", files, force, parameters)


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
