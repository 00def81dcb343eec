"""The page of an audit: layers by checks, what changes from layer to layer, what theorems promise.

Only the audit's JSON is read, so that a page can be made where the model is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byheart._files import read_json
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
    with _unchanged(source):
        return _page(record)


def _page(record: Record) -> Page:
    layers, main = record["layers"], record["settings"]["queries"][0]
    names = list(layers[0]["checks"])
    grids: dict[str, list[Record]] = {}
    for layer in layers:
        grids.setdefault(layer["weights"], []).append(_cells(layer, names))
    table = [_row(layer, main) for layer in layers]
    rows = [list(row.values()) for row in table]
    return render(
        "audit.html", ("core.js", "chart.js", "audit.js"),
        {"kind": "audit", "columns": list(table[0]), "rows": rows},
        title=f"Audit of {record['model']['name']}",
        line=f"Measured on {record['data']['contexts']:,} contexts",
        model=record["model"], audited=record["data"], settings=record["settings"], main=main,
        checks=[(x, check_label(x), EXPLAINED.get(x.partition(".")[0], "")) for x in names],
        grids=list(grids.items()), summary=summary(record), promises=_promises(layers),
        seconds=record.get("cpu_seconds"),
    )  # fmt: skip


def read_audit(source: str | Path) -> Record:
    """The record of an audit, refused with a reason where it is none."""
    record: Any = read_json(source)  # its parts are checked below
    if isinstance(record, dict) and record.get("kind") == "byheart audit of heads":
        drawn = "`byheart audit --heads --plot FILE` draws it"
        raise ByheartError(f"{source}: an audit of heads, which has no page: {drawn}.")
    if not isinstance(record, dict) or record.get("kind") != "byheart audit":
        expected = 'expected an audit ("kind": "byheart audit")'
        raise ByheartError(f"{source}: {expected}. `byheart audit` writes one.")
    schema = record.get("schema")
    if not isinstance(schema, int) or schema > SCHEMA:
        known = f"this byheart reads up to {SCHEMA}. Update byheart."
        raise ByheartError(f"{source}: schema {schema}, {known}")
    with _unchanged(source):
        for layer in record["layers"]:
            _cells(layer, list(record["layers"][0]["checks"]))
            _row(layer, record["settings"]["queries"][0])
        whole(record["model"]["parameters"])
        short(record["data"]["n"])
    if not record["layers"]:
        raise ByheartError(f"{source}: an audit without layers. Run the audit again.")
    return record


@contextmanager
def _unchanged(source: str | Path) -> Iterator[None]:
    """A part that is not what an audit writes there is named with the file."""
    try:
        yield
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        why = f"a part missing or changed ({type(error).__name__}: {error}). Run the audit again."
        raise ByheartError(f"{source}: an audit with {why}") from None


def _cells(layer: Record, names: list[str]) -> Record:
    """Verdicts, each with what is known besides: a share, a rank or a ratio."""
    cells = []
    for name in names:
        check, detail = layer["checks"][name], ""
        verdict = str(check["verdict"])
        state = "good" if verdict in GOOD else "bad" if verdict in BAD else ""
        if "share" in check:
            detail = f"{100 * check['share']:.3g} % of {check['seen']:,}"
        elif "Q" in check:
            detail = f"Q = {check['Q']}"
        elif "spread" in check:
            detail = f"r/δ = {short(check['spread'])}"
        cells.append({"verdict": verdict, "state": state, "detail": detail})
    return {"layer": layer["layer"], "name": str(layer["name"]), "cells": cells}


def _row(layer: Record, main: str) -> Record:
    """Numbers of one layer, for the chart."""
    query, heads = layer["queries"][main], layer.get("heads") or []
    exact, full = _plain(query["settings"]), _plain(layer["contexts"])

    def mean(name: str) -> float | None:
        return sum(head[name] for head in heads) / len(heads) if heads else None

    first = [p for p in layer["promises"] if p["id"] == "mahdavi2024.theorem1"]
    promised = (first[0]["capacity"] or first[0].get("bare")) if first else None
    return {
        "layer": layer["layer"],
        "weights": layer["weights"],
        "Q": query["Q"],
        "Q of query + mean": layer["queries"]["e+mean"]["Q"],
        "rank of all queries": exact and exact["rank"],
        "independent share": exact and exact["independent"],
        "contexts of full rank": full and full["full"] / full["contexts"],
        "r/δ": layer["separation"]["spread"],
        "saturated heads": mean("saturated"),
        "entropy of attention": mean("entropy"),
        "Theorem 1 promises": promised,
    }


def _plain(measured: list[Record]) -> Record | None:
    """What was measured in float64, with nothing taken off."""
    return next((m for m in measured if m["dtype"] == "float64" and not m["centred"]), None)


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
