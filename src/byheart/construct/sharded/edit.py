"""Set, add and delete facts of a sharded memory: one small solve for each shard that is touched.

A shard's W_O depends on its own facts only, so nothing else has to change, and nothing else does:
W_O of the other shards, embeddings of known tokens, tied heads, codes and the unembeddings of known
answers keep every bit (the tests compare bytes). What is new is appended (`grow`), who lives where
is decided by `housing`, and the table of facts by `changes`.

Two numbers of the spec may grow, because they leave all stored tensors and all own-head answers as
they are: λ doubles when new tokens score higher than it covers (own gates are 0, whatever λ is),
and s1, s2 shrink by powers of two when a lattice point lies further out than before (they cancel
between embedding and gate, exactly).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

import numpy as np
import torch
from torch import Tensor

from byheart._progress import Report, quiet
from byheart.construct.sharded import grow
from byheart.construct.sharded.build import recalled_through_own_heads, strength
from byheart.construct.sharded.changes import Change, Key, Sets, change_facts
from byheart.construct.sharded.fingerprint import widened
from byheart.construct.sharded.housing import Housing, Shard
from byheart.construct.sharded.solve import Batch, largest_score, solve_batch
from byheart.construct.solve import CHOLESKY_LIMIT, RankError
from byheart.errors import ByheartError, CheckFailed, FactsError
from byheart.facts import Facts
from byheart.models.attention_only import Weights
from byheart.models.construction import ShardedConstruction, finite
from byheart.models.folder import DIGESTS
from byheart.models.memory import Memory
from byheart.models.sharded import fingerprints, shard_of
from byheart.models.sharded_memory import ShardedMemory
from byheart.models.threads import one_thread
from byheart.specs import ShardedSpec

ATTEMPTS = 5  # a shard that is too ill conditioned gets half as many heads more, so often
# Rounding moves answers by about u·cond: up to this, far below margins near 0.4, or up to what the
# worst shard of the build does, a condition number is good.
ROUNDING_MOVES = 6e-4


@dataclass(frozen=True)
class Edited:
    """An edited memory; `kept` (shards,) says which shard of the old memory each shard is, bit for
    bit, or -1 if it was solved again; `counts` what was done, in numbers."""

    memory: ShardedMemory
    kept: np.ndarray
    counts: dict[str, int]
    why: tuple[str, ...] = ()

    @property
    def solved(self) -> list[int]:
        """The shards that were solved."""
        return np.flatnonzero(self.kept < 0).tolist()


def edit(
    memory: Memory,
    *,
    set: Sets = (),
    add: Facts | None = None,
    delete: Iterable[Key] = (),
    progress: Report = quiet,
) -> ShardedMemory:
    """The memory with answers set, facts added and facts deleted; `memory` itself stays as it is.

    `set` maps stored keys to new answers (a mapping, or pairs), `add` holds new facts, `delete`
    lists stored keys. Verified as stored, like a build; refused as a whole or done as a whole.

    >>> import byheart as bh
    >>> memory = bh.build(bh.read_facts("countries"), "sharded")
    >>> moved = edit(memory, set={("France", "capital"): "Lyon"}, delete=[("Peru", "capital")])
    >>> moved.recall("France", "capital").answer, memory.recall("France", "capital").answer
    ('Lyon', 'Paris')
    """
    return edit_shards(memory, set=set, add=add, delete=delete, progress=progress).memory


def edit_shards(
    memory: Memory,
    *,
    set: Sets = (),
    add: Facts | None = None,
    delete: Iterable[Key] = (),
    progress: Report = quiet,
) -> Edited:
    """Like `edit`, and says which shards are the old ones."""
    memory, facts = _editable(memory)
    change = change_facts(memory, facts, set, add, delete)
    if not len(change.touched):
        return Edited(memory, np.arange(memory.spec.shards), change.counts)
    with one_thread():
        return _edited(memory, change, progress)


def _editable(memory: Memory) -> tuple[ShardedMemory, Facts]:
    if not isinstance(memory, ShardedMemory):
        raise ByheartError(
            f"only sharded memories can be edited in place; this is {memory.name}, where every "
            "weight depends on every fact. Change the table and build it again, or build it once "
            "with `method=sharded`."
        )
    spec = memory.spec
    if spec.gate == "subject-sink" or spec.untied:
        sink = "a subject sink, whose cancelling heads add up all shards"
        raise ByheartError(
            f"expected a memory of tied heads with `gate=query` or key, found "
            f"{'untied heads' if spec.untied else sink}: it cannot be edited in place. Change the "
            "table and build it again."
        )
    if memory.facts is None:
        raise FactsError(
            "this memory was saved without its facts (`with_facts=False`), and a shard is solved "
            "from all facts it holds. Build it again with them."
        )
    return memory, memory.facts


@dataclass
class _Draft:
    """An edit in the making: the old `memory`, the `facts` to be, `weights` that grow, `tokens`
    (T, S) of all facts and `touched` (m, S) of the changed keys as the model reads them."""

    memory: ShardedMemory
    spec: ShardedSpec
    facts: Facts
    weights: Weights
    tokens: Tensor
    touched: Tensor
    progress: Report

    @property
    def made(self) -> ShardedConstruction:
        return self.memory.construction


def _edited(memory: ShardedMemory, change: Change, progress: Report) -> Edited:
    """New rows, then housing, then the solve; then everything that says what was done."""
    spec, facts, made = memory.spec, change.facts, memory.construction
    weights = {name: w for name, w in memory.weights.items() if name != DIGESTS}
    seed = made.seed
    new_tokens = facts.N + 1 - spec.N
    if new_tokens:
        weights |= grow.with_tokens(spec, weights, new_tokens, seed)
    new_answers, ideal = grow.place_answers(facts, weights, made.ideal_margin, seed)
    order = list(memory.order or range(facts.S))
    tokens, touched = (torch.from_numpy(t[:, order]) for t in (facts.tokens, change.touched))
    draft = _Draft(memory, spec, facts, weights, tokens, touched, progress)
    housing = _housing(draft)
    housing.settle(touched[:, 0 if spec.gate == "key" else -1].numpy())
    kept, solved = _solve_in(housing, draft)
    spec = draft.spec
    vocabulary, start_id = memory.vocabulary, spec.N - 1
    if new_tokens:
        vocabulary, start_id = facts.vocabulary.with_special("<start>")
    record = replace(
        made,
        ideal_margin=ideal,
        start_id=start_id,
        residual=max(made.residual, solved.residual),
        condition=max(made.condition, solved.condition),
        s_max=max(made.s_max, solved.s_max),
        capacity=spec.H * spec.d_h,
        facts=facts.T,
        recalled=facts.T,
        edits=made.edits + 1,
    )
    edited = replace(
        memory,
        spec=spec,
        weights=weights,
        vocabulary=vocabulary,
        facts=facts,
        construction=record,
    )
    edited = _verified(edited, facts, solved.facts, bool(new_answers), progress)
    counts = change.counts | {
        "new_tokens": new_tokens,
        "new_answers": new_answers,
        "shards_solved": int((kept < 0).sum()),
        "new_shards": spec.shards - len(memory.weights["head_start"]) + 1,
    }
    return Edited(edited, kept, counts, tuple(housing.why))


def _housing(draft: _Draft) -> Housing:
    """The stored layout, with the facts that are to live in it."""
    spec, weights, tokens = draft.spec, draft.weights, draft.tokens.numpy()
    by_key = spec.gate == "key"
    start = weights["head_start"].tolist()
    shards = [Shard(b - a, old) for old, (a, b) in enumerate(pairwise(start))]
    level, first = weights["level"].tolist(), weights["first"].tolist()
    bits = weights["bits"].numpy() if spec.bits else np.ones((len(weights["group"]), 0), np.int8)
    return Housing(
        last=tokens[:, 0 if by_key else -1],
        other=tokens[:, 0] if spec.S == 2 and not by_key else None,
        group=weights["group"].numpy().astype(np.int64),
        level=level,
        point=weights["point"].numpy().astype(np.int64),
        far=weights["far"].numpy().astype(np.int64),
        bits=bits,
        parts=[shards[a : a + 2**j] for a, j in zip(first, level, strict=True)],
        d_h=spec.d_h,
        slack=draft.made.slack,
        seed=draft.made.seed,
        limit=int(2 / torch.finfo(weights["W_O"].dtype).eps),  # integers up to it are exact
        fixed_value=by_key,
    )


def _layout(housing: Housing) -> Weights:
    """The layout as it is stored. Shards are numbered group by group."""
    heads = [shard.heads for parts in housing.parts for shard in parts]
    first = np.cumsum([0] + [len(parts) for parts in housing.parts])[:-1]
    made = {
        "point": torch.from_numpy(housing.point).int(),
        "group": torch.from_numpy(housing.group).int(),
        "level": torch.tensor(housing.level, dtype=torch.int32),
        "first": torch.from_numpy(first).int(),
        "head_start": torch.from_numpy(np.cumsum([0, *heads])),
    }
    return made | ({"bits": torch.from_numpy(housing.bits)} if housing.bits.shape[1] else {})


def _solve_in(housing: Housing, draft: _Draft) -> tuple[np.ndarray, _Solved]:
    """Solve what changed; a shard that is too ill conditioned gets more heads. Returns which old
    shard each shard is (-1: solved), and how the solve went; the draft gets its spec and W_O."""
    shards = [shard for parts in housing.parts for shard in parts]
    kept = np.array([-1 if shard.old is None else shard.old for shard in shards], dtype=np.int64)
    for left in reversed(range(ATTEMPTS)):
        draft.weights |= _layout(housing)
        most = max(shard.heads for shard in shards)
        grow.draw_heads(draft.spec, draft.weights, most, draft.made.beta, draft.made.seed)
        owners = shard_of(draft.weights, draft.touched).numpy()
        kept[owners[owners >= 0]] = -1
        s1, s2 = draft.spec.s1, draft.spec.s2
        while s1 * np.abs(housing.point).max() > 1:  # only where they must: see the module
            s1, s2 = s1 / 2, s2 / 4
        draft.spec = replace(
            draft.spec,
            N=draft.facts.N + 1,
            H=int(draft.weights["head_start"][-1]),
            groups=len(housing.parts),
            shards=len(shards),
            bits=housing.bits.shape[1],
            s1=s1,
            s2=s2,
        )
        s_max = largest_score(draft.spec, draft.weights, draft.tokens)
        solved = replace(_solve(draft, kept), s_max=s_max)
        if not solved.poor or (not left and solved.condition < math.inf):
            # Stronger gates, if the new W_O or scores ask for them: own heads do not see λ.
            lam = max(draft.spec.lam, strength(draft.spec, draft.weights, s_max))
            draft.spec = replace(draft.spec, lam=lam)
            return kept, solved
        for g in solved.poor:  # more unknowns than equations: better conditioned
            shards[g].heads += math.ceil(shards[g].heads / 2)
    raise CheckFailed(f"some of the {(kept < 0).sum():,} shards cannot be solved. {_NOTHING}")


@dataclass(frozen=True)
class _Solved:
    """Largest residual and condition number of the new shards (inf: not solved), the facts in
    them, and the shards that are too ill conditioned."""

    residual: float
    condition: float
    facts: np.ndarray
    poor: list[int]
    s_max: float = 0.0


def _solve(draft: _Draft, kept: np.ndarray) -> _Solved:
    """W_O into `weights`: copied where `kept` says so, solved elsewhere, one shard at a time, so
    that the result depends on the shard's facts alone."""
    spec, weights, before, made = draft.spec, draft.weights, draft.memory.weights, draft.made
    start, old_start = weights["head_start"].tolist(), before["head_start"].tolist()
    dtype = before["W_O"].dtype
    W_O = torch.zeros(spec.H, spec.d_h, spec.d_g + spec.check, dtype=dtype)
    # Runs of kept neighbours are copied at once.
    for step, run in groupby(
        range(spec.shards), key=lambda g: kept[g] - g if kept[g] >= 0 else None
    ):
        if step is not None:
            same = list(run)
            a, b = same[0], same[-1] + 1
            W_O[start[a] : start[b]] = before["W_O"][old_start[a + step] : old_start[b + step]]
    shards = shard_of(weights, draft.tokens).numpy()
    fresh = np.flatnonzero(kept < 0)
    limit = max(ROUNDING_MOVES / (torch.finfo(dtype).eps / 2), made.condition)
    limit = min(limit, CHOLESKY_LIMIT)
    worst = condition = 0.0
    touched, poor = [], []
    for i, g in enumerate(fresh.tolist()):
        members = np.flatnonzero(shards == g)
        touched.append(members)
        if not len(members):
            continue  # nothing left to say: W_O = 0
        mine, heads = draft.tokens[torch.from_numpy(members)], start[g + 1] - start[g]
        right = torch.from_numpy(draft.facts.answers[members])
        targets = [weights["W_U"][:, right].T.double()]
        if spec.check and made.abstain is not None:
            targets.append(fingerprints(mine, spec.check, made.abstain.seed))
        batch = Batch(np.array([g]), heads, len(members))
        own = [np.arange(len(members))]
        try:
            block, residual, cond = solve_batch(
                spec, weights, batch, mine, torch.cat(targets, dim=1), own
            )
        except RankError:
            block, residual, cond = torch.zeros(1, 1, 1, 1), math.inf, math.inf
        if cond > limit:
            poor.append(g)
        W_O[start[g] : start[g + 1]] = block[0].to(dtype)
        worst, condition = max(worst, residual), max(condition, cond)
        draft.progress(f"{i + 1:,} of {len(fresh):,} shards solved")
    weights["W_O"] = W_O
    return _Solved(worst, condition, np.concatenate(touched), poor)


_NOTHING = "Nothing was changed. Build the memory again from the edited table, with more `slack`."


def _verified(
    memory: ShardedMemory,
    facts: Facts,
    solved: np.ndarray,
    new_answers: bool,
    progress: Report,
) -> ShardedMemory:
    """Recall what was solved as it is stored; everything if there are new answers to confuse
    others with. Updates the margin and the tolerance of fingerprints."""
    made = memory.construction
    part = facts if new_answers else facts.subset(solved) if len(solved) else None
    if part is None:
        return memory
    progress(f"recalling {part.T:,} facts")
    recalled, margin = recalled_through_own_heads(memory, part)
    if recalled < part.T:
        raise CheckFailed(
            f"{part.T - recalled:,} of {part.T:,} facts would be lost (condition number "
            f"{made.condition:.0e}). {_NOTHING}"
        )
    margins = [m for m in (made.margin, finite(margin)) if m is not None]
    made = replace(made, margin=min(margins, default=None))
    if made.abstain is not None and len(solved):
        made = replace(made, abstain=widened(memory, made.abstain, facts.subset(solved)))
    return replace(memory, construction=made)
