"""`byheart import`: an exported model, perhaps trained since, as a memory again."""

from __future__ import annotations

from pathlib import Path

from byheart.cli import _options as opt
from byheart.cli import _store
from byheart.cli._group import argument, option
from byheart.cli._show import guarded
from byheart.errors import MemoryFileError


@guarded
def import_(
    folder: str = argument("DIR", "A folder of `byheart export --to torch` or transformer-lens."),
    output: str = option(..., "The memory folder to write.", "-o", "--output", metavar="DIR"),
    weights: str | None = option(
        None,
        "Another .safetensors file with the same names, for instance after training.",
        metavar="FILE",
    ),
    facts: str | None = option(
        None, "The facts it should hold. Default: as in DIR.", metavar="FILE"
    ),
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
