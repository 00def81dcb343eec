"""The constructions as methods: what each takes, which options it has, and what they may be.

Nothing heavy is loaded before a memory is built: a wrong option is refused at once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

from byheart._progress import Report
from byheart.errors import ByheartError
from byheart.methods import Kind, Method, option
from byheart.specs import DTYPES, GATES

if TYPE_CHECKING:
    from byheart.construct.encoders import Encoder
    from byheart.facts import Distributions, Facts, VectorFacts
    from byheart.models.exact_memory import ExactMemory
    from byheart.models.sharded_memory import ShardedMemory
    from byheart.models.token_memory import DistributionMemory, TokenMemory
    from byheart.models.vector_memory import VectorMemory

SIZES = "Sizes (what is not given is chosen, and the reasons are printed)"
WIDTH, HEADS, HEAD_WIDTH = "Width d.", "Heads H.", "Head width d_h <= d."
RANK = (
    "Rank of W_QK. Default: 1 (enough) when byheart sizes the heads, d_h (the paper's layer) when "
    "you give `H` or `d_h`."
)
SLACK = "Share of heads beyond the theorem: a condition number 10x smaller at 0.05."
STORED = "How the weights are stored."


@dataclass(frozen=True)
class AttentionOnly(Method["TokenMemory"]):
    """One dense attention-only layer (Dana et al. 2025, Corollary 1): T <= H d_h + d facts by one
    linear solve.

    >>> import byheart as bh
    >>> bh.build("elements", bh.AttentionOnly(d=12)).spec.d
    12
    """

    name: ClassVar[str] = "attention"
    summary: ClassVar[str] = "one dense attention-only layer"

    readout: str = option(
        "exact",
        "exact: all of up to H·d_h + d facts, by a theorem. convex: often 1.3 to 4 times as many; "
        "says what it lost.",
        choices=("exact", "convex"),
    )
    d: int | None = option(None, WIDTH, SIZES, min=1)
    H: int | None = option(None, HEADS, SIZES, min=1)
    d_h: int | None = option(None, HEAD_WIDTH, SIZES, min=1)
    qk_rank: int | None = option(None, RANK, SIZES, min=1)
    slack: float = option(0.05, SLACK, SIZES, min=0, max=10)
    dtype: str = option("float32", STORED, choices=DTYPES)

    def _build(self, facts: Facts, seed: int, progress: Report) -> TokenMemory:
        from byheart.construct.attention_only import attention_memory

        return attention_memory(facts, self, seed, progress)


@dataclass(frozen=True)
class Sharded(Method["ShardedMemory"]):
    """Corollary 1 shard by shard (our own): heads are gated to shards by softmax saturation, so the
    solve is block diagonal and every fact is owned by known heads (docs/sharded.md).

    >>> import byheart as bh
    >>> bh.build("countries", bh.Sharded(gate="key")).spec.gate
    'key'
    """

    name: ClassVar[str] = "sharded"
    summary: ClassVar[str] = "shards of facts, each owned by known heads; editable"

    d: int | None = option(None, "Generic coordinates d_g of the width.", SIZES, min=1)
    d_h: int | None = option(None, HEAD_WIDTH, SIZES, min=1)
    slack: float = option(0.05, SLACK, SIZES, min=0, max=10)
    gate: str | None = option(
        None,
        "Which key token opens a shard: query, any (default; it is then read last); key, the first "
        "of two; subject-sink, the first of any number (docs/sharded.md).",
        choices=GATES,
    )
    shard_size: int | None = option(
        None, "Facts a shard. Default: 250. 1: one fact, one group of heads.", min=1
    )
    facts_per_head: int | None = option(
        None,
        "One head for every K facts, of width K and theirs alone; 1: one fact, one head. Costs "
        "about 2 d (r/K + 1) parameters a fact in the literal layer, r = 2 or 3 "
        "(docs/ground-truth.md).",
        metavar="K",
        min=1,
    )
    heads_by: str | int | None = option(
        None,
        "Every value of this key column (its name, or its number from 1) has heads of its own.",
        metavar="COLUMN",
    )
    copies: int = option(
        1,
        "Spread every fact over this many times the heads: from 2 on no single one is needed, and "
        "the heads cost as many times the parameters.",
        min=1,
        max=64,
    )
    untied: bool = option(False, "Draw random heads for every shard.")
    code: str | None = option(None, "Lattice of the gates.", choices=("lat1", "lat2"))
    abstain: bool = option(
        False, "Store fingerprints of the keys, so that others can be told without the facts."
    )
    workers: int | str = option(
        1,
        "Solve shards on K local processes, or on the Dask scheduler at ADDRESS "
        "(tcp://host:8786). The memory is the same, byte for byte.",
        metavar="K|ADDRESS",
    )
    dtype: str = option("float32", STORED, choices=DTYPES)

    def __post_init__(self) -> None:
        super().__post_init__()
        chosen = {"facts_per_head": self.facts_per_head, "heads_by": self.heads_by}
        excluded = {
            "facts_per_head": ("heads_by", "shard_size", "d_h", "slack"),
            "heads_by": ("shard_size",),
        }
        given = {f.name for f in fields(self) if getattr(self, f.name) != f.default}
        for name, value in chosen.items():
            wrong = [other for other in excluded[name] if other in given]
            if value is not None and wrong:
                raise ByheartError(
                    f"`{name}` says which facts share a head, and leaves no choice of "
                    f"{' and '.join(f'`{other}`' for other in wrong)}. Give one or the other."
                )

    @property
    def known_heads(self) -> bool:
        """Whether it is asked which heads hold what: the rest of the stream is then made neutral,
        so that a fact is lost with its heads."""
        return self.facts_per_head is not None or self.heads_by is not None or self.copies > 1

    def copies_fit(self, d_h: int) -> int:
        """Facts a shard such that each of its heads can hold all of them, with room to spare: an
        equal share each."""
        return max(1, d_h // 2)

    def _build(self, facts: Facts, seed: int, progress: Report) -> ShardedMemory:
        from byheart.construct.sharded.build import sharded_memory

        return sharded_memory(facts, self, seed, progress)


@dataclass(frozen=True)
class Associative(Method["TokenMemory"]):
    """The linear associative memory, summed: the baseline that attention is measured against."""

    name: ClassVar[str] = "associative"
    summary: ClassVar[str] = "one matrix, the facts added up: the baseline"

    d: int | None = option(
        None, "Width d. Default: doubled until every fact is recalled.", SIZES, min=1
    )
    dtype: str = option("float32", STORED, choices=DTYPES)

    def _build(self, facts: Facts, seed: int, progress: Report) -> TokenMemory:
        from byheart.construct.attention_only import associative_memory

        return associative_memory(facts, self, seed, progress)


@dataclass(frozen=True)
class SquareRoot(Method["ExactMemory"]):
    """The square-root Transformer in exact integers, O~(sqrt T) parameters (Kajitsuka and Sato
    2025; docs/square-root.md).

    >>> import byheart as bh
    >>> bh.build("elements", bh.SquareRoot(ff1="product")).spec.ff1
    'product'
    """

    name: ClassVar[str] = "sqrt"
    summary: ClassVar[str] = "exact integers, of the order of sqrt(T) parameters"

    ff1: str = option(
        "hash",
        "How tokens get ids: a checked hash, products that work for every table, or the paper's "
        "table.",
        choices=("hash", "product", "paper"),
    )
    grouping: str = option(
        "sorted",
        "How keys are grouped; interp: fewer parameters for large tables.",
        choices=("sorted", "interp"),
    )
    max_bits: int | None = option(
        None,
        "Longest weight of a table (keys and sums may be longer): fewer bits, more weights.",
        min=2,
    )
    ordered: bool = option(True, "Keys are multisets of tokens.")
    abstain: bool = option(False, "More bits of each key, so that others are `unknown`.")
    register: bool = option(
        False, "Two attentions by way of a register token: 4 S links in all (Remark 4.5)."
    )

    def _build(self, facts: Facts, seed: int, progress: Report) -> ExactMemory:
        from byheart.construct.square_root import square_root_memory

        return square_root_memory(facts, self, seed, progress)


@dataclass(frozen=True)
class MultiHead(Method["VectorMemory"]):
    """One multi-head attention layer over vectors (Mahdavi et al. 2024; docs/multi-head.md).

    >>> import byheart as bh
    >>> facts = bh.random_vectors(T=29, n=8, d=16)
    >>> memory = bh.build(facts, bh.MultiHead(H=4, d_h=8))
    >>> memory.construction.recalled, memory.construction.capacity
    (29, 29)
    """

    name: ClassVar[str] = "multihead"
    summary: ClassVar[str] = "multi-head attention over vectors"
    takes: ClassVar[Kind] = "vectors"

    proof: str = option(
        "one-hot",
        "How: every example saturated; the proof as printed (float64); random heads and one solve; "
        "all weights by Levenberg-Marquardt (docs/multi-head.md).",
        choices=("one-hot", "literal", "random", "newton"),
    )
    readout: str = option(
        "exact",
        "exact: every example. convex (classes, random heads): more examples than the rank; says "
        "what it lost.",
        choices=("exact", "convex"),
    )
    H: int | None = option(None, HEADS, SIZES, min=1)
    d_h: int | None = option(None, HEAD_WIDTH, SIZES, min=1)
    slack: float = option(0.05, SLACK, SIZES, min=0, max=10)
    tolerance: float | None = option(
        None, "What an output may differ from a label by. Default: 1e-5 (float32), 1e-9."
    )
    steps: int = option(0, "Gradient steps that condition random heads.", min=0)
    starts: int = option(5, "Starts of newton.", min=1)
    dtype: str = option("float32", STORED, choices=DTYPES)

    def _build(self, facts: VectorFacts, seed: int, progress: Report) -> VectorMemory:
        from byheart.construct.multi_head.build import multi_head_memory

        return multi_head_memory(facts, self, seed, progress)


@dataclass(frozen=True)
class DistributionAttention(Method["DistributionMemory"]):
    """One attention-only layer whose softmax follows distributions (Dana et al. 2025, Theorems 1
    and 3; docs/distributions.md).

    >>> import byheart as bh
    >>> table = bh.random_distributions("gauss", N=6, seed=1)
    >>> memory = bh.build(table, bh.DistributionAttention(d=5, dtype="float64"))
    >>> memory.construction.kl < 1e-12  # d = N - 1 and H d_h >= T: exact
    True
    """

    name: ClassVar[str] = "distribution"
    summary: ClassVar[str] = "one attention layer whose softmax follows distributions"
    takes: ClassVar[Kind] = "distributions"

    encoder: str | Encoder = option(  # noqa: RUF009 a field, like the others
        "best", "Sequence encoder: best, or one that `byheart encoder` lists.", metavar="NAME"
    )
    readout: str = option(
        "auto",
        "auto: exact where H·d_h + d >= T, convex elsewhere; joint, ridge and literal besides.",
        choices=("auto", "exact", "convex", "joint", "ridge", "literal"),
    )
    d: int | None = option(None, WIDTH, SIZES, min=1)
    H: int | None = option(None, HEADS, SIZES, min=1)
    d_h: int | None = option(None, HEAD_WIDTH, SIZES, min=1)
    qk_rank: int | None = option(None, RANK, SIZES, min=1)
    slack: float = option(0.05, SLACK, SIZES, min=0, max=10)
    dtype: str = option("float32", STORED, choices=DTYPES)

    def _build(self, facts: Distributions, seed: int, progress: Report) -> DistributionMemory:
        from byheart.construct.distribution import distribution_memory

        return distribution_memory(facts, self, seed, progress)
