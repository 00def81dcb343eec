"""What is to be memorized: token sequences with one answer each, or vectors with a label.

- `Facts` holds them as token ids; `Vocabulary` turns tokens into ids and back.
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

from byheart.facts.builtin import builtin_tables
from byheart.facts.distribution_tasks import random_distributions
from byheart.facts.distributions import Distributions
from byheart.facts.facts import Facts
from byheart.facts.ngrams import ngram_distributions
from byheart.facts.read import read_facts
from byheart.facts.read_distributions import read_distributions
from byheart.facts.tasks import random_associations
from byheart.facts.vector_files import read_vectors
from byheart.facts.vector_tasks import digit_vectors, random_vectors
from byheart.facts.vectors import VectorFacts
from byheart.facts.vocabulary import Vocabulary

__all__ = [
    "Distributions",
    "Facts",
    "VectorFacts",
    "Vocabulary",
    "builtin_tables",
    "digit_vectors",
    "ngram_distributions",
    "random_associations",
    "random_distributions",
    "random_vectors",
    "read_distributions",
    "read_facts",
    "read_vectors",
]
