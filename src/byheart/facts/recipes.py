"""Facts that a text describes, such as `random:N=50,S=2,T=1000,seed=0`."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path

from byheart._words import quote
from byheart.errors import FactsError
from byheart.facts.distributions import Distributions
from byheart.facts.facts import Facts
from byheart.facts.tasks import random_associations, random_distributions
from byheart.facts.vector_tasks import digit_vectors, random_vectors
from byheart.facts.vectors import VectorFacts

__all__ = ["ASSOCIATIONS", "facts_from_recipe", "is_recipe"]

ASSOCIATIONS = "random:N=50,S=2,T=1000,seed=0"
DISTRIBUTIONS = "random:kind=gauss,N=20,S=2,tau=1,zipf=0,seed=0"
VECTORS = "vectors:T=621,n=32,d=64,context=fixed,classes=100,seed=42"
DIGITS = "digits:T=500,patch=2,classes=10,seed=0"


def _digits(
    T: int = 500, patch: int = 2, classes: int | None = 10, labels: str = "random", seed: int = 0
) -> VectorFacts:
    if labels not in ("random", "digits"):
        raise FactsError(f"expected labels=random or labels=digits, found {quote(labels)}.")
    return digit_vectors(T, patch, classes=classes, random=labels == "random", seed=seed)


# Kind -> an example, and the function whose parameters are the settings.
RECIPES: dict[str, tuple[str, Callable[..., Facts | Distributions | VectorFacts]]] = {
    "random": (ASSOCIATIONS, random_associations),
    "random:kind": (DISTRIBUTIONS, random_distributions),
    "vectors": (VECTORS, random_vectors),
    "digits": (DIGITS, _digits),
}
# How the text of a setting is read, by the annotation of its parameter.
READ: dict[str, Callable[[str], int | float | str]] = {"int": int, "float": float, "str": str}


def is_recipe(source: str | os.PathLike[str]) -> bool:
    """Whether a source is a recipe: `random:...`, `vectors:...`, `digits`; and no file.

    >>> is_recipe("digits"), is_recipe("random:N=3"), is_recipe("random.csv")
    (True, True, False)
    """
    text = os.fspath(source)
    kind, colon, _ = text.partition(":")
    return (kind == "digits" or bool(colon and kind in RECIPES)) and not Path(text).exists()


def facts_from_recipe(recipe: str) -> Facts | Distributions | VectorFacts:
    """The task that a text describes; `classes=0` means labels that are numbers.

    Example:
        >>> facts_from_recipe("random:N=50,S=2,T=1000,seed=0")
        Facts('random:N=50,S=2,T=1000,seed=0', T=1000, S=2, N=50)
        >>> facts_from_recipe("random:kind=lut,N=10,eta=0.003").A
        10
        >>> facts_from_recipe("vectors:T=9,n=3,d=4,context=random,seed=1").classes is None
        True
    """
    kind, _, rest = recipe.partition(":")
    parts = (
        [part.strip().partition("=") for part in rest.split(",")]
        if rest or kind == "random"
        else []
    )
    if kind == "random" and any(name == "kind" for name, _, _ in parts):
        kind = "random:kind"
    example, make = RECIPES[kind]
    parameters = inspect.signature(make).parameters
    settings: dict[str, int | float | str | None] = {}
    for name, mark, text in parts:
        try:
            if name in settings:
                raise KeyError(name)
            settings[name] = READ[str(parameters[name].annotation).split(" ")[0]](text)
        except (KeyError, ValueError):
            raise FactsError(
                f"expected a recipe such as {example}, found {quote(name + mark + text)} in "
                f"{quote(recipe)}."
            ) from None
    if settings.get("classes") == 0:
        settings["classes"] = None
    needed = [name for name, p in parameters.items() if p.default is p.empty]
    missing = [name for name in needed if name not in settings]
    if missing:
        raise FactsError(
            f"expected a recipe such as {example}, found no {' and no '.join(missing)} in "
            f"{quote(recipe)}."
        )
    return make(**settings)
