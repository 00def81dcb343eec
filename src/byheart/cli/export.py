"""`byheart export`, `byheart report`, `byheart explore`: a memory for another tool, as one plain
attention layer, as a page or a picture; the theorems as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from byheart.cli import _options as opt
from byheart.cli._options import argument, guarded, option, switch
from byheart.cli._show import emit, say, token_text
from byheart.errors import ByheartError, check_choice

if TYPE_CHECKING:
    from byheart.models import Memory
    from byheart.specs import Spec

NEXT = {
    "torch": "In that folder: from model import load; load().ask({key})",
    "transformer-lens": "In that folder: from load import ask, load; ask(load(), {key})",
    "hugging-face": "In that folder: from ask import ask; ask({key})",
    "onnx": "In that folder: from ask import ask; ask({key})",
    "memory": "In Python: byheart.load({folder!r}).to_torch() is a torch.nn.Module.",
}
PICTURES = (".svg", ".png", ".pdf")
Force = Annotated[bool, option(..., "Replace a file that byheart did not write.", "--force")]


@guarded
def export(
    folder: opt.Folder,
    output: str = option(..., "The folder to write.", "-o", "--output", "DIR"),
    to: str = option(
        "memory",
        "For which tool. memory: a byheart memory with every head written out.",
        "torch|transformer-lens|hugging-face|onnx|memory",
    ),
    force: bool = switch("Replace an existing export, atomically.", "--force"),
    large: bool = switch("Write more than 2 GB, too.", "--large"),
) -> None:
    """Write a memory for another tool.

    torch: one readable file with a torch.nn.Module that has hook points, and a state dict.
    transformer-lens: weights under its names, a loader and a tokenizer. hugging-face: a GPT-2 with
    the same logits that AutoModelForCausalLM loads, with tokenizer files. onnx: a graph for any
    runtime. Each has a README whose code runs, asks in the order of the table and, where facts
    have owners, owners.json; its size is said before it is written.
    memory (the default): a sharded memory as one plain attention-only layer, every head and gate
    written out; refused, with the size, where it does not fit. `byheart import` reads the first
    two back, trained or not.
    """
    check_choice("to", to, NEXT)
    memory = opt.load_memory(folder)

    if to == "memory":
        memory = memory.to_dense()
        memory.save(output, force=force)
        spec, count, size = memory.spec, memory.spec.parameters, None
    else:
        spec, count, size = _export(memory, output, to, force=force, large=large)
    found = {"family": spec.family, **spec.to_json()}
    emit({"path": output, "to": to, "spec": found, "parameters": count, "bytes": size})
    say(f"{spec}\n{count:,} parameters, written to {output} for {to}")
    key = ", ".join(map(repr, memory.example())) or "..."
    say("\n" + NEXT[to].format(folder=output, key=key))
    if to != "memory":
        say(f"More of this in {output}/README.md, whose code runs as written.")


def _export(
    memory: Memory, output: str, to: str, *, force: bool, large: bool
) -> tuple[Spec, int, int | None]:
    """Write a memory for another tool; its spec there, the parameters and bytes of the folder,
    which are said before it is written."""
    from byheart.exports import export, prepare_export
    from byheart.exports.targets import writes_itself
    from byheart.specs import ShardedSpec

    spec = memory.spec.dense() if isinstance(memory.spec, ShardedSpec) else memory.spec
    if writes_itself(memory, to):
        export(memory, output, to=to, force=force)
        return spec, spec.parameters, None
    made = prepare_export(memory, to=to, large=large)
    say(str(made))
    made.write(output, force=force)
    return spec, made.parameters, made.bytes


@guarded
def report(
    sources: list[str] = argument(
        "DIR|STUDY.db|AUDIT.json...",
        "Memory folders, studies, audits. Several give an index and a page each.",
    ),
    output: str = option("report.html", "Page (.html) or picture.", "--output", "-o", "FILE"),
    figure: str | None = option(
        None,
        "Draw one picture instead (-o FILE.svg, .png or .pdf). Memories: head-map, "
        "ablation, margins, attention, capacity, condition, kl; studies: their names; audits: "
        "layers.",
        "NAME",
    ),
    show: bool = switch("Show it in the browser.", "--open"),
    force: Force = False,
) -> None:
    """Write one self-contained page that shows a memory, a study or an audit.

    It opens from disk without network: facts to search, the certificate in plain words, which head
    carries which fact, margins, capacity, architecture. With --figure: one picture.
    """
    if figure is not None:
        if len(sources) != 1:
            raise ByheartError(f"--figure draws one input, found {len(sources)}.")
        from byheart.reports import figure as draw

        draw(sources[0], figure, output)
        emit({"pages": [], "figure": figure, "path": output})
        say(f"Drawn to {output}")
        return
    if Path(output).suffix.lower() in PICTURES:
        raise ByheartError(f"{output} is a picture: say which (--figure NAME), or -o FILE.html.")

    from byheart.reports import report as write

    pages = write(tuple(sources), output, force=force)
    emit({"pages": [page.to_json() for page in pages], "figure": None, "path": output})
    for page in pages:
        say(f"{page.path}  {token_text(page.title)} ({page.kind}, {page.bytes / 1e6:.2f} MB)")
    if show:
        _open(Path(output))


@guarded
def explore(
    output: str = option("explorer.html", "The page to write.", "--output", "-o", "FILE"),
    show: bool = option(True, "Show it in the browser.", "--open/--no-open"),
    force: Force = False,
) -> None:
    """Write and open the capacity explorer: move sizes, see what every theorem says at once.

    The formulas in the page are the functions of `byheart bound` and `byheart size`, translated.
    """
    from byheart.reports import explore as write

    page = write(output, force=force)
    emit({"pages": [page.to_json()], "path": output})
    say(f"{page.path}  {page.title} ({page.bytes / 1e6:.2f} MB)")
    if show:
        _open(Path(output))


def _open(path: Path) -> None:
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        say("There is no browser here: open the file yourself.")
