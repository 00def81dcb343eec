"""A second opinion: proves a memory folder from its files and docs/formats.md, docs/models.md and
docs/sharded.md alone. `python independent.py FOLDER [--json]`.

It shares no code with byheart. Nothing in the folder is believed: names, types, shapes and sizes
are compared with the format before use, every hash is computed again. What is proved: in exact real
arithmetic (balls of Arb) the right answer of every fact has the largest logit; in integers
(network.bin) every block is executed, and the output is the class of the answer. Exit code 0: all
facts are proved. 1: some are not, or a file differs from its hash. 2: the folder cannot be read, or
is not covered (distributions, vectors, hardmax, facts left out).
"""

from __future__ import annotations

import hashlib
import json
import math
import stat
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import islice, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from flint import arb, arb_mat, ctx
from safetensors.numpy import load

LARGEST = 2**31  # bytes of a file, and any size
AT_ONCE, PRECISIONS = 2**18, (128, 512, 2048)  # balls in a batch; bits: more for what is undecided
SLOP, TINY = 2.0**-30, 1e-150  # far above what float64 rounds, or loses by underflow, in a bound
# The fields of the specs: whole numbers >= 1 but for those in RULES: words, a type, a least value.
STACK, COUNTS = "N S d d_h H layers", "parameters dense distinct depth width max_bits total_bits"
FIELDS = {
    "attention-only": STACK + " qk_rank positions scale skip attention",
    "mlp-transformer": STACK + " w qk_rank activation positions scale attention",
    "shared-bottleneck": STACK,
    "associative": "N S d",
    "sharded": "N S d_g d_h H groups shards lam s1 s2 k bits check gate untied",
    "sqrt": "N S classes ordered ff1 m " + COUNTS,
}
RULES: dict[str, Any] = {
    "positions": ("input", "attention", "none"),
    "activation": ("gelu", "relu"),
}
RULES |= {"attention": ("softmax", "hardmax"), "gate": ("query", "key", "subject-sink"), "ff1": str}
RULES |= dict.fromkeys(("scale", "skip", "untied", "ordered"), bool)
RULES |= dict.fromkeys(("lam", "s1", "s2"), float) | dict.fromkeys(("w", "bits", "check"), 0)
# The tensors of each file and their sizes; where a size is 0, there is none.
MAPS = "W_E N d; W_U d N; W_pos P {0}; W_Q layers H {0} {1}; W_K layers H {0} {1}; "
MAPS += "W_V layers H {0} d_h; W_O layers H d_h {0}"
INDEX = "W_E N d_g; W_pos S+1 d_g; W_U d_g N; u any d_g; w any d_g; V any d_g d_h; point groups k; "
INDEX += "far k; level groups; first groups; group N; head_start shards+1; shard_sha256 shards 32; "
INDEX += "bits N bits; deciding decides; subject N*; cancel 2* d_g out"
MLP = "; W_in layers d w; b_in layers w; W_out layers w d"
TENSORS = {
    "attention-only": [MAPS.format("d", "qk_rank")],
    "mlp-transformer": [MAPS.format("d", "qk_rank") + MLP],
    "shared-bottleneck": [MAPS.format("d_h", "d_h") + "; W_C layers d c; W_D layers c d"],
    "associative": ["W_E S N d; W d d; W_U d N"],
    "sharded": ["W_O H d_h out", INDEX],
    "sqrt": [],
}
WHOLE = {"head_start": "int64", "shard_sha256": "uint8", "bits": "int8", "subject": "int8"}
WHOLE |= dict.fromkeys(("group", "point", "far", "level", "first", "deciding"), "int32")
WHOLE |= dict.fromkeys(("tokens", "answers", "rows"), "int32")


class Refused(Exception):
    """Why a folder is no proof, and the exit code."""


def need(good: object, problem: str, code: int = 2) -> None:
    if not good:
        raise Refused(problem, code)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read(folder: Path, name: str, sums: Any = None, most: int = LARGEST) -> bytes:
    """A regular file of bounded size with the hash in `sums`; no `name` comes from a file."""
    found = (folder / name).stat()
    need(stat.S_ISREG(found.st_mode) and found.st_size <= most, f"{name}: no file, or too long")
    data = (folder / name).read_bytes()
    need(sums is None or sha256(data) == sums[name], f"{name} differs from its SHA-256", 1)
    return data


def check_spec(fields: str, s: dict[str, Any]) -> None:
    need({*s} == {*fields.split()}, f"spec: expected the fields {fields}")
    for name, value in s.items():
        rule = RULES.get(name, 1)
        if isinstance(rule, int):
            good = type(value) is int and rule <= value <= LARGEST
        elif isinstance(rule, tuple):
            good = value in rule
        else:
            good = type(value) is rule or (rule is float and type(value) is int)
        need(good, f"spec: {name} is {value!r:.40}")
    need(s.get("attention") != "hardmax", "not covered: hardmax attention")


def tensors(folder: Path, file: str, sums: Any, layout: str, s: dict[str, Any]) -> Any:
    """Exactly the tensors of a layout: whole numbers where WHOLE says so, else floats."""
    z = defaultdict(int, s)
    sink = z["gate"] == "subject-sink"
    z |= {"any": -1, "32": 32, "S+1": z["S"] + 1, "shards+1": z["shards"] + 1, "2*": 2 * sink}
    z |= {"out": z["d_g"] + z["check"], "decides": int(z["gate"] != "query"), "N*": z["N"] * sink}
    z |= {"P": z["S"] * (z["positions"] != "none"), "c": z["d_h"] * (z["d"] != z["d_h"])}
    rows = (row.split() for row in layout.split(";"))
    shapes = {name: tuple(z[size] for size in sizes) for name, *sizes in rows}
    shapes = {name: shape for name, shape in shapes.items() if 0 not in shape}
    most = 8 * sum(abs(math.prod(shape)) for shape in shapes.values()) + 2**20
    found = load(read(folder, file, sums, LARGEST if "u" in shapes else min(most, LARGEST)))
    odd = ", ".join(sorted(found.keys() ^ shapes.keys()))
    need(not odd, f"{file} lacks tensors, or has some that the format has not: {odd}")
    for name, array in found.items():
        shape = tuple(a if b < 0 else b for a, b in zip(array.shape, shapes[name], strict=True))
        good = str(array.dtype) in ([WHOLE[name]] if name in WHOLE else ["float32", "float64"])
        need(good and array.shape == shape, f"{name}: {array.dtype} {array.shape}, not {shape}")
        need(name in WHOLE or np.isfinite(array).all(), f"{name}: numbers that are not finite")
    return found


def open_folder(folder: Path) -> SimpleNamespace:
    """What a folder holds, each part compared with the others."""
    record = json.loads(read(folder, "memory.json", most=2**28).decode())
    need(record["kind"] == "byheart memory" and record["schema"] == 1, "no memory of schema 1")
    names = ("family", "facts", "construction", "spec", "sha256", "vocabulary", "start_id")
    family, about, made, s, sums, words, start = (record.get(name) for name in names)
    several = made.get("kind") == "distribution" or record["distribution"] is not None
    need(family in FIELDS and not several, f"not covered: {family!r:.40} memories, distributions")
    need(about is not None, "not covered: the facts were left out")
    content = json.dumps({k: v for k, v in record.items() if k != "digest"}, sort_keys=True)
    need(sha256(content.encode()) == record["digest"], "memory.json differs from its digest", 1)
    check_spec(FIELDS[family], s)
    files = ["network.bin"] if family == "sqrt" else ["weights.safetensors", "index.safetensors"]
    files = [*files[: len(TENSORS[family]) or 1], "facts.safetensors"]
    need({*sums} == {*files}, "memory.json names other files than the format has")
    # How keys are read.
    good = all(isinstance(word, str) for word in words) and len({*words}) == len(words) == s["N"]
    need(good, "the vocabulary is not N different words")
    for token in (start, record["pad_id"]):
        need(token is None or (type(token) is int and 0 <= token < s["N"]), "start_id or pad_id")
    need(start is None or family not in ("sqrt", "sharded"), f"{family}: start_id must be null")
    S = s["S"] - (start is not None)
    order = [*range(S)] if record["order"] is None else record["order"]
    need(sorted(order) == [*range(S)], "order does not permute the columns of a key")
    # The facts, and the numbers that are to recall them.
    sizes, size = {"T": about["count"], "S": S}, about["vocabulary"]
    facts = tensors(folder, files[-1], sums, "tokens T S; answers T; rows T; prior T", sizes)
    tokens, right, prior = (facts[name] for name in ("tokens", "answers", "prior"))
    good = all(0 <= ids.min() <= ids.max() < size <= s["N"] for ids in (tokens, right))
    first = s["N"] - 1 if family == "sharded" else start
    need(good and not (tokens == first).any(), "a token of a fact is none, or the start token")
    text = json.dumps(words[:size], ensure_ascii=False, separators=(",", ":"))
    head = f"byheart facts 1 {sha256(text.encode())} {len(tokens)} {S}\n".encode()
    parts = (a.astype("<i8").tobytes() for a in (tokens, right))
    digest = sha256(b"".join([head, *parts, prior.astype("<f8").tobytes()]))
    need(digest == about["digest"], "the facts are not those that memory.json names", 1)
    m = SimpleNamespace(family=family, s=s, made=made, rows=facts["rows"], W={})
    m.tokens, m.right = tokens[:, order].astype(np.int64), right.astype(np.int64)
    if start is not None:
        m.tokens = np.pad(m.tokens, ((0, 0), (1, 0)), constant_values=start)
    m.network = read(folder, files[0], sums) if family == "sqrt" else b""
    for file, layout in zip(files, TENSORS[family], strict=False):
        m.W |= tensors(folder, file, sums, layout, s)
    formats = {array.dtype for name, array in m.W.items() if name not in WHOLE}
    need(len(formats) < 2, "weights in two formats")
    return m


# Balls: arrays of arb, each of which contains the exact number.
Outs = Callable[[np.ndarray], Iterator[tuple[np.ndarray, np.ndarray]]]
ball, exp, largest = (np.frompyfunc(f, n, 1) for f, n in ((arb, 1), (arb.exp, 1), (arb.max, 2)))
relu = np.frompyfunc(lambda x: x.max(arb(0)), 1, 1)
gelu = np.frompyfunc(lambda x: x * (1 + (x / arb(2).sqrt()).erf()) / 2, 1, 1)


def times(x: np.ndarray, W: np.ndarray) -> np.ndarray:
    """x (..., n) times W (n, m)."""
    product = arb_mat(x.size // len(W), len(W), x.ravel().tolist())
    product *= arb_mat(*W.shape, W.ravel().tolist())
    return np.array(product.entries(), dtype=object).reshape(*x.shape[:-1], W.shape[1])


def beside(w: np.ndarray) -> np.ndarray:
    """Maps of heads (H, n, m) as one (n, H m)."""
    return w.transpose(1, 0, 2).reshape(w.shape[1], -1)


def attend(x: np.ndarray, at: list[int], maps: list[np.ndarray], root: arb, gate: Any) -> Any:
    """Σ_h W_O^h W_V^h Σ_s softmax_s(q·k_s / root + gate_s) x_s of the queries `at` (B, at, d), each
    of which reads the positions up to itself; `maps` are W_Q, W_K, W_V and W_O, (H, ...) each."""
    q, k, v = (times(y, beside(w)) for y, w in zip((x[:, at], x, x), maps[:3], strict=True))
    q, k, v = (y.reshape(*y.shape[:2], len(maps[0]), -1) for y in (q, k, v))
    out = []
    for i, s in enumerate(at):
        scores = (q[:, i, None] * k[:, : s + 1]).sum(-1) / root + gate
        e = exp(scores - largest.reduce(scores, axis=1, keepdims=True))
        F = ((e / e.sum(1, keepdims=True))[..., None] * v[:, : s + 1]).sum(1)
        out.append(times(F.reshape(len(x), -1), maps[3].reshape(-1, maps[3].shape[2])))
    return np.stack(out, 1)


def residual(family: str, s: dict[str, Any], W: Any, tokens: np.ndarray) -> np.ndarray:
    """What W_U reads (B, d): the formulas of docs/models.md."""
    if family == "associative":
        key = reduce(np.multiply, (ball(W["W_E"][i, ids]) for i, ids in enumerate(tokens.T)))
        return times(key / arb(s["d"]).sqrt(), W["W"])
    positions = ball(W["W_pos"]) if "W_pos" in W else arb(0)
    inside = s.get("positions", "attention") == "attention"
    root = arb(s.get("qk_rank", s["d_h"])).sqrt() if s.get("scale", True) else arb(1)
    x = ball(W["W_E"][tokens]) + (arb(0) if inside else positions)
    for layer in range(s["layers"]):
        at = [*range(s["S"])] if layer < s["layers"] - 1 else [s["S"] - 1]
        z = times(x, W["W_C"][layer]) if "W_C" in W else x
        maps = [W[name][layer] for name in ("W_Q", "W_K", "W_V", "W_O")]
        out = attend(z + positions if inside else z, at, maps, root, arb(0))
        out = times(out, W["W_D"][layer]) if "W_D" in W else out
        x = out + x[:, at] if s.get("skip", True) else out
        if "W_in" in W:
            hidden = times(x, W["W_in"][layer]) + ball(W["b_in"][layer])
            hidden = relu(hidden) if s["activation"] == "relu" else gelu(hidden)
            x = x + times(hidden, W["W_out"][layer])
    return x[:, -1]


def batches(rows: np.ndarray, balls: int) -> list[np.ndarray]:
    step = max(1, AT_ONCE // balls)
    return [rows[i : i + step] for i in range(0, len(rows), step)]


def stack(m: SimpleNamespace) -> tuple[arb, Outs]:
    s = defaultdict(int, m.s)
    balls = s["N"] + s["S"] * (s["H"] * (s["d_h"] + s["qk_rank"]) + s["d"] + s["w"])
    each = lambda rows: batches(rows, balls)  # noqa: E731
    return arb(0), lambda rows: ((b, residual(m.family, m.s, m.W, m.tokens[b])) for b in each(rows))


def margins(out: np.ndarray, W_U: np.ndarray, right: np.ndarray) -> list[arb]:
    """The logit of the right token minus the largest other one. Columns of zeros have logit 0: one
    of them stands for all."""
    used = W_U.any(0)
    used[right] = True
    used[np.flatnonzero(~used)[:1]] = True
    at, rows = np.cumsum(used) - 1, times(out, W_U[:, used]).tolist()
    pairs = zip(rows, at[right].tolist(), strict=True)
    return [row[g] - reduce(arb.max, row[:g] + row[g + 1 :], arb("-inf")) for row, g in pairs]


def layout(s: dict[str, Any], W: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The group, sub-shard and shard of all that own one; what the proof takes for granted (section
    "sharded" of docs/formats.md) is checked in whole numbers."""
    points = np.vstack([W["point"], W["far"]]).astype(np.int64)
    need(abs(points).max() < 2**26, "lattice points too far out")
    need(len(np.unique(points, axis=0)) == len(points), "two groups share a lattice point")
    digits, most = (24, 127) if W["W_O"].dtype == "float32" else (53, 1023)
    parts, square = [math.frexp(s[n]) for n in ("lam", "s1", "s2")], int((points**2).sum(1).max())
    lam, s1, s2 = (exponent - 1 for _, exponent in parts)
    high = most - 2 - (4 * square + 4).bit_length()
    good = all(1 - most <= e <= high for e in (lam - 1, s1, s2, lam - s1, lam - s2))
    good = good and 4 * square <= 2**digits and all(part == 0.5 for part, _ in parts)
    need(good, "λ, s1, s2: no powers of two, or gates that do not exist in the stored format")
    start, level, group = (W[n].astype(np.int64) for n in ("head_start", "level", "group"))
    heads = np.diff(start)
    need(start[0] == 0 and start[-1] == s["H"] and heads.min() >= 0, "head_start is no layout")
    drawn = s["H"] if s["untied"] else heads.max()
    need(len(W["u"]) == len(W["w"]) == len(W["V"]) >= drawn, "u, w, V of too few heads")
    splits = s["bits"] if s["gate"] == "query" and s["S"] == 2 else 0
    good = s["bits"] <= 30 and 0 <= level.min() <= level.max() <= splits
    need(good and (2**level).sum() <= s["shards"], "level beyond the bits that gates can read")
    owner, ends = np.repeat(np.arange(s["groups"]), 2**level), np.cumsum(2**level)
    sub = np.arange(len(owner)) - np.repeat(ends - 2**level, 2**level)
    shard = W["first"][owner].astype(np.int64) + sub
    good = 0 <= shard.min() <= shard.max() < s["shards"] and len(np.unique(shard)) == len(shard)
    need(good, "two groups own one shard, or one that is none")
    need(-1 <= group.min() <= group.max() < s["groups"] and group[-1] == -1, "group of a token")
    need(s["gate"] == "query" or (W["deciding"] == 0).all(), "another token than the first decides")
    need(not s["bits"] or (abs(W["bits"]) == 1).all(), "bits other than 1 and -1")
    subject = W.get("subject", np.zeros(1))
    need(np.isin(subject, [0, 1]).all() and subject[-1] == 0, "subject marks other than 0 and 1")
    need(not W["W_E"][-1].any() and not W["W_pos"][0].any(), "the start token is not 0")
    digests = (hashlib.sha256(W["W_O"][a:b].tobytes()).digest() for a, b in pairwise(start))
    need(b"".join(digests) == W["shard_sha256"].tobytes(), "a shard differs from its SHA-256", 1)
    return owner, sub, shard


def norms(a: np.ndarray) -> np.ndarray:
    """Upper bounds of the norms of a[0], a[1], ..."""
    return np.sqrt((a.astype(np.float64).reshape(len(a), -1) ** 2).sum(1)) * (1 + SLOP) + TINY


def leak(s: dict[str, Any], W: Any, tokens: np.ndarray, sink: bool) -> arb:
    """What all foreign heads together can add: S e^{s_max - λ} max|x| Σ ||V^h|| ||W_O^h||. Each of
    their real tokens scores at most s_max - λ against 0 of the start token, whose value is 0. With
    a subject sink all positions do against the first, from which each is 2 max|x| away at most; the
    cancelling heads score λ there and 0 elsewhere."""
    E, pos = W["W_E"].astype(np.float64), W["W_pos"].astype(np.float64)
    x = [E[np.unique(ids)] + p for ids, p in zip(tokens.T, pos[1:], strict=True)]
    size, top = norms(E).max() + norms(pos).max(), [0.0]
    for i in range(0, len(W["u"]), 256):
        u, w = (W[name][i : i + 256].astype(np.float64) for name in "uw")
        keys = [abs(x_s @ w.T).max(0) + SLOP * size * norms(w) for x_s in x]
        query = abs(x[-1] @ u.T).max(0) + SLOP * size * norms(u)
        top.append(np.max(query * (np.max(keys, 0) + sink * keys[0])))
    lam, grown = arb(s["lam"]), 1 + SLOP
    total = (arb(np.max(top) * grown) - lam).exp() * arb(norms(W["V"]).max())
    total *= arb(norms(W["W_O"]).sum() * grown)
    if sink:
        total = 2 * (total + (-lam).exp() * arb(norms(W["cancel"]).sum() * grown))
    return (s["S"] * arb(size) * total).upper()


def sharded(m: SimpleNamespace) -> tuple[arb, Outs]:
    """Own heads of each fact in balls, gates and all; a bound for the others."""
    s, W, S, g = m.s, m.W, m.s["S"], m.s["d_g"]
    sink, (owner, sub, shard) = "sink" in s["gate"], layout(s, W)
    points, group = np.vstack([W["point"], W["far"]]).astype(np.int64), W["group"].astype(np.int64)
    code = (W["bits"] > 0) @ 2 ** np.arange(s["bits"])[::-1] if s["bits"] else group * 0
    chosen = group[m.tokens[:, -1 if s["gate"] == "query" else 0]]
    own = np.searchsorted(owner, chosen) + (code[m.tokens[:, 0]] >> s["bits"] - W["level"][chosen])
    first, last = np.arange(S) == 0, np.arange(S) == S - 1
    if sink:  # else a subject stands where none may: such facts are left undecided
        chosen = np.where((W["subject"][m.tokens] == first).all(1), chosen, -1)

    def maps(o: int) -> list[np.ndarray]:
        a, b = W["head_start"][shard[o] : shard[o] + 2]
        u, w, V = (W[n][a:b] if s["untied"] else W[n][: b - a] for n in "uwV")
        return [u[:, :, None], w[:, :, None], V, W["W_O"][a:b, :, :g]]

    def through(o: int) -> np.ndarray:
        """Σ_h V^h W_O^h (d_g, d_g) of the heads of one owner: what they make of x_1."""
        V, W_O = maps(o)[2:]
        return times(ball(beside(V)), W_O.reshape(-1, g)) if len(V) else ball(np.zeros((g, g)))

    rest = ball(W["cancel"][..., :g]).sum(0) if sink else 0
    rest = reduce(np.add, map(through, range(len(owner) * sink)), rest)

    def outs(rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        rows = rows[chosen[rows] >= 0]
        rows = rows[np.argsort(own[rows], kind="stable")]
        for mine in np.split(rows, np.flatnonzero(np.diff(own[rows])) + 1):
            o = own[mine[0]] if len(mine) else 0
            level, heads = W["level"][owner[o]], maps(o)
            for batch in batches(mine, (S + 1) * (heads[2].size // g + g)):
                t = m.tokens[batch]
                steps = ((points[group[t]] - points[owner[o]]) ** 2).sum(2)  # dist of each token
                if sink:
                    steps = W["subject"][t] * steps
                elif s["gate"] == "key":
                    steps = -steps - 2 * last
                else:
                    wrong = code[t] >> s["bits"] - level ^ sub[o]
                    wrong = sum((wrong >> j & 1 for j in range(level)), 2 * last * (level > 0))
                    steps = -steps[:, -1:] - wrong
                gate = np.pad(steps, ((0, 0), (1, 0)))[..., None] * arb(s["lam"])
                t = np.pad(t, ((0, 0), (1, 0)), constant_values=s["N"] - 1)
                x = ball(W["W_E"][t]) + ball(W["W_pos"])
                out = x[:, -1] + (attend(x, [S], heads, arb(1), gate)[:, 0] if len(heads[2]) else 0)
                yield batch, out + times(x[:, 1], rest - through(o)) if sink else out

    with np.errstate(all="ignore"):
        return leak(s, W, m.tokens, sink) * 2 * arb(norms(W["W_U"].T).max()), outs


def execute(blocks: Any, state: list[Any]) -> None:
    """H <- H + W2 relu(W1 H + b1) + b2, block by block."""
    for units, shift in blocks:
        hidden = []
        for inputs, bias, outputs in units:
            x = sum((w * state[i] for i, w in inputs), state[0] * 0 + bias)
            hidden += [(np.maximum(x, 0), o, w) for o, w in outputs]
        for r, o, w in [*hidden, *((1, o, w) for o, w in shift)]:
            state[o] = state[o] + w * r


def integers(m: SimpleNamespace) -> list[bool]:
    """network.bin, read as docs/formats.md lays it out, and executed in Python's integers."""
    data, s, N, M = m.network, m.s, m.s["N"], m.s["m"]
    need(data[:9] == b"BYHEXACT\x01" and len(data) > 49, "network.bin has another format")
    need(hashlib.sha256(data[:-32]).digest() == data[-32:], "network.bin: its own SHA-256", 1)
    size, expand = int.from_bytes(data[9:17], "little"), zlib.decompressobj()
    payload = expand.decompress(data[17:-32], min(size, LARGEST) + 1)
    need(len(payload) == size and expand.eof and not expand.unused_data, "network.bin: its length")
    stream = iter(payload)

    def number() -> int:
        value = shift = 0
        while (byte := next(stream)) > 127 and shift < 63:
            value, shift = value | (byte & 127) << shift, shift + 7
        need(byte < 128, "network.bin: a number of more than ten bytes")
        return value | byte << shift

    def long() -> int:
        power, length = number(), number()
        need(power + 8 * length <= min(s["max_bits"], 2**20) + 7, "network.bin: too long a weight")
        return int.from_bytes(bytes(islice(stream, length)), "little") << power

    def weight() -> int:
        index = number()
        return -pool[index >> 1] if index & 1 else pool[index >> 1]

    def pairs(most: int) -> list[tuple[int, int]]:
        found = [(number(), weight()) for _ in range(number())]
        need(all(i < most for i, _ in found), "network.bin: a coordinate that is none")
        return found

    def blocks() -> list[Any]:
        block = lambda: [(pairs(M), weight(), pairs(M)) for _ in range(number())]  # noqa: E731
        return [(block(), pairs(M)) for _ in range(number())]

    head = json.loads(bytes(islice(stream, number())).decode())
    source, target, out, d = (head[name] for name in ("source", "target", "out", "d"))
    mean, ordered = head["pooling"] == "attention", s["ordered"]
    good = M <= 64 and all(type(i) is int and 0 <= i < M for i in (source, target, out))
    good = good and d == 1 + ordered and (mean or head["pooling"] == "sum")
    need(good and len(head["dims"]) == M, "network.bin: its header")
    pool = [long() for _ in range(number())]
    E_in, scale, ids = [pairs(d) for _ in range(number())], weight(), number()
    embedding = [weight() for _ in range(ids - 1)]
    ff1, ff2 = blocks(), blocks()
    need(next(stream, None) is None and len(E_in) <= M and scale > 0, "network.bin: its weights")
    # What the spec counts.
    every = [w for row in E_in for _, w in row] + [w for w in embedding if w] + [1]
    every += [1, scale] if mean else []
    for inside, shift in ff1 + ff2:
        every += [w for a, bias, b in inside for _, w in [*a, *[(0, bias)] * (bias != 0), *b]]
        every += [w for _, w in shift]
    units, bits = [len(inside) for inside, _ in ff1 + ff2], [w.bit_length() for w in every]
    dense = M * (len(embedding) if ids else d) + M + 4 * M * mean
    dense += sum(2 * M * q + q + M for q in units)
    found = (len(every), dense, len({*every}), len(units), max([M, *units]), max(bits), sum(bits))
    need(found == tuple(s[name] for name in COUNTS.split()), f"the network counts {found}")
    answers = m.made["answers"]
    good = answers == sorted({*answers}) and len(answers) == s["classes"]
    need(good and 0 <= answers[0] <= answers[-1] < N, "the answers of the classes")
    # Every (token, position) once through FF1, every key through the attention and FF2.
    each, index = np.unique(m.tokens + N * ordered * np.arange(s["S"]), return_inverse=True)
    index, vectors = index.reshape(m.tokens.shape), [(each % N).astype(object), each // N]
    state: list[Any] = [vectors[0] * 0 for _ in range(M)]
    state[source] = np.array(embedding, dtype=object)[each % N] if ids else state[source]
    for i, row in enumerate(E_in):
        state[i] = sum((w * vectors[j].astype(object) for j, w in row), state[i])
    execute(ff1, state)
    pooled = state[source][index].sum(1) * scale
    need(not (mean and (pooled % s["S"]).any()), "the mean is not a whole number")
    state = [column[index[:, -1]] for column in state]
    state[target] = state[target] + (pooled // s["S"] if mean else pooled)
    execute(ff2, state)
    classes = {answer: i + 1 for i, answer in enumerate(answers)}
    return [classes.get(a) == b for a, b in zip(m.right.tolist(), state[out], strict=True)]


def prove(folder: Path) -> dict[str, Any]:
    """The verdict about a folder: how many facts are proved, lost, undecided."""
    begin, ctx.prec, m = time.perf_counter(), PRECISIONS[0], open_folder(folder)
    rows, low, high = np.arange(T := len(m.tokens)), [arb("-inf")] * T, [arb("inf")] * T
    if m.family == "sqrt":
        low = high = [arb(1 if held else -1) for held in integers(m)]
    else:
        slack, outs = (sharded if m.family == "sharded" else stack)(m)
        for ctx.prec in PRECISIONS:
            for batch, out in outs(rows):
                found = margins(out, m.W["W_U"], m.right[batch])
                for row, margin in zip(batch, found, strict=True):
                    low[row], high[row] = margin.lower() - slack, margin.upper() + slack
            rows = np.array([i for i in rows if not (low[i] > 0 or high[i] < 0)], dtype=np.int64)
    proved, lost = sum(a > 0 for a in low), sum(b < 0 for b in high)
    margin = min(math.nextafter(float(a), -math.inf) for a in low)
    found = {"family": m.family, "facts": T, "proved": proved, "lost": lost}
    found |= {
        "undecided": T - proved - lost,
        "rows": [int(m.rows[i]) for i in range(T) if not low[i] > 0][:20],
    }
    found["margin"] = margin if m.family != "sqrt" and math.isfinite(margin) else None
    return found | {"seconds": round(time.perf_counter() - begin, 3)}


def main(arguments: list[str]) -> int:
    folders = [a for a in arguments if a != "--json"]
    try:
        need(len(folders) == 1, "usage: python independent.py FOLDER [--json]")
        found = prove(Path(folders[0]))
        code = int(found["proved"] < found["facts"])
    except Refused as error:
        found, code = {"problem": error.args[0]}, error.args[1]
    except Exception as error:  # files of others: whatever they break in a parser
        found, code = {"problem": f"cannot be read: {type(error).__name__}: {error}"[:200]}, 2
    found = {"certified": code == 0, **found}
    lines = [f"{'proved' if code == 0 else 'NOT proved'}, by the independent checker"]
    lines += [f"  {name:9} {value}" for name, value in found.items() if name != "certified"]
    print(json.dumps(found) if "--json" in arguments else "\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
