"""An audit of heads as words, rows of a table and a figure, all from its JSON record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byheart._style import FRESH, MEASURED, legend, new_figure, title
from byheart._words import visible
from byheart.audits.tables import headline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from byheart.audits.measures import Record

CIRCUITS = ("bigram", "skip_trigram", "run")
RANKED = CIRCUITS[:2]  # what is stored in weights and tokens alone
HEAD_HEADER = ("head", "bigrams", "skip-trigrams", "as it runs", "shuffled: bigrams",
               "skip-trigrams", "as it runs")  # fmt: skip
PAIR_HEADER = ("head", "strongest bigrams", "strongest skip-trigrams")
SHOWN_PAIRS = 3
LEGEND = """
Nats of the next token beyond its frequency on held-out text, with the 95 % interval over chunks \
of the text, and as a share of the model's. Bigrams: the head attends to the current token; \
skip-trigrams: to what its QK circuit finds in the context; both from token embeddings alone. As \
it runs: with what earlier blocks wrote. Shuffled: the same head with the entries of its matrices \
in random order."""


def head_lines(record: Record) -> list[str]:
    """Model and data, what there is to explain, and what all heads explain, a line each."""
    text, control = record["text"], record["control"]
    heads, most = record["heads"], ranked_heads(record)[0]
    lines = [
        *headline(record),
        f"{text['positions']:,} next tokens of {text['tokens']:,} kinds; their frequencies leave "
        f"{text['unigram_nats']:.3f} nats a token, of which are explained:",
    ]
    words = {
        "model": "by the model",
        "bigram_table": "by a table of the other half's bigrams",
        "direct": "by W_E W_U, no head at all",
    }
    lines += [f"  {interval(text[name])} {said}" for name, said in words.items()]
    for name, said in (
        ("bigram", "by the bigrams of all heads together"),
        ("skip_trigram", "by the skip-trigrams of all heads together"),
        ("run", "by what all heads give as they run"),
    ):
        shuffled = record["together"][f"{name} (control)"]
        lines.append(f"  {interval(record['together'][name])} {said} (shuffled weights: "
                     f"{shuffled['nats']:.4f})")  # fmt: skip
    for name in CIRCUITS:
        largest = control[name]["largest"]
        above = sum(row[name]["nats"] > largest for row in heads)
        clear = sum((row[name]["low"] or 0) > largest for row in heads)
        lines.append(
            f"{name.replace('_', '-')}: {above} of {len(heads)} heads explain more than any with "
            f"shuffled weights ({largest:.4f} nats), {clear} with their whole interval"
        )
    return [*lines, f"Head {_name(most)} stores most."]


def ranked_heads(record: Record) -> list[Record]:
    """The heads, those that store most first: by bigrams or skip-trigrams, whichever is more."""
    return sorted(record["heads"], key=lambda row: -max(row[name]["nats"] for name in RANKED))


def head_rows(record: Record) -> list[tuple[str, ...]]:
    """The heads that store most, one row each; columns as in `HEAD_HEADER`."""
    return [
        (
            _name(row),
            *(interval(row[name]) for name in CIRCUITS),
            *(f"{row['control'][name]['nats']:.4f}" for name in CIRCUITS),
        )
        for row in ranked_heads(record)[: record["settings"]["top"]]
    ]


def pair_rows(record: Record) -> list[tuple[str, ...]]:
    """What these heads store most strongly; columns as in `PAIR_HEADER`."""
    rows = []
    for row in ranked_heads(record)[: record["settings"]["top"]]:
        stored = (row[name][:SHOWN_PAIRS] for name in ("bigrams", "skip_trigrams"))
        cells = ("; ".join(_stored(pair["tokens"]) for pair in pairs) for pairs in stored)
        rows.append((_name(row), *cells))
    return rows


def interval(estimate: Record) -> str:
    """
    >>> interval({"nats": 0.0123, "low": 0.0103, "high": 0.0143, "share": 0.005})
    '0.0123 ± 0.0020, 0.50 %'
    """
    parts = [f"{estimate['nats']:.4f}"]
    if estimate["low"] is not None:
        parts.append(f" ± {(estimate['high'] - estimate['low']) / 2:.4f}")
    if estimate.get("share") is not None:
        parts.append(f", {100 * estimate['share']:.2f} %")
    return "".join(parts)


def _name(row: Record) -> str:
    return f"{row['layer']}.{row['head']}"


def _stored(tokens: list[str]) -> str:
    """
    >>> print(_stored([" New", " York"]), _stored(["a", "b", "c"]))
    " New" -> " York" "a" ... "b" -> "c"
    """
    *before, answer = (f'"{visible(token)}"' for token in tokens)
    return f"{' ... '.join(before)} -> {answer}"


def heads_figure(record: Record) -> Figure:
    """For each circuit: nats of all heads, largest first, trained beside shuffled weights."""
    figure, panels = new_figure(13.0, 4.2, len(CIRCUITS))
    for axes, name in zip(panels, CIRCUITS, strict=True):
        for label, colour, rows in (
            ("trained", MEASURED, record["heads"]),
            ("shuffled weights", FRESH, [row["control"] for row in record["heads"]]),
        ):
            values = sorted((row[name]["nats"] for row in rows), reverse=True)
            axes.plot(
                range(1, len(values) + 1), values, ".-", ms=3, lw=1, color=colour, label=label
            )
        axes.set_xscale("log")
        axes.set_xlabel("heads, largest first")
        whole = record["together"][name]
        title(axes, f"{name.replace('_', '-')}\nall heads together: {interval(whole)}")
    panels[0].set_ylabel("nats of the next token explained, held out")
    legend(panels[0])
    model, data = record["model"], record["data"]
    figure.suptitle(
        f"{model['name']} ({model['type']}, {model['weights']}): {data['contexts']:,} contexts of "
        f"{data['n']} tokens", x=0.01, ha="left", fontsize=10,
    )  # fmt: skip
    return figure
