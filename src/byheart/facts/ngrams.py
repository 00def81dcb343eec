"""Next-word distributions of a text: n-gram counts of its words."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from byheart.errors import FactsError, OptionError
from byheart.facts import _checks as check
from byheart.facts._files import open_text
from byheart.facts.distributions import Distributions
from byheart.facts.vocabulary import Vocabulary

# Words with inner apostrophes and hyphens; any other mark that is no space is a word of its own.
WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")


def words(text: str) -> list[str]:
    """Lower-case words and punctuation marks.

    Example:
        >>> words("The licensee's copy, as-is.")
        ['the', "licensee's", 'copy', ',', 'as-is', '.']
    """
    return WORD.findall(text.lower())


def ngram_distributions(
    source: str | os.PathLike[str],
    n: int = 2,
    *,
    contexts: int | None = 5000,
    alpha: float = 1.0,
    name: str | None = None,
) -> Distributions:
    """π(w | c) = (n(c, w) + α p(w)) / (n(c) + α) for contexts c of n - 1 words of a text file.

    Symbols:
        n: 2 for bigrams (contexts of one word), 3 for trigrams.
        contexts: how many of the most frequent contexts are kept; None keeps all. Ties go to the
            context that appears first.
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

    Notes:
        The prior of a context is how often it is followed by a word. Smoothing with the words'
        own frequencies (a Dirichlet prior of weight α) gives full support.
    """
    where = os.fspath(source)
    for fits, parameter, expected, value in (
        (n >= 2, "ngram", "2 (bigrams) or more", n),
        (0 <= alpha < float("inf"), "smooth", "a finite number >= 0", alpha),
        (contexts is None or contexts >= 1, "contexts", "at least 1 context", contexts),
    ):
        if not fits:
            raise OptionError(parameter, expected, value)
    with open_text(Path(where), where) as stream:
        text = words(stream.read())
    if len(text) < n:
        raise FactsError(
            f"{where}: expected at least {n} words for n-grams of {n}, found {len(text)}."
        )
    counts = Counter(zip(*(text[i:] for i in range(n)), strict=False))
    frequency: Counter[tuple[str, ...]] = Counter()
    for gram, times in counts.items():
        frequency[gram[:-1]] += times
    kept = [context for context, _ in frequency.most_common(contexts)]
    index = {context: i for i, context in enumerate(kept)}
    followed = [(index[g[:-1]], g[-1], k) for g, k in counts.items() if g[:-1] in index]
    answers = sorted({word for _, word, _ in followed})
    check.room(len(kept), len(answers), where)
    column = {word: j for j, word in enumerate(answers)}
    vocabulary = Vocabulary(tuple(sorted({*chain(*kept), *answers})))
    mass = np.zeros((len(kept), len(answers)))
    for i, word, times in followed:
        mass[i, column[word]] = times
    p = mass.sum(axis=0) / mass.sum()
    total = mass.sum(axis=1)
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
    smoothing = (
        f"(n(c, w) + α p(w))/(n(c) + α), α = {alpha:g}, p(w) the frequency of w" if alpha else ""
    )
    return replace(table, smoothing=smoothing)
