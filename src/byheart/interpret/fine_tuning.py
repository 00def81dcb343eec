"""Fine-tuning as an editor: gradient descent on the edits, or on them and on other facts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from byheart.facts import Facts
from byheart.interpret.editors import ReadoutEditor, Task
from byheart.models.memory import answer_margins
from byheart.models.token_memory import TokenMemory


@dataclass(frozen=True)
class FineTune(ReadoutEditor):
    """Adam on the cross-entropy of the edits, the read-out matrix alone, until every edit leads by
    the margin that the other editors aim at, or for `steps` steps.

    `mixed`: every step also has as many other facts as there are edits, `least` at least, drawn
    anew from the blocks that hold edits, so that they are not forgotten. Logits are scaled by one
    number, so that the median margin of the memory is `sharpness` nats, near that of trained
    models: built memories have margins below 1, and their cross-entropy would move every fact.
    """

    mixed: bool = False
    rate: float = 1e-3
    steps: int = 300
    least: int = 256
    sharpness: float = 8.0
    seed: int = 0

    def change(self, task: Task, memory: TokenMemory) -> Tensor:
        assert isinstance(memory.facts, Facts)
        answers = torch.tensor(memory.facts.answers)
        answers[task.rows] = task.answers
        batch = Batch.of(task, answers, others=self.mixed)
        W = batch.W.clone().requires_grad_()
        optimizer = torch.optim.Adam([W], lr=self.rate)
        draws = torch.Generator().manual_seed(self.seed)
        size, scale = max(self.least, len(task.rows)), self.sharpness / task.margin
        for _ in range(self.steps):
            asked = batch.edited
            if len(batch.kept):
                drawn = torch.randint(len(batch.kept), (size,), generator=draws)
                asked = torch.cat([asked, batch.kept[drawn]])
            logits, right = batch.logits(W, asked), batch.right[asked]
            edited = slice(0, len(task.rows))
            lead = answer_margins(logits.detach()[edited], right[edited])
            if bool((lead >= task.margin).all()):
                break
            optimizer.zero_grad()
            cross_entropy(scale * logits, right).backward()
            optimizer.step()
        return batch.written(task.readout.W, W.detach())


@dataclass(frozen=True)
class Batch:
    """Blocks of facts side by side for one product, in float32: `K` (blocks, n, m) and `W` (blocks,
    m, d), with zeros where a block is smaller. A fact is a row of the first two axes flattened:
    `right` (rows,) is its answer, `edited` and `kept` list the rows that are edits and others."""

    K: Tensor
    W: Tensor
    base: Tensor
    W_U: Tensor
    right: Tensor
    edited: Tensor
    kept: Tensor
    at: tuple[slice, ...]

    @classmethod
    def of(cls, task: Task, answers: Tensor, others: bool) -> Batch:
        """The edits, and all other facts of their blocks if these are asked too."""
        readout, is_edit = task.readout, torch.zeros(len(answers), dtype=torch.bool)
        is_edit[task.rows] = True
        blocks = readout.selected(task.rows.tolist())
        if others:
            starts = {block.at.start for block in blocks}
            blocks = [block for block in readout.blocks if block.at.start in starts]
        n, m = (max(block.K.shape[i] for block in blocks) for i in range(2))
        d, many = readout.base.shape[1], len(blocks)
        K, W, base = (torch.zeros(many, *shape) for shape in ((n, m), (m, d), (n, d)))
        right, kind = torch.zeros(2, many, n, dtype=torch.long)  # kind 0: there is no such fact
        for i, block in enumerate(blocks):
            count, width = block.K.shape
            K[i, :count, :width], W[i, :width] = block.K, readout.W[block.at]
            base[i, :count] = readout.base[block.facts]
            right[i, :count] = answers[block.facts]
            kind[i, :count] = 2 - is_edit[block.facts].long()
        edited, kept = ((kind.flatten() == value).nonzero()[:, 0] for value in (1, 2))
        at = tuple(block.at for block in blocks)
        return cls(K, W, base, readout.W_U.float(), right.flatten(), edited, kept, at)

    def logits(self, W: Tensor, rows: Tensor) -> Tensor:
        """Of these rows, with this W: (rows, N)."""
        return torch.baddbmm(self.base, self.K, W).flatten(0, 1)[rows] @ self.W_U

    def written(self, W: Tensor, tuned: Tensor) -> Tensor:
        """W (rows, d) with what the tuning added."""
        W, added = W.clone(), (tuned - self.W).double()
        for at, block in zip(self.at, added, strict=True):
            W[at] += block[: at.stop - at.start]
        return W
