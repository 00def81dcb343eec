"""`byheart build`: facts -> memory folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from byheart.cli import _options as opt
from byheart.cli import _vectors
from byheart.cli._distribution import build_distributions
from byheart.cli._exact import check_options, size_rows
from byheart.cli._held import ask_line, describe, report_lost
from byheart.cli._proof import certificate_json, certificate_line, prove
from byheart.cli._show import emit, guarded, number, progress, say, table
from byheart.errors import ByheartError

if TYPE_CHECKING:
    from byheart.certificates import Certificate
    from byheart.facts import Facts
    from byheart.models import Memory
    from byheart.models.exact import ExactMemory

SIZES = "Sizes (what is not given is chosen, and the reasons are printed)"
SHARDS = "Shards (with --method sharded)"
VECTORS = "Vectors (with --method multihead)"
EXACT = "Exact integers (with --method sqrt)"


@guarded
@opt.reading(opt.ANY_TABLE)
def build(
    reading: opt.Given,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FACTS",
            help="A .csv, .tsv, .jsonl or .parquet file; a built-in table: countries, elements; "
            "or random:N=50,S=2,T=1000,seed=0. Vectors: a .safetensors or .npz file, "
            "vectors:T=621,n=32,d=64,context=fixed,seed=42, or digits:T=500.",
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="DIR", help="Default: the facts' name + .memory"),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="auto|attention|sharded|associative|sqrt|multihead",
            help="Which construction. auto: one dense layer below 2,000 facts, shards above, "
            "multihead for vectors. sqrt: exact integers, of the order of sqrt(T) parameters.",
        ),
    ] = "auto",
    readout: Annotated[
        str | None,
        typer.Option(
            metavar="exact|convex",
            help="exact (default): all of up to H·d_h + d facts, by a theorem. "
            "convex: often 1.3 to 4 times as many; says what it lost. Distributions also have "
            "joint, ridge and literal; their default is exact where it fits, else convex.",
        ),
    ] = None,
    d_model: Annotated[
        int | None, typer.Option(min=1, help="Width d.", rich_help_panel=SIZES)
    ] = None,
    heads: Annotated[
        int | None, typer.Option(min=1, help="Heads H.", rich_help_panel=SIZES)
    ] = None,
    d_head: Annotated[
        int | None, typer.Option(min=1, help="Head width d_h <= d.", rich_help_panel=SIZES)
    ] = None,
    qk_rank: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Rank of W_QK. Default: 1 (enough) when byheart sizes the heads, d_h (the "
            "paper's layer) when you give --heads or --d-head.",
            rich_help_panel=SIZES,
        ),
    ] = None,
    slack: Annotated[
        float,
        typer.Option(min=0.0, help="Share of heads beyond the theorem.", rich_help_panel=SIZES),
    ] = 0.05,
    gate: Annotated[
        str | None,
        typer.Option(
            metavar="query|key|subject-sink",
            help="Which key token opens a shard: any (default; it is then read last), the first "
            "of two, or the first of any number (docs/sharded.md).",
            rich_help_panel=SHARDS,
        ),
    ] = None,
    shard_size: Annotated[
        int | None,
        typer.Option(min=1, help="Facts a shard. Default: 250.", rich_help_panel=SHARDS),
    ] = None,
    untied: Annotated[
        bool,
        typer.Option("--untied", help="Draw random heads for every shard.", rich_help_panel=SHARDS),
    ] = False,
    proof: Annotated[
        str | None,
        typer.Option(
            metavar="one-hot|literal|random|newton",
            help="How: every example saturated (default); the proof as printed (float64); random "
            "heads and one solve; all weights by Levenberg-Marquardt (docs/multi-head.md).",
            rich_help_panel=VECTORS,
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="What an output may differ from a label by. Default: 1e-5 (float32), 1e-9.",
            rich_help_panel=VECTORS,
        ),
    ] = None,
    steps: Annotated[
        int,
        typer.Option(
            min=0, help="Gradient steps that condition random heads.", rich_help_panel=VECTORS
        ),
    ] = 0,
    starts: Annotated[
        int, typer.Option(min=1, help="Starts of newton.", rich_help_panel=VECTORS)
    ] = 5,
    dtype: Annotated[
        str, typer.Option(metavar="float32|float64", help="How the weights are stored.")
    ] = "float32",
    seed: Annotated[int, typer.Option(min=0, max=2**62, help="Same seed, same weights.")] = 0,
    workers: Annotated[
        str,
        typer.Option(
            metavar="K|ADDRESS",
            help="Solve shards on K local processes, or on the Dask scheduler at ADDRESS "
            "(tcp://host:8786). The memory is the same, byte for byte.",
            rich_help_panel=SHARDS,
        ),
    ] = "1",
    abstain: Annotated[
        bool,
        typer.Option(
            "--abstain",
            help="Store fingerprints of the keys, for `byheart recall --abstain`; with --method "
            "sqrt: more bits of each key, so that others are `unknown`.",
            rich_help_panel=SHARDS,
        ),
    ] = False,
    ff1: Annotated[
        str | None,
        typer.Option(
            metavar="hash|product|paper",
            help="How tokens get ids: a checked hash (default), products that work for every "
            "table, or the paper's table.",
            rich_help_panel=EXACT,
        ),
    ] = None,
    grouping: Annotated[
        str | None,
        typer.Option(
            metavar="sorted|interp",
            help="How keys are grouped; interp: fewer parameters for large tables.",
            rich_help_panel=EXACT,
        ),
    ] = None,
    max_bits: Annotated[
        int | None,
        typer.Option(
            min=1, help="Longest weight: fewer bits, more weights.", rich_help_panel=EXACT
        ),
    ] = None,
    unordered: Annotated[
        bool,
        typer.Option("--unordered", help="Keys are multisets of tokens.", rich_help_panel=EXACT),
    ] = False,
    certify: Annotated[bool, typer.Option("--certify", help="Also prove it.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing memory folder, atomically.")
    ] = False,
    no_facts: Annotated[
        bool, typer.Option("--no-facts", help="Leave the facts out of the folder.")
    ] = False,
    encoder: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Sequence encoder of distributions: best, or one that `byheart encoder` lists.",
            rich_help_panel=opt.SEVERAL,
        ),
    ] = "best",
    as_json: opt.Json = False,
) -> None:
    """Turn FACTS into a Transformer that recalls every one of them, without training.

    The weights are solved for, then every fact is recalled from them as they are stored. Nothing
    is written unless that succeeds (only a convex read-out may lose facts: it lists them, keeps
    the others, and the exit code is 1). With --distribution, --on-conflict distribution or
    --ngram, keys have several right answers, and the memory's softmax follows them.
    """
    from byheart.facts import Distributions, VectorFacts

    given = opt.read_any(source, reading)
    if isinstance(given, VectorFacts):
        if method not in ("auto", "multihead"):
            raise ByheartError(f"vectors are held by --method multihead, found {method!r}")
        _vectors.refuse(
            {"gate": gate, "shard_size": shard_size, "untied": untied, "abstain": abstain,
             "d_model": d_model, "qk_rank": qk_rank}
        )  # fmt: skip
        _vectors.build_vectors(
            given,
            f"{given.name.replace(':', '-')}.memory" if output is None else output,
            proof=proof or "one-hot", H=heads, d_h=d_head, dtype=dtype, readout=readout or "exact",
            slack=slack, seed=seed, tolerance=tolerance, steps=steps, starts=starts,
            certify=certify, force=force, no_facts=no_facts, as_json=as_json,
        )  # fmt: skip
        return
    if method == "multihead":
        raise ByheartError(
            "--method multihead needs vectors: a .safetensors or .npz file, vectors:..., or "
            f"digits, found {source!r}."
        )
    if isinstance(given, Distributions):
        sizes = {"d": d_model, "H": heads, "d_h": d_head, "qk_rank": qk_rank, "slack": slack}
        shards = {"--gate": gate, "--shard-size": shard_size, "--untied": untied or None,
                  "--abstain": abstain or None}  # fmt: skip
        build_distributions(
            given,
            method,
            shards,
            output=output,
            force=force,
            no_facts=no_facts,
            certify=certify,
            as_json=as_json,
            encoder=encoder,
            readout=readout or "auto",
            dtype=dtype,
            seed=seed,
            **sizes,
        )
        return
    facts = given
    folder = f"{facts.name.replace(':', '-')}.memory" if output is None else output
    if not as_json:
        say(describe(facts))

    from byheart._folders import new_folder
    from byheart.construct import build as construct
    from byheart.construct.exact import build_sqrt
    from byheart.models.memory_files import MEMORY, write_files

    exact = check_options(
        method,
        {"--ff1": ff1, "--grouping": grouping, "--max-bits": max_bits, "--unordered": unordered},
        {"--d-model": d_model, "--heads": heads, "--d-head": d_head, "--qk-rank": qk_rank,
         "--gate": gate, "--shard-size": shard_size, "--untied": untied,
         "--readout": readout is not None, "--dtype": dtype != "float32",
         "--slack": slack != 0.05, "--workers": workers != "1"},
    )  # fmt: skip
    with new_folder(folder, marker=MEMORY, force=force) as temporary, progress() as tell:
        memory = (
            build_sqrt(
                facts,
                ff1=ff1 or "hash",
                grouping=grouping or "sorted",
                max_bits=max_bits,
                ordered=not unordered,
                abstain=abstain,
                seed=seed,
                progress=tell,
            )
            if exact
            else construct(
                facts,
                method,
                d=d_model,
                H=heads,
                d_h=d_head,
                qk_rank=qk_rank,
                dtype=dtype,
                readout=readout or "exact",
                slack=slack,
                seed=seed,
                gate=gate,
                shard_size=shard_size,
                untied=untied,
                abstain=abstain,
                workers=workers,
                proof=proof,
                tolerance=tolerance,
                progress=tell,
            )
        )
        certificate = prove(memory, tell) if certify else None
        tell(f"writing {folder}")
        write_files(memory, temporary, with_facts=not no_facts)
        if certificate is not None and certificate.certified:
            certificate.write(temporary)
    _report(memory, facts, folder, certificate, as_json)
    if memory.construction["lost"] or (certificate is not None and not certificate.certified):
        raise typer.Exit(1)


def _report(
    memory: Memory | ExactMemory,
    facts: Facts,
    folder: str,
    certificate: Certificate | None,
    as_json: bool,
) -> None:
    made, spec = memory.construction, memory.spec
    if as_json:
        record = {
            "facts": facts.T,
            "recalled": made["recalled"],
            "method": made["method"],
            "spec": {"family": spec.family, **spec.to_json()},
            "parameters": spec.parameters,
            "capacity": made["capacity"],
            "margin": made["margin"],
            "dtype": made["dtype"],
            "seconds": made["seconds"],
            "readout": made["readout"],
            "condition": made.get("condition"),
            "lost": made["lost"],
            "why": made["why"],
            "abstain": made.get("abstain", made.get("unknown")),
            "merged": facts.merged,
            "path": folder,
            "certificate": certificate_json(certificate),
        }
        emit(record)
        return
    say()
    rows = _size_rows(memory, facts)
    if "condition" in made:
        solver = (
            f" ({made['solver']})" if "solver" in made else " (largest of the shards looked at)"
        )
        rows.append(("condition number", f"{made['condition']:.1e}{solver}"))
    if "abstain" in made:
        false = number(made["abstain"]["false_positive_rate"])
        rows.append(("other keys", f"answered all the same: a share of {false} (--abstain)"))
    rows.append(("seconds", f"{made['seconds']:.2f}"))
    if certificate is not None:
        rows.append(("certificate", certificate_line(certificate)))
    table(rows)
    say()
    for reason in made["why"]:
        say(f"  - {reason}")
    if made["lost"]:
        report_lost(made)
    say(f"\nWritten to {folder}")
    if memory.facts is not None:
        say(ask_line(folder, memory.facts.key(0)))


def _size_rows(memory: Memory | ExactMemory, facts: Facts) -> list[tuple[str, ...]]:
    made, spec = memory.construction, memory.spec
    if made["method"] == "sqrt":
        return [*size_rows(cast("ExactMemory", memory))]
    return [
        ("architecture", str(spec)),
        ("parameters", f"{spec.parameters:,} ({spec.parameters / facts.T:.1f} per fact)"),
        ("promised", f"{made['capacity']:,} facts ({_source(made['method'])})"),
        (
            "recalled",
            f"{made['recalled']:,} of {facts.T:,} from the stored {made['dtype']} weights",
        ),
        ("smallest margin", number(made["margin"])),
    ]


def _source(method: str) -> str:
    sources = {
        "attention": "H·d_h + d, Dana et al. 2025, Corollary 1",
        "sharded": "H·d_h, Corollary 1 shard by shard",
        "associative": "order d",
    }
    return sources[method]
