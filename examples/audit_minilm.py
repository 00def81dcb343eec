"""Do the papers' assumptions hold in a pretrained model? A small audit of MiniLM, in a minute.

Shown: docstrings of Python's standard library. Where the model is not installed (`make models`),
says so and stops.
"""

from __future__ import annotations

import argparse
import collections
import json as json_module
import logging
import statistics
import tempfile
from pathlib import Path

import byheart as bh
from byheart.audits import AuditSettings, find_model

MODULES = (argparse, collections, json_module, logging, statistics)


def docstrings() -> str:
    """The documentation of some modules and of what is in them."""
    texts = []
    for module in MODULES:
        texts.append(module.__doc__ or "")
        texts += [str(getattr(value, "__doc__", "") or "") for value in vars(module).values()]
    return "\n".join(texts)


def main() -> None:
    try:
        find_model("minilm")
    except bh.ByheartError as error:
        print(f"nothing to audit: {error}")
        return
    with tempfile.TemporaryDirectory() as place:
        text = Path(place) / "docstrings.txt"
        text.write_text(docstrings(), encoding="utf-8")
        settings = AuditSettings(length=16, contexts=120, draws=50, random=False)
        found = bh.audit("minilm", text=text, settings=settings)
    print(f"{found.record['data']['contexts']} contexts of {found.record['data']['n']} tokens")
    print("layer  contexts of rank n  Q of [CLS]  proof's groups  Q of e + mean E")
    for layer in found.layers("trained"):
        checks, query = layer["checks"], layer["queries"]["first"]
        print(
            f"{layer['layer']:5}  {checks['assumption2']['share']:18.0%}  {query['Q']:10}  "
            f"{query['groups']['verdict']:>14}  {checks['assumption3']['Q']:15}"
        )
    print("Before any attention all [CLS] are one vector (Q = 1); one layer repairs it.")


if __name__ == "__main__":
    main()
