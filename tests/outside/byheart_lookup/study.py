"""A study: the margin of a look-up layer does not depend on how many facts it holds."""

from byheart.studies import Axes, Claim, Finding, Procedure, Row, Study


def margin(params: dict, seed: int) -> dict:
    """The smallest margin of one layer with T random facts."""
    import byheart as bh

    facts = bh.random_associations(N=20, S=2, T=params["T"], seed=seed)
    memory = bh.build(facts, "lookup")
    return {"margin": float(memory.margins().min()), "parameters": memory.spec.parameters}


def analyse(rows: list[Row]) -> Finding:
    if not rows:
        return Finding("there are no rows yet")
    low, high = (best(row["margin"] for row in rows) for best in (min, max))
    found = {"estimate": low, "low": low, "high": high}
    claim = Claim("every margin is 1", found, 1.0, 1.0)
    return Finding(f"margins lie between {low:g} and {high:g}", (claim,), {"smallest": low})


STUDY = Study(
    name="lookup/margin",
    title="The margin of a look-up layer",
    claim="The margin is 1 for any number of facts.",
    measurement="the smallest margin of all facts",
    rule="confirmed if every margin is 1",
    grid=Procedure(margin).grid(T=(5, 20, 80)),
    analyse=analyse,
    axes=Axes("T", "margin", x_label="facts", bottom=0.0),
)
