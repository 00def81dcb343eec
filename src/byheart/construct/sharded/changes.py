"""What an edit means for the table of facts: resolved and checked before any weight is touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from byheart._words import quote
from byheart.errors import ConflictError, FactsError, did_you_mean
from byheart.facts import Facts, Vocabulary
from byheart.facts.distinct import conflict_error, conflicting_groups, group_equal_rows
from byheart.models.sharded_memory import ShardedMemory

Key = Sequence[str]
Sets = Mapping[tuple[str, ...], str] | Iterable[tuple[Key, str]]
LISTED = 5  # stored keys shown when one is not found


def change_facts(
    memory: ShardedMemory, facts: Facts, set: Sets, add: Facts | None, delete: Iterable[Key]
) -> tuple[Facts, np.ndarray, dict[str, int]]:
    """The table after the edit, the distinct keys (m, S) whose facts differ from before, and the
    counts: "set", "added", "deleted", and asked for but true already ("unchanged").

    Known ids stay, new tokens follow them, and added facts the stored ones. Refuses keys that are
    not stored or edited twice, added facts that contradict stored ones, deletion of every fact.
    """
    pairs: Any = set.items() if isinstance(set, Mapping) else set
    sets: list[tuple[Key, str]] = list(pairs)
    keys = _distinct_ids(memory, [key for key, _ in sets] + list(delete))
    at = rows_of(facts, keys)
    if (at < 0).any():
        raise _missing(memory, facts, keys, int((at < 0).argmax()), len(sets))

    answers = facts.answers.copy()
    words = [answer for _, answer in sets] + ([] if add is None else _words(add))
    vocabulary = facts.vocabulary
    new_words = dict.fromkeys(word for word in words if word not in vocabulary)
    if new_words:
        vocabulary = Vocabulary((*vocabulary.tokens, *new_words))
    added_tokens = np.empty((0, facts.S), dtype=np.int64)
    added_answers, weight, known = np.empty(0, dtype=np.int64), np.empty(0), 0
    if add is not None:
        added_tokens, added_answers = _translated(memory, add, vocabulary, facts.S)
        new = _new_rows(facts, vocabulary, keys, added_tokens, added_answers, add.name)
        added_tokens, added_answers = added_tokens[new], added_answers[new]
        weight = (add.prior * add.T * facts.prior.mean())[new]
        known = int((~new).sum())
    set_rows, deleted_rows = at[: len(sets)], at[len(sets) :]
    wanted = np.array([vocabulary.id(answer) for _, answer in sets], dtype=np.int64)
    differs = answers[set_rows] != wanted
    answers[set_rows] = wanted
    keep = np.ones(facts.T, dtype=bool)
    keep[deleted_rows] = False
    if not keep.any() and not len(added_tokens):
        raise FactsError(
            f"the edit would delete all {facts.T:,} facts; a memory holds at least one. "
            "Leave one, add others in the same edit, or remove the folder."
        )
    prior = np.concatenate([facts.prior[keep], weight])
    if facts.prior.min() == facts.prior.max() and (weight == weight[:1]).all():
        prior = np.ones(len(prior))  # uniform stays uniform, to the last bit
    after = replace(
        facts,
        tokens=np.concatenate([facts.tokens[keep], added_tokens]),
        answers=np.concatenate([answers[keep], added_answers]),
        vocabulary=vocabulary,
        prior=prior / prior.sum(),
        rows=np.concatenate([facts.rows[keep], _next_rows(facts, len(added_tokens))]),
    )
    touched = np.concatenate([keys[: len(sets)][differs], keys[len(sets) :], added_tokens])
    counts = {
        "set": int(differs.sum()),
        "added": len(added_tokens),
        "deleted": len(deleted_rows),
        "unchanged": int((~differs).sum()) + known,
    }
    return after, touched, counts


def _distinct_ids(memory: ShardedMemory, keys: list[Key]) -> np.ndarray:
    """Token ids (m, S) of the keys in the order of the table; unknown tokens are refused with
    suggestions, and so are keys that stand twice."""
    for key in keys:
        if isinstance(key, str):  # a sequence of letters: surely not what was meant
            found = f"expected a key as a sequence of tokens, found the string {quote(key)}"
            raise FactsError(f"{found}. Write ({quote(key)},) for a key of one token.")
    if not keys:
        return np.empty((0, memory.key_length), dtype=np.int64)
    ids = memory.key_ids(keys)
    i, times = _first_repeated(ids)
    if times > 1:
        raise FactsError(
            f"one edit changes a key once, found {times} changes of "
            f"{_key_text(memory.vocabulary, ids[i])}. Keep one of them, or edit in two steps."
        )
    return ids


def _first_repeated(keys: np.ndarray) -> tuple[int, int]:
    """Where the first key that stands more than once does, and how often any stands at most."""
    _, first, times = np.unique(keys, axis=0, return_index=True, return_counts=True)
    return int(first[times > 1].min(initial=len(keys))), int(times.max(initial=0))


def rows_of(facts: Facts, keys: np.ndarray) -> np.ndarray:
    """Where each key stands in the table, -1 if it does not. Table and keys have distinct rows."""
    if len(keys) <= 8:  # a scan is faster than sorting the table
        same = [(facts.tokens == key).all(1) for key in keys]
        return np.array([m.argmax() if m.any() else -1 for m in same], dtype=np.int64)
    at = np.full(len(keys), -1, dtype=np.int64)
    both = np.concatenate([facts.tokens, keys])
    order, starts = group_equal_rows(both, int(both.max()) + 1)
    pairs = starts[np.diff(np.append(starts, len(order))) == 2]
    at[order[pairs + 1] - facts.T] = order[pairs]
    return at


def _missing(
    memory: ShardedMemory, facts: Facts, keys: np.ndarray, i: int, sets: int
) -> FactsError:
    verb, instead = "delete", "Nothing was changed"
    if i < sets:
        verb, instead = "set", "To store a new fact, add it (`add`)"
    key, near = _key_text(memory.vocabulary, keys[i]), _nearest_keys(memory, facts, keys[i])
    return FactsError(
        f"expected a stored fact to {verb}, found none with the key {key}.{near} {instead}."
    )


def _nearest_keys(memory: ShardedMemory, facts: Facts, wanted: np.ndarray) -> str:
    """Stored keys that differ in one token, the likeliest word first."""
    same, word = facts.tokens == wanted, memory.vocabulary.token
    for column in range(facts.S - 1, -1, -1):
        rows = np.flatnonzero(np.delete(same, column, axis=1).all(1))
        if len(rows) and facts.S > 1:
            stored = [word(int(t)) for t in facts.tokens[rows, column]]
            asked, shown = word(int(wanted[column])), ", ".join(map(quote, stored[:LISTED]))
            return f" {did_you_mean(asked, stored) or f'Stored in its place {asked!r}: {shown}.'}"
    return ""


def _words(facts: Facts) -> list[str]:
    """The tokens that the facts use, in order of appearance, without padding."""
    ids = np.concatenate([facts.tokens, facts.answers[:, None]], axis=1).ravel()
    distinct, first = np.unique(ids, return_index=True)
    distinct = distinct[np.argsort(first)]
    return [facts.vocabulary.token(int(t)) for t in distinct if t != facts.pad_id]


def _translated(
    memory: ShardedMemory, add: Facts, vocabulary: Vocabulary, S: int
) -> tuple[np.ndarray, np.ndarray]:
    """Keys and answers of the added facts in the memory's ids, padded on the left if it pads."""
    if add.S > S or (memory.pad_id is None and (add.S < S or add.pad_id is not None)):
        raise FactsError(
            f"{add.name}: expected keys of {S} token{'s'[: S > 1]}, as in the memory, found "
            f"{add.S}{' with padding' if add.pad_id is not None else ''}. "
            "Are `keys` and `answer` the ones of the build?"
        )
    padding = -1 if memory.pad_id is None else memory.pad_id
    table = np.full(add.N, padding, dtype=np.int64)
    for word in _words(add):
        table[add.vocabulary.id(word)] = vocabulary.id(word)
    tokens = np.pad(table[add.tokens], ((0, 0), (S - add.S, 0)), constant_values=padding)
    return tokens, table[add.answers]


def _new_rows(
    facts: Facts,
    vocabulary: Vocabulary,
    edited: np.ndarray,
    tokens: np.ndarray,
    answers: np.ndarray,
    name: str,
) -> np.ndarray:
    """Which of the added keys are not stored. Refuses those that are edited in the same call, or
    stored with another answer."""
    if len(edited):
        both = np.concatenate([edited, tokens])
        i, times = _first_repeated(both)
        if times > 1:
            raise FactsError(
                f"one edit changes a key once, found {_key_text(vocabulary, both[i])} both in "
                f"{name} and among the facts to set or delete. Keep one of them."
            )
    at = rows_of(facts, tokens)
    stored = np.flatnonzero(at >= 0)
    clash = stored[facts.answers[at[stored]] != answers[stored]]
    if not len(clash):
        return at < 0
    # One table of both, so that the message lists them like conflicts inside a file.
    both = np.concatenate([facts.tokens[at[clash]], tokens[clash]])
    said = np.concatenate([facts.answers[at[clash]], answers[clash]])
    rows = np.concatenate([facts.rows[at[clash]], _next_rows(facts, len(tokens))[clash]])
    order, starts = group_equal_rows(both, len(vocabulary))
    groups = conflicting_groups(said, order, starts)
    error = conflict_error(groups, both, said, rows, vocabulary, f"{facts.name} and {name}")
    raise ConflictError(
        f"{error}\nThe lower row is stored already: change its answer with `set`.", error.conflicts
    )


def _next_rows(facts: Facts, count: int) -> np.ndarray:
    """Row numbers for added facts: they continue where the table ends."""
    return int(facts.rows.max()) + 1 + np.arange(count, dtype=np.int64)


def _key_text(vocabulary: Vocabulary, ids: np.ndarray) -> str:
    return ", ".join(quote(vocabulary.token(int(t))) for t in ids)
