"""`byheart train`: facts -> memory folder, by gradient descent."""

from __future__ import annotations

from typing import Annotated

import typer

from byheart.cli import _options as opt
from byheart.cli import _store
from byheart.cli._group import grouped
from byheart.cli._methods import given_options, method_options
from byheart.cli._show import guarded, say
from byheart.cli._training import bar
from byheart.training.method import Train


@guarded
@opt.reading(opt.TABLE)
@grouped("options", method_options({"train": Train}))
def train(
    source: opt.Tokens,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="DIR", help="Default: the facts' name + .trained"),
    ] = None,
    seed: _store.Seed = 0,
    certify: _store.Certify = False,
    force: _store.Force = False,
    no_facts: _store.NoFacts = False,
    as_json: opt.Json = False,
    *,
    options: dict[str, object],
    reading: opt.Given,
) -> None:
    """Train a Transformer on FACTS until it recalls every one, and write it like a built one.

    Several starts are trained together, by full batches unless --batch is given, and stop when all
    facts are right. Facts that even the best does not recall are listed; the memory then holds
    the others, and the exit code is 1. Nothing is guaranteed before `--certify`.
    """
    method = Train(**given_options(options, {"train": Train}))  # type: ignore[arg-type]
    facts = opt.read(source, reading)
    if not as_json:
        say(_store.describe_facts(facts))
    stored = _store.store(
        lambda tell: method.build(facts, seed, tell),
        _store.folder_of(facts, output, ".trained"),
        certify=certify,
        force=force,
        no_facts=no_facts,
        showing=bar,
    )
    made, parameters = stored.memory.construction, stored.memory.spec.parameters
    extra = {"promised": made.capacity, "facts_per_parameter": made.recalled / parameters}
    _store.show(stored, as_json, extra | {"merged": facts.merged})
