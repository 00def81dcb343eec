"""`byheart train`: facts -> memory folder, by gradient descent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from byheart.cli import _options as opt
from byheart.cli import _training as tr
from byheart.cli._held import ask_line, describe, report_lost
from byheart.cli._proof import certificate_json, certificate_line, prove
from byheart.cli._show import emit, guarded, number, say, table
from byheart.training.method import Train

if TYPE_CHECKING:
    from byheart.certificates import Certificate
    from byheart.facts import Facts
    from byheart.models import Memory


@guarded
@opt.reading()
def train(
    reading: opt.Given,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FACTS",
            help="A .csv, .tsv, .jsonl or .parquet file; a built-in table: countries, elements; "
            "or random:N=50,S=2,T=1000,seed=0.",
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="DIR", help="Default: the facts' name + .trained"),
    ] = None,
    model: tr.Model = "attention",
    d_model: tr.DModel = None,
    heads: tr.Heads = None,
    d_head: tr.DHead = None,
    layers: tr.Layers = 1,
    width: tr.Width = None,
    seeds: tr.Seeds = 4,
    steps: tr.Steps = 3000,
    lr: tr.Rate = 0.02,
    loss: tr.LossName = "cross-entropy",
    optimizer: tr.OptimizerName = "adam",
    schedule: tr.ScheduleName = "cosine",
    batch: tr.Batch = None,
    device: tr.Device = "cpu",
    threads: tr.Threads = 1,
    checkpoint: tr.Checkpoint = None,
    dtype: tr.Dtype = "float32",
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="Same seed, same run.")] = 0,
    certify: Annotated[bool, typer.Option("--certify", help="Also prove it.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing memory folder, atomically.")
    ] = False,
    no_facts: Annotated[
        bool, typer.Option("--no-facts", help="Leave the facts out of the folder.")
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """Train a Transformer on FACTS until it recalls every one, and write it like a built one.

    Several starts are trained together, by full batches unless --batch is given, and stop when all
    facts are right. Facts that even the best does not recall are listed; the memory then holds
    the others, and the exit code is 1. Nothing is guaranteed before `--certify`.
    """
    method = Train(
        model, d_model, heads, d_head, layers, width, seeds, steps, lr, loss, optimizer, schedule,
        batch, device, threads, checkpoint, dtype,
    )  # fmt: skip
    facts = opt.read(source, reading)
    folder = f"{facts.name.replace(':', '-')}.trained" if output is None else output
    if not as_json:
        say(describe(facts))

    from byheart._folders import new_folder
    from byheart.models.memory_files import MEMORY, write_files

    with new_folder(folder, marker=MEMORY, force=force) as temporary:
        with tr.bar() as show:
            memory = method.build(facts, seed, show)
        certificate = prove(memory, lambda _: None) if certify else None
        write_files(memory, temporary, with_facts=not no_facts)
        if certificate is not None and certificate.certified:
            certificate.write(temporary)
    _report(memory, facts, folder, certificate, as_json)
    if memory.construction["lost"] or (certificate is not None and not certificate.certified):
        raise typer.Exit(1)


def _report(
    memory: Memory, facts: Facts, folder: str, certificate: Certificate | None, as_json: bool
) -> None:
    from byheart.theory.bits import memorized_bits

    made, spec = memory.construction, memory.spec
    answers = len(facts.answer_ids)
    bits = memorized_bits(facts.T, answers, made["recalled"] / facts.T) / spec.parameters
    models = made["training"]["models"]
    if as_json:
        emit(
            {
                "facts": facts.T,
                "recalled": made["recalled"],
                "spec": {"family": spec.family, **spec.to_json()},
                "parameters": spec.parameters,
                "promised": made["capacity"],
                "facts_per_parameter": made["recalled"] / spec.parameters,
                "bits_per_parameter": bits,
                "margin": made["margin"],
                "dtype": made["dtype"],
                "seconds": made["seconds"],
                "lost": made["lost"],
                "merged": facts.merged,
                "training": made["training"],
                "path": folder,
                "certificate": certificate_json(certificate),
            }
        )
        return
    best = models[made["training"]["best"]]
    good = sum(m["accuracy"] == 1 for m in models)
    rows = [
        ("architecture", str(spec)),
        ("parameters", f"{spec.parameters:,} ({spec.parameters / facts.T:.1f} per fact)"),
        (
            "recalled",
            f"{made['recalled']:,} of {facts.T:,} from the stored {made['dtype']} weights",
        ),
        (
            "starts",
            f"{good} of {len(models)} recalled everything; the best took {best['steps']:,} steps",
        ),
        ("bits per parameter", f"{bits:.3g} ({answers:,} distinct answers)"),
        ("smallest margin", number(made["margin"])),
    ]
    if made["capacity"] is not None:
        promised = f"{made['capacity']:,} facts by construction (Dana et al. 2025, Corollary 1)"
        rows.insert(2, ("promised", promised))
    diverged = [m for m in models if m["diverged"] is not None]
    if diverged:
        steps = ", ".join(f"{m['diverged']:,}" for m in diverged)
        rows.append(("diverged", f"{len(diverged)} of {len(models)} starts, at step {steps}"))
    rows.append(("seconds", f"{made['seconds']:.2f}"))
    if certificate is not None:
        rows.append(("certificate", certificate_line(certificate)))
    say()
    table(rows)
    if made["lost"]:
        report_lost(made)
    say(f"\nWritten to {folder}")
    if memory.facts is not None:
        say(ask_line(folder, memory.facts.key(0)))
