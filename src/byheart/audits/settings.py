"""How an audit is made."""

from __future__ import annotations

from dataclasses import dataclass

from byheart.errors import OptionError, check_choice

FORMATS = ("float32", "float64")
QUERIES = ("first", "last", "every")


@dataclass(frozen=True)
class AuditSettings:
    """How much is shown to a model, and how its hidden states are measured.

    At most `contexts` different contexts of `length` tokens (default: 64, or what the model can
    read). `queries`: "first", "last", "every" (the first named is the main one; default: last and
    every for causal models, all three for others). `formats`: number formats in which the model is
    run; float64 is always among them. `random`: also with weights drawn anew from the same config.
    `ranked` contexts are kept whole for their ranks, `draws` subsets are sampled, dependent sets of
    up to `search` rows are looked for. The model reads `batch` contexts at a time.

    >>> AuditSettings(contexts=1)
    Traceback (most recent call last):
    ...
    byheart.errors.OptionError: `contexts` must be at least 2, found 1.
    """

    length: int | None = None
    contexts: int = 2000
    queries: tuple[str, ...] | None = None
    formats: tuple[str, ...] = FORMATS
    random: bool = True
    ranked: int = 200
    draws: int = 200
    search: int = 4
    batch: int = 32
    device: str = "cpu"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in self.formats:
            check_choice("formats", name, FORMATS)
        if self.queries is not None and not self.queries:
            raise OptionError("queries", f"among {', '.join(QUERIES)}", self.queries)
        for name in self.queries or ():
            check_choice("queries", name, QUERIES)
        limits = {"contexts": 2, "search": 2, "ranked": 1, "draws": 1, "batch": 1}
        for name, least in limits.items():
            if getattr(self, name) < least:
                raise OptionError(name, f"at least {least}", getattr(self, name))

    @property
    def run_in(self) -> tuple[str, ...]:
        """The formats, each once, float64 last if it was not named."""
        return tuple(dict.fromkeys((*self.formats, "float64")))

    def kinds(self, causal: bool) -> tuple[str, ...]:
        """The queries, each once, the main one first."""
        if self.queries is None:
            return ("last", "every") if causal else QUERIES
        return tuple(dict.fromkeys(self.queries))


@dataclass(frozen=True)
class HeadSettings:
    """How much text the heads of a language model are judged on.

    At most `contexts` different contexts of `length` tokens (default: 64, or what the model can
    read), in `chunks` runs: half of them fitted, half held out, both ways round. The pairs of the
    `top` heads are listed, `pairs` of each. The model reads `batch` contexts at a time.
    """

    length: int | None = None
    contexts: int = 128
    chunks: int = 20
    top: int = 10
    pairs: int = 5
    batch: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        limits = {"contexts": 4, "chunks": 2, "top": 1, "pairs": 1, "batch": 1}
        for name, least in limits.items():
            if getattr(self, name) < least:
                raise OptionError(name, f"at least {least}", getattr(self, name))
