"""Figures 1 and 2: accuracy and loss against the number of blocks. Figure 3, length and dimension:
the smallest model that suffices, trained and built. New: hardmax against softmax, precision."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from byheart.papers.declare import by_profile, declare
from byheart.papers.kajitsuka2025 import text
from byheart.papers.kajitsuka2025.experiment import BUILT, ERROR, MINIMAL, TRAIN
from byheart.studies import Axes, Cell, Claim, Finding, Params, Record, Row, Study, figure, laws
from byheart.studies.fits import combined, span
from byheart.studies.study import Interval
from byheart.theory.kajitsuka2025 import theorem42_parameters

OFFLINE = "offline-text"  # the variant on texts that every machine has, with random labels
NATURAL = "natural-labels"  # the same texts, labelled by where a sentence stands
KINDS = ("uniform", "softmax", "hardmax", "hardmax, annealed")
DECADE = 0.25  # blocks for ten times the length: less than one over the paper's three decades
ONE = 1.0  # block
FLAT = 0.25  # exponent of m: closer to 0 counts as none
SAME = 0.05  # of accuracy: closer counts as equal
FORMATS = ("float16", "float32", "float64", "longdouble")
LOSS = 0.05  # "about 0" of a cross-entropy
# Of the profile paper: vectors of words as wide as usual ones (the paper does not say which it
# took), and ten trials.
VECTORS: Params = {"d": 300}
TEN: Params = {"trials": 10}
# Of the weights of tables; keys and sums may be longer.
LIMITS = {32: "tables of 32 bits", 40: "tables of 40 bits", 53: "tables of 53 bits",
          None: "no limit"}  # fmt: skip


def largest(sizes: Mapping[int, list[Row]]) -> Interval:
    """The largest mean accuracy: no higher than the highest of all, and no lower, allowing for one
    of many coming out high by chance."""
    groups = [[row["accuracy"] for row in same] for same in sizes.values()]
    one, wide = ([combined([g], [1.0], chosen_of=k) for g in groups] for k in (1, len(groups)))
    ends = ("estimate", one), ("low", wide), ("high", one)
    return span(*(float(np.max([found[name] for found in some])) for name, some in ends))


def analyse_curves(rows: list[Row]) -> Finding:
    table, claims = [], []
    for variant, same, x, y in laws.enough(laws.by_variant(rows), "blocks", "accuracy", 3):
        sizes = laws.by(same, "blocks")
        best = max(sizes, key=lambda blocks: laws.mean(sizes[blocks], "accuracy") or 0.0)
        own = variant == OFFLINE  # the paper's labels are not random
        claims += [
            Claim(f"{variant}: more blocks memorize more: accuracy for a doubling",
                  laws.slope(np.log2(x), y), 0.0, own=own),
            Claim(f"{variant}: accuracy rises to about 1: best of {min(sizes)} to {max(sizes)} "
                  "blocks", largest(sizes), 1 - ERROR, own=own),
        ]  # fmt: skip
        losses = [row["loss"] for row in sizes[best] if row["loss"] is not None]
        if losses:
            statement = f"{variant}: loss falls to about 0: at the same blocks"
            claims.append(Claim(statement, combined([losses], [1.0]), most=LOSS, own=own))
        table += [
            {"variant": variant, "blocks": b}
            | {name: laws.mean(rows, name) for name in ("accuracy", "loss")}
            for b, rows in sizes.items()
        ]
    if not table:
        return laws.too_few("three numbers of blocks are needed")
    told = []
    for variant, lines in laws.group(table, lambda line: line["variant"]).items():
        best = max(lines, key=lambda line: line["accuracy"])
        told.append(
            f"{lines[0]['accuracy']:.3f} with blocks = {lines[0]['blocks']}, and most, "
            f"{best['accuracy']:.3f}, with blocks = {best['blocks']} ({variant})"
        )
    sentence = f"The best trial reaches an accuracy of {'; '.join(told)}."
    return Finding(sentence, tuple(claims), tables={"blocks": table})


def corpus_of(variant: str, source: str, classes: int) -> str | None:
    """The texts of a variant: the system's, with labels drawn or by source; else those that the
    paper took, where the user has them."""
    if variant == OFFLINE:
        return text.SYSTEM
    if variant == NATURAL:
        return next(k for k, of in text.BY_SOURCE.items() if len({*of.values()}) == classes)
    return text.local(source)


def curves(
    name: str, source: str, classes: int, N: tuple[int, int], blocks: tuple[int, ...]
) -> Study:
    """Accuracy and loss against the blocks; N of the quick profile, and N and blocks of others."""

    def grid(variant: str, profile: str) -> list[Cell]:
        corpus = corpus_of(variant, source, classes)
        if corpus is None:
            return []
        how = {"classes": classes, "corpus": corpus}
        if profile == "quick":
            return TRAIN.grid(name, blocks=(1, 2, 4, 6, 8, 12), N=N[0], **how)
        return TRAIN.grid(name, blocks=blocks, N=N[1], **how, **VECTORS, **TEN)

    x = "blocks on either side"
    axes = (
        Axes("blocks", "accuracy", "variant", x, "best accuracy of the trials", label="{value}"),
        Axes("blocks", "loss", "variant", x, label="{value}"),
    )
    return declare(f"kajitsuka2025/{name}", grid, analyse_curves, axes, ERROR=ERROR, LOSS=LOSS)


FIG1 = curves("fig1", "multinli", 3, (200, 2000), (1, 10, 20, 30, 40, 50))
FIG2 = curves("fig2", "imdb", 2, (300, 3000), (1, 10, 20, 30, 40))

LADDER = [1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 32, 40, 50]
QUICK_N = (100, 120, 140, 160, 180, 200)
PAPER_N = tuple(range(600, 1701, 100))
BUILT_N = (100, 300, 1000, 3000, 10_000)
BREAK = 1400  # N up to which the paper sees sqrt N, and beyond which a sharp increase


def grid(variant: str, profile: str) -> list[Cell]:
    """Trained on text (experiment "trained"); the construction on random words ("built")."""
    quick = profile == "quick"
    corpus = corpus_of(variant, "multinli", 3)
    cells = []
    if corpus is not None:
        how = {"N": QUICK_N, "sizes": LADDER[:10], "starts": 5}
        if not quick:  # sizes: as far as the figure's axis goes
            how = {"N": PAPER_N, "sizes": LADDER[:11], **VECTORS, **TEN}
        cells += MINIMAL.grid("trained", corpus=corpus, **how)
    if variant == OFFLINE:
        cells += BUILT.grid("built", N=BUILT_N if quick else (*BUILT_N, 30_000, 100_000))
    return cells


def loglog(rows: list[Row], y: str) -> Interval | None:
    """The exponent of y ~ N^p by least squares of logarithms; no interval where a search found no
    size, since what it would have found is not known."""
    x, values = figure.series(rows, "N", y)
    if len(np.unique(x)) < 2:
        return None
    p = laws.exponent(x, values)
    return p if len(x) == len(rows) else laws.unknown(p)


def sizes_of(way: str, rows: list[Row]) -> list[Record]:
    """The mean sizes at each N, of the searches that found one, how many these are, and the
    parameters that Theorem 4.2 proves necessary."""
    table = []
    for N, same in laws.by(rows, "N").items():
        found = [row for row in same if row["parameters"] is not None]
        blocks = [row.get("blocks") or row["depth"] for row in found]
        table.append({
            "way": way, "N": N, "found": f"{len(found)} of {len(same)}",
            "parameters": laws.mean(found, "parameters"),
            "blocks (built: depth)": float(np.mean(blocks)) if blocks else None,
            "necessary (Theorem 4.2)": theorem42_parameters(N),
        })  # fmt: skip
    return table


def analyse(rows: list[Row]) -> Finding:
    claims: list[Claim] = []
    table: list[Record] = []
    told = []
    for variant, mine in laws.by_variant([r for r in rows if r.experiment == "trained"]).items():
        own = variant == OFFLINE  # the paper's labels are not random
        none = sum(row["blocks"] is None for row in mine)
        most = max(mine[0]["sizes"])
        statement = f"{variant}: a size suffices: searches that found none up to {most} blocks"
        claims.append(Claim(statement, laws.counted(none), most=0, own=own))
        learned = loglog([row for row in mine if row["N"] <= BREAK], "blocks")
        if learned is not None:
            claim = laws.exponent_claim(f"{variant}: blocks ~ N^p, trained", learned, 0.5)
            claims.append(replace(claim, own=own))
        beyond = loglog([row for row in mine if row["N"] >= BREAK], "blocks")
        if beyond is not None:
            statement = f"{variant}: a sharp increase beyond N = {BREAK:,}: p from there on"
            claims.append(Claim(statement, beyond, 0.5 + laws.NEAR, own=own))
        told.append(f"{needed_in_words(mine)} ({variant})")
        table += sizes_of(variant, mine)
    networks = [row for row in rows if row.experiment == "built"]
    built = loglog(networks, "parameters")
    if built is not None:
        claim = laws.exponent_claim("parameters ~ N^p, built (Theorem 4.1)", built, 0.5)
        claims.append(replace(claim, own=True))  # a theorem's, no figure's
        told.append(f"the construction needs parameters as N^{built['estimate']:.2f}")
    if not claims:
        return laws.too_few("trained networks, or two N of built ones, are needed")
    table += sizes_of("built", networks)
    return Finding(f"For N sequences: {'; '.join(told)}.", tuple(claims), tables={"sizes": table})


def needed_in_words(rows: list[Row]) -> str:
    """Up to which N one block sufficed in every search, what was needed at the largest N that had
    a size in every search, and how many searches found none."""
    found = {N: [row["blocks"] for row in same] for N, same in laws.by(rows, "N").items()}
    whole = [N for N in found if None not in found[N]]
    if not whole:
        return f"no size suffices at any N ({len(rows)} searches)"
    last = max(whole)
    words = f"{np.mean(found[last]):.1f} blocks at N = {last:,}"
    if ones := [N for N in found if all(set(found[n]) == {1} for n in found if n <= N)]:
        words = f"one block up to N = {max(ones):,}, {words}"
    none = sum(row["blocks"] is None for row in rows)
    return f"{words}; {none} of {len(rows)} searches found no size that suffices"


@figure.one_panel("Parameters needed for N sequences", "sequences N", "parameters")
def draw(panel: figure.Panel, rows: list[Row]) -> None:
    for i, name in enumerate(("built", "trained")):
        some = laws.by_variant([r for r in rows if r.experiment == name])
        for k, (variant, mine) in enumerate(some.items(), i):
            x, y = figure.series(mine, "N", "parameters")
            figure.points(panel, x, y, f"{name}, {variant}" if i else name, k)
            at = np.unique(x)
            if len(at) >= 2:
                scale = float(np.exp(np.mean(np.log(y)) - 0.5 * np.mean(np.log(x))))
                figure.curve(panel, at, scale * np.sqrt(at), None, k, ":")
    if rows:
        sizes = [r["N"] for r in rows]
        at = np.geomspace(min(sizes), max(sizes), 40)
        lower = np.array([theorem42_parameters(int(N)) for N in at])
        figure.curve(panel, at, lower, "lower bound (Theorem 4.2)", 4, "--")
        figure.logarithmic(panel)
        panel.set_title("dotted: sqrt N through each", fontsize=9)


AXES = Axes("N", "parameters", "experiment", "sequences N", log="xy", label="{value}")
FIG3 = declare("kajitsuka2025/fig3", grid, analyse, AXES, draw, BREAK=f"{BREAK:,}")


def analyse_length(rows: list[Row]) -> Finding:
    lengths = laws.by(rows, "n")
    if len(lengths) < 2:
        return laws.too_few("two lengths are needed")
    x, y = figure.series(rows, "n", "blocks")
    none = sum(row["blocks"] is None for row in rows)
    sloped = len(np.unique(x)) > 1
    slope = laws.slope(np.log10(x), y) if sloped else laws.counted(math.nan)
    # Of a search that found no size only this is known: more than its largest is needed.
    least = [[row["blocks"] or max(row["sizes"]) + 1 for row in same] for same in lengths.values()]
    mean = combined(least, np.full(len(least), 1 / len(least)))
    if none:  # sizes at the end of the search: no interval, so that nothing is decided
        slope, mean = laws.unknown(slope), laws.unknown(mean)
    claims = (
        Claim("no log n: blocks more for ten times the length", slope, -DECADE, DECADE),
        Claim("4 blocks for every length: mean of the smallest", mean, 4 - ONE, 4 + ONE),
    )
    table = [{"n": n, "blocks": laws.mean(same, "blocks")} for n, same in lengths.items()]
    growth = f"{slope['estimate']:+.2f} for ten times the length"
    if not sloped:
        growth = "found at one length only, so that nothing is known of their growth with it"
    sentence = (
        f"Blocks needed, mean over lengths: {mean['estimate']:.1f}{' or more' if none else ''}, "
        f"{growth}; {none} of {len(rows)} searches found no size."
    )
    if none == len(rows):
        reached = laws.extent([row["accuracy"] for row in rows])
        sentence = (
            f"At no length did any size up to {max(max(row['sizes']) for row in rows)} blocks "
            f"suffice in our training ({none} searches; accuracy with the most blocks {reached}): "
            "nothing follows for the paper's 4 blocks, nor for their growth."
        )
    return Finding(sentence, claims, tables={"lengths": table})


LENGTHS = by_profile(
    MINIMAL, "length",
    {"n": (5, 10, 30, 100), "N": 60, "sizes": LADDER[:8], "starts": 3, "epochs": 600},
    {"n": (10, 100, 1000, 10_000), "N": 500, "sizes": LADDER[:8], **TEN}, data="random", d=6,
)  # fmt: skip
BLOCKS = Axes("n", "blocks", None, "tokens n", "blocks needed", log="x", bottom=0)
LENGTH = declare(
    "kajitsuka2025/length", LENGTHS, analyse_length, BLOCKS, DECADE=DECADE, ONE=ONE,
    SIZES=LADDER[7],
)  # fmt: skip


def analyse_dimension(rows: list[Row]) -> Finding:
    x, y = figure.series(rows, "m", "parameters")
    none = sum(row["parameters"] is None for row in rows)
    if len(np.unique(x)) < 3:
        return laws.too_few(f"three m with a size that suffices are needed; {none} had none")
    p = laws.exponent(x, y)
    p = laws.unknown(p) if none else p
    claims = (Claim("parameters ~ m^p: p = 0", p, -FLAT, FLAT),)
    table = [
        {"m": m} | {name: laws.mean(same, name) for name in ("blocks", "parameters")}
        for m, same in laws.by(rows, "m").items()
    ]
    told = ", ".join(f"{line['parameters']:,.0f} (m = {line['m']})" for line in table
                     if line["parameters"] is not None)  # fmt: skip
    growth = f"they grow as m^{p['estimate']:.2f}"
    if none:
        growth = f"{none} of {len(rows)} searches found no size, so that no exponent is known"
    sentence = f"Parameters that training needs: {told}; {growth}."
    return Finding(sentence, claims, tables={"dimensions": table})


DIMENSIONS = by_profile(
    MINIMAL, "dimension", {"N": 200, "m": (2, 3, 4, 6), "sizes": LADDER[:12]},
    {"N": 600, "m": (2, 3, 4, 6, 8, 12), "sizes": LADDER},
)  # fmt: skip
NEEDED = (
    Axes("m", "parameters", None, "dimension m", "parameters needed", bottom=0),
    Axes("m", "blocks", None, "dimension m", "blocks needed", bottom=0),
)
DIMENSION = declare(
    "kajitsuka2025/embedding-dimension", DIMENSIONS, analyse_dimension, NEEDED, FLAT=FLAT
)


def kind_of(row: Row) -> str:
    annealed = row["attention"] == "hardmax" and row["surrogate"] == "annealed"
    return "hardmax, annealed" if annealed else row["attention"]


def attention_grid(variant: str, profile: str) -> list[Cell]:
    N, sizes = (160, (1, 2, 3, 4)) if profile == "quick" else (600, (2, 4, 8, 12, 16))
    cells = []
    for kind in KINDS:
        attention, _, annealed = kind.partition(", ")
        how = {"attention": attention} | ({"surrogate": annealed} if annealed else {})
        cells += TRAIN.grid("attention", N=N, blocks=sizes, **how)
    return cells


def analyse_attention(rows: list[Row]) -> Finding:
    accuracies: dict[str, dict[int, list[float]]] = {
        kind: {size: [row["accuracy"] for row in r] for size, r in laws.by(same, "blocks").items()}
        for kind, same in laws.group(rows, kind_of).items()
    }
    uniform = accuracies.get("uniform", {})
    table, claims = [], []
    for kind in [k for k in KINDS if k in accuracies and k != "uniform"]:
        both = sorted(accuracies[kind].keys() & uniform.keys())
        if not both:
            continue
        ours, theirs = [accuracies[kind][size] for size in both], [uniform[size] for size in both]
        share = np.full(len(both), 1 / len(both))
        gain = combined([*ours, *theirs], [*share, *-share])
        claims.append(Claim(f"{kind} gains nothing over uniform attention: accuracy", gain,
                            most=SAME))  # fmt: skip
        table.append({"attention": kind, **laws.columns("gain", gain),
                      "accuracy": combined(ours, share)["estimate"]})  # fmt: skip
    if not table:
        return laws.too_few("uniform attention and another one are needed")
    told = ", ".join(f"{row['attention']} {row['gain']:+.3f}" for row in table)
    sentence = f"Accuracy against uniform attention at equal blocks: {told}."
    return Finding(sentence, tuple(claims), tables={"attention": table})


@figure.one_panel("Hardmax, softmax and uniform attention", "blocks", "accuracy")
def draw_attention(panel: figure.Panel, rows: list[Row]) -> None:
    kinds = {kind: [row for row in rows if kind_of(row) == kind] for kind in KINDS}
    figure.groups(panel, kinds, "blocks", "accuracy")


BY_KIND = Axes("blocks", "accuracy", "attention", label="{value}")
HARDMAX = declare(
    "kajitsuka2025/hardmax-vs-softmax", attention_grid, analyse_attention, BY_KIND, draw_attention,
    SAME=SAME,
)  # fmt: skip


def precision_grid(variant: str, profile: str) -> list[Cell]:
    formats = BUILT.grid("format", N=(8, 16, 32, 64, 128, 256), formats=list(FORMATS))
    sizes = (100, 300, 1000, 3000) + (() if profile == "quick" else (10_000, 30_000))
    return formats + BUILT.grid("bits", max_bits=tuple(LIMITS), N=sizes, V=50)


def limited(rows: list[Row]) -> dict[str, list[Row]]:
    """The rows of the experiment with bits, by their limit."""
    mine = [row for row in rows if row.experiment == "bits"]
    return {name: [row for row in mine if row["max_bits"] == n] for n, name in LIMITS.items()}


def largest_right(rows: list[Row], name: str) -> int:
    """The largest N of which every network is right in a number format; 0 if there is none."""
    mine = [row for row in rows if row.experiment == "format" and name in row.measurements]
    sizes = laws.by(mine, "N").items()
    return max((N for N, same in sizes if min(row[name] for row in same) >= 1), default=0)


def analyse_precision(rows: list[Row]) -> Finding:
    table, claims = [], []
    for limit, same in limited(rows).items():
        p = loglog(same, "parameters")
        if p is not None:
            claimed = 0.5 if limit == LIMITS[None] else 1.0
            claims.append(laws.exponent_claim(f"{limit}: parameters ~ N^p", p, claimed))
            bits = [row["bits"] for row in same]
            line = {"limit": limit, **laws.columns("p", p)}
            table.append({**line, "longest weight, bits": [min(bits), max(bits)]})
    if not table:
        return laws.too_few("two N at one limit are needed")
    right = {name: largest_right(rows, name) for name in FORMATS}
    numbers = {f"largest N all right in {name}": N for name, N in right.items()}
    exponents = ", ".join(f"{row['limit']}: {row['p']:.2f}" for row in table)
    upto = {name: f"up to N = {N}" if N else "at no N" for name, N in right.items()}
    sentence = (
        f"Exponent of the parameters in N: {exponents}. All labels are right "
        f"in float32 {upto['float32']}, in float64 {upto['float64']}."
    )
    formats = [{"format": k, "largest_N": v} for k, v in right.items()]
    return Finding(sentence, tuple(claims), numbers, {"bits": table, "formats": formats})


def draw_bits(rows: list[Row], finding: Finding) -> figure.Figure:
    drawn, (left, right) = figure.panels("Precision", "sequences N", "parameters", 2, 4.8)
    figure.groups(left, limited(rows), "N", "parameters")
    formats = [r for r in rows if r.experiment == "format"]
    for i, name in enumerate(FORMATS):
        figure.points(right, *figure.series(formats, "N", name), name, i)
    right.set_ylabel("share of labels right")
    for panel, log in ((left, "xy"), (right, "x")):
        if panel.has_data():
            figure.logarithmic(panel, log)
            figure.legend(panel)
    return drawn


BITS = Axes("N", "parameters", "max_bits", "sequences N", log="xy", where="bits")
PRECISION = declare("kajitsuka2025/precision", precision_grid, analyse_precision, BITS, draw_bits)
