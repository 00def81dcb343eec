"""All bounds in one tuple, and the question `bounds(spec, facts)`."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from byheart.errors import ByheartError
from byheart.specs import (
    AssociativeSpec,
    AttentionOnlySpec,
    FeedForwardTransformerSpec,
    MLPTransformerSpec,
    MultiHeadSpec,
    ShardedSpec,
    SharedBottleneckSpec,
    TransformerSpec,
)
from byheart.theory import (
    dana2025_bounds,
    dana2025_kl_bounds,
    empirical,
    kajitsuka2025_bounds,
    mahdavi2024,
    related,
    sharded,
)
from byheart.theory.bound import Answer, Bound, Case

BOUNDS: tuple[Bound, ...] = (
    *dana2025_bounds.BOUNDS,
    *dana2025_kl_bounds.BOUNDS,
    *mahdavi2024.BOUNDS,
    *kajitsuka2025_bounds.BOUNDS,
    *sharded.BOUNDS,
    *related.BOUNDS,
    *empirical.BOUNDS,
)

AnySpec = (
    AttentionOnlySpec
    | AssociativeSpec
    | ShardedSpec
    | MultiHeadSpec
    | MLPTransformerSpec
    | SharedBottleneckSpec
    | FeedForwardTransformerSpec
    | TransformerSpec
)


def bounds(
    spec: AnySpec,
    facts: Any = None,
    *,
    kruskal: int | None = None,
    bits: int = 32,
    answers: int | None = None,
    spread: float | None = None,
) -> list[Answer]:
    """What every theorem says about `spec`: a number, or the hypothesis that fails.

    `facts`: a table (anything with T, S, N, last_tokens, prior, answer_ids), their number, or None.
    `kruskal`: Kruskal rank Q of the queries, where it was measured; `bits` of a parameter;
    `answers`: how many different ones (default: those of the facts, else the vocabulary);
    `spread` = r/δ: largest norm over smallest distance of input tokens that are vectors.

    >>> from byheart.specs import AttentionOnlySpec
    >>> rows = {a.id: a for a in bounds(AttentionOnlySpec(N=50257, S=1024, d=768, d_h=64, H=12))}
    >>> rows["dana2025.corollary1"].capacity, rows["mahdavi2024.theorem1"].reason
    (1536, 'needs n <= d: 1024 > 768')
    """
    case = case_of(spec, facts, kruskal=kruskal, bits=bits, answers=answers, spread=spread)
    return [bound.answer(case) for bound in BOUNDS]


def find(bound_id: str) -> Bound:
    """The bound with this id; a wrong one names the nearest.

    >>> find("dana2025.corollary1").formula.split(" with")[0]
    'T0 = H d_h + d'
    """
    known = {bound.id: bound for bound in BOUNDS}
    if bound_id in known:
        return known[bound_id]
    near = get_close_matches(bound_id, known, n=3, cutoff=0.4)
    hint = f" Did you mean {', '.join(near)}?" if near else ""
    raise ByheartError(
        f"there is no bound {bound_id!r}.{hint} `byheart bound --explain all` lists them."
    )


def case_of(
    spec: AnySpec,
    facts: Any = None,
    *,
    kruskal: int | None = None,
    bits: int = 32,
    answers: int | None = None,
    spread: float | None = None,
) -> Case:
    """The sizes of a spec and of facts, checked against each other.

    >>> case = case_of(AssociativeSpec(N=10, S=2, d=64), 50)
    >>> case.d, case.n, case.N, case.T
    (64, 2, 10, 50)
    """
    for name, value, least in (
        ("bits", bits, 1),
        ("kruskal", kruskal, 1),
        ("answers", answers, 2),
        ("spread", spread, 1),
    ):
        if value is not None and not value >= least:
            raise ByheartError(f"{name} must be at least {least}, found {value}")
    sizes = _architecture(spec) | _facts(facts)
    _agree(sizes)
    if answers is not None:
        sizes["answers"] = answers
    return Case(kruskal=kruskal, bits=bits, spread=spread, **sizes)


def _architecture(spec: AnySpec) -> dict[str, Any]:
    family = spec.family
    if isinstance(spec, ShardedSpec):
        spec = spec.dense()
    if isinstance(spec, SharedBottleneckSpec) and not spec.compressed:
        spec = spec.heads  # d = d_h: the paper's layer
    common = {"family": family, "parameters": spec.parameters, "d": spec.d}
    if isinstance(spec, AttentionOnlySpec):
        one = AttentionOnlySpec(**{**spec.to_json(), "layers": 1})
        return common | {
            "family": "attention-only", "d_h": spec.d_h, "H": spec.H, "n": spec.S, "N": spec.N,
            "layers": spec.layers, "d_ff": 0, "qk_rank": spec.qk_rank, "skip": spec.skip,
            "positions": spec.positions, "layer_parameters": one.parameters, "shared": False,
            "attention": spec.attention,
        }  # fmt: skip
    if isinstance(spec, MLPTransformerSpec):
        bare = replace(spec.heads, layers=1)
        return _architecture(bare) | {
            "family": family, "parameters": spec.parameters, "layers": spec.layers, "d_ff": spec.w,
            "activation": spec.activation, "width": max(spec.d, spec.d_h * spec.H, spec.w),
        }  # fmt: skip
    if isinstance(spec, TransformerSpec):
        bare = None
        if spec.N is not None:
            bare = spec.d * (spec.S + 2 * spec.N + 4 * spec.d_h * spec.H)
        return common | {
            "d_h": spec.d_h, "H": spec.H, "kv_heads": spec.kv_heads, "n": spec.S, "N": spec.N,
            "layers": spec.layers, "d_ff": spec.d_ff, "positions": spec.positions,
            "activation": spec.activation, "width": max(spec.d, spec.d_h * spec.H, spec.d_ff),
            "layer_parameters": bare, "shared": False,
        }  # fmt: skip
    if isinstance(spec, MultiHeadSpec):
        return common | {
            "d_h": spec.d_h, "H": spec.H, "n": spec.n, "d_v": spec.d_v, "d_out": spec.d_out,
            "layers": 1, "d_ff": 0, "shared": spec.shared, "skip": False,
            "layer_parameters": spec.parameters,
        }  # fmt: skip
    if isinstance(spec, FeedForwardTransformerSpec):
        return common | {
            "d": spec.m, "n": spec.n, "layers": spec.blocks, "d_ff": spec.q, "width": spec.width,
            "activation": "relu", "attention": spec.attention, "positions": "none",
            "d_in": spec.d,
        }  # fmt: skip
    return common | {"n": spec.S, "N": spec.N, "positions": "none", "d_ff": 0}


def _facts(facts: Any) -> dict[str, Any]:
    if facts is None:
        return {}
    if isinstance(facts, int):
        if facts < 1 or isinstance(facts, bool):
            raise ByheartError(f"the number of facts must be at least 1, found {facts}")
        return {"T": facts}
    try:
        known = {"T": int(facts.T), "S": int(facts.S), "last_tokens": int(facts.last_tokens)}
        prior = facts.prior
    except AttributeError as missing:
        raise ByheartError(
            "facts must be a table (bh.read_facts) or a number of facts, found "
            f"{type(facts).__name__}: {missing}"
        ) from None
    answers = getattr(facts, "answer_ids", None)
    return known | {
        "facts": facts,
        "answers": None if answers is None else len(answers),
        "uniform": bool(prior.min() == prior.max()),
    }


def _agree(sizes: dict[str, Any]) -> None:
    """Facts that the architecture cannot even read are a contradiction, not a bound."""
    facts, N, n, T = (sizes.get(name) for name in ("facts", "N", "n", "T"))
    if facts is not None and N is not None and facts.N > N:
        raise ByheartError(
            f"the facts have {facts.N:,} tokens, the vocabulary of the model {N:,}. "
            f"Give --vocab {facts.N} or more."
        )
    if facts is not None and n is not None and facts.S > n:
        raise ByheartError(
            f"keys have {facts.S} tokens, the context of the model is {n}. "
            f"Give --context {facts.S} or more."
        )
    # log2(N^n) >= n for N >= 2, so the power is only computed where it can be small.
    if T is not None and N is not None and n is not None and n < T.bit_length() and T > N**n:
        raise ByheartError(
            f"{T:,} facts are more than the N^n = {N:,}^{n} = {N**n:,} different keys. "
            "Give a larger --vocab or --context, or fewer facts."
        )
