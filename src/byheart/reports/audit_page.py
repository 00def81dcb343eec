"""The page of an audit: layers by checks, what changes from layer to layer, what theorems promise.

Only the audit's JSON is read, so that a page can be made where the model is not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from byheart.audits.tables import BAD, GOOD, check_label, summary
from byheart.errors import ByheartError
from byheart.reports.page import Page, render, short, whole

if TYPE_CHECKING:
    from byheart.audits.measures import Record

SCHEMA = 1
EXPLAINED = {
    "assumption1": "any n of the queries are linearly independent (Mahdavi et al., Assumption 1)",
    "assumption2": "every context matrix has full rank (Assumption 2)",
    "assumption3": "Assumption 1 for query plus mean of the context (Assumption 3)",
    "groups": "what the proof of Theorem 1 really needs: H groups of independent queries",
    "general_position": "any d of the queries are independent (Kajitsuka and Sato)",
    "separation": "largest norm over smallest distance, r/δ",
}


def audit_page(source: str | Path) -> Page:
    """The page of an audit written by `byheart audit -o FILE.json`."""
    record = read_audit(source)
    model, data, settings = record["model"], record["data"], record["settings"]
    layers = record["layers"]
    kinds = list(dict.fromkeys(layer["weights"] for layer in layers))
    names = list(layers[0]["checks"])
    main = settings["queries"][0]
    cells = {kind: [_cells(x, names) for x in layers if x["weights"] == kind] for kind in kinds}
    table = [_row(layer, main) for layer in layers]
    promises = _promises(layers)
    return render(
        "audit.html",
        ("core.js", "chart.js", "audit.js"),
        {
            "kind": "audit",
            "columns": list(table[0]),
            "rows": [list(row.values()) for row in table],
            "promised": promises,
        },
        title=f"Audit of {model['name']}",
        line=f"Measured on {data['contexts']:,} contexts",
        model=model,
        audited=data,
        settings=settings,
        main=main,
        kinds=kinds,
        checks=[(x, check_label(x), EXPLAINED.get(x.partition(".")[0], "")) for x in names],
        grids=list(cells.items()),
        summary=summary(record),
        promises=promises,
        seconds=record.get("cpu_seconds"),
    )


def read_audit(source: str | Path) -> Record:
    """The record of an audit, refused with a reason where it is none."""
    try:
        record = json.loads(Path(source).read_text(encoding="utf-8"))
    except OSError as error:
        raise ByheartError(f"{source} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise ByheartError(
            f"{source}: not JSON, or cut short ({error}). Give a file of `byheart audit`."
        ) from None
    if not isinstance(record, dict) or record.get("kind") != "byheart audit":
        raise ByheartError(
            f'{source}: expected an audit ("kind": "byheart audit"). `byheart audit` writes one.'
        )
    schema = record.get("schema")
    if not isinstance(schema, int) or schema > SCHEMA:
        raise ByheartError(
            f"{source}: schema {schema}, this byheart reads up to {SCHEMA}. Update byheart."
        )
    try:
        for layer in record["layers"]:
            _cells(layer, list(record["layers"][0]["checks"]))
            _row(layer, record["settings"]["queries"][0])
        whole(record["model"]["parameters"])
        short(record["data"]["n"])
        found = bool(record["layers"])
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        raise ByheartError(
            f"{source}: an audit with a part missing or changed ({type(error).__name__}: {error}). "
            "Run the audit again."
        ) from None
    if not found:
        raise ByheartError(f"{source}: an audit without layers. Run the audit again.")
    return record


def _cells(layer: Record, names: list[str]) -> Record:
    cells = []
    for name in names:
        check = layer["checks"][name]
        verdict = str(check["verdict"])
        state = "good" if verdict in GOOD else "bad" if verdict in BAD else ""
        cells.append({"verdict": verdict, "state": state, "detail": _detail(check)})
    return {"layer": layer["layer"], "name": str(layer["name"]), "cells": cells}


def _detail(check: Record) -> str:
    """What a cell shows besides its verdict."""
    if "share" in check:
        return f"{100 * check['share']:.3g} % of {check['seen']:,}"
    if "Q" in check:
        return f"Q = {check['Q']}"
    if "spread" in check:
        return f"r/δ = {short(check['spread'])}"
    return ""


def _row(layer: Record, main: str) -> Record:
    """Numbers of one layer, for the chart."""
    query = layer["queries"][main]
    exact = [s for s in query["settings"] if s["dtype"] == "float64" and not s["centred"]]
    heads = layer.get("heads") or []
    full = [c for c in layer["contexts"] if c["dtype"] == "float64" and not c["centred"]]

    def mean(name: str) -> float | None:
        return sum(head[name] for head in heads) / len(heads) if heads else None

    first = [p for p in layer["promises"] if p["id"] == "mahdavi2024.theorem1"]
    promised = (first[0]["capacity"] or first[0].get("bare")) if first else None
    return {
        "layer": layer["layer"],
        "weights": layer["weights"],
        "Q": query["Q"],
        "Q of query + mean": layer["queries"]["e+mean"]["Q"],
        "rank of all queries": exact[0]["rank"] if exact else None,
        "independent share": exact[0]["independent"] if exact else None,
        "contexts of full rank": full[0]["full"] / full[0]["contexts"] if full else None,
        "r/δ": layer["separation"]["spread"],
        "saturated heads": mean("saturated"),
        "entropy of attention": mean("entropy"),
        "Theorem 1 promises": promised,
    }


def _promises(layers: list[Record]) -> list[Record]:
    """What each theorem says of each layer of the trained model."""
    rows: dict[str, Record] = {}
    for layer in layers:
        if layer["weights"] != "trained":
            continue
        for promise in layer["promises"]:
            row = rows.setdefault(promise["id"], {"id": promise["id"], "numbers": [], "why": ""})
            capacity, bare = promise["capacity"], promise.get("bare")
            hidden = capacity is None and bare is not None
            row["numbers"].append(f"({whole(bare)})" if hidden else whole(capacity))
            if not row["why"] and not promise["applies"]:
                row["why"] = f"layer {layer['layer']}: {promise['reason']}"
    return list(rows.values())
