"""Valid inputs of every kind, damaged: tables, vectors, recipes, texts, JSON, folders."""

from __future__ import annotations

import contextlib
import csv
import functools
import hashlib
import io
import json
import os
import random
import re
import shutil
import struct
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors

KEPT = Path(__file__).resolve().parents[1] / "tests" / "kept"
MEMORIES = sorted(path.parent.name for path in KEPT.glob("*/memory.json"))
TOKENS = (
    "Paris", "a b", "", " ", "0", "-1", "1e400", "9" * 401, "nan", "NULL", "$\\frac$", "$x^$", "\\",
    "[/x]", "[bold]", "\x1b[31m", "\x00", "\x85", "\u202e", "\u2066", "\ud83d", "é", "😀", "<pad>",
    "<script>", "&amp;", "\"", "'", ",", "=", "x" * 300, "a\nb", "a\rb", "\ufeff", "random:N=3",
)  # fmt: skip
NUMBERS = (
    0, 1, 2, 3, 7, -1, 1.5, 0.1, 1e-300, 1e308, -1e308, 10**18, 2**31, 2**63, 10**40, 10**400,
    float("nan"), float("inf"), True,
)  # fmt: skip
SIZES = ("0", "1", "2", "3", "4", "5", "8", "12", "-1", "1.5", "100000", "2147483648", str(2**63),
         "1" + "0" * 40, "9" * 400, "9" * 5000, "x", "", "nan")  # fmt: skip
REALS = ("0", "0.5", "1", "1e-3", "1e-300", "1e308", "-1", "nan", "inf", "x", "1e400")
PATHS = ("missing", "folder", "fifo", "x" * 300, "", "a/b/c", "[/x]", "\udce9")
DEEP = "\0deep\0"
KINDS = ("gpt2", "bert", "llama", "vit")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = (*SPECIAL, "the", "cat", "and", "dog", "saw", "one", "other", "tree", "in", "rain")
TOKENIZER = {
    "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
    "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
    "added_tokens": [
        {"id": i, "content": word, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True} for i, word in enumerate(SPECIAL)
    ],
    "model": {"type": "WordLevel", "vocab": {w: i for i, w in enumerate(WORDS)},
              "unk_token": "[UNK]"},
}  # fmt: skip
TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "unk_token": "[UNK]",
    "cls_token": "[CLS]", "sep_token": "[SEP]",
}  # fmt: skip
STUDY = """from byheart.studies import Axes, Claim, Finding, Procedure, Study

def measure(params, seed):
    return {"share": params["T"] / params["d"]}

def analyse(rows):
    found = {"estimate": len(rows), "low": len(rows), "high": len(rows)}
    return Finding(f"{len(rows)} rows", (Claim("there are rows", found, 1),))

STUDY = Study(name="mine/line", title="a line", grid=Procedure(measure).grid(d=(1, 2), T=(1, 3)),
              analyse=analyse, claim="none", rule="none", axes=Axes("T", "share", by="d"))
"""


@dataclass
class Inputs:
    """Valid files with damage, in the folder of one case; `spoil` is the share that is damaged."""

    rng: random.Random
    folder: Path
    spoil: float = 0.7
    made: int = 0

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def path(self, suffix: str) -> Path:
        self.made += 1
        name = "caf\udce9" if self.chance(0.03) else "input"  # the byte E9 alone is no UTF-8
        return self.folder / f"{name}{self.made}{suffix}"

    def strange(self, suffix: str = "", read_only: bool = False) -> str:
        """A path that is no regular file, or none at all. A device, which has no end, is given only
        to what is read: root could replace it."""
        name = self.rng.choice((*PATHS, "device") if read_only else PATHS)
        path = self.folder / (name + suffix)
        if name == "folder":
            path.mkdir(exist_ok=True)
        elif name == "fifo" and not path.exists():
            os.mkfifo(path)
        elif name == "device" and not path.is_symlink():
            path.symlink_to("/dev/zero")
        return str(path) if name else name

    def write(self, suffix: str, data: bytes) -> str:
        """A file of its own, damaged byte by byte now and then."""
        if self.chance(0.04):
            return self.strange(suffix, read_only=True)
        path = self.path(suffix)
        path.write_bytes(self.bytes(data) if self.chance(0.3 * self.spoil) else data)
        return str(path)

    # Damage, from bytes to what they mean.

    def bytes(self, data: bytes) -> bytes:
        rng, out = self.rng, bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 8))):
            at, length = rng.randrange(len(out) + 1), rng.choice((1, 1, 4, 64))
            how = rng.randrange(6)
            if how == 0:
                del out[at:]
            elif how == 1 and at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            elif how == 2:
                out[at : at + length] = rng.randbytes(length)
            elif how == 3:
                del out[at : at + length]
            elif how == 4:
                out[at:at] = out[at : at + length] * rng.choice((1, 2, 100))
            else:
                out[at : at + length] = bytes(length)
        return bytes(out)

    def value(self) -> object:
        kinds: Sequence[object] = (None, [], {}, [[]], DEEP, self.rng.choice(TOKENS))
        return self.rng.choice((*kinds, *self.rng.choices(NUMBERS, k=4)))

    def json(self, value: object) -> object:
        """The value with one part of it replaced, left out, doubled or added."""
        rng = self.rng
        if isinstance(value, dict) and value and self.chance(0.85):
            name = rng.choice(list(value))
            how = rng.randrange(8)
            changed = dict(value)
            if how == 0:
                del changed[name]
            elif how == 1:
                changed[rng.choice(TOKENS)] = self.value()
            else:
                changed[name] = self.value() if how == 2 else self.json(value[name])
            return changed
        if isinstance(value, list) and value and self.chance(0.85):
            at, how, items = rng.randrange(len(value)), rng.randrange(8), list(value)
            if how == 0:
                del items[at]
            elif how == 1:
                items.insert(at, items[at])
            else:
                items[at] = self.value() if how == 2 else self.json(items[at])
            return items
        if isinstance(value, int) and not isinstance(value, bool) and self.chance(0.5):
            return value + rng.choice((1, -1, 7, 10**6))
        return self.value()

    def text(self, value: object) -> str:
        deep = "[" * 100_000 if self.chance(0.5) else '{"a":' * 50_000
        return json.dumps(value, ensure_ascii=self.chance(0.5)).replace(json.dumps(DEEP), deep)

    def spoiled(self, value: object) -> bytes:
        """JSON, damaged as often as this case is."""
        for _ in range(self.rng.choice((1, 1, 2)) if self.chance(self.spoil) else 0):
            value = self.json(value)
        return self.text(value).encode("utf-8", "surrogatepass")

    def array(self, array: np.ndarray) -> np.ndarray:
        rng = self.rng
        how = rng.randrange(7)
        if how == 0 and array.size:
            odd = [v for v in NUMBERS if abs(v) < 2**60] if array.dtype.kind in "iu" else NUMBERS
            changed = array.copy().reshape(-1)
            with contextlib.suppress(OverflowError, ValueError, TypeError), quiet():
                changed[rng.randrange(array.size)] = rng.choice(odd)
            return changed.reshape(array.shape)
        if how == 1:
            kinds = ("f2", "f4", "f8", "i1", "i8", "u8", "?")
            with quiet():
                return array.astype(rng.choice(kinds))
        if how == 2 and array.ndim:
            return array[: rng.randrange(len(array) + 1)]
        if how == 3:
            return array.reshape(-1)
        if how == 4:
            return array[None]
        if how == 5:
            return np.zeros((), array.dtype)
        return array[..., :0] if array.ndim else array

    def arrays(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        changed, names = dict(arrays), list(arrays)
        if names and self.chance(self.spoil):
            name = self.rng.choice(names)
            how = self.rng.randrange(8)
            if how == 0:
                del changed[name]
            elif how == 1:
                changed[self.rng.choice(["extra", "query", "classes", "W_O"])] = arrays[name]
            else:
                changed[name] = self.array(arrays[name])
        return changed

    def tensors(self, data: bytes) -> bytes:
        """A safetensors file with other arrays, or another header."""
        try:
            if self.chance(0.6):
                length = struct.unpack("<Q", data[:8])[0]
                metadata = json.loads(data[8 : 8 + length]).get("__metadata__")
                arrays = dict(sorted(load_tensors(data).items()))  # in the order of a hash, else
                return safetensors_file(self.arrays(arrays), metadata)
        except (SafetensorError, KeyError, TypeError, ValueError, AttributeError):
            pass
        length = struct.unpack("<Q", data[:8])[0]
        header = self.spoiled(json.loads(data[8 : 8 + length]))
        length = self.rng.choice((len(header), len(header), 2**63, 2**40, 0))
        return struct.pack("<Q", length) + header + data[8 + length :]

    # Files of every kind.

    def rows(self) -> list[list[str]]:
        S, T = self.rng.choice((1, 2, 2, 3)), self.rng.choice((1, 2, 6, 12))
        rows = [[f"k{i}", *(f"r{i % 3}" for _ in range(S - 1)), f"a{i % 4}"] for i in range(T)]
        rows.insert(0, [*(f"c{s}" for s in range(S)), "answer"])
        for _ in range(self.rng.choice((1, 2)) if self.chance(self.spoil) else 0):
            row = self.rng.choice(rows)
            how = self.rng.randrange(5)
            if how == 0 and row:
                del row[-1]
            elif how == 1:
                rows.append(list(row))
            elif row:
                row[self.rng.randrange(len(row))] = self.rng.choice(TOKENS)
        return rows

    def separated(self) -> str:
        suffix = self.rng.choice((".csv", ".csv", ".tsv"))
        stream = io.StringIO(newline="")
        csv.writer(stream, delimiter="," if suffix == ".csv" else "\t").writerows(self.rows())
        return self.write(suffix, stream.getvalue().encode("utf-8", "surrogatepass"))

    def lines(self) -> str:
        lines = []
        several = self.chance(0.4)
        for i in range(self.rng.choice((1, 3, 6))):
            output: object = f"a{i % 3}"
            if several:
                output = {"a0": 0.25, f"b{i % 2}": 0.75}
            line: object = {"input": [f"k{i}", "r"], "output": output}
            if self.chance(0.2):
                line = {"input": f"k{i}", "output": output, "weight": self.rng.choice((1, 0.5))}
            lines.append(self.spoiled(line) if self.chance(0.3) else self.text(line).encode())
        return self.write(self.rng.choice((".jsonl", ".ndjson")), b"\n".join(lines) + b"\n")

    def parquet(self) -> str:
        import pyarrow as pa
        import pyarrow.parquet as pq

        T = self.rng.choice((1, 4))
        odd: tuple[pa.Array, ...] = (
            pa.array(range(T)), pa.array([None] * T), pa.array([2**63 - 1] * T),
            pa.array([1.5] * T), pa.array([float("nan")] * T), pa.array([b"\xff"] * T),
            pa.array([[1]] * T), pa.array([True] * T), pa.array([2**62] * T, pa.timestamp("us")),
            pa.array([2**52] * T, pa.timestamp("ms")), pa.array([10**9] * T, pa.date32()),
            pa.array([2**62] * T, pa.duration("s")), pa.array([2**64 - 1] * T, pa.uint64()),
            pa.array([1] * T, pa.timestamp("ns", tz="Nowhere/Else")),
        )  # fmt: skip
        columns = {"k": pa.array([f"k{i}" for i in range(T)]), "v": pa.array(["a", "b"] * T)[:T]}
        if self.chance(self.spoil):
            columns[self.rng.choice(("k", "v", "w"))] = self.rng.choice(odd)
        stream = io.BytesIO()
        pq.write_table(pa.table(columns), stream)
        return self.write(".parquet", stream.getvalue())

    def recipe(self) -> str:
        kind = self.rng.choice(("random", "random", "vectors", "digits"))
        settings = {"random": {"N": "5", "S": "2", "T": "6", "seed": "0"},
                    "vectors": {"T": "6", "n": "2", "d": "3", "context": "fixed", "seed": "1"},
                    "digits": {"T": "5", "patch": "4"}}[kind]  # fmt: skip
        if kind == "random" and self.chance(0.4):
            settings = {"kind": self.rng.choice(("gauss", "lut", "power")), "N": "4", "tau": "1"}
        if self.chance(self.spoil):
            name = self.rng.choice((*settings, "classes", "zipf", "x"))
            settings[name] = self.rng.choice((*SIZES, *REALS, "fixed", "random"))
        return f"{kind}:" + ",".join(f"{k}={v}" for k, v in settings.items())

    def words(self) -> str:
        words = [self.rng.choice(("the", "cat", "and", "dog")) for _ in range(60)]
        if self.chance(self.spoil):
            words[5:8] = self.rng.choices(TOKENS, k=3)
        return self.write(".txt", " ".join(words).encode("utf-8", "surrogatepass"))

    def vectors(self) -> str:
        if self.chance(0.2):
            return self.recipe()
        r = np.random.default_rng(self.rng.randrange(100))
        T, n, d = self.rng.choice(((6, 2, 3), (4, 3, 4), (12, 4, 5)))
        arrays: dict[str, np.ndarray] = {"query": r.random((T, d)), "label": r.random(T)}
        arrays["context"] = r.random((n, d))
        if self.chance(0.4):
            arrays["label"] = r.integers(0, 3, T)
        if self.chance(0.3):
            arrays["query"] = r.integers(0, 5, (T, d))
        return self.array_file(arrays)

    def table(self) -> str:
        """Facts of any kind."""
        makers = (
            self.separated,
            self.separated,
            self.lines,
            self.parquet,
            self.recipe,
            self.vectors,
        )
        if self.chance(0.05):
            return self.rng.choice(("countries", "elements", "digits", "contries", "hamlet"))
        return self.rng.choice(makers)()

    def config(self) -> str:
        return self.write(".json", self.spoiled(config_of(self.rng.choice(KINDS))))

    def kept(self, name: str) -> str:
        """A copy of what was written before, with one file of a folder damaged and, half of the
        time, signed again."""
        path = self.path("" if (KEPT / name).is_dir() else Path(name).suffix)
        if self.chance(0.03):
            return self.strange()
        if path.suffix == ".json":
            return self.write(".json", self.spoiled(json.loads((KEPT / name).read_bytes())))
        if path.suffix == ".safetensors":
            data = (KEPT / name).read_bytes()
            path.write_bytes(self.tensors(data) if self.chance(0.5) else data)
            return str(path)
        if path.suffix:
            return self.write(path.suffix, (KEPT / name).read_bytes())
        shutil.copytree(KEPT / name, path)
        if self.chance(self.spoil):
            self.damage(path)
        if self.chance(0.05):
            (self.folder / "[").mkdir(exist_ok=True)
            path = path.rename(self.folder / f"[/x].{self.made}")
        return str(path)

    def damage(self, folder: Path) -> None:
        files = sorted(file for file in folder.iterdir() if file.suffix not in (".py", ".md"))
        file = self.rng.choice(files)
        data = file.read_bytes()
        how = self.rng.randrange(12)
        if how == 0:
            file.unlink()
        elif how == 1:
            file.unlink()
            os.mkfifo(file)
        elif how == 2:
            file.unlink()
            file.symlink_to(self.rng.choice(("..", "nowhere", "memory.json")))
        elif file.suffix == ".json" and how < 10:
            file.write_bytes(self.spoiled(json.loads(data)))
        elif file.suffix == ".safetensors" and how < 10:
            file.write_bytes(self.tensors(data))
        else:
            file.write_bytes(self.bytes(data))
        marker = folder / "memory.json"
        if self.chance(0.5) and file != marker and file.is_file() and marker.is_file():
            record = json.loads(marker.read_bytes())
            known = {name for name, _ in _items(record) if name == file.name}
            if known and not file.is_symlink():
                signed = hashlib.sha256(file.read_bytes()).hexdigest()
                marker.write_text(json.dumps(_signed(record, file.name, signed)))

    def memory(self, *names: str) -> str:
        return self.kept(self.rng.choice(names or MEMORIES))

    def model(self, kind: str) -> str:
        """A Hugging Face folder: config, weights of its shapes and a tokenizer, of which at most
        one is damaged."""
        files = {"config.json": json.dumps(config_of(kind)).encode(),
                 "model.safetensors": safetensors_file(weights_of(kind), {"format": "pt"}),
                 "tokenizer.json": json.dumps(TOKENIZER).encode(),
                 "tokenizer_config.json": json.dumps(TOKENIZER_CONFIG).encode()}  # fmt: skip
        if self.chance(self.spoil):
            name = self.rng.choice(list(files))
            if self.chance(0.2):
                files[name] = self.bytes(files[name])
            elif name == "model.safetensors":
                files[name] = self.tensors(files[name])
            else:
                files[name] = self.text(self.json(json.loads(files[name]))).encode(
                    "utf-8", "surrogatepass"
                )
        folder = self.path("")
        folder.mkdir()
        for name, data in files.items():
            (folder / name).write_bytes(data)
        return str(folder)

    def tokens(self) -> str:
        """Token ids, contexts by positions."""
        ids = np.random.default_rng(self.rng.randrange(100)).integers(0, len(WORDS), (24, 6))
        if self.chance(0.3):
            rows = [self.spoiled(row) if self.chance(0.1) else self.text(row).encode()
                    for row in ids.tolist()]  # fmt: skip
            return self.write(".jsonl", b"\n".join(rows) + b"\n")
        return self.array_file({"tokens": ids})

    def images(self) -> str:
        pixels = np.random.default_rng(self.rng.randrange(100)).integers(0, 256, (20, 8, 8))
        return "digits" if self.chance(0.2) else self.array_file({"images": pixels})

    def array_file(self, arrays: dict[str, np.ndarray]) -> str:
        """Named arrays in a file of any kind that holds them; .npy has the first alone."""
        arrays = self.arrays(arrays)
        suffix, stream = self.rng.choice((".npz", ".npy", ".safetensors")), io.BytesIO()
        if suffix == ".safetensors":
            data = safetensors_file(arrays)
            return self.write(suffix, self.tensors(data) if self.chance(0.3) else data)
        if suffix == ".npz":
            np.savez(stream, **arrays)  # type: ignore[arg-type]
            return self.write(suffix, stream.getvalue())
        np.save(stream, next(iter(arrays.values()), np.zeros(())))
        data = stream.getvalue()
        if self.chance(0.4 * self.spoil):
            shapes = (b"(1000000000000000000,)", b"(6,", b"()", b"(-1, 3)", b"(0, 3)", b"(3, 0)")
            data = re.sub(rb"\([0-9, ]*\)", self.rng.choice(shapes), data, count=1)
        return self.write(suffix, data)

    def study(self) -> str:
        text = STUDY
        if self.chance(0.3 * self.spoil):
            text = text[: self.rng.randrange(len(text))]
        path = self.path(".py")
        path.write_text(text)
        return str(path)

    def out(self, *suffixes: str) -> str:
        """Where a command writes; sometimes something is there, or it cannot be written."""
        suffix = self.rng.choice(suffixes)
        if self.chance(0.1):
            return self.strange(suffix)
        self.made += 1
        path = self.folder / f"out{self.made}{suffix}"
        if self.chance(0.1):
            path.write_text("something else")
        return str(path)


FORMATS = {"f2": "F16", "f4": "F32", "f8": "F64", "i1": "I8", "i4": "I32", "i8": "I64", "u1": "U8",
           "u8": "U64", "b1": "BOOL"}  # fmt: skip


def config_of(kind: str) -> dict[str, object]:
    """A config that models of all kinds read."""
    return {
        "model_type": kind, "n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 16,
        "vocab_size": len(WORDS), "hidden_size": 8, "num_attention_heads": 2,
        "num_hidden_layers": 1, "intermediate_size": 16, "max_position_embeddings": 16,
        "image_size": 8, "patch_size": 4, "num_channels": 1, "hidden_act": "gelu",
        "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
    }  # fmt: skip


@functools.cache
def weights_of(kind: str) -> dict[str, np.ndarray]:
    """Random weights of the shapes that transformers gives to a model of that config."""
    from transformers import AutoConfig, AutoModel

    sizes = {name: size for name, size in config_of(kind).items() if name != "model_type"}
    config = AutoConfig.for_model(kind, **sizes)
    shapes = AutoModel.from_config(config).state_dict()
    r = np.random.default_rng(0)
    return {name: r.normal(size=w.shape).astype("f4") for name, w in sorted(shapes.items())}


def safetensors_file(arrays: dict[str, np.ndarray], metadata: object = None) -> bytes:
    """The same bytes every time, which the library's own writer does not promise."""
    header: dict[str, object] = {} if metadata is None else {"__metadata__": metadata}
    parts: list[bytes] = []
    for name, array in arrays.items():
        begin = sum(map(len, parts))
        parts.append(np.ascontiguousarray(array).tobytes())
        kind = FORMATS[array.dtype.str[1:]]
        place = [begin, begin + len(parts[-1])]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": place}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _items(record: object) -> Iterator[tuple[str, object]]:
    if isinstance(record, dict):
        for name, value in record.items():
            yield str(name), value
            yield from _items(value)


def _signed(record: object, name: str, digest: str) -> object:
    """The record with every entry `name` that is text replaced by the digest."""
    if not isinstance(record, dict):
        return record
    return {
        k: digest if k == name and isinstance(v, str) else _signed(v, name, digest)
        for k, v in record.items()
    }
