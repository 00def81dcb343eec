"""Words in messages: how to show one, and which known ones are most like another."""

from __future__ import annotations

import heapq
import unicodedata
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

SIMILAR = 0.6  # smallest `SequenceMatcher.ratio` that counts as near: the default of difflib
SHORTLIST = 50  # candidates that get the slow comparison, about 20 microseconds each
LONGEST = 64  # characters that are compared: longer tokens are texts, which nobody mistypes


def nearest(word: str, candidates: Iterable[str], n: int = 3) -> list[str]:
    """The at most `n` candidates most like `word`: equal up to case first, then by difflib ratio.

    >>> nearest("pariss", ["Rome", "Paris", "paris"])
    ['Paris', 'paris']

    Only the best 50 by shared pairs of neighbouring letters are compared by difflib: 50,000
    candidates take about 0.2 s.
    """
    wanted = word.casefold()[:LONGEST]
    wanted_pairs = _letter_pairs(wanted)
    shared: list[tuple[int, int, str, str]] = []
    for order, candidate in enumerate(candidates):
        short, long = sorted((min(len(candidate), LONGEST), len(wanted)))
        # ratio <= 2 short / (short + long), so beyond 7 : 3 the ratio is below SIMILAR = 0.6.
        if 3 * long > 7 * short:
            continue
        folded = candidate.casefold()[:LONGEST]
        common = len(wanted_pairs & _letter_pairs(folded))
        if common:
            shared.append((common, -order, folded, candidate))
    matcher = SequenceMatcher(b=wanted, autojunk=False)
    near: list[tuple[float, int, str]] = []
    for _, minus_order, folded, candidate in heapq.nlargest(SHORTLIST, shared):
        matcher.set_seq1(folded)
        ratio = matcher.ratio()
        if ratio >= SIMILAR:
            near.append((-ratio, -minus_order, candidate))
    return [candidate for _, _, candidate in sorted(near)[:n]]


def _letter_pairs(folded: str) -> set[str]:
    """Neighbouring letters, with both ends marked so that one-letter words have pairs too."""
    marked = f"\0{folded}\0"
    return {marked[i : i + 2] for i in range(len(marked) - 1)}


def quote(text: str, longest: int = 60) -> str:
    """`text` in quotes, with control characters escaped, cut to `longest` characters.

    >>> print(quote("a\\nb"), quote("x" * 100, longest=5))
    'a\\nb' 'xxxxx...'
    """
    return repr(text if len(text) <= longest else text[:longest] + "...")


def shown(value: object, longest: int = 200) -> str:
    """`value` as Python writes it, cut to `longest` characters.

    >>> shown("a"), shown(10**5000)
    ("'a'", 'a number of thousands of digits')
    """
    try:
        text = repr(value)
    except ValueError:  # Python writes out at most 4,300 digits
        return "a number of thousands of digits"
    return text if len(text) <= longest else f"{text[:longest]}..."


def listed(words: Sequence[str], most: int = 20) -> str:
    """The first words in quotes, and how many more there are.

    >>> print(listed(["a", "b", "c"], most=2))
    'a', 'b' and 1 more
    """
    shown = ", ".join(quote(word) for word in words[:most])
    return shown + (f" and {len(words) - most:,} more" if len(words) > most else "")


# Overrides of the writing direction: they would reorder the rest of the line.
DIRECTION = {*"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"}


def visible(text: str) -> str:
    """`text` on one line: control characters, halves of surrogate pairs and overrides of the
    writing direction as escapes, the rest as it is.

    >>> print(visible("a\\nb \\x1b[1m \\u202e é"))
    a\\nb \\x1b[1m \\u202e é
    """
    if text.isprintable():  # most texts; neither of these characters is
        return text
    escaped = (c in DIRECTION or unicodedata.category(c) in ("Cc", "Cs") for c in text)
    return "".join(repr(c)[1:-1] if bad else c for c, bad in zip(text, escaped, strict=True))


def written(text: str) -> str:
    """`text` as UTF-8 can write it: halves of surrogate pairs, which names of files may have, as
    escapes.

    >>> print(written("caf\\udce9 \U0001f600"))
    caf\\udce9 \U0001f600
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def has_utf8_form(text: str) -> bool:
    """Whether `text` can be written to a file: halves of surrogate pairs cannot.

    >>> has_utf8_form("\U0001f600"), has_utf8_form("\\ud83d")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
