"""`byheart build`: facts -> memory folder."""

from __future__ import annotations

from typing import Annotated

import typer

from byheart.cli import _options as opt
from byheart.cli import _store
from byheart.cli._group import grouped
from byheart.cli._methods import given_options, method_options
from byheart.cli._show import guarded, say
from byheart.errors import ByheartError, check_choice
from byheart.methods import Method, methods, refuse_foreign, resolve

BUILDING = {name: method for name, method in methods().items() if name != "train"}
OWN = ("source", "output", "method", "seed", "certify", "force", "no_facts", "as_json", "json",
       "help", *opt.ANY_TABLE)  # fmt: skip


@guarded
@opt.reading(opt.ANY_TABLE)
@grouped("options", method_options(BUILDING, OWN))
def build(
    source: opt.Source,
    output: _store.Output = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="|".join(["auto", *BUILDING]),
            help="auto: one dense layer below 2,000 facts, shards above, multihead for vectors, "
            "distribution where keys have several right answers. "
            + " ".join(f"{name}: {m.summary}." for name, m in BUILDING.items()),
        ),
    ] = "auto",
    seed: _store.Seed = 0,
    certify: _store.Certify = False,
    force: _store.Force = False,
    no_facts: _store.NoFacts = False,
    as_json: opt.Json = False,
    *,
    options: dict[str, object],
    reading: opt.Given,
) -> None:
    """Turn FACTS into a Transformer that recalls every one of them, without training.

    The weights are solved for, then every fact is recalled from them as they are stored. Nothing
    is written unless that succeeds (only a convex read-out may lose facts: it lists them, keeps
    the others, and the exit code is 1). With --distribution, --on-conflict distribution or
    --ngram, keys have several right answers, and the memory's softmax follows them.
    """
    given = given_options(options, BUILDING)
    wanted: str | Method = method
    if method != "auto":  # what is wrong is refused before anything is read
        wanted, given = _named(method, given), {}
    facts = opt.read_any(source, reading)
    chosen, reason = resolve(wanted, facts, given)
    if not as_json:
        say(_store.describe_facts(facts))
    stored = _store.store(
        lambda tell: chosen.build(facts, seed, tell, reason),
        _store.folder_of(facts, output),
        certify=certify,
        force=force,
        no_facts=no_facts,
    )
    record = stored.memory.construction.to_json()
    abstain = record.get("abstain", record.get("unknown"))  # how sure "unknown" is
    _store.show(stored, as_json, {"merged": getattr(facts, "merged", 0), "abstain": abstain})


def _named(name: str, options: dict[str, object]) -> Method:
    if name == "train":
        raise ByheartError("training has a command of its own: `byheart train FACTS`.")
    check_choice("method", name, ["auto", *BUILDING])
    refuse_foreign(BUILDING[name], options)
    return BUILDING[name](**options)  # type: ignore[arg-type]
