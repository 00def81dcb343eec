"""Facts from anything: files, built-in tables, recipes, texts, and Python's own data."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import TypeVar, Unpack

from byheart._words import quote
from byheart.errors import FactsError, did_you_mean
from byheart.facts._files import DELIMITERS, JSON_LINES, csv_rows, json_lines, parquet_rows
from byheart.facts._records import COLUMNS, Cells, Gathered, Options, Reading, gather
from byheart.facts._sources import keyed_source, python_source, table_source
from byheart.facts.distributions import Distributions
from byheart.facts.facts import DISTRIBUTED, Facts
from byheart.facts.ngrams import ngram_distributions
from byheart.facts.tasks import ASSOCIATIONS, facts_from_recipe, is_recipe
from byheart.facts.vectors import SUFFIXES, VectorFacts, read_arrays

FactTable = Facts | Distributions | VectorFacts

TABLES = {
    "countries": "195 countries with capital, continent and currency: (country, relation) -> value",
    "elements": "118 chemical elements with atomic number and name: (symbol, relation) -> value",
}
ACCEPTED = (
    "a file that ends in .csv, .tsv, .jsonl, .ndjson, .parquet, .npz or .safetensors, a built-in "
    f"table ({', '.join(TABLES)}) or a recipe ({ASSOCIATIONS})"
)
CELLS = (*COLUMNS, "trim", "empty", "pad")


def builtin_tables() -> dict[str, str]:
    """Name -> one-line description of the tables in the package; `read_facts(name)` reads one.

    Example:
        >>> list(builtin_tables())
        ['countries', 'elements']
    """
    return dict(TABLES)


def as_facts(data: object, **reading: Unpack[Reading]) -> FactTable:
    """Facts of the kind that `data` hold, whatever form they have.

    Arguments:
        data: facts, which are returned as they are; a path, a built-in table or a recipe; a dict
            key -> answer, or key -> {answer: probability}; rows (tuples, lists or dicts, from any
            iterable); a data frame; or a series whose index holds the keys.
        reading: how to read it, as in `read_facts` and `read_distributions`; `distribution=True`
            asks for distributions also where every key has one answer.

    Example:
        >>> as_facts({("France", "capital"): "Paris", ("Peru", "capital"): "Lima"})
        Facts('dict', T=2, S=2, N=5)
        >>> as_facts([("tea", "ann"), ("tea", "bob")], on_conflict="distribution")
        Distributions('rows', T=1, S=1, A=2, N=3)
        >>> as_facts("vectors:T=5,n=3,d=4")
        VectorFacts('vectors:T=5,n=3,d=4,context=fixed,outputs=1,seed=42', T=5, n=3, d=4, shared \
context, scalar labels)
        >>> as_facts({"France": ["Paris", "Lyon"]})
        Traceback (most recent call last):
        ...
        byheart.errors.FactsError: dict, entry 1: expected one answer to 'France', found a list. \
Several right answers are a dict token -> probability; columns of a table are rows: zip(*columns).
    """
    if isinstance(data, (Facts, Distributions, VectorFacts)):
        options = Options.of(data.name, reading)
        options.refuse([*CELLS, *DISTRIBUTED], "facts, read already")
        return data
    if isinstance(data, (str, os.PathLike)):
        return _read(Options.of(data, reading))
    return _tabled(gather(python_source(data, reading)))


def read_facts(source: str | os.PathLike[str], **reading: Unpack[Reading]) -> Facts:
    """Facts (key tokens -> answer token) from a file, a built-in table or a recipe.

    Arguments:
        source: a path (.csv, .tsv, .jsonl, .ndjson, .parquet), a built-in name, or a recipe such
            as "random:N=50,S=2,T=1000,seed=0".
        keys: the key columns, in order. Default: all but answer and weights.
        answer: the answer column. Default: the last that does not hold weights.
        weights: the column (in JSONL the field) with the weight of each fact. Default: uniform;
            in JSONL the field "weight" where there is one.
        melt: read one record as several facts (key..., column name) -> cell, one for each column
            that is no key. Default key: the first column.
        header: whether the first row of CSV and TSV names the columns; without, they are 1, 2, ...
            Default: it does, and `facts.notes` say if it looks like a fact: if one of its cells is
            a number, or stands in the same column of another row too.
        trim: leave out the blanks around cells, counted in `facts.trimmed`. Default: in CSV and
            TSV; text in quotes (JSONL, Parquet, Python) is kept, and `facts.notes` say so.
        empty: for an empty cell, "error", "skip" (leave the fact out) or "token" (keep it).
        pad: pad unequal inputs of JSONL on the left with a reserved token.
        name: the name of the facts. Default: the name of the file without its suffix.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "capitals.csv"
        >>> _ = path.write_text("country,capital\\nFrance, Paris\\nItaly,Rome\\n")
        >>> facts = read_facts(path)
        >>> facts, facts.key(0), facts.answer(0), facts.trimmed
        (Facts('capitals', T=2, S=1, N=4), ('France',), 'Paris', 1)

    Notes:
        Each cell is one token. Text is UTF-8. Built-in tables are read with melt unless keys or
        answer are given. Rows in messages are lines of the file, the header being row 1. Whatever
        cannot be read is a `FactsError`. `as_facts` reads every kind of facts, also from Python.
    """
    options = Options.of(source, reading)
    options.refuse(DISTRIBUTED, "facts with one answer each: use `read_distributions`")
    return _only(Facts, _read(options, Facts), options)


def read_distributions(source: str | os.PathLike[str], **reading: Unpack[Reading]) -> Distributions:
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
        reading: as in `read_facts`.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "drinks.csv"
        >>> _ = path.write_text("who,drink\\nann,tea\\nann,tea\\nann,milk\\nbob,milk\\n")
        >>> table = read_distributions(path, on_conflict="distribution", smooth=0.05)
        >>> [(token, round(p, 3)) for token, p in table.top(0)]
        [('tea', 0.652), ('milk', 0.348)]
    """
    options = Options.of(source, reading)
    return _only(Distributions, _read(options, Distributions), options)


def read_vectors(source: str | os.PathLike[str], *, name: str | None = None) -> VectorFacts:
    """Vector facts from a file with the arrays `query (T, d)`, `context (T, n, d)` or `(n, d)` if
    shared, `label (T,)` or `(T, m)` (whole numbers are classes; `classes`, one number, optional);
    or from a recipe such as `vectors:T=621,n=32,d=64,context=fixed,classes=100,seed=42`, `digits`.
    """
    options = Options.of(source, {"name": name})
    return _only(VectorFacts, _read(options, VectorFacts), options)


def is_vectors(source: str | os.PathLike[str]) -> bool:
    """Whether a source names vector facts: by its suffix, or a recipe.

    >>> is_vectors("a.npz"), is_vectors("digits"), is_vectors("capitals.csv")
    (True, True, False)
    """
    text = os.fspath(source)
    recipe = is_recipe(text) and not text.startswith("random:")
    return recipe or Path(text).suffix.lower() in SUFFIXES


Kind = TypeVar("Kind", Facts, Distributions, VectorFacts)
KINDS = {
    Facts: "facts with one answer each",
    Distributions: "distributions over answers (a recipe of them has a kind: random:kind=gauss)",
    VectorFacts: "vectors",
}


def _only(kind: type[Kind], table: FactTable, options: Options) -> Kind:
    if isinstance(table, kind):
        return table
    raise FactsError(
        f"{options.where}: expected {KINDS[kind]}, found {KINDS[type(table)]}. `as_facts` reads "
        "every kind."
    )


def _read(options: Options, kind: type[FactTable] | None = None) -> FactTable:
    """The facts that a path, a name or a recipe stands for; of the `kind` asked for, if any."""
    where = options.where
    path = Path(where)
    if is_recipe(where):
        options.refuse(CELLS, "a recipe, which has no columns")
        table = facts_from_recipe(where)
        if isinstance(table, Distributions):
            return table.smoothed(options.smooth or 0.0)
        renamed = isinstance(table, Facts) and options.name != path.stem
        return replace(table, name=options.name) if renamed else table
    if where in TABLES and not _exists(path):
        melt = options.melt or (options.keys is None and options.answer is None)
        with as_file(files("byheart.facts").joinpath("data", f"{where}.csv")) as inside:
            return _table(inside, replace(options, header=True, melt=melt), kind)
    if not _exists(path):
        raise _missing(where)
    if path.is_dir():
        raise FactsError(f"{where}: expected {ACCEPTED}, found a directory. Name a file in it.")
    if options.ngram is not None:
        alpha = 1.0 if options.smooth is None else options.smooth
        return ngram_distributions(
            path, options.ngram, contexts=options.contexts, alpha=alpha, name=options.name
        )
    if kind is VectorFacts or path.suffix.lower() in SUFFIXES:
        options.refuse([*CELLS, *DISTRIBUTED], "vectors")
        return _vectors(options)
    return _table(path, options, kind)


def _table(path: Path, options: Options, kind: type[FactTable] | None) -> Facts | Distributions:
    """The records of a file, by its suffix."""
    where, suffix = options.where, path.suffix.lower()
    # Closed at once, so that an error does not keep the file open.
    if suffix in JSON_LINES:
        names = [name for name in COLUMNS if name != "weights"]
        options.refuse(names, "JSON lines, which have no columns")
        with closing(json_lines(path, where)) as objects:
            return _tabled(gather(keyed_source(objects, Cells(options, "line", "field"))), kind)
    if suffix in DELIMITERS:
        rows = csv_rows(path, DELIMITERS[suffix], where)
    elif suffix == ".parquet":
        options.refuse(["header"], "Parquet, which names its columns")
        rows = parquet_rows(path, where)
    else:
        found = f"the suffix {suffix!r}" if suffix else "no suffix"
        raise FactsError(
            f"{where}: expected {ACCEPTED}, found {found}. Rename or convert the file; a text is "
            "read with `ngram`."
        )
    with closing(rows):
        cells = Cells(options, trim=suffix in DELIMITERS)
        return _tabled(gather(table_source(rows, cells)), kind)


def _tabled(read: Gathered, kind: type[FactTable] | None = None) -> Facts | Distributions:
    """Records as facts, or as distributions where they are, or where that is asked for."""
    options = read.cells.options
    asked = options.distribution or options.on_conflict == "distribution"
    if kind is Facts or not (asked or read.mixtures or kind is Distributions):
        return Facts.gathered(read)
    return Distributions.gathered(read, Path(options.where).suffix.lower() in JSON_LINES)


def _vectors(options: Options) -> VectorFacts:
    where = options.where
    arrays = read_arrays(where)
    missing = [key for key in ("query", "context", "label") if key not in arrays]
    if missing:
        raise FactsError(
            f"{where}: expected the arrays query, context and label, found no "
            f"{' and no '.join(missing)}; there are {', '.join(sorted(arrays)) or 'none'}."
        )
    classes = arrays.get("classes")
    if classes is not None and (classes.size != 1 or classes.dtype.kind not in "iu"):
        raise FactsError(f"{where}: expected `classes` to be one whole number.")
    count = None if classes is None else int(classes.reshape(()))
    context, query, label = arrays["context"], arrays["query"], arrays["label"]
    return VectorFacts.make(context, query, label, classes=count, name=options.name)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise FactsError(f"{path}: cannot be looked up: {error.strerror}.") from error


def _missing(where: str) -> FactsError:
    """The files beside a path that does not exist, and built-in tables, may be what was meant."""
    path, shown = Path(where), quote(where, 200)
    try:
        beside = sorted(file.name for file in path.parent.iterdir() if not file.is_dir())
    except OSError:
        beside = []
    near = did_you_mean(path.name, [*beside, *TABLES])
    return FactsError(
        f"expected {ACCEPTED}, found no file {shown}. Check the path. {near}".rstrip()
    )
