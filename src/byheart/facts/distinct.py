"""Equal keys: which rows repeat a key, and which of them contradict each other."""

from __future__ import annotations

import numpy as np

from byheart._words import quote
from byheart.errors import Conflict, ConflictError
from byheart.facts.vocabulary import Vocabulary

KEYS_LISTED, ANSWERS_LISTED = 20, 10
LARGEST_CODE = 2**62  # codes of rows stay below this, so that they never overflow int64


def group_equal_rows(tokens: np.ndarray, N: int) -> tuple[np.ndarray, np.ndarray]:
    """`order` and `starts`: the rows `order[starts[g]:starts[g + 1]]` of `tokens` are equal.

    A row is read as a number in base N, column by column; where the number would leave int64, the
    codes so far are replaced by their ranks, which are fewer than the rows. Within a group rows
    keep their order, so `order[starts]` are the first occurrences.

    >>> group_equal_rows(np.array([[1, 0], [0, 1], [1, 0]]), N=2)
    (array([1, 0, 2]), array([0, 1]))
    """
    code, codes = tokens[:, 0], N
    for column in tokens.T[1:]:
        if codes * N > LARGEST_CODE:
            distinct, code = np.unique(code, return_inverse=True)
            codes = len(distinct)
        code = code * N + column
        codes *= N
    order = np.argsort(code, kind="stable")
    code = code[order]
    starts = np.flatnonzero(np.concatenate(([True], code[1:] != code[:-1])))
    return order, starts


def conflicting_groups(
    answers: np.ndarray, order: np.ndarray, starts: np.ndarray
) -> list[np.ndarray]:
    """The groups of equal rows (see `group_equal_rows`) that have more than one answer, each as
    the indices of its rows."""
    grouped, ends = answers[order], np.append(starts[1:], len(order))
    differ = np.minimum.reduceat(grouped, starts) != np.maximum.reduceat(grouped, starts)
    return [order[starts[g] : ends[g]] for g in np.flatnonzero(differ)]


def conflict_error(
    groups: list[np.ndarray],
    tokens: np.ndarray,
    answers: np.ndarray,
    rows: np.ndarray,
    vocabulary: Vocabulary,
    name: str,
) -> ConflictError:
    """The error for `groups`, each the indices of rows with one key and different answers."""
    conflicts: list[Conflict] = []
    for group in sorted(groups, key=lambda group: int(group[0])):
        key = tuple(vocabulary.token(int(t)) for t in tokens[group[0]])
        conflicts.append((key, [(int(rows[i]), vocabulary.token(int(answers[i]))) for i in group]))
    lines = [_conflict_line(conflict) for conflict in conflicts[:KEYS_LISTED]]
    if len(conflicts) > KEYS_LISTED:
        lines.append(f"and {len(conflicts) - KEYS_LISTED:,} more")
    keys = "1 key" if len(conflicts) == 1 else f"{len(conflicts):,} keys"
    found = f"{name}: expected one answer for each key, found {keys} with different answers:"
    return ConflictError(
        "\n  ".join([found, *lines]) + "\nCorrect or delete rows, add a key column that tells them "
        "apart, or count the answers (`on_conflict=distribution`).",
        conflicts,
    )


def _conflict_line(conflict: Conflict) -> str:
    """`('France',): 'Paris' (row 2), 'Lyon' (row 7)`: each answer once, with its first row."""
    key, answers = conflict
    first_row: dict[str, int] = {}
    for row, answer in answers:
        first_row.setdefault(answer, row)
    shown = [f"{quote(a)} (row {r})" for a, r in list(first_row.items())[:ANSWERS_LISTED]]
    if len(first_row) > ANSWERS_LISTED:
        shown.append(f"and {len(first_row) - ANSWERS_LISTED:,} more answers")
    return f"{', '.join(quote(token) for token in key)}: {', '.join(shown)}"
