"""What the heads of a language model have by heart: bigrams and skip-trigrams in their circuits.

A head's OV circuit says how token s, where it is attended to, moves the logit of every token t:

    C[s, t] = norm(W_E[s]) W_V W_O W_U[t],

its QK circuit which tokens are attended to. Read off token embeddings alone, they are tables:

- bigram "s -> t": the head attends to the current token s;
- skip-trigram "a ... b -> t": from b the head attends to what its QK circuit finds in the context,
  positions included (rotary ones turned, position tables added), and its OV circuit speaks of that;
- "run", for comparison: what the head gives in the model as it runs, where later blocks read what
  earlier ones wrote; this is no table of tokens.

Each is judged as a predictor of the next token (`information`), against the same head with shuffled
weights. This is the virtual-weights reading of Elhage et al. (2021), with a number behind it.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from byheart._json import plain
from byheart._machine import check_room
from byheart._progress import Progress, Report, quiet
from byheart._version import __version__
from byheart.audits.circuits import READERS, Block, Head, blocks_of, folded_unembedding
from byheart.audits.head_pairs import stored_pairs, stored_trigrams
from byheart.audits.head_tables import CIRCUITS, RANKED, head_lines
from byheart.audits.information import Text
from byheart.audits.inputs import PathLike, contexts_of
from byheart.audits.models import FoundModel, find_model, guarded_memory, open_model, tokenizer_of
from byheart.audits.run import Measured, costs
from byheart.audits.settings import AuditSettings, HeadSettings
from byheart.errors import ByheartError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from byheart.audits.measures import Record

SCHEMA = 1
LEAST_CONTEXTS = 4  # two halves, each with something to fit and something to hold out


class HeadAudit(Measured):
    """`record["heads"]` has one entry a head; `record["text"]` what there was to explain."""

    def __repr__(self) -> str:
        return "\n  ".join(head_lines(self.record))


def audit_heads(
    model: PathLike,
    *,
    text: PathLike | Sequence[PathLike] | None = None,
    tokens: PathLike | None = None,
    settings: HeadSettings | None = None,
    progress: Report = quiet,
) -> HeadAudit:
    """How much of the next-token information of a text each head's QK and OV circuits hold, beside
    the model's own, and which bigrams and skip-trigrams those are.

    `model`: as in `audit`, a language model of type GPT-2 or Llama. Everything is a distribution
    over the text's own tokens (the model's too), so that K of them are compared, not V.
    """
    started, cpu = time.perf_counter(), time.process_time()
    settings = settings or HeadSettings()
    found = find_model(model)
    if found.kind not in READERS:
        kinds = " or ".join(sorted(READERS))
        raise ByheartError(
            f"{found.name} is a {found.kind} model: `heads` needs a language model, {kinds}."
        )
    sources = {"text": text, "tokens": tokens}
    shown = contexts_of(found, sources, n=settings.length, T=settings.contexts)
    if shown.T < LEAST_CONTEXTS:
        raise ByheartError(
            f"{shown.source}: {shown.T} contexts of {shown.n} tokens, at least {LEAST_CONTEXTS} "
            "are needed. Give more text or a shorter `length`."
        )
    spec = found.spec
    numbers = shown.values.size * (spec.layers * spec.H * spec.d_h + 4 * spec.d)
    check_room(4 * numbers, "what the heads give", "Give fewer `contexts` or a shorter `length`.")
    opened: Any = open_model(
        found, random=False, dtype="float32", settings=AuditSettings(), language=True
    )
    names = _names(found)
    seen = Text.of(shown.values, settings.chunks, settings.seed)
    with torch.inference_mode(), guarded_memory(settings.batch):
        measured = _Measurement(opened, found.kind, seen, settings, progress).record(names)
    record = plain(
        {
            "kind": "byheart audit of heads",
            "schema": SCHEMA,
            "byheart": __version__,
            "model": found.to_json(),
            "data": shown.to_json(),
            "settings": vars(settings),
            **measured,
            **costs(started, cpu),
        }
    )
    assert isinstance(record, dict)
    return HeadAudit(record)


def _names(found: FoundModel) -> Callable[[int], str]:
    """How tokens are shown: as text, or by number where the model has no tokenizer."""
    with contextlib.suppress(ByheartError):
        read = tokenizer_of(found)
        return lambda token: str(read.decode([token]))
    return str


@dataclass
class _Measurement:
    """The model over the text once, then head by head."""

    model: PreTrainedModel
    kind: str
    text: Text
    settings: HeadSettings
    progress: Report

    def __post_init__(self) -> None:
        self.blocks = blocks_of(self.model, self.kind)
        self.W_U = folded_unembedding(self.model, self.kind, self.text.kinds)
        table: Any = self.model.get_input_embeddings()
        self.W_E: Tensor = table.weight
        self.sums: dict[str, Tensor] = {}  # over heads, in the stream: what they say together
        self.model_nats = math.nan

    def record(self, names: Callable[[int], str]) -> Record:
        text = self.text
        stream, given, log_p = self._forward()
        explained = {
            "model": log_p - text.log_u_of_targets,
            "bigram_table": text.bigram_table(),
            "direct": text.explained(self.W_E[text.kinds], self.W_U, text.sources),
        }
        self.model_nats = float(explained["model"].mean())
        rows: list[Record] = []
        draw = torch.Generator().manual_seed(self.settings.seed)
        total = len(self.blocks) * len(self.blocks[0].heads)
        for layer, (block, output) in enumerate(zip(self.blocks, given, strict=True)):
            normed = block.norm(stream), block.norm(self.W_E[text.kinds])
            for h, head in enumerate(block.heads):
                done = len(rows)
                said = f"head {layer}.{h}: {done} of {total}"
                self.progress(Progress(said, done=done, total=total))
                width = head.W_O.shape[0]
                own = output[..., h * width : (h + 1) * width]
                row: Record = {"layer": layer, "head": h}
                row |= self._explained(head, *normed, own, "")
                row["control"] = self._explained(head.shuffled(draw), *normed, own, " (control)")
                rows.append(row)
        best = sorted(rows, key=lambda row: -max(row[name]["nats"] for name in RANKED))
        for row in best[: self.settings.top]:
            self.progress(f"pairs of head {row['layer']}.{row['head']}")
            row |= self._stored(self.blocks[row["layer"]], row["head"], names)
        return {
            "text": {
                "tokens": text.K,
                "positions": len(text.targets),
                "chunks": text.chunks,
                "unigram_nats": -float(text.log_u_of_targets.mean()),
                **{name: text.estimate(nats).to_json() for name, nats in explained.items()},
            },
            "together": self._together(),
            "control": {
                name: {"mean": sum(values) / len(values), "largest": max(values)}
                for name in CIRCUITS
                for values in [[row["control"][name]["nats"] for row in rows]]
            },
            "heads": rows,
        }

    def _forward(self) -> tuple[Tensor, list[Tensor], Tensor]:
        """Embeddings with positions (T, n, d), what each block's heads give (T, n, H·d_h), and the
        model's log-probability of each next token among the text's tokens (M,)."""
        text, given = self.text, defaultdict(list)
        tokens = text.kinds[text.indices]
        streams, logs = [], []

        def keep(layer: int) -> Callable[..., None]:
            return lambda module, inputs: given[layer].append(inputs[0])

        hooks = [b.output.register_forward_pre_hook(keep(i)) for i, b in enumerate(self.blocks)]
        for rows in torch.arange(len(tokens)).split(self.settings.batch):
            self.progress(f"{int(rows[0]):,} of {len(tokens):,} contexts")
            out: Any = self.model(tokens[rows], output_hidden_states=True)
            streams.append(out.hidden_states[0])
            log_p = out.logits[:, :-1, text.kinds].log_softmax(-1)
            logs.append(log_p.gather(-1, text.indices[rows, 1:, None]).flatten())
        for hook in hooks:
            hook.remove()
        outputs = [torch.cat(given[layer]) for layer in range(len(self.blocks))]
        log_p = torch.cat(logs).double()
        if not torch.isfinite(log_p).all():
            raise ByheartError("a logit of the model is not finite: its weights are damaged.")
        return torch.cat(streams), outputs, log_p

    def _features(
        self, head: Head, stream: Tensor, table: Tensor, own: Tensor
    ) -> Iterator[tuple[str, Tensor, Tensor | None]]:
        """Each circuit's name, what W_O reads in it, and the row of that for each position."""
        yield "bigram", table @ head.W_V, self.text.sources
        yield "skip_trigram", _predicting(head.mixed_values(stream)), None
        yield "run", _predicting(own), None

    def _explained(
        self, head: Head, stream: Tensor, table: Tensor, own: Tensor, kind: str
    ) -> Record:
        U, found = head.W_O @ self.W_U, {}
        for name, z, row in self._features(head, stream, table, own):
            found[name] = self._said(z, U, row)
            key, added = name + kind, z @ head.W_O
            self.sums[key] = self.sums[key].add_(added) if key in self.sums else added
        return found

    def _together(self) -> Record:
        """All heads of the model summed in the stream, with one β: as the last norm has it."""
        return {
            key: self._said(z, self.W_U, self.text.sources if key.startswith("bigram") else None)
            for key, z in self.sums.items()
        }

    def _said(self, z: Tensor, U: Tensor, row: Tensor | None) -> Record:
        """Nats with their interval, and as a share of the model's, where it knows something."""
        estimate = self.text.estimate(self.text.explained(z, U, row))
        share = estimate.nats / self.model_nats if self.model_nats > 0 else None
        return {**estimate.to_json(), "share": share}

    def _stored(self, block: Block, h: int, names: Callable[[int], str]) -> Record:
        everything = torch.arange(len(self.W_E))
        W_U = folded_unembedding(self.model, self.kind, everything)
        head, text, k = block.heads[h], self.text, self.settings.pairs
        n = text.indices.shape[1]
        return {
            "bigrams": stored_pairs(head, block.norm, self.W_E, W_U, text, k, names),
            "skip_trigrams": stored_trigrams(
                head, block.norm(self.W_E[text.kinds]), self.W_U, text, n, k, names
            ),
        }


def _predicting(z: Tensor) -> Tensor:
    """All positions but the last of each context, one row each."""
    return z[:, :-1].flatten(0, 1)
