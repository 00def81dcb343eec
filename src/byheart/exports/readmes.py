"""The README of an export: code that runs as written in its folder, then what one has to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from byheart.exports.folders import KEYS, OWNERS, megabytes
from byheart.models.memory import Memory
from byheart.models.owner import Owners
from byheart.models.token_memory import TokenMemory

OPEN_OWNERS = """import json
from pathlib import Path

owners = json.loads(Path("owners.json").read_text(encoding="utf-8"))
fact = owners["facts"][{fact}]  # {key}"""


@dataclass(frozen=True)
class Example:
    """The key that a README asks, what the model says, and the row of the fact, if it is one."""

    key: tuple[str, ...]
    answer: str
    fact: int | None
    owned: bool

    @property
    def words(self) -> str:
        """The key as arguments of a call."""
        return ", ".join(map(repr, self.key))

    def owners_code(self, silenced: str) -> list[str]:
        """Code that opens owners.json and, where it loses the fact, switches its heads off."""
        if self.fact is None:
            return []
        opened = OPEN_OWNERS.format(fact=self.fact, key=" ".join(self.key))
        return [opened + ("\n" + silenced.strip("\n") if self.owned else "\nprint(fact)")]


def example(memory: TokenMemory, owners: Owners | None) -> Example:
    """A stored key to show: one that its heads hold alone, of words without spaces, if there is
    one; without facts, the first words."""
    facts, pad = memory.facts, memory.pad_id
    if facts is None:
        key, row = (memory.vocabulary.tokens[0],) * memory.key_length, None
    else:
        lost = range(facts.T)
        if owners is not None and not owners.others:
            stay = set(owners.survive)
            lost = [i for i in lost if i not in stay and owners.heads_of(i)] or lost
        plain = (i for i in lost if all(w and w == "".join(w.split()) for w in facts.key(i)))
        row = next(plain, lost[0])
        whole = facts.tokens[row].tolist()
        key = tuple(facts.vocabulary.token(t) for t in whole if t != pad) or facts.key(row)
    answer = memory.vocabulary.token(int(memory.answers(memory.encode([key]))[0]))
    owned = (
        owners is not None
        and not owners.others
        and row is not None
        and row not in owners.survive
        and bool(owners.heads_of(row))
    )
    return Example(key, answer, row if owners is not None else None, owned)


def readme(
    title: str, code: Sequence[str], *sections: tuple[str, str], files: Mapping[str, str]
) -> str:
    """Markdown: the code first, then the sections that have a text, then what the files are."""
    blocks = "\n".join(f"```python\n{block.strip()}\n```\n" for block in code)
    texts = "".join(f"\n## {name}\n\n{text.strip()}\n" for name, text in sections if text)
    rows = "".join(f"| `{name}` | {what} |\n" for name, what in files.items())
    return f"# {title}\n\n{blocks}{texts}\n## Files\n\n| file | what |\n|---|---|\n{rows}"


def keys_text(memory: TokenMemory, shown: Example, order: str, unknown: str) -> str:
    """How a key is asked: in the order of the table, whatever the model reads."""
    facts = memory.facts
    columns = None if facts is None else facts.columns
    named = f" ({', '.join(columns)})" if columns else ""
    n = memory.key_length
    text = f"`ask({shown.words})` takes the words of a key in the order of the table{named}: "
    if memory.pad_id is None:
        text += f"{n} word{'s'[: n > 1]}."
    else:
        pad = memory.vocabulary.token(memory.pad_id)
        text += f"up to {n} words; shorter keys are padded on the left with `{pad}`."
    return f"{text}\n{order}\n{unknown}"


def reading_text(memory: TokenMemory, who: str) -> tuple[str, str]:
    """In which order the model reads a key, and what becomes of unknown words."""
    order = "The model reads them in that order."
    if memory.order is not None and list(memory.order) != sorted(memory.order):
        words = ", ".join(str(column + 1) for column in memory.order)
        order = f"The model reads word {words} of a key in this order; `{who}` sees to it."
    return order, "A word that is not in the vocabulary is a `ValueError` that names it."


def owners_text(owners: Owners | None) -> str:
    """What owners.json says, and how far it goes."""
    if owners is None:
        return (
            "No head holds a fact alone: every head carries a part of every margin. Memories of "
            "the sharded\nfamily have owners."
        )
    text = (
        f"`{OWNERS}` says which heads of layer {owners.layer} hold which fact, by construction: "
        "`facts` (each with key,\nanswer, layer and heads, in the order of "
        f"`{KEYS}`) and `heads` (`layer.head` -> rows of facts)."
    )
    if owners.others:
        return f"{text}\nWhat else depends on the heads: {owners.others}."
    lost = "\nSwitching the heads of a fact off loses it and what else they hold, and nothing else."
    count = len(owners.survive)
    stay = f" {count} facts survive (`survive`): the rest of the stream happens to name them."
    return text + lost + (stay if count else "")


def size_text(parameters: int, weights: bytes, own: int) -> str:
    """The true size of the model, and that of the memory that it holds."""
    text = f"{parameters:,} parameters, {megabytes(len(weights))} of weights"
    if parameters == own:
        return text + "."
    return f"{text}; the memory itself has {own:,} parameters, the rest are zeros and copies."


def rounding_text(memory: Memory) -> str:
    """What the second statement of a certificate, about the layer as it runs, says of this one."""
    if getattr(memory.spec, "gate", None) == "subject-sink":
        return (
            "What the certificate says of float32 evaluations is about the own heads of a key, "
            "not about\nthis layer of all heads."
        )
    return (
        "These are the weights of the memory: what its certificate says of every float32 (or "
        "float64)\nevaluation (`evaluation` in certificate.json) holds of this model too."
    )
