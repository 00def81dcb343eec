"""`byheart audit`: the papers' assumptions on the hidden states of a real model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from byheart.cli import _options as opt
from byheart.cli._show import emit, guarded, progress, say, table

if TYPE_CHECKING:
    from byheart.audits import Audit

SHOWN = "What it is shown"
HOW = "How it is measured"


@guarded
def audit(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A Hugging Face folder (BERT, GPT-2, Llama, ViT; safetensors), a .gguf file, a "
            "name in the local cache, or minilm, smollm2 (`make models` installs them).",
        ),
    ],
    text: Annotated[
        list[str] | None,
        typer.Option("--text", metavar="FILE", help="Text (repeatable).", rich_help_panel=SHOWN),
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            "--tokens",
            metavar="FILE",
            help="Token ids: .npy, .npz, .safetensors, .jsonl.",
            rich_help_panel=SHOWN,
        ),
    ] = None,
    images: Annotated[
        str | None,
        typer.Option(
            "--images",
            metavar="FILE",
            help="Images: .npy, .npz, .safetensors, a folder, digits.",
            rich_help_panel=SHOWN,
        ),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option("--length", help="Tokens a context. Default: 64.", rich_help_panel=SHOWN),
    ] = None,
    contexts: Annotated[
        int, typer.Option("--contexts", help="Different contexts, at most.", rich_help_panel=SHOWN)
    ] = 2000,
    queries: Annotated[
        str | None,
        typer.Option(
            "--queries",
            metavar="first,last,every",
            help="Which tokens ask; the first named is the main one.",
            rich_help_panel=SHOWN,
        ),
    ] = None,
    formats: Annotated[
        str,
        typer.Option("--formats", help="Number formats to run the model in.", rich_help_panel=HOW),
    ] = "float32,float64",
    random: Annotated[
        bool,
        typer.Option(
            "--random/--no-random", help="Also with weights drawn anew.", rich_help_panel=HOW
        ),
    ] = True,
    ranked: Annotated[
        int, typer.Option(help="Contexts kept whole for their ranks.", rich_help_panel=HOW)
    ] = 200,
    draws: Annotated[
        int, typer.Option(help="Random subsets of queries.", rich_help_panel=HOW)
    ] = 200,
    search: Annotated[
        int, typer.Option(help="Largest dependent set to look for.", rich_help_panel=HOW)
    ] = 4,
    batch: Annotated[int, typer.Option(help="Contexts at a time.", rich_help_panel=HOW)] = 32,
    device: Annotated[str, typer.Option(help="cpu or cuda.", rich_help_panel=HOW)] = "cpu",
    seed: Annotated[int, typer.Option(min=0, rich_help_panel=HOW, help="Of all draws.")] = 0,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="Also write the JSON.")
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option("--plot", metavar="FILE", help="Also draw it: .png, .svg or .pdf."),
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Do the papers' assumptions hold in MODEL, layer by layer?

    Context rank (Assumption 2), independence of the queries (Assumption 1: the published sampling,
    verified dependent sets, and the groups that the proof really needs), General Position,
    e + mean E (Assumption 3), (r, δ)-separation, saturation of the heads; with the model in float32
    and in float64, raw and centred, trained and with random weights; and what Theorem 1 then
    promises. Nothing is downloaded and no code of a model is run.
    """
    from byheart.theory.plots import check_path, save

    if plot is not None:
        check_path(plot)
    from byheart.audits import audit as measure
    from byheart.audits import audit_figure

    with progress() as report:
        found = measure(
            model, text=text, tokens=tokens, images=images, length=length, contexts=contexts,
            queries=None if queries is None else [q.strip() for q in queries.split(",")],
            formats=[f.strip() for f in formats.split(",")], random=random, ranked=ranked,
            draws=draws, search=search, batch=batch, device=device, seed=seed, report=report,
        )  # fmt: skip
    if output is not None:
        found.save(output)
    if plot is not None:
        save(audit_figure(found.record), plot)
    if as_json:
        emit(found.to_json())
        return
    _print(found)
    for name in (output, plot):
        if name is not None:
            say(f"Written to {name}")


def _print(found: Audit) -> None:
    from byheart.audits.tables import HEADER, table_rows

    record: dict[str, Any] = found.record
    m, data, used = record["model"], record["data"], record["settings"]
    groups = f" ({m['kv_heads']} key-value)" if m["kv_heads"] < m["H"] else ""
    say(
        f"{m['name']}: {m['type']}, {m['parameters']:,} parameters ({m['weights']}), {m['layers']} "
        f"layers, d={m['d']}, H={m['H']}{groups}, d_h={m['d_h']}"
    )
    left = f" ({data['repeated']:,} repeated ones left out)" if data["repeated"] else ""
    say(f"{data['source']}: {data['contexts']:,} contexts of n={data['n']} tokens{left}\n")
    table(table_rows(record), header=HEADER)
    say(
        f"\nA2: contexts of rank n, of {used['ranked']:,}. A1 drawn: independent ones of "
        f"{used['draws']:,} random n-subsets. Q: largest size with no dependent subset, drawn or "
        "found. groups: what Theorem 1's proof needs holds for H heads. GP: General Position "
        "(open: not refuted; ?: fewer contexts than d). A3: e + mean E. T1: H(Q-1)+1 examples.\n"
        f"Main query: {used['queries'][0]}. Several numbers: float32 raw|centred / float64 "
        "raw|centred; one: all agree."
    )
    if m["positions"] == "rotary":
        say("In brackets: for a layer with one W_h for all positions; this one has rotary ones.")
    say(
        f"{record['seconds']:.0f} s ({record['cpu_seconds']:.0f} s CPU, "
        f"{record['forward_cpu_seconds']:.0f} s of them in the model), peak memory "
        f"{record['peak_bytes'] / 1e9:.1f} GB"
    )
