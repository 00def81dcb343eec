"""`byheart disguise`: a sharded memory whose owners stay known and cannot be seen at a glance."""

from __future__ import annotations

from byheart.cli import _options as opt
from byheart.cli._options import grouped, guarded, option, switch
from byheart.cli.build import WRITING, store
from byheart.errors import ByheartError
from byheart.specs import DTYPES


@guarded
@grouped("writing", {name: WRITING[name] for name in ("seed", "certify", "force")})
def disguise(
    writing: opt.Given,
    folder: opt.Folder,
    output: str = option(..., "The memory folder to write.", "-o", "--output", "DIR"),
    rotate: bool = switch("Random bases of the stream and of every head.", "--rotate"),
    permute: bool = switch("The heads of every layer in random order.", "--permute"),
    layers: int = option(1, "Layers; all but one consist of distractors.", min=1, max=64),
    layer: int | None = option(
        None, "The layer of the memory, from 0 on. Default: the middle one.", min=0
    ),
    distractors: int = option(0, "Random heads beside the memory's, in its layer.", min=0),
    cancelling: int = option(
        0, "Pairs of heads in each layer that write large opposite vectors.", min=0
    ),
    noise: float = option(
        0.0, "What distractors may change any logit of a stored fact by, at most.", "SIZE", min=0
    ),
    dtype: str | None = option(
        None,
        "How weights are stored. Default: as in DIR, or float64 where that loses facts.",
        "|".join(DTYPES),
    ),
) -> None:
    """Hide the owners of the sharded memory in DIR: same facts, same answers, other weights.

    It stays known which heads hold which fact (`byheart owner`), so that methods which look for
    them can be judged (docs/ground-truth.md). Every fact is recalled from the weights as they are
    stored, or nothing is written.
    """
    if not (rotate or permute or layers > 1 or distractors or cancelling):
        raise ByheartError(
            "nothing to do: give --rotate, --permute, --layers, --distractors or --cancelling."
        )
    opt.check_memory_folder(folder)

    from byheart.construct.disguise import Disguise
    from byheart.construct.disguise import disguise as hide
    from byheart.models import load

    more = {"seed": writing["seed"]} if "seed" in writing else {}
    chosen = Disguise(
        rotate, permute, layers, layer, distractors, cancelling, noise, dtype,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip
    store(lambda tell: hide(load(folder), chosen, tell), output, writing, lambda _: {})
