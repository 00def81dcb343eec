"""Distributions in `byheart build`, `recall`, `facts` and `certify`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from byheart.cli._proof import certificate_json, certificate_line, prove
from byheart.cli._show import emit, key_text, number, progress, say, table, token_text
from byheart.errors import ByheartError

if TYPE_CHECKING:
    from byheart.certificates import Certificate
    from byheart.facts import Distributions
    from byheart.models import Memory

REPORTED = ("kl", "kl_encoder", "total_variation", "max_log_ratio", "entropy", "eps", "theorem1",
            "theorem3", "encoder", "readout", "capacity", "recalled", "dtype", "seconds",
            "why")  # fmt: skip


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


def build_distributions(
    given: Distributions,
    method: str,
    shards: dict[str, Any],
    *,
    output: str | None,
    force: bool,
    no_facts: bool,
    certify: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """`byheart build` for distributions: build, prove, write, report."""
    wrong = [flag for flag, value in shards.items() if value is not None]
    if method not in ("auto", "attention") or wrong:
        raise ByheartError(
            f"distributions are built into one attention layer, found "
            f"{', '.join(wrong) or f'--method {method}'}. Use --method attention."
        )
    folder = f"{given.name.replace(':', '-')}.memory" if output is None else output
    if not as_json:
        say(f"{given.name}:")
        table(describe(given))

    from byheart._folders import new_folder
    from byheart.construct.distribution import build_distribution
    from byheart.models.memory_files import MEMORY, write_files

    with new_folder(folder, marker=MEMORY, force=force) as temporary, progress() as tell:
        memory = build_distribution(given, progress=tell, **options)
        certificate = prove(memory, tell) if certify else None
        write_files(memory, temporary, with_facts=not no_facts)
        if certificate is not None and certificate.certified:
            certificate.write(temporary)
    _report(memory, given, folder, certificate, as_json)
    if certificate is not None and not certificate.certified:
        raise typer.Exit(1)


def _report(
    memory: Memory,
    given: Distributions,
    folder: str,
    certificate: Certificate | None,
    as_json: bool,
) -> None:
    made, spec = memory.construction, memory.spec
    if as_json:
        emit(
            {
                "facts": given.T,
                "method": made["method"],
                "kind": made["kind"],
                "spec": {"family": spec.family, **spec.to_json()},
                "parameters": spec.parameters,
                **{name: made.get(name) for name in REPORTED},
                "path": folder,
                "certificate": certificate_json(certificate),
            }
        )
        return
    say()
    rows = [
        ("architecture", str(spec)),
        ("parameters", f"{spec.parameters:,} ({spec.parameters / given.T:.1f} a sequence)"),
        ("d_KL of the encoder", f"{made['kl_encoder']:.4g} nats (rank {spec.to_json()['d']})"),
        ("d_KL of the memory", f"{made['kl']:.4g} nats, from the stored {made['dtype']} weights"),
        ("total variation", f"{made['total_variation']:.4g}"),
        ("max |log π - log q|", f"{made['max_log_ratio']:.4g}"),
        ("most probable answer", f"recalled for {made['recalled']:,} of {given.T:,}"),
    ]
    theorem1 = made.get("theorem1", {})
    if "C" in theorem1 and made["eps"] > 0:
        rows.append(
            (
                "Theorem 1",
                f"ε = {made['eps']:.3g}, C = {theorem1['C']:.3g}: the square solve would stay "
                f"within {theorem1['sharp']:.3g} nats of the encoder",
            )
        )
    rows.append(("seconds", f"{made['seconds']:.2f}"))
    if certificate is not None:
        rows.append(("certificate", certificate_line(certificate)))
    table(rows)
    say()
    for reason in made["why"]:
        say(f"  - {reason}")
    say(f"\nWritten to {folder}")


def recall_distribution(memory: Memory, key: list[str], top: int, as_json: bool) -> None:
    """`byheart recall` of one key: the top answers with probabilities, stored and recalled."""
    from byheart.measure import recalled_distribution

    said = recalled_distribution(memory, *key)
    stored = _stored(memory, key)
    shown = [
        {
            "answer": token,
            "recalled": q,
            "stored": None if stored is None else stored.get(token, 0.0),
        }
        for token, q in said[: max(top, 1)]
    ]
    if as_json:
        emit({"key": key, "answer": said[0][0], "answers": shown, "known": stored is not None})
        return
    say(token_text(said[0][0]))
    say()
    rows = [
        (
            token_text(row["answer"]),
            f"{row['recalled']:.4f}",
            "-" if row["stored"] is None else f"{row['stored']:.4f}",
        )
        for row in shown
    ]
    table(rows, header=("answer", "recalled", "stored"))
    if stored is None:
        say("\nThis key is not among the stored sequences: what is recalled is arbitrary.")


def _stored(memory: Memory, key: list[str]) -> dict[str, float] | None:
    """Token -> probability as the table has it; None where the key or the table is missing."""
    given = memory.distribution
    if given is None:
        return None
    ids = memory.encode([key])[0, -given.S :].numpy()
    found = (given.tokens == ids).all(axis=1).nonzero()[0]
    return dict(given.top(int(found[0]), given.A)) if len(found) else None


def recall_all_distributions(memory: Memory, as_json: bool) -> None:
    """`byheart recall --all`: the losses over all sequences."""
    from byheart.measure import memory_losses

    found = memory_losses(memory)
    mean = found.mean()
    if as_json:
        emit({"facts": len(found.kl), "recalled": int(found.right.sum()), **mean})
        return
    say(f"{len(found.kl):,} sequences")
    table(
        [
            ("d_KL", f"{mean['kl']:.4g} nats"),
            ("total variation", f"{mean['total_variation']:.4g}"),
            ("max |log π - log q|", f"{mean['max_log_ratio']:.4g}"),
            ("most probable answer", f"recalled for {int(found.right.sum()):,}"),
        ]
    )


def certificate_rows(made: Certificate) -> list[tuple[str, str]]:
    """What `byheart certify` prints about distributions."""
    proof = made.distribution
    if proof is None:
        return []
    return [
        ("d_KL", f"{number(proof.kl_lower)} to {number(proof.kl)} nats, claimed "
         f"{number(proof.claimed_kl)}"),
        ("max |log π - log q|", f"at most {number(proof.max_log_ratio)}, claimed "
         f"{number(proof.claimed_max_log_ratio)}"),
    ]  # fmt: skip
