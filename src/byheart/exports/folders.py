"""What every export folder has: a marker that says what it is, the vocabulary, the facts, who owns
them, and a README whose code runs; and how large it is, said before it is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save as dump_tensors
from torch import Tensor

from byheart._folders import new_folder
from byheart._machine import check_room
from byheart._version import __version__
from byheart.errors import CapacityError
from byheart.facts import Facts
from byheart.models import Memory, TokenMemory, standalone
from byheart.models.modules import reading
from byheart.models.owner import Owners

MARKER, README = "byheart.json", "README.md"
VOCABULARY, KEYS, OWNERS = "vocabulary.json", "facts.safetensors", "owners.json"
STANDALONE = Path(standalone.__file__).parent
LARGEST_BYTES = 2_000_000_000  # of an export that nobody said yes to


@dataclass(frozen=True)
class Export:
    """A folder that is not written yet: its files, and how many parameters they hold (zeros that
    another tool needs included) for a memory of `own` parameters."""

    to: str
    files: Mapping[str, bytes]
    parameters: int
    own: int

    @property
    def bytes(self) -> int:
        """The size of the folder on disk: all of its files."""
        return sum(map(len, self.files.values()))

    def __str__(self) -> str:
        """How large it is, in words."""
        more = f" (the memory itself {self.own:,})" if self.own != self.parameters else ""
        return f"{self.to}: {self.parameters:,} parameters, {megabytes(self.bytes)}{more}"

    def write(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write the files whole or not at all; `force` replaces an earlier export."""
        with new_folder(folder, marker=MARKER, force=force) as target:
            for name, content in self.files.items():
                (target / name).write_bytes(content)
        return Path(folder)


def megabytes(count: int) -> str:
    """
    >>> megabytes(8_744_740), megabytes(3_100)
    ('8.7 MB', '0.0031 MB')
    """
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e6:.2g} MB"


def make_export(
    kind: str, files: Mapping[str, object], record: Mapping[str, object], own: int = 0
) -> Export:
    """The folder of some files (neither text nor bytes: JSON) with `record` in its marker."""
    marker = {"kind": "byheart export", "to": kind, "schema": 1, "byheart": __version__}
    everything = {**files, MARKER: marker | dict(record)}
    said = record.get("parameters")
    parameters = said if isinstance(said, int) else own
    return Export(kind, {k: _as_bytes(v) for k, v in everything.items()}, parameters, own)


def write_folder(
    folder: str | Path,
    kind: str,
    files: Mapping[str, object],
    record: Mapping[str, object],
    *,
    force: bool,
) -> Path:
    """Write the files whole or not at all; neither text nor bytes: JSON. `record`: the marker."""
    return make_export(kind, files, record).write(folder, force=force)


def _as_bytes(content: object) -> bytes:
    if isinstance(content, bytes):
        return content
    return (content if isinstance(content, str) else as_json(content)).encode("utf-8")


def count(state: Mapping[str, Tensor]) -> int:
    """The parameters in a state dict."""
    return sum(w.numel() for w in state.values())


def check_size(parameters: int, dtype: torch.dtype, to: str, *, large: bool) -> None:
    """Refuse an export that does not fit into memory, before any of it is made (its weights in
    float64 while they are made, as they are stored, and as a file), and one of more than
    `LARGEST_BYTES` unless it is wanted `large`."""
    what = f"an export to {to} of {parameters:,} parameters"
    check_room(
        parameters * (8 + 2 * dtype.itemsize),
        what,
        "`to=torch` needs the least; or take fewer facts.",
    )
    size = parameters * dtype.itemsize
    if size > LARGEST_BYTES and not large:
        raise CapacityError(
            f"{what} takes {size / 1e9:,.1f} GB on disk, more than {LARGEST_BYTES / 1e9:.0f} GB. "
            "Say `large` to write it all the same, or take fewer facts; `to=torch` needs the least."
        )


def layer_export(
    memory: TokenMemory, kind: str, files: Mapping[str, object], parameters: int, own: int
) -> Export:
    """An attention-only layer with its vocabulary, its facts, how it reads a key, and how many
    parameters the files have."""
    record = {"family": "attention-only", "parameters": parameters, **reading(memory)}
    record["columns"] = memory.key_length
    return make_export(kind, {**token_files(memory), **files}, record, own)


def as_json(content: object) -> str:
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def token_files(
    memory: TokenMemory, read: Callable[[np.ndarray], Tensor] | None = None
) -> dict[str, object]:
    """The vocabulary, and the keys as the model reads them (`read`: the table's token ids -> its
    own) and answers of the facts it holds."""
    files: dict[str, object] = {VOCABULARY: list(memory.vocabulary.tokens)}
    if memory.facts is not None:
        tokens = (read or memory.with_start)(memory.facts.tokens).to(torch.int64).contiguous()
        answers = torch.from_numpy(memory.facts.answers.astype(np.int64))
        files[KEYS] = dump_tensors({"tokens": tokens, "answers": answers})
    return files


def shifted_owners(memory: Memory, shift: int = 0) -> Owners | None:
    """The owners of a memory behind `shift` layers that an export has in front."""
    owners = memory.owners()
    return None if owners is None else replace(owners, layer=owners.layer + shift)


def owner_files(memory: TokenMemory | Memory, shift: int = 0) -> dict[str, object]:
    """owners.json, where the memory knows which heads hold which fact."""
    owners, facts = shifted_owners(memory, shift), memory.facts
    if owners is None or not isinstance(facts, Facts):
        return {}
    return {OWNERS: owners.to_json(facts)}
