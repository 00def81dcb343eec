"""`byheart export`: a memory for another tool, or as one plain attention layer."""

from __future__ import annotations

from byheart.cli import _options as opt
from byheart.cli._group import option
from byheart.cli._show import emit, guarded, say
from byheart.errors import check_choice

NEXT = {
    "torch": 'In that folder: python -c "from model import load; print(load())"',
    "transformer-lens": "In that folder: from load import load; model = load()",
    "hugging-face": "In Python: transformers.AutoModelForCausalLM.from_pretrained({folder!r})",
    "onnx": "In Python: onnxruntime.InferenceSession({folder!r} + '/model.onnx')",
    "memory": "In Python: byheart.load({folder!r}).to_torch() is a torch.nn.Module.",
}


@guarded
def export(
    folder: opt.Folder,
    output: str = option(..., "The folder to write.", "-o", "--output", metavar="DIR"),
    to: str = option(
        "memory",
        "For which tool. memory: a byheart memory with every head written out.",
        metavar="torch|transformer-lens|hugging-face|onnx|memory",
    ),
    force: bool = option(False, "Replace an existing export, atomically.", "--force"),
    as_json: opt.Json = False,
) -> None:
    """Write a memory for another tool.

    torch: one readable file with a torch.nn.Module that has hook points, and a state dict.
    transformer-lens: weights under its names, and a loader. hugging-face: a GPT-2 with the same
    logits that AutoModelForCausalLM loads, with tokenizer files. onnx: a graph for any runtime.
    memory (the default): a sharded memory as one plain attention-only layer, every head and gate
    written out; refused, with the size, where it does not fit. `byheart import` reads the first
    two back, trained or not.
    """
    check_choice("to", to, NEXT)
    opt.check_memory_folder(folder)

    from byheart.exports import export as write
    from byheart.models import load

    memory = load(folder)
    if to == "memory":
        memory = memory.to_dense()
        memory.save(output, force=force)
    else:
        write(memory, output, to=to, force=force)
        memory = memory.to_dense()
    spec = memory.spec
    if as_json:
        found = {"family": spec.family, **spec.to_json()}
        emit({"path": output, "to": to, "spec": found, "parameters": spec.parameters})
        return
    say(f"{spec}\n{spec.parameters:,} parameters, written to {output} for {to}")
    say("\n" + NEXT[to].format(folder=output))
