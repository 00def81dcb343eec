"""Facts made of vectors: a context of tokens, a query, and a label (Mahdavi et al. 2024). They are
kept in files of named arrays, `.safetensors` and `.npz`, which are never unpickled."""

from __future__ import annotations

import io
import math
import os
import zipfile
import zlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import ClassVar

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike

from byheart._files import read_regular
from byheart._json import Json
from byheart._machine import memory_bytes
from byheart._tables import html_table
from byheart._words import quote
from byheart.errors import Conflict, ConflictError, FactsError
from byheart.facts import _checks as check
from byheart.facts.facts import write_whole

SUFFIXES = (".safetensors", ".npz")
LISTED = 5
# What numpy and safetensors raise for files that are cut off, or hold what numpy does not have.
DAMAGED = (
    *(ValueError, EOFError, LookupError, TypeError, AttributeError, ArithmeticError),
    *(zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, TokenError),
)
LONGEST = 300  # characters of what a header says
EXACT = 2**53  # whole numbers up to here are float64 numbers


@dataclass(frozen=True, eq=False, repr=False)
class VectorFacts:
    """T examples (E(t), e(t)) -> y(t): a context of n vectors in R^d, a query, a label.

    Symbols:
        context: E, (n, d) if all examples share it, else (T, n, d); float64.
        query: e, (T, d) float64.
        label: y, (T,) int64 classes 0..classes-1, or (T,) or (T, m) float64.
        rows: (T,) int64, the index of each example in its source (from 0).
        merged: how many examples repeated an earlier one and were merged into it.

    Example:
        >>> facts = VectorFacts.make(np.eye(3)[:2], np.eye(3), [0, 1, 1])
        >>> facts, facts.shared, facts.classes
        (VectorFacts('vectors', T=3, n=2, d=3, shared context, 2 classes), True, 2)

    Notes:
        Call `VectorFacts.make` or `read_vectors`: they check, and the constructor does not.
    """

    kind: ClassVar = "vectors"

    context: np.ndarray
    query: np.ndarray
    label: np.ndarray
    rows: np.ndarray
    name: str = "vectors"
    classes: int | None = None
    merged: int = 0

    def __post_init__(self) -> None:
        check.freeze(self, context=None, query=None, label=None, rows=None)

    @classmethod
    def make(
        cls,
        context: ArrayLike,
        query: ArrayLike,
        label: ArrayLike,
        *,
        classes: int | None = None,
        name: str = "vectors",
    ) -> VectorFacts:
        """Checked facts. Whole-number labels are classes, `classes` of them (default: the largest
        + 1); others are regression targets. An example that repeats another is merged into it;
        the same inputs with different labels are a `ConflictError`."""
        shapes = [np.shape(E) for E in context] if isinstance(context, (list, tuple)) else []
        odd = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
        if odd is not None:
            found = f"example 0 has shape {shapes[0]}, example {odd} has {shapes[odd]}"
            advice = "Pad or cut them to one number of tokens"
            raise FactsError(f"{name}: contexts of unequal length: {found}. {advice}.")
        E, e = numbers(context, "context", name), numbers(query, "query", name)
        y = np.asarray(label)
        if e.ndim != 2 or E.ndim not in (2, 3) or 0 in e.shape or 0 in E.shape:
            forms = "a context of shape (n, d), shared, or (T, n, d)"
            found = f"found query {e.shape} and context {E.shape}"
            check.refuse(name, f"a query of shape (T, d) and {forms}, {found}")
        T, d = e.shape
        if E.shape[-1] != d:
            found = f"found {d} coordinates, the context {E.shape[-1]}"
            check.refuse(name, f"one d for query and context, {found}")
        if E.ndim == 3 and len(E) != T:
            found = f"found {T} queries and {len(E)} contexts"
            check.refuse(name, f"one context each, or one of shape (n, d) for all, {found}")
        if y.ndim not in (1, 2) or len(y) != T or 0 in y.shape:
            check.refuse(name, f"{T} labels, of shape ({T},) or ({T}, m), found {y.shape}")
        y, classes = _labels(y, classes, name)
        kept = _distinct(E, e, y, name)
        merged = T - len(kept)
        if merged:
            E, e, y = (E if E.ndim == 2 else E[kept]), e[kept], y[kept]
        return cls(E, e, y, kept, name, classes, merged)

    @property
    def T(self) -> int:
        return len(self.query)

    @property
    def d(self) -> int:
        return self.query.shape[1]

    @property
    def n(self) -> int:
        return self.context.shape[-2]

    @property
    def shared(self) -> bool:
        """Whether all examples have one context."""
        return self.context.ndim == 2

    @property
    def outputs(self) -> int:
        """d_out: one per class, or the length of a label."""
        return self.classes or self.targets.shape[1]

    @property
    def targets(self) -> np.ndarray:
        """The labels as (T, m) numbers; a class becomes a unit vector of its row."""
        if self.classes is None:
            return self.label.reshape(self.T, -1)
        return np.eye(self.classes)[self.label]

    def contexts(self) -> np.ndarray:
        """(T, n, d) whether shared or not; a view."""
        return np.broadcast_to(self.context, (self.T, self.n, self.d))

    def subset(self, indices: ArrayLike) -> VectorFacts:
        """The examples at `indices` (or where a mask is true)."""
        i = np.arange(self.T)[np.asarray(indices)]
        E = self.context if self.shared else self.context[i]
        return VectorFacts(E, self.query[i], self.label[i], self.rows[i], self.name, self.classes)

    def digest(self) -> str:
        """sha256 (hexadecimal) of shapes, context, query, label and number of classes."""
        shapes = f"{self.context.shape} {self.query.shape} {self.label.shape} {self.classes}"
        return check.digest(f"byheart vectors 1 {shapes}", self.context, self.query, self.label)

    def describe(self) -> dict[str, Json]:
        """The examples in numbers: a plain dict that JSON can hold."""
        sizes = {"facts": self.T, "context": self.n, "d": self.d, "shared": self.shared}
        labels = {"classes": self.classes, "outputs": self.outputs, "merged": self.merged}
        return {"name": self.name, **sizes, **labels}

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write `.safetensors` or `.npz`, all or nothing; `read_vectors` reads it again."""
        from safetensors.numpy import save

        arrays = {"query": self.query, "context": self.context, "label": self.label}
        if self.classes is not None:
            arrays["classes"] = np.array([self.classes])
        suffix = Path(path).suffix.lower()
        if suffix not in SUFFIXES:
            raise FactsError(f"{path}: expected a name that ends in {' or '.join(SUFFIXES)}.")
        if suffix == ".safetensors":
            data = save(arrays)
        else:
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **arrays)
            data = buffer.getvalue()
        write_whole(path, data)

    def __repr__(self) -> str:
        context = "shared context" if self.shared else "own contexts"
        label = f"{self.classes} classes" if self.classes else f"{self.outputs} numbers"
        label = label if self.outputs > 1 or self.classes else "scalar labels"
        sizes = f"T={self.T}, n={self.n}, d={self.d}"
        return f"VectorFacts({quote(self.name)}, {sizes}, {context}, {label})"

    def _repr_html_(self) -> str:
        header = ["example", *(f"e{i + 1}" for i in range(self.d)), "label"]
        rows = (
            [int(row), *map(float, e), y.tolist()]
            for row, e, y in zip(self.rows, self.query, self.label, strict=True)
        )
        return html_table(repr(self), header, rows, self.T)


def numbers(values: ArrayLike, what: str, name: str) -> np.ndarray:
    """`values` as float64, none of them rounded or infinite."""
    array = np.asarray(values)
    if array.dtype.kind not in "iuf":
        check.refuse(name, f"{what} to hold numbers, found type {array.dtype}")
    large = np.argwhere((array > EXACT) | (array < -EXACT))
    if array.dtype.kind in "iu" and len(large):
        at = tuple(map(int, large[0]))
        rounded = f"{array[at]} is beyond 2^53 and would be rounded to float64"
        raise FactsError(f"{name}: {what}{[*at]} = {rounded}. Divide the whole numbers first.")
    array = array.astype(np.float64)
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        at = tuple(map(int, wrong[0]))
        expected = f"expected finite numbers ({len(wrong):,} are not)"
        advice = "Correct or leave out the example"
        raise FactsError(f"{name}: {what}{[*at]} is {array[at]}: {expected}. {advice}.")
    return array


def _labels(y: np.ndarray, classes: int | None, name: str) -> tuple[np.ndarray, int | None]:
    if y.dtype.kind not in "iu":
        if classes is not None:
            raise FactsError(f"{name}: {classes} classes need whole-number labels, found {y.dtype}")
        return numbers(y, "label", name), None
    if y.ndim == 2:
        advice = "Give label vectors as floating-point numbers"
        found = f"one an example, found shape {y.shape}"
        raise FactsError(f"{name}: whole-number labels are classes, {found}. {advice}.")
    count = min(int(y.max()) + 1, EXACT) if classes is None else classes
    wrong = np.flatnonzero((y < 0) | (y >= count))
    if len(wrong):
        i = wrong[0]
        top = "" if classes is None else f" to {classes - 1}"
        raise FactsError(f"{name}: label[{i}] = {y[i]}: expected a class from 0{top}.")
    return y.astype(np.int64), count


def _distinct(E: np.ndarray, e: np.ndarray, y: np.ndarray, name: str) -> np.ndarray:
    """Indices of the first of each set of equal inputs; conflicting labels are an error."""
    groups: dict[bytes, list[int]] = defaultdict(list)
    # 0.0 and -0.0 are one number: adding 0 makes their bytes equal.
    for i, query in enumerate(e + 0.0):
        context = b"" if E.ndim == 2 else (E[i] + 0.0).tobytes()
        groups[query.tobytes() + context].append(i)
    clashes: list[Conflict] = [
        ((f"example {g[0]}",), [(i, str(y[i].tolist())) for i in g])
        for g in groups.values()
        if len(g) > 1 and any(not np.array_equal(y[i], y[g[0]]) for i in g)
    ]
    if clashes:
        first = "; ".join(
            ", ".join(f"example {i} -> {label}" for i, label in labels)
            for _, labels in clashes[:LISTED]
        )
        more = f" and {len(clashes) - LISTED:,} more" if len(clashes) > LISTED else ""
        inputs = "query (the context is shared)" if E.ndim == 2 else "query and context"
        raise ConflictError(
            f"{name}: {len(clashes):,} times one {inputs} with different labels, which no layer "
            f"can tell apart: {first}{more}. Keep one of each.",
            clashes,
        )
    return np.array([g[0] for g in groups.values()], dtype=np.int64)


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of a `.safetensors`, `.npz` or `.npy` file (there under the name `query`): plain
    numbers, at most as many bytes as half of the memory. Object arrays, which would have to be
    unpickled, are refused."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = os.fspath(path)
    suffix = Path(path).suffix.lower()
    if suffix not in (*SUFFIXES, ".npy"):
        found = f"the suffix {suffix!r}" if suffix else "no suffix"
        raise FactsError(f"{path}: expected a .safetensors or .npz file of vectors, found {found}.")
    data = read_regular(path, memory_bytes() // 2, FactsError)
    try:
        if suffix == ".safetensors":
            return load(data)
        return {"query": _array(data)} if suffix == ".npy" else _archive(data)
    except SafetensorError as error:
        problem = f"not a complete safetensors file ({error})"
    except DAMAGED as error:
        problem = f"refused: {error}. Save plain numeric arrays with numpy.savez"
        if suffix == ".safetensors":
            problem = f"a number format that numpy does not have ({error}): convert it to float32"
    raise FactsError(f"{path}: {problem}.")


def _archive(data: bytes) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        size, most = sum(part.file_size for part in archive.infolist()), memory_bytes() // 2
        if size > most:
            raise ValueError(f"it unpacks to {size:,} bytes, at most {most:,} are read")
        return {
            part.filename.removesuffix(".npy"): _array(archive.read(part))
            for part in archive.infolist()
        }


def _array(data: bytes) -> np.ndarray:
    """The array of an .npy file, whose header is checked before anything is made of it."""
    stream = io.BytesIO(data)
    version = npy.read_magic(stream)
    if version not in ((1, 0), (2, 0)):  # version 3 is for names of fields, which vectors lack
        raise ValueError(f"version {version} of the .npy format")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    if dtype.kind == "O":
        raise ValueError("it holds Python objects (pickles), which could run code")
    content = data[stream.tell() :]
    needed = math.prod(shape) * dtype.itemsize
    if dtype.kind not in "biuf" or min(shape, default=0) < 0 or needed > len(content):
        found = f"{dtype} of shape {shape}, {needed:,} bytes, {len(content):,} are there"
        raise ValueError(f"its header says {found}" if len(found) < LONGEST else "its header")
    array = np.frombuffer(content, dtype, math.prod(shape)).reshape(
        shape[::-1] if fortran else shape
    )
    return (array.T if fortran else array).copy()
