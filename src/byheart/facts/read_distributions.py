"""Distributions from JSON lines, tables with conflicting rows, texts and recipes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Literal

from byheart.errors import FactsError
from byheart.facts._csv import csv_records
from byheart.facts._jsonl_distributions import jsonl_distributions
from byheart.facts._options import Options
from byheart.facts._parquet import parquet_records
from byheart.facts._table import table_facts
from byheart.facts._words import quote
from byheart.facts.distribution_tasks import DISTRIBUTION_RECIPE, distributions_from_recipe
from byheart.facts.distributions import Distributions
from byheart.facts.ngrams import ngram_distributions
from byheart.facts.read import DELIMITERS, JSON_LINES

__all__ = ["read_distributions"]

ACCEPTED = (
    'a .jsonl file with lines {"input": [...], "output": {token: probability}}, a .csv, .tsv or '
    ".parquet table whose rows with one key are counted (--on-conflict distribution), a text with "
    f"--ngram, or a recipe ({DISTRIBUTION_RECIPE})"
)


def read_distributions(
    source: str | os.PathLike[str],
    *,
    on_conflict: Literal["error", "distribution"] = "error",
    normalise: bool = False,
    smooth: float | None = None,
    ngram: int | None = None,
    contexts: int | None = 5000,
    keys: Sequence[str] | None = None,
    answer: str | None = None,
    weights: str | None = None,
    empty: Literal["error", "skip", "token"] = "error",
    pad: bool = False,
    name: str | None = None,
) -> Distributions:
    """Conditional distributions (key tokens -> probabilities of answers) with a prior.

    Arguments:
        source: a JSONL file, a table (CSV, TSV, Parquet), a text (with `ngram`), or a recipe such
            as "random:kind=gauss,N=20,S=2,tau=1,zipf=0,seed=0".
        on_conflict: rows with one key and different answers are an "error", or counted
            ("distribution"; in JSONL their distributions are mixed by weight).
        normalise: scale rows whose probabilities do not sum to 1.
        smooth: δ of (π + δ)/(1 + Aδ) for tables (default 0); for texts the α of
            `ngram_distributions` (default 1).
        ngram, contexts: read a text as next-word distributions of its most frequent contexts.
        keys, answer, weights, empty, pad, name: as in `read_facts`.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "drinks.csv"
        >>> _ = path.write_text("who,drink\\nann,tea\\nann,tea\\nann,milk\\nbob,milk\\n")
        >>> table = read_distributions(path, on_conflict="distribution", smooth=0.05)
        >>> [(token, round(p, 3)) for token, p in table.top(0)]
        [('tea', 0.652), ('milk', 0.348)]
    """
    where = os.fspath(source)
    if where.startswith("random:") and not Path(where).exists():
        return distributions_from_recipe(where).smoothed(smooth or 0.0)
    path = Path(where)
    if not path.exists():
        raise FactsError(f"expected {ACCEPTED}, found no file {quote(where, 200)}. Check the path.")
    if path.is_dir():
        raise FactsError(f"{where}: expected {ACCEPTED}, found a directory. Name a file in it.")
    if ngram is not None:
        alpha = 1.0 if smooth is None else smooth
        return ngram_distributions(path, ngram, contexts=contexts, alpha=alpha, name=name)
    options = Options(
        where=where,
        name=(name or path.stem).encode("utf-8", "backslashreplace").decode(),
        keys=None if keys is None else (keys,) if isinstance(keys, str) else tuple(keys),
        answer=answer,
        weights=weights,
        empty=empty,
        pad=pad,
    )
    suffix = path.suffix.lower()
    if suffix in JSON_LINES:
        if keys is not None or answer is not None:
            raise FactsError(
                f"{where}: expected no keys or answer for JSON lines, which has no columns. "
                "Leave it out."
            )
        return jsonl_distributions(path, options, normalise, on_conflict).smoothed(smooth or 0.0)
    if suffix in DELIMITERS:
        records = csv_records(path, DELIMITERS[suffix], where)
    elif suffix == ".parquet":
        records = parquet_records(path, where)
    else:
        found = f"the suffix {suffix!r}" if suffix else "no suffix"
        raise FactsError(f"{where}: expected {ACCEPTED}, found {found}. Is it a text? Add --ngram.")
    make = partial(Distributions.count, on_conflict=on_conflict)
    with closing(records):
        return table_facts(records, options, make).smoothed(smooth or 0.0)
