"""`byheart export`: a memory as one plain attention layer."""

from __future__ import annotations

from typing import Annotated

import typer

from byheart.cli import _options as opt
from byheart.cli._show import emit, guarded, say


@guarded
def export(
    folder: opt.Folder,
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="DIR", help="The folder to write.")
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing memory folder, atomically.")
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """Write a sharded memory as one plain attention-only layer, every head and gate written out.

    The result is a memory folder like any other; its weights.safetensors holds W_E, W_pos, W_Q,
    W_K, W_V, W_O, W_U in TransformerLens layout for use in torch. Refused, with the size, where it
    does not fit.
    """
    from byheart.models import load

    dense = load(folder).to_dense()
    dense.save(output, force=force)
    if as_json:
        spec = {"family": dense.spec.family, **dense.spec.to_json()}
        emit({"path": output, "spec": spec, "parameters": dense.spec.parameters})
        return
    say(f"{dense.spec}\n{dense.spec.parameters:,} parameters, written to {output}")
    say("\nIn Python: byheart.load(DIR).to_torch() is a torch.nn.Module.")
