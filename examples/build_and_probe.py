"""Build, export, probe: does an instrument find the head that holds a fact?

A one-hot memory of vectors has owners by construction, so that instruments can be marked. It is
exported as one plain PyTorch file, and two instruments look at it through forward hooks only:

  ablation   the head whose output, replaced by its mean over the facts, moves the answer most
  pattern    the one head in which a fact attends to a token that no other fact attends to there

Then the same on a memory whose heads are random and share every fact: a good instrument says that
there is no owner.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from pathlib import Path

import torch

import byheart as bh

H, D_H, N_TOKENS, D = 8, 32, 32, 64
SURE = 0.99  # attention that counts as looking at one token only


def plain_model(folder: Path):
    """The exported model.py, as anybody without byheart would import it."""
    spec = importlib.util.spec_from_file_location("exported_model", folder / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load(folder)


@torch.no_grad()
def by_ablation(model, query: torch.Tensor) -> torch.Tensor:
    """argmax over heads of |change of the output| when the head is replaced by its mean: (T,)."""
    before = model(None, query)
    effects = []
    for h in range(H):

        def replace(module, inputs, heads, h=h):
            heads = heads.clone()
            heads[:, h] = heads[:, h].mean(0)
            return heads

        hook = model.hook_heads.register_forward_hook(replace)
        effects.append((model(None, query) - before).abs().amax(1))
        hook.remove()
    return torch.stack(effects, dim=1).argmax(1)


@torch.no_grad()
def by_pattern(model, query: torch.Tensor) -> torch.Tensor:
    """The one head where a fact's token is its own, or -1 where none or several qualify: (T,)."""
    seen = {}
    hook = model.hook_pattern.register_forward_hook(lambda m, i, out: seen.update(pattern=out))
    model(None, query)
    hook.remove()
    largest, token = seen["pattern"].max(-1)  # (T, H)
    alone = torch.zeros_like(token, dtype=torch.bool)
    for h in range(H):
        users = torch.bincount(token[:, h], minlength=N_TOKENS)
        alone[:, h] = (users[token[:, h]] == 1) & (largest[:, h] > SURE)
    return torch.where(alone.sum(1) == 1, alone.int().argmax(1), -1)


def main() -> None:
    facts = bh.random_vectors(T=H * (min(N_TOKENS, D_H) - 1) + 1, n=N_TOKENS, d=D)
    query = torch.tensor(facts.query)
    with tempfile.TemporaryDirectory() as place:
        for proof in ("one-hot", "random"):
            memory = bh.build(facts, proof=proof, H=H, d_h=D_H, dtype="float64")
            folder = bh.export(memory, Path(place) / proof, to="torch")
            model = plain_model(folder)
            error = float((model(None, query).detach() - torch.tensor(facts.targets)).abs().max())
            print(
                f"{proof}: {facts.T} facts in {H} heads, largest error in plain torch {error:.0e}"
            )
            guesses = {"ablation": by_ablation(model, query), "pattern": by_pattern(model, query)}
            owners = folder / "owners.json"
            if owners.exists():
                known = json.loads(owners.read_text())["facts"]
                held = [(t, h) for t, fact in enumerate(known) for h in fact["heads"]]
                for name, guess in guesses.items():
                    right = sum(int(guess[t]) == h for t, h in held)
                    print(f"  {name}: the right head for {right} of {len(held)} facts")
            else:
                claimed = int((guesses["pattern"] >= 0).sum())
                print("  ablation: always names a head, and cannot know that there is no owner")
                print(f"  pattern: names a head for {claimed} of {facts.T} facts: no owner to find")
        print("(one fact is held by no head alone: H(r-1) are owned, one is over)", file=sys.stderr)


if __name__ == "__main__":
    main()
