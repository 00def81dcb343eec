"""Building, asking and describing memories of vectors, for the commands that also take tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from byheart.cli._proof import certificate_json, certificate_line, prove
from byheart.cli._show import emit, number, progress, say, table
from byheart.errors import ByheartError, FactsError

if TYPE_CHECKING:
    from byheart.certificates import Certificate
    from byheart.facts import VectorFacts
    from byheart.models import VectorMemory

LISTED = 20
SOURCES = {
    "one-hot": "H(r-1)+1, Mahdavi et al. 2024, Theorem 1",
    "literal": "H(r-1)+1, Mahdavi et al. 2024, Theorem 1",
    "random": "generic rank",
    "newton": "effective parameters P: an upper limit, no promise",
}


def refuse(options: Mapping[str, object]) -> None:
    """Options of tables and of other methods that were given for vectors."""
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value]
    if given:
        raise ByheartError(f"{', '.join(given)} do not belong to vector facts: leave them out.")


def build_vectors(
    facts: VectorFacts,
    folder: str,
    *,
    certify: bool,
    force: bool,
    no_facts: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """`byheart build` for vectors."""
    if not as_json:
        say(describe(facts))

    from byheart._folders import new_folder
    from byheart.construct.multi_head import build_multi_head
    from byheart.models.memory_files import MEMORY, write_files

    with new_folder(folder, marker=MEMORY, force=force) as temporary, progress() as tell:
        memory = build_multi_head(facts, progress=tell, **options)
        certificate = prove(memory, tell) if certify else None
        tell(f"writing {folder}")
        write_files(memory, temporary, with_facts=not no_facts)
        if certificate is not None and certificate.certified:
            certificate.write(temporary)
    _report(memory, facts, folder, certificate, as_json)
    if memory.construction["lost"] or (certificate is not None and not certificate.certified):
        raise typer.Exit(1)


def describe(facts: VectorFacts) -> str:
    context = "one shared context" if facts.shared else "own contexts"
    labels = f"{facts.classes} classes" if facts.classes else "scalar labels"
    if not facts.classes and facts.outputs > 1:
        labels = f"labels of {facts.outputs} numbers"
    merged = f"; {facts.merged:,} repeated examples merged" if facts.merged else ""
    return (
        f"{facts.name}: {facts.T:,} examples, {context} of n={facts.n} tokens, d={facts.d}, "
        f"{labels}{merged}"
    )


def _report(
    memory: VectorMemory,
    facts: VectorFacts,
    folder: str,
    certificate: Certificate | None,
    as_json: bool,
) -> None:
    made, spec = memory.construction, memory.spec
    if as_json:
        told = ("recalled", "method", "proof", "capacity", "margin", "dtype", "seconds", "readout")
        emit(
            {
                "facts": facts.T,
                **{name: made[name] for name in told},
                "spec": {"family": spec.family, **spec.to_json()},
                "parameters": spec.parameters,
                "condition": made.get("condition"),
                "error": made.get("error"),
                "error_float32": made.get("error_float32"),
                "tolerance": memory.tolerance if facts.classes is None else None,
                "lost": made["lost"],
                "why": made["why"],
                "merged": facts.merged,
                "path": folder,
                "certificate": certificate_json(certificate),
            }
        )
        return
    say()
    rows = [
        ("architecture", str(spec)),
        ("parameters", f"{spec.parameters:,} ({spec.parameters / facts.T:.1f} per example)"),
        ("promised", f"{made['capacity']:,} examples ({SOURCES[made['proof']]})"),
        (
            "recalled",
            f"{made['recalled']:,} of {facts.T:,} from the stored {made['dtype']} weights",
        ),
    ]
    if facts.classes is None:
        rows.append(("largest error", f"{made['error']:.1e} (tolerance {memory.tolerance:.0e})"))
        rows.append(("in float32", f"{made['error_float32']:.1e}"))
    else:
        rows.append(("smallest margin", number(made["margin"])))
    if made.get("condition") is not None:
        rows.append(("condition number", f"{made['condition']:.1e}"))
    rows.append(("seconds", f"{made['seconds']:.2f}"))
    if certificate is not None:
        rows.append(("certificate", _line(certificate)))
    table(rows)
    say()
    for reason in made["why"]:
        say(f"  - {reason}")
    if made["lost"]:
        lost = ", ".join(str(fact["row"]) for fact in made["lost"][:LISTED])
        more = ", ..." if len(made["lost"]) > LISTED else ""
        say(f"\nLOST {len(made['lost']):,} examples: {lost}{more}. Use more --heads.")
    say(f"\nWritten to {folder}")
    say(f"Ask it:   byheart recall {folder} 0")


def _line(certificate: Certificate) -> str:
    if certificate.certified and certificate.largest_error is not None:
        return (
            f"proved in {certificate.seconds:.2f} s: every label within "
            f"{certificate.largest_error:.1e}"
        )
    return certificate_line(certificate)


def recall_vectors(
    memory: VectorMemory, words: list[str], everything: bool, top: int, as_json: bool
) -> None:
    """`byheart recall` for vectors: a stored example by its number, all, or a file of queries."""
    if everything:
        _recall_all(memory, as_json)
    elif len(words) == 1 and words[0].isdecimal():
        _recall_one(memory, int(words[0]), top, as_json)
    elif len(words) == 1 and words[0].endswith((".npz", ".safetensors", ".npy")):
        _recall_file(memory, words[0], as_json)
    else:
        raise ByheartError(
            "this memory holds vectors: give the number of a stored example, a .npz or "
            ".safetensors file with `query` (and `context` unless it is shared), or --all; "
            f"found {' '.join(words)!r}."
        )


def _stored(memory: VectorMemory) -> VectorFacts:
    if memory.facts is None:
        raise FactsError("this memory was saved without its facts: ask with a file of queries.")
    return memory.facts


def _recall_one(memory: VectorMemory, row: int, top: int, as_json: bool) -> None:
    facts = _stored(memory)
    found = (facts.rows == row).nonzero()[0]
    if not len(found):
        raise FactsError(f"no example {row}: there are {facts.T:,}, up to {facts.rows.max()}.")
    i = int(found[0])
    context = None if facts.shared else facts.context[i]
    said = memory.recall(facts.query[i], context)
    parts = memory.contributions(
        facts.query[i : i + 1], None if context is None else context[None]
    )[0]
    # Classes: what a head adds to the margin over the runner-up; numbers: to the first output.
    if said.answer is not None and memory.spec.d_out > 1:
        order = sorted(range(len(said.output)), key=lambda j: -said.output[j])
        carried = (parts[:, order[0]] - parts[:, order[1]]).tolist()
    else:
        carried = parts[:, 0].tolist()
    heads = sorted(enumerate(carried), key=lambda pair: -abs(pair[1]))
    label = facts.label[i].tolist()
    if as_json:
        emit(
            {
                "row": row,
                "answer": said.answer if said.answer is not None else list(said.output),
                "label": label,
                "margin": said.margin,
                "error": None
                if said.answer is not None
                else float(memory.errors(facts.subset([i]))[0]),
                "heads": [{"head": h, "contribution": c} for h, c in heads],
            }
        )
        return
    if said.answer is not None:
        say(f"{said.answer}")
        say(f"\nlabel {label}, margin {number(said.margin)}")
    else:
        say(" ".join(f"{v:.9g}" for v in said.output))
        say(f"\nlabel {label}, error {float(memory.errors(facts.subset([i]))[0]):.1e}")
    if top:
        rows = [(f"head {h}", f"{c:+.4f}") for h, c in heads[:top]]
        if len(heads) > top:
            rest = math.fsum(c for _, c in heads[top:])
            rows.append((f"other {len(heads) - top} heads", f"{rest:+.4f}"))
        what = "part of the margin" if said.answer is not None else "part of the output"
        table(rows, header=("carried by", what))


def _recall_file(memory: VectorMemory, path: str, as_json: bool) -> None:
    import numpy as np

    from byheart.facts import read_arrays

    arrays = read_arrays(path)
    query = arrays.get("query")
    if query is None or query.ndim != 2 or query.shape[1] != memory.spec.d:
        raise FactsError(f"{path}: expected `query` of shape (B, {memory.spec.d}).")
    context = arrays.get("context")
    shape = (len(query), memory.spec.n, memory.spec.d)
    if context is not None and context.shape not in (shape, shape[1:]):
        raise FactsError(f"{path}: expected `context` of shape {shape}, found {context.shape}.")
    if context is not None:
        context = np.broadcast_to(context, shape).astype(np.float64)
    out = memory.outputs(query.astype(np.float64), context)
    answers = out.argmax(1).tolist() if memory.classes is not None else out.tolist()
    if as_json:
        emit({"answers": answers})
        return
    for answer in answers:
        say(str(answer) if memory.classes is not None else " ".join(f"{v:.9g}" for v in answer))


def _recall_all(memory: VectorMemory, as_json: bool) -> None:
    facts = _stored(memory)
    margins = memory.margins(facts)
    lost = (margins <= 0).nonzero()[:, 0].tolist()
    recalled = facts.T - len(lost)
    error = float(memory.errors(facts).max()) if facts.classes is None else None
    if as_json:
        rows = [{"row": int(facts.rows[i]), "answer": facts.label[i].tolist()} for i in lost]
        margin = float(margins.min())
        emit(
            {
                "facts": facts.T,
                "recalled": recalled,
                "margin": margin,
                "error": error,
                "lost": rows,
            }
        )
    else:
        smallest = f"smallest margin {number(float(margins.min()))}"
        if error is not None:
            smallest = f"largest error {error:.1e} (tolerance {memory.tolerance:.0e})"
        say(f"{recalled:,} of {facts.T:,} examples recalled, {smallest}")
        for i in lost[:LISTED]:
            say(f"  example {facts.rows[i]}: not {facts.label[i].tolist()}")
    if lost:
        raise typer.Exit(1)
