"""The smallest study: numbers with noise, computed alone or in stacks; some misbehave."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from byheart.studies import Axes, Cell, Claim, Finding, Procedure, Row, Study, figure, fit


def alone(params: dict[str, Any], seed: int) -> dict[str, Any]:
    return noisy_many([(params, seed)])[0]


def noisy_many(jobs: Sequence[tuple[dict[str, Any], int]]) -> list[dict[str, Any]]:
    """y = 3 x + noise; `pause` seconds a job."""
    found = []
    for params, seed in jobs:
        time.sleep(params.get("pause", 0.0))
        noise = random.Random(seed).gauss(0, 0.1)
        found.append({"y": 3 * params["x"] + noise, "accuracy": 0.5 + noise, "size": len(jobs)})
    return found


def alone_faulty(params: dict[str, Any], seed: int) -> dict[str, Any]:
    return faulty_many([(params, seed)])[0]


def faulty_many(jobs: Sequence[tuple[dict[str, Any], int]]) -> list[dict[str, Any]]:
    """Fails at x = 2: raises, runs out of memory, or kills its process, until `mended` exists."""
    for params, _ in jobs:
        mended = params.get("mended") and Path(params["mended"]).exists()
        if params["x"] == 2 and not mended:
            if params["fault"] == "raise":
                raise ZeroDivisionError("two is too much")
            if params["fault"] == "memory":
                bytearray(1 << 62)
            if params["fault"] == "exit":
                os._exit(9)
            if params["fault"] == "text":
                return [{"y": object()} for _ in jobs]
    return noisy_many(jobs)


def analyse(rows: list[Row]) -> Finding:
    if len({row["x"] for row in rows}) < 2:
        return Finding("too few rows")
    line = fit("linear", [r["x"] for r in rows], [r["y"] for r in rows], intervals=True)
    slope = line.interval("b")
    claim = Claim("the slope is 3", slope, 2.8, 3.2)
    return Finding(f"slope {slope['estimate']:.2f}", (claim,), {"slope": slope})


def draw(rows: list[Row], finding: Finding):
    made, axes = figure.axes("tiny", "x", "y")
    x, y = figure.series(rows, "x", "y")
    if len(x):
        figure.points(axes, x, y, "y", 0)
    return made


def tiny(
    points: int = 6, *, largest: int = 4, name: str = "tiny/line", faulty: bool = False,
    **params: Any,
) -> Study:  # fmt: skip
    name_of_rows = f"{__name__}:{'faulty' if faulty else 'noisy'}"
    if largest > 1:
        stack = faulty_many if faulty else noisy_many
        made = Procedure(stack=stack, largest=largest, differ=("x",), name=name_of_rows)
    else:
        made = Procedure(alone_faulty if faulty else alone, name=name_of_rows)

    def grid(variant: str, profile: str) -> list[Cell]:
        number = points if profile != "quick" else 3
        extra = {"variant": variant} if variant != "as-coded" else {}
        return [Cell(made, {"x": x, **params, **extra}, "exp1") for x in range(number)]

    return Study(
        name=name,
        title="A line",
        source="nowhere",
        claim="y = 3 x",
        measurement="y",
        rule="confirmed if the interval of the slope lies within 0.2 of 3",
        grid=grid,
        analyse=analyse,
        axes=Axes("x", "y"),
        figure=draw,
        variants=("as-coded", "corrected"),
        seeds={"quick": 2, "paper": 3},
    )


STUDIES = (tiny(),)
