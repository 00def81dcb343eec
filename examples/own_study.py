"""A study of one's own: how many facts does a sum of outer products recall?

`byheart reproduce examples/own_study.py` runs it, draws it, and says what follows;
`byheart reproduce examples/own_study.py --set d=128 --set T=64:256:64` takes another grid.
"""

import numpy as np

from byheart.studies import Axes, Finding, Procedure, Study


def recall(params, seed):
    """W = Σ_i u_i v_i^T of T random unit vectors in R^d; a fact is recalled if u_i is nearest to
    W v_i."""
    rng = np.random.default_rng(seed)
    T, d = params["T"], params["d"]
    u, v = (rng.standard_normal((T, d)) for _ in range(2))
    u, v = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (u, v))
    answers = (v @ (u.T @ v).T @ u.T).argmax(1)
    return {"recalled": float((answers == np.arange(T)).mean())}


def analyse(rows):
    """Mean share recalled where there are as many facts as dimensions."""
    shares = {}
    for row in rows:
        if row["T"] == row["d"]:
            shares.setdefault(row["d"], []).append(row["recalled"])
    if not shares:
        return Finding("undecided", "There are no rows with T = d.")
    means = {f"recalled at T = d = {d}": float(np.mean(shares[d])) for d in sorted(shares)}
    least = min(means.values())
    verdict = "confirmed" if least >= 0.95 else "not confirmed"
    return Finding(verdict, f"With T = d facts at least {least:.3f} of them are recalled.", means)


STUDY = Study(
    name="mine/outer-products",
    title="How many facts a sum of outer products recalls",
    claim="A matrix of width d recalls d random facts.",
    measurement="share of the facts whose answer is nearest",
    rule="Confirmed if at T = d the mean share is at least 0.95 at every d.",
    grid=Procedure(recall).grid(d=(32, 64, 128), T=(16, 32, 64, 128, 256)),
    analyse=analyse,
    axes=Axes("T", "recalled", by="d", x_label="facts T", y_label="share recalled", log="x"),
)

if __name__ == "__main__":
    from byheart import reproduce

    print(reproduce(__file__, seeds=5))
