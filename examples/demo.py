"""`make demo`: facts become a Transformer, which is proved and asked; a scaling law; a page."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import byheart as bh

FOLDER = Path("demo") / "countries.memory"
QUESTIONS = [("France", "capital"), ("Japan", "currency"), ("Kenya", "continent")]


def main() -> None:
    started = time.perf_counter()
    facts = bh.read_facts("countries")
    print(f"{facts.T} facts about {facts.T // 3} countries, {facts.N} tokens, for example:")
    for i in range(3):
        print(f"    {', '.join(facts.key(i))} -> {facts.answer(i)}")

    memory = bh.build(facts)
    made, spec = memory.construction, memory.spec
    assert isinstance(spec, bh.AttentionOnlySpec)
    print(f"\nBuilt without training in {made.seconds:.2f} s: one attention layer, no MLP.")
    print(f"    {spec}, {spec.parameters:,} parameters")
    print(f"    promised (Dana et al. 2025, Corollary 1, H·d_h + d): {made.capacity} facts")
    print(f"    recalled from the stored {made.dtype} weights: {made.recalled} of {facts.T}")

    certificate = bh.certify(memory)
    print(f"\nCertificate, in {certificate.arithmetic}:")
    print(f"    {certificate.statement}")
    print(
        f"    smallest margin {certificate.margin:.3f}, error at most {certificate.error_bound:.1e}"
    )

    print("\nAsked:")
    for question in QUESTIONS:
        said = memory.recall(*question)
        print(f"    {', '.join(question)}?  {said.answer}  (margin {said.margin:.2f})")

    scaling_law(only=" ".join(sys.argv[1:]) or None)
    memory.save(FOLDER, force=FOLDER.exists())
    certificate.write(FOLDER)
    (page,) = bh.report(FOLDER, FOLDER.with_suffix(".html"))
    command = Path(sys.executable).with_name("byheart")
    print(f"\nWritten to {FOLDER}. Ask it yourself:")
    print(f"    {_short(command)} recall {FOLDER} Brazil capital")
    print(f"    {_short(command)} certify {FOLDER} --interval")
    print(f"Look at it: open {page.path} in a browser (one file, no network).")
    print(f"{time.perf_counter() - started:.1f} s")
    if not certificate.certified:
        sys.exit(1)


def scaling_law(only: str | None = None) -> None:
    """How far training gets, against what Corollary 2 promises of the best weights.

    `only`: part of the models, for example "H <= 6".
    """
    from byheart.studies import figure

    def tell(progress: str) -> None:
        if sys.stdout.isatty():
            print(f"\r    {progress}", end="\r", flush=True)

    store, picture = FOLDER.with_name("scaling-law.db"), FOLDER.with_name("scaling-law.png")
    print("\nTrained instead, on all pairs of 50 tokens, accuracy against the number of heads:")
    result = bh.reproduce("dana2025/demo", only=only, progress=tell, store=store)
    figure.save(result.figure, picture)
    print(f"    {result.finding.sentence}\n    Drawn: {picture}")


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


if __name__ == "__main__":
    main()
