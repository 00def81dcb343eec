"""What is to be memorized: token sequences with one answer each (`Facts`) or with a distribution
over answers (`Distributions`), or vectors with a label (`VectorFacts`).

`as_facts` takes any of them in any form: files, built-in tables, recipes of random tasks, dicts,
rows, data frames; the `read_` functions ask for one kind. Modules whose names start with an
underscore are how it is done, not what to call. Nothing here imports torch.

Example:
    >>> facts = random_associations(N=10, S=2, T=5, seed=0)
    >>> facts.T, facts.S, facts.N
    (5, 2, 10)
"""

from typing import TYPE_CHECKING

from byheart._lazy import attach

if TYPE_CHECKING:
    from byheart.facts._records import Reading
    from byheart.facts.distributions import Distributions
    from byheart.facts.facts import Facts
    from byheart.facts.read import (
        FactTable,
        as_facts,
        builtin_tables,
        ngram_distributions,
        read_distributions,
        read_facts,
        read_vectors,
    )
    from byheart.facts.tasks import (
        digit_vectors,
        facts_from_recipe,
        is_recipe,
        random_associations,
        random_distributions,
        random_vectors,
    )
    from byheart.facts.vectors import VectorFacts, read_arrays
    from byheart.facts.vocabulary import Vocabulary

__all__ = [
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
