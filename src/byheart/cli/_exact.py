"""What `build`, `recall` and `certify` show of a memory of exact integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from byheart.cli._show import emit, key_text, number, say, token_text

if TYPE_CHECKING:
    from byheart.models.exact import ExactMemory

LISTED = 20


def check_options(method: str, exact: dict[str, Any], floating: dict[str, Any]) -> bool:
    """Is it the exact construction? Refuses options that belong to another one."""
    from byheart.errors import ByheartError

    mine = [flag for flag, value in exact.items() if value]
    others = [flag for flag, value in floating.items() if value]
    if method == "sqrt" and others:
        raise ByheartError(
            f"{', '.join(others)}: a square-root Transformer has integer weights and sizes of its "
            "own. Leave them out, or use another --method."
        )
    if method != "sqrt" and mine:
        raise ByheartError(f"{', '.join(mine)} belongs to --method sqrt: add it, or leave it out.")
    return method == "sqrt"


def size_rows(memory: ExactMemory) -> list[tuple[str, str]]:
    """The rows of the build table: counts, each with its name; how sure "unknown" is."""
    spec, T = memory.spec, memory.construction["facts"]
    return [
        ("architecture", str(spec)),
        ("parameters", f"{spec.parameters:,} non-zero ({spec.parameters / T:.2f} per fact)"),
        ("", f"{spec.dense:,} dense, {spec.distinct:,} different values"),
        ("bits", f"{spec.total_bits:,} in all non-zero weights, without signs"),
        ("recalled", f"{memory.construction['recalled']:,} of {T:,}, exactly"),
        ("other keys", unknown_text(memory)),
    ]


def unknown_text(memory: ExactMemory) -> str:
    """How sure "unknown" is, in words."""
    found = memory.construction["unknown"]
    if found["proved"]:
        return f"all {found['asked']:,} other keys of these tokens are answered `unknown`"
    return (
        f"`unknown`, but for an expected share of {number(found['rate'])} (measured: "
        f"{found['answered']:,} of {found['asked']:,} random keys answered by mistake)"
    )


def recall_exact(memory: ExactMemory, tokens: list[str], literal: bool, as_json: bool) -> None:
    """One key."""
    ask = memory.recall_literally if literal else memory.recall
    said = ask(*tokens)
    rate = memory.construction["unknown"]["rate"]
    if as_json:
        emit(
            {
                "answer": said.answer,
                "known": said.known,
                "false_positive_rate": rate,
                "margin": None,
                "heads": [],
                "skip": None,
                "runner_up": None,
                "key": list(tokens),
            }
        )
        return
    say(token_text(said.answer))
    if said.known:
        how = "every block in exact integers" if literal else "exact"
        say(f"\nclass {said.output} of {memory.spec.classes:,}, {how}")
        return
    new = [token for token in tokens if token not in memory.vocabulary]
    if new:
        near = memory.vocabulary.nearest(new[0])
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        say(f"\nNo fact has the token {new[0]!r}.{hint}")
    else:
        say(f"\n{key_text(tokens)} is not stored (the network outputs 0).")


def recall_all_exact(memory: ExactMemory, literal: bool, as_json: bool) -> bool:
    """Every fact the memory holds; were all right?"""
    from byheart.errors import FactsError

    facts = memory.facts
    if facts is None:
        raise FactsError("this memory was saved without its facts: ask for one key instead.")
    ask = memory.literal_outputs if literal else memory.outputs
    wrong = (ask(facts.tokens) != memory.classes(facts.answers)).nonzero()[0]
    lost = [
        {"row": int(facts.rows[i]), "key": list(facts.key(i)), "answer": facts.answer(i)}
        for i in wrong
    ]
    if as_json:
        record = {"facts": facts.T, "recalled": facts.T - len(lost), "margin": None, "lost": lost}
        emit(record)
    else:
        say(f"{facts.T - len(lost):,} of {facts.T:,} facts recalled, exactly")
        for fact in lost[:LISTED]:
            say(f"  lost: row {fact['row']}: {key_text(fact['key'])} -> {fact['answer']}")
    return not lost
