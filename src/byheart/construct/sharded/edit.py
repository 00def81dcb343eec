"""Set, add and delete facts of a sharded memory: one small solve for each shard that is touched.

A shard's W_O depends on its own facts only, so everything else keeps every bit. What is new is
appended, and housed, by `grow`; `changes` decides on the table of facts. λ, s1 and s2 of the spec
may change by powers of two, because own heads do not see them (docs/sharded-editing.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from byheart._progress import Report, quiet
from byheart.construct.sharded import build, fingerprint, grow
from byheart.construct.sharded.changes import Key, Sets, change_facts
from byheart.construct.sharded.plan import Batch
from byheart.construct.solve import CHOLESKY_LIMIT, RankError
from byheart.errors import ByheartError, CheckFailed, FactsError
from byheart.facts import Facts
from byheart.models.attention_only import Weights
from byheart.models.construction import finite
from byheart.models.devices import on_cpu
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
NOTHING = "Nothing was changed. Build the memory again from the edited table, with more `slack`."


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


@on_cpu
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


@on_cpu
def edit_shards(
    memory: Memory,
    *,
    set: Sets = (),
    add: Facts | None = None,
    delete: Iterable[Key] = (),
    progress: Report = quiet,
) -> Edited:
    """Like `edit`, and says which shards are the old ones."""
    if not isinstance(memory, ShardedMemory):
        raise ByheartError(
            f"only sharded memories can be edited in place; this is {memory.name}. Change the "
            "table and build it again, or build it once with `method=sharded`."
        )
    spec = memory.spec
    found = "untied heads" if spec.untied else "a subject sink"
    if spec.untied or spec.gate == "subject-sink":
        raise ByheartError(
            f"expected a memory of tied heads with `gate=query` or key, found {found}: it cannot "
            "be edited in place. Change the table and build it again."
        )
    if memory.facts is None:
        raise FactsError(
            "this memory was saved without its facts (`with_facts=False`), from which its shards "
            "are solved. Build it again with them."
        )
    facts, touched, counts = change_facts(memory, memory.facts, set, add, delete)
    if not len(touched):
        return Edited(memory, np.arange(spec.shards), counts)
    with one_thread():
        return _edited(memory, facts, touched, counts, progress)


@dataclass
class _Draft:
    """An edit in the making: the old `memory`, the `facts` to be, `weights` that grow, `tokens`
    (T, S) of all facts and `touched` (m, S) of the changed keys as the model reads them; then the
    largest residual, condition number (inf: not solved) and score, and the facts solved for."""

    memory: ShardedMemory
    spec: ShardedSpec
    facts: Facts
    weights: Weights
    tokens: Tensor
    touched: Tensor
    progress: Report
    residual: float = 0.0
    condition: float = 0.0
    s_max: float = 0.0
    solved: list[np.ndarray] = field(default_factory=list)


def _edited(
    memory: ShardedMemory,
    facts: Facts,
    changed: np.ndarray,
    counts: dict[str, int],
    progress: Report,
) -> Edited:
    """New rows, then housing, then the solve; then everything that says what was done."""
    spec, made = memory.spec, memory.construction
    weights = {name: w for name, w in memory.weights.items() if name != DIGESTS}
    new_tokens = facts.N + 1 - spec.N
    if new_tokens:
        weights |= grow.with_tokens(spec, weights, new_tokens, made.seed)
    new_answers, ideal = grow.place_answers(facts, weights, made.ideal_margin, made.seed)
    order = list(memory.order or range(facts.S))
    tokens, touched = (torch.from_numpy(t[:, order]) for t in (facts.tokens, changed))
    draft = _Draft(memory, spec, facts, weights, tokens, touched, progress)
    housing = grow.Housing(spec, weights, tokens.numpy(), made.slack, made.seed)
    housing.settle(touched[:, 0 if spec.gate == "key" else -1].numpy())
    kept = _solve_in(housing, draft)
    spec = draft.spec
    vocabulary, start_id = memory.vocabulary, spec.N - 1
    if new_tokens:
        vocabulary, start_id = facts.vocabulary.with_special("<start>")
    record = replace(
        made,
        ideal_margin=ideal,
        start_id=start_id,
        residual=max(made.residual, draft.residual),
        condition=max(made.condition, draft.condition),
        s_max=max(made.s_max, draft.s_max),
        capacity=spec.H * spec.d_h,
        facts=facts.T,
        recalled=facts.T,
        edits=made.edits + 1,
    )
    edited = replace(
        memory, spec=spec, weights=weights, vocabulary=vocabulary, facts=facts, construction=record
    )
    rows = np.concatenate(draft.solved)
    solved = facts.subset(rows) if len(rows) else None
    edited = _verified(edited, facts if new_answers else solved, solved, progress)
    counts |= {
        "new_tokens": new_tokens,
        "new_answers": new_answers,
        "shards_solved": int((kept < 0).sum()),
        "new_shards": spec.shards - len(memory.weights["head_start"]) + 1,
    }
    return Edited(edited, kept, counts, tuple(housing.why))


def _solve_in(housing: grow.Housing, draft: _Draft) -> np.ndarray:
    """Solve what changed; a shard that is too ill conditioned gets more heads. Returns which old
    shard each shard is (-1: solved); the draft gets its spec and W_O."""
    shards, made, weights = housing.shards, draft.memory.construction, draft.weights
    kept = np.array([-1 if shard.old is None else shard.old for shard in shards], dtype=np.int64)
    for left in reversed(range(ATTEMPTS)):
        weights |= housing.stored()
        heads = [shard.heads for shard in shards]
        grow.draw_heads(draft.spec, weights, max(heads), made.beta, made.seed)
        owners = shard_of(weights, draft.touched).numpy()
        kept[owners[owners >= 0]] = -1
        s1, s2 = draft.spec.s1, draft.spec.s2
        while s1 * np.abs(housing.point).max() > 1:  # only where they must
            s1, s2 = s1 / 2, s2 / 4
        draft.spec = replace(
            draft.spec,
            N=draft.facts.N + 1,
            H=sum(heads),
            groups=len(housing.parts),
            shards=len(shards),
            bits=housing.bits.shape[1],
            s1=s1,
            s2=s2,
        )
        draft.s_max = build.largest_score(draft.spec, weights, draft.tokens)
        poor = _solve(draft, kept)
        if not poor or (not left and draft.condition < math.inf):
            # Stronger gates, if the new W_O or scores ask for them: own heads do not see λ.
            lam = max(draft.spec.lam, build.strength(draft.spec, weights, draft.s_max))
            draft.spec = replace(draft.spec, lam=lam)
            return kept
        for g in poor:  # more unknowns than equations: better conditioned
            shards[g].heads += math.ceil(shards[g].heads / 2)
    raise CheckFailed(f"some of the {(kept < 0).sum():,} shards cannot be solved. {NOTHING}")


def _solve(draft: _Draft, kept: np.ndarray) -> list[int]:
    """W_O into `weights`: copied where `kept` says so, solved elsewhere, one shard at a time, so
    that the result depends on the shard's facts alone. The shards that are too ill conditioned."""
    spec, weights, before = draft.spec, draft.weights, draft.memory.weights
    made, dtype = draft.memory.construction, before["W_O"].dtype
    start, old_start = weights["head_start"].tolist(), before["head_start"].tolist()
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
    limit = ROUNDING_MOVES / (torch.finfo(dtype).eps / 2)
    limit = min(max(limit, made.condition), CHOLESKY_LIMIT)
    draft.residual, draft.condition, draft.solved, poor = 0.0, 0.0, [], []
    for i, g in enumerate(fresh.tolist()):
        members = np.flatnonzero(shards == g)
        draft.solved.append(members)
        if not len(members):
            continue  # nothing left to say: W_O = 0
        mine, heads = draft.tokens[torch.from_numpy(members)], start[g + 1] - start[g]
        targets = weights["W_U"][:, torch.from_numpy(draft.facts.answers[members])].T.double()
        if spec.check and made.abstain is not None:
            prints = fingerprints(mine, spec.check, made.abstain.seed)
            targets = torch.cat([targets, prints], dim=1)
        n = len(members)
        batch = Batch(np.array([g]), heads, n)
        try:
            block, residual, cond = build.solve_batch(spec, weights, batch, mine, targets, [n])
        except RankError:
            block, residual, cond = torch.zeros(1, 1, 1, 1), math.inf, math.inf
        if cond > limit:
            poor.append(g)
        W_O[start[g] : start[g + 1]] = block[0].to(dtype)
        draft.residual, draft.condition = max(draft.residual, residual), max(draft.condition, cond)
        draft.progress(f"{i + 1:,} of {len(fresh):,} shards solved")
    weights["W_O"] = W_O
    return poor


def _verified(
    memory: ShardedMemory, part: Facts | None, solved: Facts | None, progress: Report
) -> ShardedMemory:
    """Recall what was solved as it is stored; everything if there are new answers to confuse
    others with. Updates the margin and the tolerance of fingerprints."""
    made = memory.construction
    if part is None:
        return memory
    progress(f"recalling {part.T:,} facts")
    recalled, margin = build.recalled_through_own_heads(memory, part)
    if recalled < part.T:
        raise CheckFailed(
            f"{part.T - recalled:,} of {part.T:,} facts would be lost (condition number "
            f"{made.condition:.0e}). {NOTHING}"
        )
    margins = [m for m in (made.margin, finite(margin)) if m is not None]
    made = replace(made, margin=min(margins, default=None))
    if made.abstain is not None and solved is not None:
        known = fingerprint.abstention(memory, solved, made.abstain.seed, made.abstain)
        made = replace(made, abstain=known)
    return replace(memory, construction=made)
