"""What the paper's tables look at: tokens of real models before and behind their first block."""

from __future__ import annotations

import ast
import sysconfig
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

LICENCES = Path("/usr/share/common-licenses")
VIT_TEST = 360  # digits that the small ViT is not trained on
BATCH = 64


def text_files(place: Path, characters: int = 3_000_000) -> list[Path]:
    """The licence texts of the operating system, then docstrings of Python's standard library, as
    files; about so many characters of the latter."""
    files = sorted(p for p in LICENCES.glob("*") if p.is_file() and not p.is_symlink())
    found, size = [], 0
    for source in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        tree = ast.parse(source.read_text(encoding="utf-8", errors="replace"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                found.append(text)
                size += len(text)
        if size > characters:
            break
    docs = place / "docstrings.txt"
    docs.write_text("\n".join(found), encoding="utf-8")
    return [*files, docs]


def vit_of_digits(epochs: int, seed: int) -> tuple[Any, float]:
    """A small ViT (4 layers, d = 64, 17 tokens) trained on 1,437 of scikit-learn's digits, and its
    accuracy on the other 360."""
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    from byheart.audits.inputs import digits
    from byheart.models.threads import one_thread

    config = ViTConfig(
        image_size=8, patch_size=2, num_channels=1, hidden_size=64, num_hidden_layers=4,
        num_attention_heads=4, intermediate_size=128,
    )  # fmt: skip
    config.num_labels = 10
    images, labels = digits()
    X, y = torch.tensor(images, dtype=torch.float32)[:, None], torch.tensor(labels)
    with torch.random.fork_rng(devices=[]), one_thread():
        torch.manual_seed(seed)
        model: Any = ViTForImageClassification(config)
        order = torch.randperm(len(X))
        train, test = order[:-VIT_TEST], order[-VIT_TEST:]
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        steps = max(1, epochs * -(-len(train) // BATCH))
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(epochs):
            for batch in train[torch.randperm(len(train))].split(BATCH):
                optimizer.zero_grad()
                model(X[batch], labels=y[batch]).loss.backward()
                optimizer.step()
                schedule.step()
        model.eval()
        with torch.no_grad():
            accuracy = float((model(X[test]).logits.argmax(1) == y[test]).float().mean())
    return model, accuracy


@lru_cache(maxsize=1)
def around_first_block(
    model: str, trained: bool, T: int, n: int | None, epochs: int | None, seed: int
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Tokens (T, n, d) in front of the first block and behind it, in float32, and whether the model
    is causal: then the last token asks, else the first. Of "vit" (trained here for `epochs`) or a
    pretrained model of `byheart.audits`; `seed` draws the weights, where they are not its own."""
    import torch

    from byheart.audits import AuditSettings, find_model
    from byheart.audits.inputs import digits, text_contexts
    from byheart.audits.models import open_model, tokenizer_of

    if model == "vit":
        network: Any = vit_of_digits(epochs if trained and epochs else 0, seed)[0]
        shown = torch.tensor(digits()[0][:T], dtype=torch.float32)[:, None]
        causal = False
    else:
        found = find_model(model)
        settings = AuditSettings(seed=seed)
        network = open_model(found, random=not trained, dtype="float32", settings=settings)
        with tempfile.TemporaryDirectory() as place:
            files = text_files(Path(place), 5 * T * (n or 1))
            contexts = text_contexts(files, tokenizer_of(found), found, n=n, T=T)
        shown, causal = torch.tensor(contexts.values), found.causal
    count = network.config.num_hidden_layers
    layers = next(
        part for part in network.modules()
        if isinstance(part, torch.nn.ModuleList) and len(part) == count
    )  # fmt: skip
    del layers[1:]
    before, after = [], []

    def keep(_: Any, args: tuple[Any, ...], named: dict[str, Any], out: Any) -> None:
        before.append((args[0] if args else named["hidden_states"]).numpy())
        after.append((out[0] if isinstance(out, tuple) else out).numpy())

    layers[0].register_forward_hook(keep, with_kwargs=True)
    with torch.inference_mode():
        for batch in shown.split(BATCH):
            network(batch)
    return np.concatenate(before), np.concatenate(after), causal
