"""The square-root Transformer: integer weights, exact arithmetic, fewer parameters than facts.

- `blocks` is the network as data: sparse integer matrices that any reader can count and evaluate.
- `primitives`, `table`, `ids` emit blocks; `parts` puts them together, takes them apart again, and
  evaluates fast what it knows; `literal` runs every block in exact integers (the oracle).
- `build.memorize` makes a network from sequences and labels (Kajitsuka and Sato 2025); `files` is
  the format on disk, `precision` what number formats do to it.

Nothing here imports torch or knows a vocabulary: `byheart.models.exact` does.
"""

from typing import TYPE_CHECKING

from byheart._lazy import attach

if TYPE_CHECKING:
    from byheart.exact.blocks import Block, Counts, Network, Unit
    from byheart.exact.build import Built, memorize
    from byheart.exact.literal import evaluate
    from byheart.exact.parts import Structured

__all__ = ["Block", "Built", "Counts", "Network", "Structured", "Unit", "evaluate", "memorize"]
__getattr__, __dir__ = attach(__name__)
