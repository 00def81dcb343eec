"""The editing benchmark as a study, `editing/damage`: rows that are kept, claims with bands."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from byheart.interpret.edit_table import COUNTS, HEADER, NAMES, SIZES, draw, lines
from byheart.studies import figure, laws
from byheart.studies.cell import Cell, Measurements, Params, Procedure, group
from byheart.studies.fits import combined
from byheart.studies.study import Axes, Claim, Finding, Record, Row, Study

QUICK = {"sharded": 600, "dense": 200, "trained": 300}
BUILT = ("sharded", "dense")  # keys of the facts are linearly independent there
CLOSED = ("rank-one", "least-squares")
MEASURED = ("held", "others", "lost", "fall", "largest_fall", "cpu_seconds")
SAMPLED_AT, TRAINED_AT, MANY = 100, 100, 1_000
PER_EDIT = 1.0  # others lost by an edit, where C comes from random keys
ONE_STEP = 10  # others lost by a single edit of fine-tuning
SHARE = 0.25  # of the others, lost by rank-one edits of a trained memory
HALF = 0.5


def measure(p: Params, seed: int) -> Measurements:
    """One memory and one editor: a list over `counts` for each measurement of `EditRow`. Fewer
    edits are the first of more; each count begins with the unedited memory."""
    from byheart.interpret.edits import benchmark_memory, edit_benchmark

    memory = benchmark_memory(p["memory"], p["facts"], seed)
    result = edit_benchmark(memory, [p["editor"]], counts=p["counts"], seed=seed)
    held = result.rows[0].facts  # training may leave some out
    return {"T": held, **{name: [getattr(r, name) for r in result.rows] for name in MEASURED}}


def seconds(p: Params) -> float:
    """CPU seconds of one cell, as measured at the sizes of the profiles."""
    size = p["facts"] / SIZES[p["memory"]][0]
    whole = {"sharded": 14.0, "dense": 6.5, "trained": 2.7}[p["memory"]]
    return 0.3 + whole * size**1.5


EDIT = Procedure(measure, seconds=seconds)


def grid(variant: str, profile: str) -> list[Cell]:
    """Every editor on every memory that it fits, with the counts that leave other facts."""
    cells = []
    for memory, (facts, _) in SIZES.items():
        T = QUICK[memory] if profile == "quick" else facts
        counts = [count for count in COUNTS if count < T and (profile != "quick" or count <= 100)]
        for editor in NAMES:
            if memory == "sharded" or editor != "shards":
                sizes = {"memory": memory, "facts": T, "editor": editor, "counts": counts}
                cells.append(EDIT.cell("edits", **sizes))
    return cells


def records(rows: Sequence[Row]) -> list[Record]:
    """A record for each count of each row."""
    return [
        {"memory": row["memory"], "facts": row["T"], "editor": row["editor"], "edits": count,
         "seed": row.seed, **{name: row[name][i] for name in MEASURED}}
        for row in rows for i, count in enumerate(row["counts"])
    ]  # fmt: skip


def analyse(rows: list[Row]) -> Finding:
    found = records(rows)
    if not found:
        return laws.too_few("an editor on a memory is needed")
    claims = [*_exact(found), *_sampled(found), *_tuned(found), *_trained(found)]
    trained = [r for r in found if r["memory"] == "trained" and r["edits"] == TRAINED_AT]
    worst = [
        f"{editor} {max(r['lost'] for r in same):,} "
        f"({min(r['held'] / r['edits'] for r in same):.0%})"
        for editor, same in group(trained, lambda r: r["editor"]).items()
    ]
    exact = [r for r in found if r["editor"] == "shards"]
    sentence = (
        f"Shard edits lost {sum(r['lost'] for r in exact):,} other facts in {len(exact)} runs"
    )
    if worst:
        sentence += (
            f"; of {trained[0]['others']:,} other facts of a trained memory, {TRAINED_AT} edits "
            f"lost at worst (share of the edits held): {', '.join(worst)}"
        )
    return Finding(f"{sentence}.", tuple(claims), tables={"edits": table(found)})


def _exact(found: Sequence[Record]) -> list[Claim]:
    """Edits that are exact by theory: every edit held, no other fact lost, at every count."""
    claims = []
    for editor in ("shards", *CLOSED):
        for memory in BUILT:
            mine = [r for r in found if (r["editor"], r["memory"]) == (editor, memory)]
            if mine:
                held = laws.counted(min(r["held"] / r["edits"] for r in mine))
                lost = laws.counted(sum(r["lost"] for r in mine))
                claims.append(
                    Claim(f"{memory}, {editor}: least share of the edits held", held, 1.0)
                )
                claims.append(
                    Claim(f"{memory}, {editor}: other facts lost, all runs", lost, most=0.0)
                )
    return claims


def _sampled(found: Sequence[Record]) -> list[Claim]:
    values = _values(
        found, "sharded", "rank-one-sampled", SAMPLED_AT, lambda r: r["lost"] / r["edits"]
    )
    text = f"sharded, rank-one with C of random keys: others lost by an edit, {SAMPLED_AT} edits"
    return [Claim(text, combined([values], [1.0]), PER_EDIT)] if values else []


def _tuned(found: Sequence[Record]) -> list[Claim]:
    claims = []
    for memory in SIZES:
        values = _values(found, memory, "fine-tune", 1, lambda r: r["lost"])
        if values:
            text = f"{memory}, fine-tuning on the edit alone: others lost by one edit"
            claims.append(Claim(text, combined([values], [1.0]), ONE_STEP))
    return claims


def _trained(found: Sequence[Record]) -> list[Claim]:
    claims = []
    values = _values(found, "trained", "rank-one", TRAINED_AT, lambda r: r["lost"] / r["others"])
    if values:
        text = f"trained, rank-one: share of the others lost, {TRAINED_AT} edits"
        claims.append(Claim(text, combined([values], [1.0]), SHARE))
    editors = {
        editor: values
        for editor in NAMES
        if (values := _values(found, "trained", editor, MANY, _both))
    }
    if editors:
        best = max(editors, key=lambda name: sum(editors[name]) / len(editors[name]))
        of = combined([editors[best]], [1.0], chosen_of=len(editors))
        text = f"trained, the best editor ({best}): edits held or others kept, the smaller share"
        claims.append(Claim(f"{text}, {MANY:,} edits", of, most=HALF))
    return claims


def _both(record: Record) -> float:
    """The share of the edits held, or that of the others kept, whichever is smaller."""
    kept = 1 - record["lost"] / record["others"]
    return min(record["held"] / record["edits"], kept)


def _values(
    found: Sequence[Record], memory: str, editor: str, edits: int, value: Callable[[Record], float]
) -> list[float]:
    """A number of each run of one editor on one memory with so many edits."""
    return [
        value(r) for r in found if (r["memory"], r["editor"], r["edits"]) == (memory, editor, edits)
    ]


def table(found: Sequence[Record]) -> list[Record]:
    """Means over seeds, a line for each memory, editor and count."""
    return [dict(zip(HEADER, line, strict=True)) for line in lines(found)]


def figure_of(rows: list[Row], _: Finding) -> figure.Figure:
    return draw(records(rows))


STUDY = Study(
    name="editing/damage",
    grid=grid,
    analyse=analyse,
    title="Other facts lost by edits",
    source="new: model editing where every other fact is known",
    claim="""\
A shard edit holds every edit and loses no other fact, however many edits there are. So do the \
closed forms of ROME and MEMIT where the keys of all facts are linearly independent and their \
covariance is known, as in built memories. Where keys have fewer coordinates than there are facts, \
as in a trained memory, or the covariance is that of random keys, edits lose other facts.""",
    measurement="""\
share of the edits recalled, number of other facts lost (all are asked), fall of the others' \
margins, CPU seconds of the editor""",
    rule=f"""\
Built memories ({", ".join(BUILT)}), exact shards, rank-one and least squares, all counts and \
seeds: least share of the edits held: band 1 or more; other facts lost in all: none. Rank-one with \
C of random keys, sharded, {SAMPLED_AT} edits: others lost by an edit: above {PER_EDIT:g}. \
Fine-tuning on one edit: others lost: above {ONE_STEP}. Trained: share of the others lost by \
{TRAINED_AT} rank-one edits: above {SHARE}; at {MANY:,} edits the smaller of the edits held and \
the others kept, of the best editor: below {HALF}. Confirmed if the whole 95 % interval over seeds \
lies in the band (counts have no interval), refuted if all of it lies outside, undecided \
otherwise; judged at the profile paper, quick shows a trend.""",
    axes=Axes("edits", "lost", "editor", log="x"),
    figure=figure_of,
    variants=("corrected",),
    settings=f"""\
Random facts, keys of two tokens; edits drawn at random, each with another answer. Sharded (built, \
{SIZES["sharded"][0]:,} facts), dense (one built attention layer, {SIZES["dense"][0]:,}), trained \
(MLP Transformer, one layer, 2 heads, d = 32, 128 hidden units, {SIZES["trained"][0]:,}). Every \
editor changes one matrix, W_O or W_out; aim: the median margin of the memory before. Fine-tuning: \
Adam, rate 1e-3, at most 300 steps, until all edits have that margin; mixed: with as many other \
facts a step, 256 at least. Least squares: λ = 0.01 for each fact that stays. Null space: \
eigenvalues below 2 % of their mean. Counts that leave no other fact are left out. Settings were \
chosen at seeds below 1,000. Quick: 600, 200 and 300 facts, up to 100 edits; paper, this study's \
own setting: as above.""",
)
