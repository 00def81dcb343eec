"""Mutated inputs through every command: a clean answer or a clean refusal is all that may come out.

    python tools/fuzz.py --cases 2000 --seed 0 --only facts
    python tools/fuzz.py --seed 0 --case 17            one case again, with what it printed

A case is made from (seed, number) alone: a command, valid files of the kinds that it reads, most of
them damaged, and options. It runs in this process, through the function behind `byheart`. A case
fails if it raises, takes longer than `--seconds`, ends with a code other than 0, 1 or 2, prints
control characters (or, with --json, anything but one object), or leaves half of something: a
refusal (code 2) leaves every file as it was, and what any other run has written can be read.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from xml.etree import ElementTree

import numpy as np
import typer
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors

from byheart.cli.main import COMMANDS, main, make_app

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "tests" / "kept"
ADDRESS_SPACE = 10 * 2**30  # bytes: allocating without end is an error, not a dead machine
SECONDS = 60.0
# Commands that train or measure take longer: one case of them for so many of the others.
RARE = {"train": 0.3, "capacity": 0.1, "reproduce": 0.3, "audit": 0.1, "explore": 0.05}

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
STUDY = """from byheart.studies import Axes, Finding, Procedure, Study

def measure(params, seed):
    return {"share": params["T"] / params["d"]}

def analyse(rows):
    return Finding("confirmed", f"{len(rows)} rows", {"rows": len(rows)})

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
        return self.folder / f"input{self.made}{suffix}"

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
        arrays = {"query": r.random((T, d)), "context": r.random((n, d)), "label": r.random(T)}
        if self.chance(0.4):
            arrays["label"] = r.integers(0, 3, T)
        if self.chance(0.3):
            arrays["query"] = r.integers(0, 5, (T, d))
        suffix, stream = self.rng.choice((".npz", ".npy", ".safetensors")), io.BytesIO()
        arrays = self.arrays(arrays)
        if suffix == ".safetensors":
            data = safetensors_file(arrays)
            return self.write(suffix, self.tensors(data) if self.chance(0.3) else data)
        if suffix == ".npz":
            np.savez(stream, **arrays)
            return self.write(suffix, stream.getvalue())
        np.save(stream, arrays.get("query", np.zeros(())))
        data = stream.getvalue()
        if self.chance(0.4 * self.spoil):
            shapes = (b"(1000000000000000000,)", b"(6,", b"()", b"(-1, 3)", b"(0, 3)", b"(3, 0)")
            data = re.sub(rb"\([0-9, ]*\)", self.rng.choice(shapes), data, count=1)
        return self.write(suffix, data)

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
        config = {
            "model_type": self.rng.choice(("gpt2", "bert", "llama", "vit")), "n_embd": 8,
            "n_head": 2, "n_layer": 2, "n_positions": 16, "vocab_size": 20, "hidden_size": 8,
            "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 16,
            "max_position_embeddings": 16, "image_size": 8, "patch_size": 4, "hidden_act": "gelu",
        }  # fmt: skip
        return self.write(".json", self.spoiled(config))

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

    def model(self) -> str:
        """A Hugging Face folder without weights that fit: what stands in its files is refused."""
        folder = self.path("")
        folder.mkdir()
        shutil.move(self.config(), folder / "config.json")
        (folder / "model.safetensors").write_bytes(
            self.tensors((KEPT / "export-torch" / "weights.safetensors").read_bytes())
        )
        return str(folder)

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


# What each command is given besides options that are drawn: arguments, and what keeps it short.
MEMORIES = sorted(path.parent.name for path in KEPT.glob("*/memory.json"))
STORED = {"attention-boundary": ["1", "2"], "distribution": ["to", "be"],
          "multihead-classes": ["3"], "multihead-numbers": ["3"]}  # fmt: skip


def _asked(x: Inputs) -> list[str]:
    """A memory and a key, which it holds or not."""
    name = x.rng.choice(MEMORIES)
    key = STORED.get(name, ["Peru", x.rng.choice(("capital", "continent"))])
    if x.chance(0.3):
        key = x.rng.choice((key[:1], [*key, "x"], [x.rng.choice(TOKENS)] * len(key)))
    return [x.memory(name), "--", *key]


def _recall(x: Inputs) -> list[str]:
    if x.chance(0.3):
        return [x.memory(), "--all"]
    if x.chance(0.15):
        return [x.memory("multihead-classes", "multihead-numbers"), "--", x.vectors()]
    return _asked(x)


def _edit(x: Inputs) -> list[str]:
    change = x.rng.choice(("--set", "--add", "--delete"))
    key = "Peru,capital" if x.chance(0.7) else x.rng.choice(TOKENS)
    answer = "Lima" if x.chance(0.5) else x.rng.choice(TOKENS)
    value = {"--set": f"{key}={answer}", "--delete": key}.get(change) or x.table()
    folder = x.memory("sharded", "sharded-abstain") if x.chance(0.9) else x.memory()
    return [folder, change, value]


def _export(x: Inputs) -> list[str]:
    return [x.memory(), "-o", x.out(""), "--to", x.rng.choice(
        ("torch", "transformer-lens", "hugging-face", "onnx", "memory", "x"))]  # fmt: skip


def _import(x: Inputs) -> list[str]:
    weights = ["--weights", x.kept("training.safetensors")] if x.chance(0.1) else []
    return [x.kept(x.rng.choice(("export-torch", "export-lens"))), "-o", x.out(""), *weights]


def _report(x: Inputs) -> list[str]:
    sources = [x.memory, x.memory, lambda: x.kept("audit.json")]
    sources += [lambda: x.kept("studies.db")] if x.chance(0.2) else []  # draws for seconds
    if x.chance(0.5):
        figures = ("head-map", "ablation", "margins", "attention", "capacity", "condition", "kl",
                   "layers", "dana2025/fig1a", "x")  # fmt: skip
        kinds = (".png", ".svg", ".svg", ".pdf", ".html")
        return [x.rng.choice(sources)(), "--figure", x.rng.choice(figures), "-o", x.out(*kinds)]
    return [x.rng.choice(sources)() for _ in range(x.rng.choice((1, 1, 2)))] + [
        "-o", x.out(".html", ".html", ".txt")]  # fmt: skip


def _reproduce(x: Inputs) -> list[str]:
    output = ["-o", str(x.folder / "studies")]
    if x.chance(0.4):
        names = ("dana2025/fig1a", "dana2025", "all", "x", *TOKENS)
        show = x.rng.choice(("--status", "--redraw", "--list"))
        return [x.rng.choice(names), show, "--store", x.kept("studies.db"), *output]
    odd = x.rng.choice((*TOKENS, *SIZES, "1:3", "1:1e9", "1:5:0", "0:1:1e-9", "1,2,3", "[1]", "{}"))
    only = x.rng.choice(("d==1", "T/0>1", "T<'x'", "9**9", "not", "d in T", *TOKENS))
    extra = x.rng.choice((["--set", f"d={odd}"], ["--only", only], ["--set", f"{odd}=1"], []))
    return [x.study(), "--seeds", "1", *extra, *output]


def _bound(x: Inputs) -> list[str]:
    if x.chance(0.3):
        return ["--hf", x.config()]
    sizes = {"--d-model": "8", "--heads": "2", "--context": "4", "--vocab": "10"}
    name = x.rng.choice(list(sizes))
    if x.chance(0.4):
        sizes[name] = x.rng.choice(SIZES)
    else:
        sizes.pop(name)
        values = x.rng.choice(("1:8", "1:9:2", "0:3", "3:1", "1:" + "9" * 400, "x", "1:2:0", ""))
        sizes["--sweep"] = f"{name[2:]}={values}"
        sizes |= _drawn(x)
    return [part for pair in sizes.items() for part in pair]


def _size(x: Inputs) -> list[str]:
    if x.chance(0.5):
        count = x.rng.choice((*SIZES, "1e5", "1_000"))
        return ["--facts", x.table() if x.chance(0.3) else count, "--vocab", "9", "--length", "2"]
    interval = x.rng.choice(("1e2:1e4", "1:1", "9:1", "x", "1:1e300", "1:" + "9" * 5000, ":"))
    output = next(iter(_drawn(x).items()))
    return ["--vocab", x.rng.choice(SIZES), "--length", "2", "--sweep", interval, *output]


def _drawn(x: Inputs) -> dict[str, str]:
    if x.chance(0.5):
        return {"-o": x.out(".csv", ".txt")}
    return {"--plot": x.out(".svg", ".png", ".pdf", ".txt")}


def _facts(x: Inputs) -> list[str]:
    if x.chance(0.15):
        return [x.words(), "--ngram", x.rng.choice(("2", "3", *SIZES))]
    return [
        x.table(),
        *(["-o", x.out(".csv", ".tsv", ".jsonl", ".npz", "")] if x.chance(0.3) else []),
    ]


def _encoder(x: Inputs) -> list[str]:
    rank = ["--rank", x.rng.choice(("1", "2", "3", "0", "-1", str(10**9), "x"))]
    if x.chance(0.3):
        return [x.words(), "--ngram", "2", *rank]
    return [x.lines() if x.chance(0.7) else x.table(), *rank]


ARGUMENTS: dict[str, Callable[[Inputs], list[str]]] = {
    "build": lambda x: [x.table(), "-o", x.out("")],
    "recall": _recall,
    "certify": lambda x: [x.memory(), *(["--facts", x.table()] if x.chance(0.2) else [])],
    "facts": _facts,
    "bound": _bound,
    "size": _size,
    "owner": _asked,
    "export": _export,
    "import": _import,
    "edit": _edit,
    "train": lambda x: [
        x.table(), "-o", x.out(""), "--steps", "2", "--d-model", "4", "--heads", "2",
        *(["--checkpoint", x.kept("training.safetensors")] if x.chance(0.3) else []),
    ],
    "capacity": lambda x: ["--facts", x.table(), "--steps", "1", "--seeds", "1"],
    "reproduce": _reproduce,
    "encoder": _encoder,
    "kruskal": lambda x: [x.vectors(), "--draws", "20"],
    "heads": lambda x: [x.memory("multihead-classes", "multihead-numbers"), "--fresh", "20"],
    "audit": lambda x: [x.model(), "--tokens", x.vectors(), "--contexts", "20"],
    "precision": lambda x: [x.memory() if x.chance(0.5) else x.table(), "--most", "8"],
    "report": _report,
    "explore": lambda x: ["-o", x.out(".html", ".txt"), "--no-open"],
}  # fmt: skip
# Options that open browsers, other processes or the network, that write where they please, or whose
# size is the length of the work, are left to the arguments above.
LEFT_OUT = {"--open", "--workers", "--json", "--output", "--steps", "--seeds", "--draws", "--most",
            "--fresh", "--contexts", "--store", "--threads", "--restarts", "--help", "--starts",
            "--precision", "--ranked", "--search", "--models", "--text", "--images"}  # fmt: skip
FILES = {"--facts", "--add", "--weights", "--plot", "--checkpoint", "--export", "--hf", "--tokens"}


def drawn_options(x: Inputs, command: str) -> list[str]:
    """A few options of the command, with values that it may or may not take."""
    given: list[str] = []
    parameters = [p for p in _parameters(command) if p.opts[0].startswith("-")]
    for option in x.rng.sample(parameters, min(len(parameters), x.rng.choice((0, 0, 0, 1, 1, 2)))):
        names = [*option.opts, *option.secondary_opts]
        if LEFT_OUT & {*names} or (FILES & {*names} and not x.chance(0.3)):
            continue
        given.append(x.rng.choice([name for name in names if name.startswith("--")] or names))
        if option.is_flag:
            continue
        choices = (option.metavar or "").split("|")
        if given[-1] == "--plot":
            value = x.out(".png", ".svg", ".pdf", ".txt")
        elif len(choices) > 1 and x.chance(0.8):
            value = x.rng.choice(choices)
        else:
            value = x.rng.choice((*SIZES, *REALS, *x.rng.choices(TOKENS, k=5)))
        given.append(value)
    return given


_CACHE: dict[str, list] = {}


def _parameters(command: str) -> list:
    if not _CACHE:
        commands = typer.main.get_command(make_app()).commands  # type: ignore[attr-defined]
        _CACHE.update({name: list(one.params) for name, one in commands.items()})
    return _CACHE[command]


def arguments(seed: int, number: int, only: str | None, folder: Path) -> list[str]:
    """The words of case `number`; its files are made in `folder`."""
    rng = random.Random(f"{seed}:{number}:{only or ''}")
    names = [only] if only else list(COMMANDS)
    command = rng.choices(names, [RARE.get(name, 1.0) for name in names])[0]
    inputs = Inputs(rng, folder, rng.choice((0.0, 0.4, 0.9)))
    words = [command, *drawn_options(inputs, command), *ARGUMENTS[command](inputs)]
    at = words.index("--") if "--" in words else len(words)
    words[at:at] = ["--json"] if rng.random() < 0.4 else []
    return [word.replace("\0", "") for word in words]  # a process cannot be given NUL


class Overrun(BaseException):
    """A case that takes too long. Not an Exception, so that no command catches it."""


def _stop(signum: int, frame: FrameType | None) -> None:
    raise Overrun


class Captured(io.TextIOWrapper):
    """A stream in memory, which may say that it is a terminal."""

    def __init__(self, terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def text(self) -> str:
        return self.buffer.getvalue().decode("utf-8", "replace")  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Ended:
    """How a case ended; `fault` is what is wrong with that, if anything."""

    words: list[str]
    code: int | None
    fault: str
    said: str
    seconds: float


def run(words: list[str], folder: Path, terminal: bool, seconds: float = SECONDS) -> Ended:
    """One command in this process, with what it printed and left behind."""
    before, place, argv = contents(folder), os.getcwd(), sys.argv
    out, err = Captured(False), Captured(terminal)
    code, fault, began = None, "", time.monotonic()
    previous = signal.signal(signal.SIGALRM, _stop)
    try:
        os.chdir(folder)
        sys.argv = ["byheart", *words]
        signal.setitimer(signal.ITIMER_REAL, seconds)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
                code = 0
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except Overrun:
        fault = f"hang: longer than {seconds:g} s\n" + traceback.format_exc()
    except BaseException:
        fault = "traceback\n" + traceback.format_exc()
    finally:
        signal.signal(signal.SIGALRM, previous)
        sys.argv = argv
        os.chdir(place)
    took = time.monotonic() - began
    if not fault:
        printed = wrong_output(words, code, out.text(), "" if terminal else err.text())
        fault = printed or wrong_files(code, folder, before)
    return Ended(words, code, fault, out.text() + err.text(), took)


def wrong_output(words: list[str], code: int | None, out: str, err: str) -> str:
    if code not in (0, 1, 2):
        return f"exit code {code}"
    shown = out + err
    odd = next((c for c in shown if c != "\n" and unicodedata.category(c) in ("Cc", "Cs")), None)
    odd = odd or next((c for c in shown if unicodedata.bidirectional(c) in BIDI), None)
    if odd is not None:
        return f"output: the character {odd!r} is printed raw"
    if "Traceback (most recent call last)" in shown:
        return "output: a traceback"
    if code == 2 and not (err.strip() or out.strip() or "--json" in words):
        return ""  # a terminal: what it said is not looked at
    if "--json" in words:
        try:
            if not isinstance(json.loads(out), dict):
                return "output: --json printed no object"
        except ValueError as error:
            return f"output: --json printed no JSON: {error}: {out[:300]!r}"
    return ""


BIDI = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def contents(folder: Path) -> dict[str, str]:
    """Every path in the folder with a digest of what is there; databases and locks of stores, which
    a reader may touch, are left out."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if re.search(r"\.(db|lock|db-\w+)$", path.name):
            continue
        regular = path.is_file() and not path.is_symlink()
        found[str(path.relative_to(folder))] = (
            hashlib.sha256(path.read_bytes()).hexdigest() if regular else ""
        )
    return found


def wrong_files(code: int | None, folder: Path, before: dict[str, str]) -> str:
    after = contents(folder)
    changed = [name for name in after if after[name] != before.get(name)]
    changed += [name for name in before if name not in after]
    if code == 2 and changed:
        return f"files: refused, but changed {changed[:5]}"
    hidden = [name for name in changed if Path(name).name.startswith(".")]
    if hidden:
        return f"files: left {hidden[:5]}"
    for name in changed:
        problem = unreadable(folder / name)
        if problem:
            return f"files: {name}: {problem}"
    return ""


def unreadable(path: Path) -> str:
    """Why a file that was written is not whole, by its suffix."""
    if not path.is_file():
        return ""
    data = path.read_bytes()
    try:
        if path.suffix == ".json":
            json.loads(data)
        elif path.suffix == ".svg":
            ElementTree.fromstring(data)
    except (ValueError, ElementTree.ParseError) as error:
        return str(error)
    ends = {".png": b"IEND\xaeB`\x82", ".html": b"</html>", ".pdf": b"%%EOF"}
    if path.suffix in ends and not data.rstrip().endswith(ends[path.suffix]):
        return f"does not end in {ends[path.suffix]!r}"
    return ""


def one_case(seed: int, number: int, only: str | None, seconds: float = SECONDS) -> Ended:
    folder = Path(tempfile.mkdtemp(prefix="byheart-fuzz-"))
    try:
        words = arguments(seed, number, only, folder)
        return run(words, folder, random.Random(number).random() < 0.2, seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def fuzz(
    numbers: Sequence[int], seed: int, only: str | None = None, seconds: float = SECONDS,
    tell: Callable[[str], None] = print,
) -> tuple[dict[str, Counter[str]], list[tuple[int, Ended]]]:  # fmt: skip
    """Counts by command and outcome, and the cases that failed."""
    counts: dict[str, Counter[str]] = {}
    failed: list[tuple[int, Ended]] = []
    with limited_memory():
        for number in numbers:
            ended = one_case(seed, number, only, seconds)
            outcome = (
                ended.fault.split("\n")[0].split(":")[0] if ended.fault else f"exit {ended.code}"
            )
            counts.setdefault(ended.words[0], Counter())[outcome] += 1
            if ended.fault:
                failed.append((number, ended))
                again = f"--seed {seed} --case {number}" + (f" --only {only}" if only else "")
                tell(f"\nFAILED {again}: byheart {spelled(ended.words)}")
                tell(ended.fault if len(ended.fault) < 3000 else "..." + ended.fault[-3000:])
    return counts, failed


def spelled(words: Sequence[str]) -> str:
    return " ".join(repr(w if len(w) <= 120 else f"{w[:60]}...{w[-20:]}") for w in words)


def show(counts: dict[str, Counter[str]]) -> None:
    outcomes = sorted({outcome for each in counts.values() for outcome in each})
    rows = [["command", *outcomes, "all"]]
    for command in sorted(counts):
        each = counts[command]
        rows.append([command, *(str(each[o]) for o in outcomes), str(sum(each.values()))])
    total: Counter[str] = sum(counts.values(), Counter())
    rows.append(["all", *(str(total[o]) for o in outcomes), str(sum(total.values()))])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def start() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=COMMANDS, metavar="COMMAND")
    parser.add_argument("--case", type=int, help="this one alone, with what it prints")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that a case may take")
    chosen = parser.parse_args()
    if chosen.case is not None:
        with limited_memory():
            ended = one_case(chosen.seed, chosen.case, chosen.only, chosen.seconds)
        print(f"byheart {spelled(ended.words)}\n{ended.said}\n{ended.fault}")
        print(f"exit code {ended.code}, {ended.seconds:.2f} s")
        sys.exit(bool(ended.fault))
    numbers = range(chosen.first, chosen.first + chosen.cases)
    began = time.monotonic()
    counts, failed = fuzz(numbers, chosen.seed, chosen.only, chosen.seconds)
    show(counts)
    print(f"{len(numbers):,} cases in {time.monotonic() - began:.0f} s, {len(failed):,} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    start()
