"""How fast this machine is beside the one on which the studies' seconds were measured: a small
training of fixed size, timed on both. What it takes here is kept in the user's cache folder."""

from __future__ import annotations

import json
import math
import platform
import time
from contextlib import suppress
from pathlib import Path

from byheart._folders import save_file
from byheart._machine import cache_folder
from byheart.errors import ByheartError

# CPU seconds of `probe` on the machine of `papers/times.json` and of the procedures' `seconds`.
REFERENCE = 0.5
STARTING = 4.0  # CPU seconds there for what is no row: loading torch, fits and the figure
ROUNDS = 3  # the least of them counts: whatever else runs only adds to it
STEPS = 500


def probe() -> float:
    """CPU seconds of a stack of five small models (N = 50, d = 10, H = 11) for `STEPS` steps of 256
    examples, as most studies train them, on one thread."""
    from byheart.facts import random_associations
    from byheart.specs import AttentionOnlySpec
    from byheart.training import Recipe, token_data, train_stack

    spec = AttentionOnlySpec(N=50, S=2, d=10, H=11, d_h=10)
    data = token_data(random_associations(50, 2, 2500))
    recipe = Recipe(steps=STEPS, sampling="with-replacement", stop_at=None)
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        train_stack(spec, data, recipe, range(5))
        times.append(time.process_time() - began)
    return min(times)


def factor() -> float | None:
    """How much longer this machine takes than the one of the recorded seconds, if it was measured:
    2 is half as fast."""
    try:
        record = json.loads(_file().read_text(encoding="utf-8"))
        found = float(record[_name()])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if math.isfinite(found) and found > 0 else None


def calibrate() -> float:
    """Measure the factor, and keep it where that can be done."""
    measured = probe() / REFERENCE
    others: object = None
    with suppress(OSError, ValueError):
        others = json.loads(_file().read_text(encoding="utf-8"))
    record = {**(others if isinstance(others, dict) else {}), _name(): measured}
    with suppress(ByheartError):  # a home that may not be written: it is measured again
        save_file(_file(), json.dumps(record, indent=1) + "\n")
    return measured


def _file() -> Path:
    return cache_folder() / "speed.json"


def _name() -> str:
    """A home folder may be shared by unlike machines."""
    return f"{platform.node()} {platform.machine()}"
