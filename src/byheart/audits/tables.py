"""An audit as rows of a table and as a figure, both from its JSON record."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from byheart._style import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from byheart.audits.measures import Record

HEADER = ("weights", "layer", "A2", "rank", "A1 drawn", "Q", "groups", "GP", "other Q", "A3: Q",
          "r/δ", "satur.", "T1")  # fmt: skip
SHADES = {"fails": "#f4b6a6", "not refuted": "#bfe3d0", "holds": "#7cc6a0", "proved": "#7cc6a0",
          "too few contexts": "#eeeeee", "measured": "#ffffff"}  # fmt: skip
GOOD, BAD = ("holds", "proved", "not refuted"), ("fails",)  # verdicts


def headline(record: Record) -> list[str]:
    """Model and data, a line each."""
    m, data = record["model"], record["data"]
    groups = f" ({m['kv_heads']} key-value)" if m["kv_heads"] < m["H"] else ""
    left = f" ({data['repeated']:,} repeated ones left out)" if data["repeated"] else ""
    return [
        f"{m['name']}: {m['type']}, {m['parameters']:,} parameters ({m['weights']}), {m['layers']} "
        f"layers, d={m['d']}, H={m['H']}{groups}, d_h={m['d_h']}",
        f"{data['source']}: {data['contexts']:,} contexts of n={data['n']} tokens{left}",
    ]


def summary(record: Record) -> list[str]:
    """Which checks of the trained model fail where, those with the same layers in one sentence."""
    layers = record["layers"]
    trained = [x for x in layers if x["weights"] == "trained"] or layers
    failing: dict[tuple[int, ...], list[str]] = {}
    unknown: dict[tuple[int, ...], list[str]] = {}
    for name in layers[0]["checks"]:
        verdicts = {int(x["layer"]): str(x["checks"][name]["verdict"]) for x in trained}
        if set(verdicts.values()) == {"measured"}:
            continue
        failing.setdefault(tuple(i for i, v in verdicts.items() if v in BAD), []).append(name)
        if rest := tuple(i for i, v in verdicts.items() if v not in (*BAD, *GOOD)):
            unknown.setdefault(rest, []).append(name)
    said = [("Fail {}", *row) for row in sorted(failing.items(), reverse=True)]
    said += [("Cannot be told {} (too few contexts)", *row) for row in unknown.items()]
    return [f"{t.format(_layers(at, len(trained)))}: {_together(names)}." for t, at, names in said]


def _layers(at: tuple[int, ...], count: int) -> str:
    """
    >>> _layers((), 7), _layers((0,), 7), _layers((1, 2, 3, 5), 7), _layers((0, 1), 2)
    ('in no layer', 'in layer 0', 'in layers 1-3, 5', 'in every layer')
    """
    if not at or len(at) == count:
        return "in every layer" if at else "in no layer"
    starts = [i for i in at if i - 1 not in at]
    ends = [i for i in at if i + 1 not in at]
    runs = zip(starts, ends, strict=True)
    words = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"in layer{'s'[: len(at) > 1]} {words}"


def _together(names: list[str]) -> str:
    """
    >>> _together(["assumption1.first", "assumption1.last", "assumption2"])
    'Assumption 1 (first, last), Assumption 2'
    """
    heads: dict[str, list[str]] = {}
    for name in names:
        head, *query = name.split(".", 1)
        heads.setdefault(check_label(head), []).extend(query)
    return ", ".join(f"{h} ({', '.join(q)})" if q else h for h, q in heads.items())


def check_label(name: str) -> str:
    """
    >>> check_label("assumption1.first")
    'Assumption 1, first'
    """
    head, _, query = name.partition(".")
    words = head.replace("assumption", "Assumption ").replace("_", " ")
    return f"{words[0].upper()}{words[1:]}" + (f", {query}" if query else "")


def table_rows(record: Record) -> list[tuple[str, ...]]:
    """One row a layer; columns as in `HEADER`, those in the middle for the main query.

    "A2": share of contexts of rank n; "rank" of all queries; "A1 drawn": share of the drawn
    n-subsets that are independent; each float32 raw|centred / float64 raw|centred, once where all
    agree. "T1" is Theorem 1's H(Q-1)+1, in brackets where rotary positions are outside it.
    """
    rows = []
    main, *others = record["settings"]["queries"]
    for layer in record["layers"]:
        query, heads = layer["queries"][main], layer["heads"]
        spread = layer["separation"]["spread"]
        rows.append(
            (
                layer["weights"],
                str(layer["layer"]),
                by_setting(layer["contexts"], lambda c: _share(c["full"] / c["contexts"])),
                by_setting(query["settings"], lambda s: str(s["rank"])),
                by_setting(query["settings"], lambda s: _share(s["independent"])),
                str(query["Q"]),
                "yes" if query["groups"]["verdict"] == "holds" else "no",
                {"fails": "no", "too few contexts": "?"}.get(query["general_position"], "open"),
                ", ".join(f"{kind} {layer['queries'][kind]['Q']}" for kind in others) or "-",
                str(layer["queries"]["e+mean"]["Q"]),
                "-" if spread is None else f"{spread:.3g}",
                "-" if not heads else f"{np.mean([h['saturated'] for h in heads]):.2f}",
                _theorem1(layer),
            )
        )
    return rows


def _theorem1(layer: Record) -> str:
    promise = next(p for p in layer["promises"] if p["id"] == "mahdavi2024.theorem1")
    if promise["bare"] is not None:
        return f"({promise['bare']:,})"
    return f"{promise['capacity']:,}" if promise["applies"] else "-"


def by_setting(settings: list[Record], shown: Callable[[Record], str]) -> str:
    """ "float32 raw|centred / float64 raw|centred", equal neighbours once."""
    formats: dict[str, list[str]] = {}
    for setting in settings:
        formats.setdefault(setting["dtype"], []).append(shown(setting))
    parts = ["|".join(v if len(set(v)) > 1 else v[:1]) for v in formats.values()]
    return " / ".join(parts if len(set(parts)) > 1 else parts[:1])


def _share(value: float) -> str:
    return "all" if value == 1 else "none" if value == 0 else f"{value:.3g}"


def audit_figure(record: Record) -> Figure:
    """Left: layers x checks, coloured by verdict, trained beside random. Right: what changes with
    the tolerance (rank of the main queries over the ladder), and Q by layer."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    by_weights: dict[str, list[Record]] = {}
    for layer in record["layers"]:
        by_weights.setdefault(layer["weights"], []).append(layer)
    names = [name for name in record["layers"][0]["checks"] if name != "separation"]
    count = max(layer["layer"] for layer in record["layers"]) + 1
    figure = Figure(figsize=(13, 3.2 + 0.16 * count), layout="constrained")
    grids = figure.subplots(1, len(by_weights) + 2, width_ratios=[1.0] * (len(by_weights) + 2))
    for axes, (weights, layers) in zip(grids, by_weights.items(), strict=False):
        _verdicts(axes, layers, names)
        axes.set_title(f"{weights} weights", loc="left", fontsize=9)
    used = ("fails", "not refuted", "holds")
    figure.legend(
        handles=[Patch(color=SHADES[v], label=v) for v in used],
        fontsize=8, frameon=False, loc="outside lower left", ncols=3,
    )  # fmt: skip
    main = record["settings"]["queries"][0]
    _ladder(grids[-2], by_weights.get("trained", []), main)
    _Q(grids[-1], by_weights, main)
    model, data = record["model"], record["data"]
    words = (
        ("relative tolerance", "rank of the queries, float64\n(dashed: centred; dotted: n)"),
        ("layer", "Q: largest size with no dependent\nsubset drawn (dotted: n)"),
    )
    for axes, (across, title) in zip(grids[-2:], words, strict=True):
        axes.axhline(data["n"], color="black", lw=0.8, ls=":")
        axes.set_xlabel(across)
        axes.set_title(title, loc="left", fontsize=9)
        axes.legend(fontsize=7, frameon=False)
    figure.suptitle(
        f"{model['name']} ({model['type']}, {model['weights']}): {data['contexts']:,} contexts of "
        f"{data['n']} tokens, main query: {main}", x=0.01, ha="left", fontsize=10,
    )  # fmt: skip
    return figure


def _verdicts(axes: Axes, layers: list[Record], names: list[str]) -> None:
    from matplotlib.colors import to_rgb

    picture = [[to_rgb(SHADES[x["checks"][name]["verdict"]]) for name in names] for x in layers]
    axes.imshow(np.array(picture), aspect="auto", interpolation="nearest")
    short = [name.replace("assumption", "A").replace("general_position", "GP") for name in names]
    labels = [name.replace(".", " ") for name in short]  # "A1 first"
    axes.set_xticks(range(len(names)), labels, rotation=60, ha="right", fontsize=7)
    axes.set_yticks(range(0, len(layers), max(1, len(layers) // 12)))
    axes.set_ylabel("layer")


def _ladder(axes: Axes, trained: list[Record], main: str) -> None:
    chosen = sorted({0, 1, len(trained) // 2, len(trained) - 1})
    for colour, i in zip(COLOURS, chosen, strict=False):
        for setting in trained[i]["queries"][main]["settings"]:
            if setting["dtype"] == "float64":
                ladder = setting["rank_ladder"]
                axes.plot(
                    [float(t) for t in ladder], list(ladder.values()), color=colour,
                    ls="--" if setting["centred"] else "-",
                    label=None if setting["centred"] else f"layer {trained[i]['layer']}",
                )  # fmt: skip
    axes.set_xscale("log")
    axes.invert_xaxis()


def _Q(axes: Axes, by_weights: dict[str, list[Record]], main: str) -> None:
    for colour, (weights, layers) in zip(COLOURS, by_weights.items(), strict=False):
        for i, setting in enumerate(layers[0]["queries"][main]["settings"]):
            if not setting["centred"]:
                values = [x["queries"][main]["settings"][i]["Q"] for x in layers]
                axes.plot(
                    [x["layer"] for x in layers], values, color=colour, marker=".",
                    ls="--" if setting["dtype"] == "float32" else "-",
                    label=f"{weights}, {setting['dtype']}",
                )  # fmt: skip
