"""Facts from anything: files, built-in tables, recipes, texts, and Python's own data."""

from __future__ import annotations

import os
import re
from collections import Counter
from contextlib import closing
from dataclasses import replace
from importlib.resources import as_file, files
from itertools import chain
from pathlib import Path
from typing import TypeVar, Unpack

import numpy as np

from byheart._words import quote
from byheart.errors import FactsError, OptionError, did_you_mean
from byheart.facts import _checks as check
from byheart.facts import _files
from byheart.facts._records import COLUMNS, Gathered, Options, Reading, Source, gather
from byheart.facts._sources import keyed_source, python_source, table_source
from byheart.facts.distributions import Distributions
from byheart.facts.facts import DISTRIBUTED, Facts
from byheart.facts.tasks import ASSOCIATIONS, facts_from_recipe, is_recipe
from byheart.facts.vectors import SUFFIXES, VectorFacts, read_arrays
from byheart.facts.vocabulary import Vocabulary

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
# Words with inner apostrophes and hyphens; any other mark that is no space is a word of its own.
WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")


def builtin_tables() -> dict[str, str]:
    """Name -> one-line description of the tables in the package; `read_facts(name)` reads one."""
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
        weights: the column with the weight of each fact; in JSONL the field, "weight" by default.
        melt: read one record as several facts (key..., column name) -> cell, one for each column
            that is no key. Default key: the first column.
        header: whether the first row of CSV and TSV names the columns; without, they are 1, 2, ...
            Default: it does, and `facts.notes` say if it looks like a fact.
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
        Each cell is one token. Built-in tables are read with melt unless keys or answer are given.
        Rows in messages are lines of the file. Whatever cannot be read is a `FactsError`.
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
        smooth: δ of (π + δ)/(1 + Aδ) (default 0); of texts the α of `ngram_distributions`.
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


def ngram_distributions(
    source: str | os.PathLike[str],
    n: int = 2,
    *,
    contexts: int | None = 5000,
    alpha: float = 1.0,
    name: str | None = None,
) -> Distributions:
    """π(w | c) = (n(c, w) + α p(w)) / (n(c) + α) for contexts c of n - 1 words of a text file; the
    prior of c is proportional to n(c).

    Symbols:
        n: 2 for bigrams (contexts of one word), 3 for trigrams.
        contexts: how many of the most frequent contexts are kept, the first of ties; None: all.
        alpha: weight of the smoothing, in occurrences; p(w) is how often w follows any of the kept
            contexts. alpha = 0 leaves zeros.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "text.txt"
        >>> _ = path.write_text("the cat and the dog and the cat")
        >>> table = ngram_distributions(path, 2, alpha=0)
        >>> table.key(0), table.top(0, 2), table.prior.round(3)
        (('the',), [('cat', 0.6666666666666666), ('dog', 0.3333333333333333)], \
array([0.429, 0.286, 0.143, 0.143]))
    """
    where = os.fspath(source)
    if n < 2:
        raise OptionError("ngram", "2 (bigrams) or more", n)
    if not 0 <= alpha < float("inf"):
        raise OptionError("smooth", "a finite number >= 0", alpha)
    if contexts is not None and contexts < 1:
        raise OptionError("contexts", "at least 1 context", contexts)
    with _files.open_text(Path(where), where) as stream:
        text = WORD.findall(stream.read().lower())
    if len(text) < n:
        raise FactsError(f"{where}: expected at least {n} words for n-grams, found {len(text)}.")
    counts = Counter(zip(*(text[i:] for i in range(n)), strict=False))
    frequency: Counter[tuple[str, ...]] = Counter()
    for gram, times in counts.items():
        frequency[gram[:-1]] += times
    kept = [context for context, _ in frequency.most_common(contexts)]
    index = {context: i for i, context in enumerate(kept)}
    followed = [(index[g[:-1]], g[-1], k) for g, k in counts.items() if g[:-1] in index]
    answers = {word: j for j, word in enumerate(sorted({word for _, word, _ in followed}))}
    check.room(len(kept), len(answers), where)
    vocabulary = Vocabulary(tuple(sorted({*chain(*kept), *answers})))
    mass = np.zeros((len(kept), len(answers)))
    for i, word, times in followed:
        mass[i, answers[word]] = times
    p, total = mass.sum(axis=0) / mass.sum(), mass.sum(axis=1)
    table = Distributions.make(
        [vocabulary.ids(context) for context in kept],
        (mass + alpha * p) / (total + alpha)[:, None],
        vocabulary,
        total,
        support=vocabulary.ids(answers),
        normalise=True,
        name=name or f"{Path(where).stem}-{n}gram",
        answer_column="next word",
    )
    formula = f"(n(c, w) + α p(w))/(n(c) + α), α = {alpha:g}, p(w) the frequency of w"
    return replace(table, smoothing=formula if alpha else "")


Kind = TypeVar("Kind", Facts, Distributions, VectorFacts)
KINDS = {
    Facts: "facts with one answer each",
    Distributions: "distributions over answers (a recipe of them has a kind: random:kind=gauss)",
    VectorFacts: "vectors",
}


def _only(kind: type[Kind], table: FactTable, options: Options) -> Kind:
    if isinstance(table, kind):
        return table
    found = f"found {KINDS[type(table)]}. `as_facts` reads every kind"
    raise FactsError(f"{options.where}: expected {KINDS[kind]}, {found}.")


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
    if os.path.isdir(path):
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
    if suffix in _files.JSON_LINES:
        names = [name for name in COLUMNS if name != "weights"]
        options.refuse(names, "JSON lines, which have no columns")
        with closing(_files.json_lines(path, where)) as objects:
            return _tabled(gather(keyed_source(objects, Source(options, "line", "field"))), kind)
    if suffix in _files.DELIMITERS:
        rows = _files.csv_rows(path, _files.DELIMITERS[suffix], where)
    elif suffix == ".parquet":
        options.refuse(["header"], "Parquet, which names its columns")
        rows = _files.parquet_rows(path, where)
    else:
        found = f"the suffix {suffix!r}" if suffix else "no suffix"
        advice = "Rename or convert the file; a text is read with `ngram`"
        raise FactsError(f"{where}: expected {ACCEPTED}, found {found}. {advice}.")
    with closing(rows):
        source = Source(options, trim=suffix in _files.DELIMITERS)
        return _tabled(gather(table_source(rows, source)), kind)


def _tabled(read: Gathered, kind: type[FactTable] | None = None) -> Facts | Distributions:
    """Records as facts, or as distributions where they are, or where that is asked for."""
    options = read.source.options
    asked = options.distribution or options.on_conflict == "distribution"
    if kind is Facts or not (asked or read.mixtures or kind is Distributions):
        return Facts.gathered(read)
    return Distributions.gathered(read, Path(options.where).suffix.lower() in _files.JSON_LINES)


def _vectors(options: Options) -> VectorFacts:
    where = options.where
    arrays = read_arrays(where)
    missing = [key for key in ("query", "context", "label") if key not in arrays]
    if missing:
        found = f"found no {' and no '.join(missing)}; there are {', '.join(sorted(arrays))}"
        raise FactsError(f"{where}: expected the arrays query, context and label, {found}.")
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
    found = f"{shown}. Check the path. {did_you_mean(path.name, [*beside, *TABLES])}".rstrip()
    return FactsError(f"expected {ACCEPTED}, found no file {found}")
