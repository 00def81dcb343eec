"""An audit as rows of a table and as a figure, both from its JSON record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from byheart._style import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADER = ("weights", "layer", "A2", "rank", "A1 drawn", "Q", "groups", "GP", "other Q", "A3: Q",
          "r/δ", "satur.", "T1")  # fmt: skip
SHADES = {"fails": "#f4b6a6", "not refuted": "#bfe3d0", "holds": "#7cc6a0", "proved": "#7cc6a0",
          "too few contexts": "#eeeeee", "measured": "#ffffff"}  # fmt: skip


def table_rows(record: dict[str, Any]) -> list[tuple[str, ...]]:
    """One row a layer; columns as in `HEADER`, those in the middle for the main query.

    "A2": share of contexts of rank n; "rank" of all queries; "A1 drawn": share of the drawn
    n-subsets that are independent; each float32 raw|centred / float64 raw|centred, once where all
    agree. "T1" is Theorem 1's H(Q-1)+1, in brackets where rotary positions are outside it.
    """
    rows = []
    main, *others = record["settings"]["queries"]
    for layer in record["layers"]:
        query = layer["queries"][main]
        heads = layer["heads"]
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
                _theorem1(record, layer, query["Q"]),
            )
        )
    return rows


def _theorem1(record: dict[str, Any], layer: dict[str, Any], Q: int) -> str:
    capacity = promised(record["model"], record["data"]["n"], Q)
    if capacity is None:
        return "-"
    promise = next(p for p in layer["promises"] if p["id"] == "mahdavi2024.theorem1")
    return f"{capacity:,}" if promise["bare"] is None else f"({capacity:,})"


def promised(model: dict[str, Any], n: int, Q: int) -> int | None:
    """H(r-1)+1 with r = min(n, d_h, Q) for heads with their own W_K and W_V; None for Q < 2.

    >>> promised({"H": 12, "kv_heads": 12, "d_h": 32, "d": 384}, 64, 30)
    349
    """
    r = min(n, model["d_h"], Q)
    return None if r < 2 or n > model["d"] else model["kv_heads"] * (r - 1) + 1


def by_setting(settings: list[dict[str, Any]], shown: Any) -> str:
    """ "float32 raw|centred / float64 raw|centred", equal neighbours once."""
    formats: dict[str, list[str]] = {}
    for setting in settings:
        formats.setdefault(setting["dtype"], []).append(shown(setting))
    parts = ["|".join(v if len(set(v)) > 1 else v[:1]) for v in formats.values()]
    return " / ".join(parts if len(set(parts)) > 1 else parts[:1])


def _share(value: float) -> str:
    return "all" if value == 1 else "none" if value == 0 else f"{value:.3g}"


def audit_figure(record: dict[str, Any]) -> Figure:
    """Left: layers x checks, coloured by verdict, trained beside random. Right: what changes with
    the tolerance (rank of the main queries over the ladder), and Q by layer."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    kinds = list(dict.fromkeys(layer["weights"] for layer in record["layers"]))
    names = list(record["layers"][0]["checks"])
    names.remove("separation")
    count = max(layer["layer"] for layer in record["layers"]) + 1
    figure = Figure(figsize=(13, 3.2 + 0.16 * count), layout="constrained")
    grids = figure.subplots(1, len(kinds) + 2, width_ratios=[*[1.0] * len(kinds), 1.0, 1.0])
    for axes, weights in zip(grids, kinds, strict=False):
        layers = [x for x in record["layers"] if x["weights"] == weights]
        _verdicts(axes, layers, names)
        axes.set_title(f"{weights} weights", loc="left", fontsize=9)
    used = ("fails", "not refuted", "holds")
    figure.legend(
        handles=[Patch(color=SHADES[v], label=v) for v in used],
        fontsize=8, frameon=False, loc="outside lower left", ncols=3,
    )  # fmt: skip
    main = record["settings"]["queries"][0]
    _ladder(grids[-2], record, main)
    _Q(grids[-1], record, main, kinds)
    model, data = record["model"], record["data"]
    figure.suptitle(
        f"{model['name']} ({model['type']}, {model['weights']}): {data['contexts']:,} contexts of "
        f"{data['n']} tokens, main query: {main}", x=0.01, ha="left", fontsize=10,
    )  # fmt: skip
    return figure


def _verdicts(axes: Any, layers: list[dict[str, Any]], names: list[str]) -> None:
    from matplotlib.colors import to_rgb

    picture = np.array(
        [[to_rgb(SHADES[x["checks"][name]["verdict"]]) for name in names] for x in layers]
    )
    axes.imshow(picture, aspect="auto", interpolation="nearest")
    axes.set_xticks(
        range(len(names)), [_label(name) for name in names], rotation=60, ha="right", fontsize=7
    )
    every = max(1, len(layers) // 12)
    axes.set_yticks(range(0, len(layers), every))
    axes.set_ylabel("layer")


def _label(check: str) -> str:
    """A check's id, short: "assumption1.first" -> "A1 first"."""
    short = check.replace("assumption", "A").replace("general_position", "GP")
    return short.replace(".", " ")


def _ladder(axes: Any, record: dict[str, Any], main: str) -> None:
    trained = [x for x in record["layers"] if x["weights"] == "trained"]
    chosen = sorted({0, 1, len(trained) // 2, len(trained) - 1})
    for colour, i in zip(COLOURS, chosen, strict=False):
        settings = trained[i]["queries"][main]["settings"]
        for setting in settings:
            if setting["dtype"] == "float64":
                ladder = setting["rank_ladder"]
                axes.plot(
                    [float(t) for t in ladder], list(ladder.values()), color=colour,
                    ls="--" if setting["centred"] else "-",
                    label=None if setting["centred"] else f"layer {trained[i]['layer']}",
                )  # fmt: skip
    axes.axhline(record["data"]["n"], color="black", lw=0.8, ls=":")
    axes.set_xscale("log")
    axes.invert_xaxis()
    axes.set_xlabel("relative tolerance")
    axes.set_title("rank of the queries, float64\n(dashed: centred; dotted: n)", loc="left",
                   fontsize=9)  # fmt: skip
    axes.legend(fontsize=7, frameon=False)


def _Q(axes: Any, record: dict[str, Any], main: str, kinds: list[str]) -> None:
    for colour, weights in zip(COLOURS, kinds, strict=False):
        layers = [x for x in record["layers"] if x["weights"] == weights]
        for i, setting in enumerate(layers[0]["queries"][main]["settings"]):
            if setting["centred"]:
                continue
            values = [x["queries"][main]["settings"][i]["Q"] for x in layers]
            axes.plot(
                [x["layer"] for x in layers], values, color=colour, marker=".",
                ls="--" if setting["dtype"] == "float32" else "-",
                label=f"{weights}, {setting['dtype']}",
            )  # fmt: skip
    axes.axhline(record["data"]["n"], color="black", lw=0.8, ls=":")
    axes.set_xlabel("layer")
    axes.set_title("Q: largest size with no dependent\nsubset drawn (dotted: n)", loc="left",
                   fontsize=9)  # fmt: skip
    axes.legend(fontsize=7, frameon=False)
