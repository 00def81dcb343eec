"""Tables of distributions in words, for `byheart facts` and `byheart encoder`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byheart.cli._show import emit, key_text, say, table, token_text

if TYPE_CHECKING:
    from byheart.facts import Distributions


def describe(given: Distributions) -> list[tuple[str, str]]:
    """The table in words, for people."""
    import numpy as np

    entropy = given.entropy
    mean, most = float(given.prior @ entropy), float(np.log(given.A))
    prior = "uniform"
    if given.prior.min() != given.prior.max():
        prior = ", ".join(f"T_ε = {given.effective_size(e):,} at ε = {e}" for e in (0.1, 0.01))
    rows = [
        ("sequences", f"{given.T:,}, each of {given.S} token{'s'[: given.S > 1]}"),
        ("answers", f"{given.A:,} of {given.N:,} tokens"),
        (
            "entropy",
            f"{mean:.3g} nats, {mean / most:.0%} of log A "
            f"({entropy.min():.3g} to {entropy.max():.3g})",
        ),
        ("prior", prior),
        (
            "support",
            f"full, smallest probability {given.probabilities.min():.2g}"
            if given.full_support
            else "not full: some answers have probability 0 (--smooth gives them some)",
        ),
    ]
    if given.smoothing:
        rows.append(("smoothing", given.smoothing))
    if given.never_asked:
        rows.append(("left out", f"{given.never_asked:,} sequences of weight 0"))
    return rows


def describe_distributions(given: Distributions, output: str | None, as_json: bool) -> None:
    """`byheart facts` for distributions."""
    if output is not None:
        given.write(output)
    if as_json:
        exact = min(given.T, given.A - 1)
        emit({**given.describe(), "theory": {"bound": "dana2025.proposition2", "d": exact}})
        return
    table(describe(given))
    say()
    for i in range(min(3, given.T)):
        answers = ", ".join(f"{token_text(token)} {p:.3g}" for token, p in given.top(i, 4))
        say(f"  {key_text(given.key(i))} -> {answers}")
    say(
        f"\nWidth d = {min(given.T, given.A - 1):,} has no divergence (Proposition 2); "
        f"H·d_h + d = {given.T:,} heads' outputs follow any encoder (Theorem 1, ε = 0)."
        "\n`byheart encoder FACTS --rank d` says what a smaller width costs."
    )
    if output is not None:
        say(f"\nWritten to {output}")
