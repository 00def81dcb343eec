"""`--abstain`: say "unknown" where the memory was never told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from byheart.cli._show import emit, key_text, number, say

if TYPE_CHECKING:
    from byheart.models import Memory

UNKNOWN = "unknown"


def is_known(memory: Memory, tokens: list[str], abstain: bool) -> bool | None:
    """Whether the key is stored; None if the memory cannot tell.

    Keys whose deciding token decides for no shard are not stored, fingerprints or not. A token that
    no fact uses is an error with suggestions, unless `abstain` asks for an answer to anything.
    """
    from byheart.models.sharded import shard_of
    from byheart.specs import ShardedSpec

    spec = memory.spec
    fingerprints = isinstance(spec, ShardedSpec) and spec.check > 0
    new = abstain and any(token not in memory.vocabulary for token in tokens)
    # A key of known tokens in its place: length and fingerprints are checked all the same.
    ids = memory.encode([[memory.vocabulary.token(0)] * len(tokens) if new else tokens])
    if abstain or fingerprints:
        from byheart.construct.sharded.fingerprint import knows

        return bool(knows(memory, ids)[0]) and not new
    if isinstance(spec, ShardedSpec) and int(shard_of(dict(memory.weights), ids)[0]) < 0:
        return False
    return None


def rate(memory: Memory) -> float | None:
    """The stated share of unseen keys that are answered nevertheless."""
    return memory.construction.get("abstain", {}).get("false_positive_rate")


def answer_unknown(memory: Memory, tokens: list[str], as_json: bool) -> None:
    """The answer to a key that is not stored."""
    if as_json:
        record: dict[str, Any] = dict.fromkeys(("margin", "skip", "runner_up"))
        emit(
            {"answer": UNKNOWN, "known": False, "false_positive_rate": rate(memory)}
            | record
            | {"heads": [], "key": list(tokens)}
        )
        return
    say(UNKNOWN)
    new = [token for token in tokens if token not in memory.vocabulary]
    if new:
        near = memory.vocabulary.nearest(new[0])
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        say(f"\nNo fact has the token {new[0]!r}.{hint}")
    elif rate(memory) is None:
        say(f"\nNo shard holds keys like {key_text(tokens)}.")
    else:
        share = number(rate(memory))
        say(f"\n{key_text(tokens)} is not stored (a share of {share} of such keys slips through).")
