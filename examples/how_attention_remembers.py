"""The pictures of docs/tutorial.md, one function a part: how attention remembers.

python examples/how_attention_remembers.py                 all six pictures, in this folder
python examples/how_attention_remembers.py 3 -o pictures   one of them, in another

Each part is short on purpose: change a number, run it again, and see what happens.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

import byheart as bh
from byheart._style import BUILT, LOST, MEASURED, QUIET, new_figure, save, title


def watched(memory: bh.Memory, keys: list[tuple[str, ...]], part: str) -> np.ndarray:
    """What passes through the part of this name, as a hook sees it, at the last token of each key:
    hook_scores and hook_pattern (keys, heads, tokens), hook_heads (keys, heads, d)."""
    module, seen = memory.to_torch(), []
    hook = module.get_submodule(f"layers.0.{part}")
    hook.register_forward_hook(lambda _part, _inputs, output: seen.append(output))
    with torch.no_grad():
        module(memory.encode(keys))
    last = seen[0][:, -1] if part == "hook_heads" else seen[0][:, :, -1]
    return last.double().numpy()


def one_number():
    """Two tokens, one head: the head's attention is one number for each key."""
    memory = bh.build("countries")
    names = ("France", "Japan", "Peru", "Kenya", "India", "Chile")
    keys = [(name, "capital") for name in names]
    scores, pattern = watched(memory, keys, "hook_scores"), watched(memory, keys, "hook_pattern")
    spread = scores[..., 0] - scores[..., 1]
    head = int(np.abs(np.ptp(spread, axis=0) - 5).argmin())  # a head that tells these apart well
    x, a = spread[:, head], pattern[:, head, 0]
    figure, (axes,) = new_figure(6.4, 3.6)
    line = np.linspace(x.min() - 1.5, x.max() + 1.5, 200)
    axes.plot(line, 1 / (1 + np.exp(-line)), color=QUIET, lw=1.2)
    axes.plot(x, a, "o", color=MEASURED, ms=7)
    for name, at, share in zip(names, x, a, strict=True):
        axes.annotate(
            f"{name}: {share:.2f}", (at, share), (8, -4), textcoords="offset points", fontsize=9
        )
    axes.set_xlabel("score of the first token minus score of the last, e.g. (Peru, capital)")
    axes.set_ylabel("attention on the first token")
    title(axes, f"Head {head} reads six keys: one number each")
    return figure


def dictionary():
    """Many heads: a row of numbers for each key, all rows different."""
    memory = bh.build("countries")
    names = ("France", "Japan", "Peru", "Kenya", "India", "Chile")
    keys = [(name, what) for name in names for what in ("capital", "currency")]
    pattern = watched(memory, keys, "hook_pattern")
    figure, (axes,) = new_figure(6.8, 3.6)
    image = axes.imshow(pattern[:, :40, 0], cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_yticks(range(len(keys)), [" ".join(key) for key in keys])
    axes.set_xlabel("head")
    axes.grid(False)
    figure.colorbar(image, label="attention on the first token", shrink=0.9)
    title(axes, "Forty heads describe twelve keys")
    return figure


def features(T: int, N: int, d: int, H: int, seed: int) -> np.ndarray:
    """What random heads show the read-out of T random keys: (T, d + H d), one row a key.

    The last token itself (the skip connection), and from each head the mixture of the two tokens.
    """
    draw = np.random.default_rng(seed)
    E = draw.standard_normal((N, d)) / np.sqrt(d)
    keys = draw.choice(N * N, T, replace=False)
    first, last = E[keys // N], E[keys % N]
    columns = [last]
    for W in draw.standard_normal((H, d, d)) * 3:
        score = np.einsum("ti,ij,tj->t", last, W, first) - np.einsum("ti,ij,tj->t", last, W, last)
        a = 1 / (1 + np.exp(-score))[:, None]
        columns.append(a * first + (1 - a) * last)
    return np.hstack(columns)


def one_solve():
    """One linear solve finds the read-out, up to as many keys as there are independent columns."""
    N, d, H = 40, 4, 24
    limit = H * d + d
    sizes = range(limit - 40, limit + 41, 4)
    errors = []
    for T in sizes:
        Z = features(T, N, d, H, seed=0)
        y = np.random.default_rng(1).standard_normal((T, d))
        W = np.linalg.lstsq(Z, y, rcond=1e-13)[0]
        errors.append(np.abs(Z @ W - y).max())
    figure, (axes,) = new_figure(6.4, 3.6)
    axes.semilogy(sizes, errors, "o-", color=MEASURED, ms=4)
    axes.axvline(limit, color=BUILT, ls="--")
    axes.annotate(f"H·d_h + d = {limit} ", (limit, 1e-6), color=BUILT, fontsize=9, ha="right")
    axes.set_xlabel("facts T")
    axes.set_ylabel("largest error of the best read-out")
    title(axes, f"One solve: exact up to {limit} facts, then suddenly not (H = {H}, d_h = d = {d})")
    return figure


def count():
    """Why H·d_h + d: every head brings d_h independent columns, the skip connection d."""
    N, d = 40, 4
    heads = range(13)
    ranks = [np.linalg.matrix_rank(features(200, N, d, H, seed=2)) for H in heads]
    figure, (axes,) = new_figure(6.4, 3.6)
    axes.plot(heads, [H * d + d for H in heads], "--", color=BUILT, label="H·d_h + d")
    axes.plot(heads, ranks, "o", color=MEASURED, label="independent columns, counted")
    axes.set_xlabel("heads H")
    axes.set_ylabel("facts that can be set freely")
    axes.legend(frameon=False, fontsize=9)
    title(axes, f"Each head adds d_h = {d}; the last token itself adds d = {d}")
    return figure


def owners():
    """Saturation: heads that close for all keys but their own make the table block diagonal."""
    facts = bh.read_facts("countries").subset(range(120))
    keys = [facts.key(t) for t in range(120)]
    figure, axes = new_figure(9.0, 3.9, panels=2)
    names = "one dense layer: every head speaks about every fact", "shards: each fact has its heads"
    for panel, method, name in zip(
        axes, (bh.AttentionOnly(), bh.Sharded(shard_size=12)), names, strict=True
    ):
        heads = watched(bh.build(facts, method), keys, "hook_heads")
        size = np.linalg.norm(heads, axis=-1)
        order = np.argsort(size.argmax(axis=1), kind="stable")
        panel.imshow(size[order] > 1e-6, cmap="Blues", vmin=0, vmax=1.4, aspect="auto")
        panel.grid(False)
        panel.set_xlabel("head")
        panel.set_ylabel("fact")
        title(panel, name)
    return figure


def square_root():
    """Why √N parameters are possible with long numbers, and not with float32."""
    sizes = (64, 256, 1024, 4096, 16384)
    parameters, bits = [], []
    for T in sizes:
        facts = bh.random_associations(N=200, S=2, T=T, seed=0)
        described = bh.build(facts, "sqrt").spec.to_json()
        parameters.append(described["parameters"])
        bits.append(described["max_bits"])
    figure, (left, right) = new_figure(8.6, 3.6, panels=2)
    left.loglog(sizes, sizes, "--", color=QUIET, label="one parameter a fact")
    left.loglog(sizes, parameters, "o-", color=MEASURED, label="square-root Transformer")
    left.set_xlabel("facts")
    left.set_ylabel("parameters")
    left.legend(frameon=False, fontsize=8)
    title(left, "Fewer parameters than facts ...")
    right.loglog(sizes, bits, "o-", color=LOST, label="longest weight")
    for name, has in (("float32", 24), ("float64", 53)):
        right.axhline(has, color=QUIET, ls="--", lw=1)
        right.annotate(name, (sizes[0], has * 1.08), fontsize=8, color=QUIET)
    right.set_xlabel("facts")
    right.set_ylabel("bits of a weight")
    title(right, "... in weights that no float can hold")
    return figure


PARTS = (one_number, dictionary, one_solve, count, owners, square_root)


def main() -> None:
    reader = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    reader.add_argument("part", nargs="?", default="all", help="1 to 6, or all")
    reader.add_argument("-o", "--output", type=Path, default=Path(), help="folder of the pictures")
    asked = reader.parse_args()
    if asked.part not in (numbers := [*map(str, range(1, len(PARTS) + 1)), "all"]):
        reader.error(f"there is no part {asked.part!r}: choose one of {', '.join(numbers)}")
    asked.output.mkdir(parents=True, exist_ok=True)
    for number, draw in enumerate(PARTS, 1):
        if asked.part in (str(number), "all"):
            path = asked.output / f"{draw.__name__.replace('_', '-')}.png"
            save(draw(), path)
            print(f"{draw.__doc__}  -> {path}")


if __name__ == "__main__":
    main()
