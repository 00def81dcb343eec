"""`byheart import`: an exported model, perhaps trained since, as a memory again."""

from __future__ import annotations

from typing import Annotated

import typer

from byheart.cli import _options as opt
from byheart.cli._show import emit, guarded, say


@guarded
def import_(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="DIR", help="A folder of `byheart export --to torch` or transformer-lens."
        ),
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="DIR", help="The memory folder to write.")
    ],
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights",
            metavar="FILE",
            help="Another .safetensors file with the same names, for instance after training.",
        ),
    ] = None,
    facts: Annotated[
        str | None,
        typer.Option(
            "--facts", metavar="FILE", help="The facts it should hold. Default: as in DIR."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing memory folder, atomically.")
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """Turn an attention-only model into a memory that can be asked, measured and certified.

    The weights are those of an export, or of the same model after training in torch or
    TransformerLens; biases are folded in exactly, LayerNorm and feed-forward layers are refused.
    """
    from byheart.exports import import_memory
    from byheart.facts import read_facts

    table = None if facts is None else read_facts(facts)
    memory = import_memory(folder, weights=weights, facts=table)
    held = None if memory.facts is None else memory.facts.T
    right = None if memory.facts is None else int((memory.margins(memory.facts) > 0).sum())
    memory.save(output, force=force)
    if as_json:
        spec = {"family": memory.spec.family, **memory.spec.to_json()}
        emit({"path": output, "spec": spec, "parameters": memory.spec.parameters, "facts": held,
              "recalled": right})  # fmt: skip
        return
    say(f"{memory.spec}\n{memory.spec.parameters:,} parameters, written to {output}")
    if held is not None:
        say(f"{right:,} of {held:,} facts recalled. Prove it: byheart certify {output}")
