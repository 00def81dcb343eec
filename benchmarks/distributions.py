"""Memorizing distributions: every table of docs/distributions.md, measured on this machine.

python benchmarks/distributions.py                        everything
python benchmarks/distributions.py encoders bottleneck    some of it
python benchmarks/distributions.py text --text FILE       another text
python benchmarks/distributions.py text --figure FILE.png also draw the figure
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from distribution_losses import compare_losses
from run import Row, show

import byheart as bh
from byheart._style import new_figure
from byheart.construct.encoders import ENCODERS, Encoder, compare, encode
from byheart.facts import Distributions, ngram_distributions
from byheart.measure import encoder_bounds, losses, memory_losses
from byheart.models.construction import DistributionConstruction, Theorem1Excess
from byheart.theory.dana2025 import divergence
from byheart.theory.plots import COLOURS, save

GPL = Path("/usr/share/common-licenses/GPL-3")
LICENSE = Path(__file__).parents[1] / "LICENSE"
TASKS = (
    ("gauss", 0.3),
    ("gauss", 1.0),
    ("gauss", 3.0),
    ("lut", 0.3),
    ("lut", 0.03),
    ("lut", 0.003),
)
SIZES = ((10, 2, 5), (10, 4, 5), (20, 8, 3), (50, 10, 1))  # N, d, draws

# An earlier prototype on other draws: svd, centred, weighted, theorem2, theorem2*, best (nats).
PROTOTYPE = {
    (10, 4, "gauss", 0.3): (0.0192, 0.0150, 0.0148, 0.0343, 0.0285, 0.0146),
    (10, 4, "gauss", 3.0): (0.884, 0.692, 0.792, 0.542, 0.448, 0.198),
    (10, 4, "lut", 0.03): (1.03, 0.723, 0.236, 0.137, 0.0517, 0.0380),
    (10, 4, "lut", 0.003): (1.11, 0.832, 0.501, 0.0220, 0.0076, 0.0062),
    (10, 2, "lut", 0.03): (1.60, 1.19, 0.835, 0.394, 0.391, 0.367),
    (20, 8, "gauss", 0.3): (0.0224, 0.0201, 0.0198, 0.0392, 0.0341, 0.0195),
    (20, 8, "gauss", 1.0): (0.232, 0.207, 0.175, 0.339, 0.277, 0.148),
    (20, 8, "lut", 0.3): (0.747, 0.644, 0.300, 0.591, 0.225, 0.146),
    (20, 8, "lut", 0.003): (1.02, 0.874, 0.248, 0.0221, 0.0049, 0.0041),
    (50, 10, "gauss", 0.3): (0.0344, 0.0334, 0.0332, 0.0435, 0.0419, 0.0329),
    (50, 10, "gauss", 1.0): (0.368, 0.357, 0.327, 0.426, 0.396, 0.300),
    (50, 10, "gauss", 3.0): (1.87, 1.83, 1.38, 1.17, 1.04, 0.601),
    (50, 10, "lut", 0.3): (1.63, 1.57, 0.513, 0.804, 0.335, 0.304),
    (50, 10, "lut", 0.03): (2.37, 2.25, 0.252, 0.182, 0.0558, 0.0524),
    (50, 10, "lut", 0.003): (2.29, 2.15, 0.395, 0.0265, 0.0077, 0.0073),
}
# (kind, N, m): the convex read-out, and the encoder's own KL there.
PROTOTYPE_READOUTS = {
    ("gauss", 20, 40): (0.0956, 0.0374),
    ("gauss", 20, 160): (0.0511, 0.0374),
    ("gauss", 20, 320): (0.0400, 0.0374),
    ("gauss", 20, 400): (0.0373, 0.0374),
    ("lut", 20, 160): (0.068, 0.0095),
    ("lut", 20, 240): (0.020, 0.0095),
    ("lut", 20, 400): (0.0090, 0.0095),
    ("gauss", 10, 160): (0.0660, 0.0547),
}


def task(kind: str, N: int, value: float, seed: int, **options: Any) -> Distributions:
    setting = {"gauss": "tau", "lut": "eta"}[kind]
    return bh.random_distributions(kind, N, seed=seed, **{setting: value}, **options)


def encoders() -> list[Row]:
    """All encoders on 24 settings; means over draws, with the prototype's best beside."""
    rows: list[Row] = []
    for N, d, seeds in SIZES:
        for kind, value in TASKS:
            rows.append(one_encoder(N, d, kind, value, seeds))
            print(rows[-1], flush=True)
    show("Encoders (S = 2, uniform prior, all N² sequences; d_KL in nats, means over draws)", rows)
    known = [r for r in rows if r["prototype best"] != "-"]
    good = sum(
        r["optimised"] <= 1.03 * r["prototype best"]
        or r["of closed"] <= 1.03 * r["prototype of closed"]
        for r in known
    )
    print(f"\nbest within 3 % of the prototype or better: {good} of {len(known)} settings")
    print(f"bounds broken: {sum(r['broken'] for r in rows)} of {sum(r['bounds'] for r in rows)}")
    return rows


def one_encoder(N: int, d: int, kind: str, value: float, seeds: int) -> Row:
    kl: dict[str, list[float]] = {name: [] for name in ENCODERS}
    bounds, broken, seconds, bennett, theorem2 = 0, 0, 0.0, [], []
    share = 0.0
    for seed in range(seeds):
        table = task(kind, N, value, seed)
        share = float(table.prior @ table.entropy) / math.log(N)
        started = time.process_time()
        for one in compare(table, d):
            assert one.encoder is not None
            found = losses(table, one.encoder.logits).mean()["kl"]
            kl[one.name].append(found)
            rigorous = encoder_bounds(table, one.encoder)
            for name in ("bennett", "theorem2"):
                if (bound := rigorous[name]) is not None:
                    bounds += 1
                    broken += bound < found * (1 - 1e-9)
            if one.name == "centred":
                bennett.append(rigorous["bennett"])
            if one.name == "theorem2*":
                theorem2.append(rigorous["theorem2"])
        seconds += time.process_time() - started
    means = {name: float(np.mean(values)) for name, values in kl.items()}
    earlier = PROTOTYPE.get((N, d, kind, value))
    return {
        "N, d": f"{N}, {d}",
        "case": f"{kind} {value:g}",
        "H/log N": share,
        **means,
        "sd best": float(np.std(kl["optimised"])),
        "prototype best": earlier[5] if earlier else "-",
        "of closed": means["optimised"] / min(means[name] for name in ENCODERS[:-1]),
        "prototype of closed": earlier[5] / min(earlier[:5]) if earlier else "-",
        "bennett(centred)": float(np.mean(bennett)),
        "theorem2 bound": float(np.mean(theorem2)),
        "bounds": bounds,
        "broken": broken,
        "CPU s": seconds / seeds,
    }


def bottleneck() -> list[Row]:
    """KL of the best encoder against d, N = 20; point masses at d = 2 (Propositions 2 and 3)."""
    rows: list[Row] = []
    for kind, value in (("gauss", 1.0), ("lut", 0.03)):
        table = task(kind, 20, value, 0)
        for d in (1, 2, 4, 8, 12, 16, 18, 19):
            made = encode(table, d)
            kl = divergence(table.probabilities, made.logits)
            rows.append({"case": f"{kind} {value:g}", "d": d, "d_KL": kl, "how": made.why})
    facts = bh.random_associations(N=20, S=2, T=400)
    masses = Distributions.make(facts.tokens, np.eye(20)[facts.answers], facts.vocabulary)
    circle = encode(masses, 2, "theorem2*")
    for scale in (0.01, 0.1, 1.0):
        made = Encoder(circle.W, scale * circle.E, circle.name)
        found = losses(masses, made.logits).mean()
        size = float(np.linalg.norm(made.E[0]))
        how = f"λ = {size:.0f} on the circle, accuracy {found['accuracy']:g}"
        rows.append({"case": "associations", "d": 2, "d_KL": found["kl"], "how": how})
    show("Rank bottleneck, N = 20 (d_KL in nats)", rows)
    return rows


def readouts() -> list[Row]:
    """Attention that follows the encoder: literal, ridge, convex and joint; means of 5 draws."""
    rows: list[Row] = []
    cases = (
        ("gauss", 1.0, 20, 2, 8, (40, 160, 320, 400)),
        ("lut", 0.03, 20, 2, 8, (160, 240, 400)),
        ("gauss", 1.0, 10, 3, 4, (160,)),
    )
    for kind, value, N, S, d, sizes in cases:
        tables = [task(kind, N, value, s, S=S, T=400, zipf=1.5) for s in range(5)]
        coders = [encode(table, d) for table in tables]
        for m in sizes:
            rows.append(one_readout(kind, N, d, m, tables, coders))
            print(rows[-1], flush=True)
    show("Read-outs (Zipf 1.5 prior, T = 400, d_h = d; d_KL in nats, means of 5 draws)", rows)
    return rows


def one_readout(
    kind: str, N: int, d: int, m: int, tables: list[Distributions], coders: list[Encoder]
) -> Row:
    found: dict[str, list[float]] = {}
    names = ("literal", "ridge", "convex", "joint")
    for table, coder in zip(tables, coders, strict=True):
        for name in names:
            readout = "exact" if name == "literal" and m == table.T else name
            method = bh.DistributionAttention(
                H=(m - d) // d, encoder=coder, readout=readout, dtype="float64"
            )
            made = bh.build(table, method).construction
            assert isinstance(made, DistributionConstruction)
            found.setdefault(name, []).append(made.kl)
            if name != "literal":
                continue
            found.setdefault("encoder", []).append(made.kl_encoder)
            found.setdefault("eps", []).append(made.eps)
            bound = made.theorem1 or Theorem1Excess(C=1.0, C_svd=1.0, excess=0.0, sharp=0.0)
            for key in ("C", "excess", "sharp"):
                found.setdefault(key, []).append(getattr(bound, key))
            assert bound.C is not None and bound.C_svd is not None
            found.setdefault("C apart", []).append(abs(bound.C / bound.C_svd - 1))
            found.setdefault("literal apart", []).append(abs(made.kl - made.kl_encoder))
    mean = {name: float(np.mean(values)) for name, values in found.items()}
    convex, encoder = PROTOTYPE_READOUTS[kind, N, m]
    pairs = zip(found["literal apart"], found["sharp"], strict=True)
    broken = sum(apart > bound * (1 + 1e-9) + 1e-12 for apart, bound in pairs)
    return {
        "case": f"N={N}, {kind}", "m": m, "eps": mean["eps"],
        "C (median)": float(np.median(found["C"])), "C two ways apart": max(found["C apart"]),
        "encoder": mean["encoder"], "literal (median)": float(np.median(found["literal"])),
        "excess bound (median)": float(np.median(found["excess"])),
        "sharp bound (median)": float(np.median(found["sharp"])),
        "bound broken": broken,
        "ridge": mean["ridge"], "convex": mean["convex"], "joint": mean["joint"],
        "over encoder: convex": mean["convex"] - mean["encoder"],
        "prototype": convex - encoder,
        "exact |difference|": max(found["literal apart"]) if m == 400 else "-",
    }  # fmt: skip


def text(path: Path = GPL, figure: Path | None = None) -> list[Row]:
    """Next-word distributions of a licence text: the encoder and the built layer."""
    path = path if path.exists() else LICENSE
    rows: list[Row] = []
    plans = ((2, (4, 8, 16, 32, 64), (128, 512, 1024)), (3, (8, 32, 64), (256, 1024)))
    for n, ranks, sizes in plans:
        table = ngram_distributions(path, n)
        known: dict[str, Any] = dict(table.describe())
        uniform = math.log(table.A) - known["entropy"]
        unigram = np.log(table.prior @ table.probabilities)
        marginal = divergence(table.probabilities, np.tile(unigram, (table.T, 1)), table.prior)
        print(f"{path.name}, n = {n}: {table}, entropy {known['entropy']:.3f} nats, "
              f"d_KL of uniform {uniform:.3f}, of the words' frequencies {marginal:.3f}, "
              f"T_eps {known['T_eps']}, {table.smoothing}", flush=True)  # fmt: skip
        for d in ranks:
            started = time.process_time()
            coder = encode(table, d)
            found = losses(table, coder.logits).mean()
            rows.append(_text_row(n, table, d, 0, found, time.process_time() - started))
            print(rows[-1], flush=True)
            for m in sizes:
                started = time.process_time()
                H = max(1, round(m / d))
                method = bh.DistributionAttention(H=H, encoder=coder, readout="convex")
                memory = bh.build(table, method)
                found = memory_losses(memory).mean()
                seconds = time.process_time() - started
                rows.append(_text_row(n, table, d, memory.spec.to_json()["H"] * d, found, seconds))
                print(rows[-1], flush=True)
    show(f"Next words of {path.name} (d_KL in nats; H·d_h = 0 is the encoder itself)", rows)
    if figure is not None:
        draw(rows, path.name, figure)
    return rows


def _text_row(
    n: int, table: Distributions, d: int, m: int, found: dict[str, float], seconds: float
) -> Row:
    return {"n": n, "contexts": table.T, "words": table.A, "d": d, "H·d_h": m,
            "d_KL": found["kl"], "total variation": found["total_variation"],
            "top word": found["accuracy"], "CPU s": seconds}  # fmt: skip


def draw(rows: list[Row], name: str, path: Path) -> None:
    """d_KL against d, one line for each H·d_h, both logarithmic."""
    figure, panels = new_figure(9.0, panels=2)
    for axes, n in zip(panels, sorted({row["n"] for row in rows}), strict=True):
        axes.grid(True, which="major", color="#dddddd", lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        mine = [row for row in rows if row["n"] == n]
        sizes = sorted({_nominal(row) for row in mine}, key=lambda m: m or math.inf)
        for colour, m in zip(COLOURS, sizes, strict=False):
            line = [(r["d"], r["d_KL"]) for r in mine if _nominal(r) == m]
            label = "encoder (limit)" if m == 0 else f"H·d_h ≈ {m}"
            x, y = zip(*line, strict=True)
            style, shown = ("--", "#000000") if m == 0 else ("o-", colour)
            axes.plot(x, y, style, label=label, color=shown, lw=1.8, ms=4)
        axes.set(xscale="log", yscale="log", xlabel="width d", ylabel="d_KL, nats")
        axes.set_xticks([4, 8, 16, 32, 64], ["4", "8", "16", "32", "64"])
        axes.minorticks_off()
        axes.set_title(f"{name}, {n - 1} word{'s'[: n > 2]} -> next, T = {mine[0]['contexts']:,}",
                       loc="left")  # fmt: skip
        axes.legend(frameon=False, fontsize=9)
    figure.set_size_inches(9.0, 4.0)
    save(figure, path)


def _nominal(row: Row) -> int:
    """H·d_h as asked for: a power of two, whatever multiple of d came nearest."""
    return 0 if row["H·d_h"] == 0 else 2 ** round(math.log2(row["H·d_h"]))


def training() -> list[Row]:
    """KL, cross-entropy on drawn answers, total variation and squares as losses; 5 seeds."""
    rows = compare_losses()
    show("Four losses, one layer trained by Adam (mean and sd of 5 seeds)", rows)
    return rows


BENCHMARKS: dict[str, Callable[..., list[Row]]] = {
    "encoders": encoders,
    "bottleneck": bottleneck,
    "readouts": readouts,
    "text": text,
    "training": training,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=", ".join(BENCHMARKS))
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--text", metavar="FILE", type=Path, default=GPL)
    parser.add_argument("--figure", metavar="FILE", type=Path)
    chosen = parser.parse_args()
    unknown = set(chosen.names) - BENCHMARKS.keys()
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    torch.set_num_threads(1)
    results = {}
    for name in chosen.names or BENCHMARKS:
        options = {"path": chosen.text, "figure": chosen.figure} if name == "text" else {}
        started = time.process_time()
        results[name] = BENCHMARKS[name](**options)
        print(f"\n{name}: {time.process_time() - started:.0f} CPU seconds", flush=True)
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
