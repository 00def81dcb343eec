"""`byheart import`: an exported model, perhaps trained since, as a memory again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from byheart.cli import _options as opt
from byheart.cli import _store
from byheart.cli._show import guarded
from byheart.errors import MemoryFileError


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
    certify: _store.Certify = False,
    force: _store.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Turn an attention-only model into a memory that can be asked, measured and certified.

    The weights are those of an export, or of the same model after training in torch or
    TransformerLens; biases are folded in exactly, LayerNorm and feed-forward layers are refused.
    """
    if not Path(folder).is_dir():
        raise MemoryFileError(
            f"{folder}: no such folder. `byheart export DIR --to torch -o {folder}` makes one."
        )

    from byheart.exports import import_memory

    table = None if facts is None else opt.read(facts, {})
    stored = _store.store(
        lambda tell: import_memory(folder, weights=weights, facts=table),
        output,
        certify=certify,
        force=force,
    )
    made = stored.memory.construction
    known = stored.memory.facts is not None
    extra = {"facts": made.facts if known else None, "recalled": made.recalled if known else None}
    _store.show(stored, as_json, extra)
