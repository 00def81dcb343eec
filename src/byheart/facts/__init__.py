"""What is to be memorized: token sequences with one answer each, or vectors with a label.

- `Facts` holds them as token ids; `Vocabulary` turns tokens into ids and back.
- `as_facts` takes facts in any form: files, names, dicts, rows, data frames.
- `read_facts` reads CSV, TSV, JSONL and Parquet files, built-in tables and random recipes.
- `random_associations` draws the random task of the papers.
- `Distributions` holds keys with several right answers; `read_distributions`,
  `ngram_distributions` and `random_distributions` make them.
- `VectorFacts` holds contexts, queries and labels; `read_vectors` reads them from files and
  recipes, `random_vectors` and `digit_vectors` draw them.
- `builtin_tables` names the tables that come with the package.

Modules whose names start with an underscore are how it is done, not what to call. Nothing here
imports torch.

Example:
    >>> facts = random_associations(N=10, S=2, T=5, seed=0)
    >>> facts.T, facts.S, facts.N
    (5, 2, 10)
"""

from typing import TYPE_CHECKING

from byheart._lazy import attach

if TYPE_CHECKING:
    from byheart.facts._arrays import read_arrays
    from byheart.facts._reading import Counting, Reading
    from byheart.facts.builtin import builtin_tables
    from byheart.facts.distributions import Distributions
    from byheart.facts.facts import Facts
    from byheart.facts.ngrams import ngram_distributions
    from byheart.facts.read import (
        FactTable,
        as_facts,
        is_vectors,
        read_distributions,
        read_facts,
        read_vectors,
    )
    from byheart.facts.recipes import facts_from_recipe, is_recipe
    from byheart.facts.tasks import random_associations, random_distributions
    from byheart.facts.vector_tasks import digit_vectors, random_vectors
    from byheart.facts.vectors import VectorFacts
    from byheart.facts.vocabulary import Vocabulary

__all__ = [
    "Counting",
    "Distributions",
    "FactTable",
    "Facts",
    "Reading",
    "VectorFacts",
    "Vocabulary",
    "as_facts",
    "builtin_tables",
    "digit_vectors",
    "facts_from_recipe",
    "is_recipe",
    "is_vectors",
    "ngram_distributions",
    "random_associations",
    "random_distributions",
    "random_vectors",
    "read_arrays",
    "read_distributions",
    "read_facts",
    "read_vectors",
]
__getattr__, __dir__ = attach(__name__)
