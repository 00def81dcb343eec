"""A study of one's own: how many facts does a sum of outer products recall?

`byheart reproduce examples/own_study.py` runs it, draws it, and says what follows;
`byheart reproduce examples/own_study.py --set d=128 --set T=64:256:64` takes another grid.
"""

import numpy as np

from byheart.studies import Axes, Claim, Finding, Procedure, Study
from byheart.studies.fits import combined


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
    """The mean share recalled where there are as many facts as dimensions, with its interval over
    seeds: a claim for each d."""
    shares = {}
    for row in rows:
        if row["T"] == row["d"]:
            shares.setdefault(row["d"], []).append(row["recalled"])
    if not shares:
        return Finding("There are no rows with T = d.")
    claims = [
        Claim(f"at least .95 are recalled at T = d = {d}", combined([shares[d]], [1.0]), 0.95)
        for d in sorted(shares)
    ]
    least = min(claim.found["estimate"] for claim in claims)
    sentence = f"With T = d facts at least {least:.3f} of them are recalled."
    return Finding(sentence, tuple(claims))


STUDY = Study(
    name="mine/outer-products",
    title="How many facts a sum of outer products recalls",
    claim="A matrix of width d recalls d random facts.",
    measurement="share of the facts whose answer is nearest",
    rule="Confirmed if at T = d the interval of the mean share lies above 0.95, for each d.",
    grid=Procedure(recall).grid(d=(32, 64, 128), T=(16, 32, 64, 128, 256)),
    analyse=analyse,
    axes=Axes("T", "recalled", by="d", x_label="facts T", y_label="share recalled", log="x"),
)

if __name__ == "__main__":
    from byheart import reproduce

    print(reproduce(__file__, seeds=5))
