"""The case that a theorem is asked about: sizes of an architecture and of facts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import TYPE_CHECKING

from byheart import specs
from byheart._words import shown
from byheart.errors import ByheartError, OptionError
from byheart.specs import Spec
from byheart.specs.base import LARGEST

if TYPE_CHECKING:
    from byheart.facts import Facts

Number = int | float


@dataclass(frozen=True)
class Case:
    """What a bound is asked about: sizes of an architecture and of the facts; None is not known.

    Architecture: width `d`, head width `d_h`, `H` heads (`kv_heads` of them with their own W_K and
    W_V), context of `n` positions, vocabulary `N`, `layers`, `d_ff` feed-forward units with
    `activation`, `width` = max(m, s, q) of Kajitsuka and Sato, `parameters` of the whole model,
    `layer_parameters` of one bare attention layer with embeddings, `bits` per parameter; `bare`:
    nothing but heads is trained, no embedding and no decoder.
    Facts: `T` of them, keys of `S` tokens, `answers` different ones, `last_tokens` different last
    tokens, a `uniform` prior or not.
    Data: `kruskal` rank Q of the queries, tokens in R^`d_in` with norm / distance `spread` = r/δ.
    """

    family: str = ""
    d: int | None = None
    d_h: int | None = None
    H: int | None = None
    kv_heads: int | None = None
    n: int | None = None
    N: int | None = None
    layers: int | None = None
    d_ff: int | None = None
    d_v: int | None = None
    d_out: int | None = None
    qk_rank: int | None = None
    width: int | None = None
    activation: str | None = None
    attention: str = "softmax"
    positions: str = "input"
    skip: bool = True
    shared: bool | None = None
    bare: bool = True
    parameters: int | None = None
    layer_parameters: int | None = None
    bits: int = 32
    T: int | None = None
    S: int | None = None
    answers: int | None = None
    last_tokens: int | None = None
    uniform: bool | None = None
    kruskal: int | None = None
    d_in: int | None = None
    spread: float | None = None
    facts: Facts | None = field(default=None, compare=False, repr=False)

    def missing(self, *names: str) -> list[str]:
        """Which of `names` are not known."""
        return [name for name in names if getattr(self, name) is None]

    def __getitem__(self, name: str) -> int:
        """A size that the bound has declared in `reads`: it is there when capacity is called."""
        value = getattr(self, name)
        if value is None:
            raise KeyError(f"{name} is not known: a bound must list it in `reads`")
        return value

    @property
    def free_heads(self) -> int:
        """Heads that have W_K and W_V of their own: what the constructions may count."""
        return self["H"] if self.kv_heads is None else min(self["H"], self.kv_heads)

    @property
    def answer_count(self) -> int:
        """A: the different answers, as many as there are tokens unless given."""
        return self["N"] if self.answers is None else self.answers

    @property
    def key_length(self) -> int:
        """Tokens of a key; the whole context where the facts do not say."""
        return self["n"] if self.S is None else self.S


# Sizes that a spec may have under the name that the theorems use.
SIZES = ("d", "d_h", "H", "kv_heads", "n", "N", "layers", "d_ff", "d_v", "d_out", "qk_rank",
         "attention", "positions", "skip", "shared", "activation")  # fmt: skip


@singledispatch
def architecture(spec: Spec) -> Case:
    """The sizes that theorems read from a spec; another package registers its own class.

    >>> architecture(specs.AttentionOnlySpec(N=9, S=2, d=4, d_h=2, H=3)).layer_parameters
    176
    """
    return _named(spec)


def _named(spec: Spec) -> Case:
    sizes = {name: getattr(spec, name, None) for name in SIZES}
    known = {name: value for name, value in sizes.items() if value is not None}
    return Case(spec.family, parameters=spec.parameters, **known)


@architecture.register
def _tokens(spec: specs.TokenSpec) -> Case:
    """Keys of S tokens, and nothing that a theorem about attention could use."""
    case = Case(spec.family, getattr(spec, "d", None), n=spec.S, N=spec.N, positions="none", d_ff=0)
    return replace(case, parameters=spec.parameters)


@architecture.register
def _attention_only(spec: specs.AttentionOnlySpec) -> Case:
    one = replace(spec, layers=1).parameters
    return replace(_named(spec), n=spec.S, d_ff=0, shared=False, layer_parameters=one)


@architecture.register
def _sharded(spec: specs.ShardedSpec) -> Case:
    return architecture(spec.dense())


@architecture.register
def _shared_bottleneck(spec: specs.SharedBottleneckSpec) -> Case:
    return _tokens(spec) if spec.compressed else architecture(spec.heads)  # d = d_h: the paper's


@architecture.register
def _mlp_transformer(spec: specs.MLPTransformerSpec) -> Case:
    return replace(
        architecture(spec.heads), family=spec.family, parameters=spec.parameters, d_ff=spec.w,
        activation=spec.activation, width=max(spec.d, spec.d_h * spec.H, spec.w),
    )  # fmt: skip


@architecture.register
def _exact(spec: specs.ExactSpec) -> Case:
    # Weights are a sign and up to max_bits bits: a limit of 32 would be wrong.
    return replace(
        _named(spec), n=spec.S, layers=spec.depth, d_ff=spec.width, width=spec.width,
        activation="relu", positions="none", bits=spec.max_bits + 1, answers=spec.classes,
    )  # fmt: skip


@architecture.register
def _transformer(spec: specs.TransformerSpec) -> Case:
    bare = None if spec.N is None else spec.d * (spec.S + 2 * spec.N + 4 * spec.d_h * spec.H)
    width = max(spec.d, spec.d_h * spec.H, spec.d_ff)
    return replace(_named(spec), n=spec.S, width=width, shared=False, layer_parameters=bare)


@architecture.register
def _multi_head(spec: specs.MultiHeadSpec) -> Case:
    one, bare = spec.parameters, not (spec.embed or spec.decoder)
    return replace(_named(spec), layers=1, d_ff=0, skip=False, layer_parameters=one, bare=bare)


@architecture.register
def _deep_multi_head(spec: specs.DeepMultiHeadSpec) -> Case:
    one = replace(spec, layers=1).parameters
    return replace(_named(spec), d_ff=0, layer_parameters=one, bare=False)


@architecture.register
def _feed_forward(spec: specs.FeedForwardTransformerSpec) -> Case:
    return replace(
        _named(spec), d=spec.m, d_in=spec.d, layers=spec.blocks, d_ff=spec.q, d_out=None,
        width=spec.width, activation="relu", positions="none",
    )  # fmt: skip


def case_of(
    spec: Spec,
    facts: Facts | int | None = None,
    *,
    kruskal: int | None = None,
    bits: int | None = None,
    answers: int | None = None,
    spread: float | None = None,
) -> Case:
    """The sizes of a spec and of facts, checked against each other."""
    options = {"bits": bits, "kruskal": kruskal, "answers": answers, "spread": spread}
    for name, value in options.items():
        least = 2 if name == "answers" else 1
        if value is not None and not value >= least:
            raise OptionError(name, f"at least {least}", value)
    case = _with_facts(architecture(spec), facts)
    _agree(case)
    return replace(case, **{name: value for name, value in options.items() if value is not None})


def _with_facts(case: Case, facts: Facts | int | None) -> Case:
    if facts is None:
        return case
    if isinstance(facts, int):
        if not 1 <= facts <= LARGEST or isinstance(facts, bool):
            expected = "below 2^63" if facts > LARGEST else "at least 1"
            raise ByheartError(f"the number of facts must be {expected}, found {shown(facts)}")
        return replace(case, T=facts)
    try:
        sizes = {"T": int(facts.T), "S": int(facts.S), "last_tokens": int(facts.last_tokens)}
        prior = facts.prior
    except AttributeError as error:
        expected = "facts must be a table (bh.read_facts) or a number of facts"
        raise ByheartError(f"{expected}, found {type(facts).__name__}: {error}") from None
    answers = getattr(facts, "answer_ids", None)
    count, uniform = None if answers is None else len(answers), bool(prior.min() == prior.max())
    return replace(case, facts=facts, answers=count, uniform=uniform, **sizes)


def _agree(case: Case) -> None:
    """Facts that the architecture cannot even read are a contradiction, not a bound."""
    facts, N, n, T = case.facts, case.N, case.n, case.T
    if facts is not None and N is not None and facts.N > N:
        found = f"the facts have {facts.N:,} tokens, the vocabulary of the model {N:,}"
        raise ByheartError(f"{found}. Give `N={facts.N}` or more.")
    if facts is not None and n is not None and facts.S > n:
        found = f"keys have {facts.S} tokens, the context of the model is {n}"
        raise ByheartError(f"{found}. Give `n={facts.S}` or more.")
    # log2(N^n) >= n for N >= 2, so the power is only computed where it can be small.
    if T is not None and N is not None and n is not None and n < T.bit_length() and T > N**n:
        keys = f"N^n = {N:,}^{n} = {N**n:,} different keys"
        hint = "Give a larger `N` or `n`, or fewer facts."
        raise ByheartError(f"{T:,} facts are more than the {keys}. {hint}")
