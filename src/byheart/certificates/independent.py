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
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from flint import arb, arb_mat, ctx
from safetensors.numpy import load

LARGEST = 2**31  # bytes of a file, and any size
AT_ONCE, PRECISIONS = 2**18, (128, 512, 2048)  # balls in a batch; bits: more for what is undecided
SLOP, TINY = 1 + 2.0**-30, 1e-150  # far above what float64 rounds, or loses by underflow, in a sum
# The fields of the specs. They are whole numbers but for those in RULES: words, or a type.
STACK, COUNTS = "N S d d_h H layers", "parameters dense distinct depth width max_bits total_bits"
FIELDS = {
    "attention-only": STACK + " qk_rank positions scale skip attention",
    "mlp-transformer": STACK + " w qk_rank activation positions scale attention",
    "shared-bottleneck": STACK,
    "associative": "N S d",
    "sharded": "N S d_g d_h H groups shards lam s1 s2 k bits check gate untied",
    "sqrt": "N S classes ordered ff1 m " + COUNTS,
}
RULES: dict[str, Any] = {"gate": ("query", "key", "subject-sink"), "activation": ("gelu", "relu")}
RULES |= {"positions": ("input", "attention", "none"), "attention": ("softmax", "hardmax")}
RULES |= dict.fromkeys(("scale", "skip", "untied", "ordered"), (True, False)) | {"ff1": str}
# The tensors of each file and their sizes; where a size is 0, there is none.
MAPS = "W_E N d; W_U d N; W_pos P a; W_Q layers H a r; W_K layers H a r; W_V layers H a d_h; "
MAPS += "W_O layers H d_h a; W_C layers d c; W_D layers c d; "
INDEX = "W_E N d_g; W_pos S+1 d_g; W_U d_g N; u any d_g; w any d_g; V any d_g d_h; point groups k; "
INDEX += "far k; level groups; first groups; group N; head_start shards+1; shard_sha256 shards 32; "
TENSORS = dict.fromkeys(FIELDS, [MAPS + "W_in layers d w; b_in layers w; W_out layers w d"]) | {
    "associative": ["W_E S N d; W d d; W_U d N"],
    "sharded": ["W_O H d_h out", INDEX + "bits N bits; deciding D; subject N*; cancel 2* d_g out"],
}
WHOLE = {"head_start": "int64", "shard_sha256": "uint8", "bits": "int8", "subject": "int8"}
WHOLE |= dict.fromkeys(("group", "point", "far", "level", "first", "deciding"), "int32")
WHOLE |= dict.fromkeys(("tokens", "answers", "rows"), "int32")
ball, exp, largest = (np.frompyfunc(f, n, 1) for f, n in ((arb, 1), (arb.exp, 1), (arb.max, 2)))
relu = np.frompyfunc(lambda x: x.max(arb(0)), 1, 1)
gelu = np.frompyfunc(lambda x: x * (1 + (x / arb(2).sqrt()).erf()) / 2, 1, 1)
Outs = Iterator[tuple[np.ndarray, np.ndarray]]  # some facts, and what W_U reads for them (B, d)


class Refused(Exception):
    """Why a folder is no proof, and the exit code."""


def need(good: object, problem: str, code: int = 2) -> None:
    if not good:
        raise Refused(problem, code)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def norms(a: np.ndarray) -> np.ndarray:
    """Upper bounds of the norms of a[0], a[1], ..."""
    return np.sqrt((a.astype(np.float64).reshape(len(a), -1) ** 2).sum(1)) * SLOP + TINY


def times(x: np.ndarray, W: np.ndarray) -> np.ndarray:
    """x (..., n) times W (n, m) in balls, of which each contains the exact number."""
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


class Memory:
    """What a folder holds, each part compared with the others."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.sums = folder, {}
        record = json.loads(self.read("memory.json", 2**28).decode())
        need(record["kind"] == "byheart memory" and record["schema"] == 1, "no memory of schema 1")
        self.family, self.s, about, made = (
            record[n] for n in ("family", "spec", "facts", "construction")
        )
        several = made.get("kind") == "distribution" or record.get("distribution") is not None
        covered = self.family in FIELDS and not several and about is not None
        need(covered, f"not covered: {self.family!r:.40}, or distributions, or facts left out")
        content = json.dumps({k: v for k, v in record.items() if k != "digest"}, sort_keys=True)
        need(sha256(content.encode()) == record["digest"], "memory.json differs from its digest", 1)
        self.check_spec(s := self.s)
        files = ["weights.safetensors", "index.safetensors"][: len(TENSORS[self.family])]
        files = ["network.bin"] if self.family == "sqrt" else files
        self.sums, words, start = record["sha256"], record["vocabulary"], record["start_id"]
        need({*self.sums} == {*files, "facts.safetensors"}, "other files than the format has")
        good = len({*words}) == len(words) == s["N"] and all(isinstance(w, str) for w in words)
        need(good, "the vocabulary is not N different words")
        for token in (start, record["pad_id"]):
            need(
                token is None or (type(token) is int and 0 <= token < s["N"]), "start_id or pad_id"
            )
        need(start is None or self.family not in ("sqrt", "sharded"), "start_id must be null")
        S = s["S"] - (start is not None)
        order = [*range(S)] if record["order"] is None else record["order"]
        need(sorted(order) == [*range(S)], "order does not permute the columns of a key")
        sizes, size = {"T": about["count"], "S": S}, about["vocabulary"]
        facts = self.tensors("facts.safetensors", "tokens T S; answers T; rows T; prior T", sizes)
        tokens, right = (facts[name].astype(np.int64) for name in ("tokens", "answers"))
        good = all(0 <= ids.min() <= ids.max() < size <= s["N"] for ids in (tokens, right))
        first = s["N"] - 1 if self.family == "sharded" else start
        need(good and not (tokens == first).any(), "a token of a fact is none, or the start token")
        text = json.dumps(words[:size], ensure_ascii=False, separators=(",", ":"))
        head = f"byheart facts 1 {sha256(text.encode())} {len(tokens)} {S}\n".encode()
        parts = [
            a.astype(t).tobytes()
            for a, t in ((tokens, "<i8"), (right, "<i8"), (facts["prior"], "<f8"))
        ]
        need(
            sha256(b"".join([head, *parts])) == about["digest"],
            "the facts differ from their digest",
            1,
        )
        self.tokens, self.right, self.rows, self.made = tokens[:, order], right, facts["rows"], made
        if start is not None:
            self.tokens = np.pad(self.tokens, ((0, 0), (1, 0)), constant_values=start)
        self.W: dict[str, np.ndarray] = {}
        for file, layout in zip(files, TENSORS[self.family], strict=True):
            self.W |= {} if self.family == "sqrt" else self.tensors(file, layout, s)
        formats = {array.dtype for name, array in self.W.items() if name not in WHOLE}
        need(len(formats) < 2, "weights in two formats")

    def read(self, name: str, most: int = LARGEST) -> bytes:
        """A regular file of bounded size with the hash in memory.json; no name is a file's own."""
        path = self.folder / name
        need(path.is_file() and path.stat().st_size <= most, f"{name}: no file, or too long")
        data = path.read_bytes()
        need(
            sha256(data) == self.sums.get(name, sha256(data)), f"{name} differs from its SHA-256", 1
        )
        return data

    def check_spec(self, s: dict[str, Any]) -> None:
        need({*s} == {*FIELDS[self.family].split()}, f"spec: not {FIELDS[self.family]}")
        for name, value in s.items():
            least, rule = int(name not in ("w", "bits", "check")), RULES.get(name, int)
            if name in ("lam", "s1", "s2"):
                good = type(value) in (float, int)
            elif rule in (int, str):
                good = type(value) is rule and (rule is str or least <= value <= LARGEST)
            else:
                good = value in rule and type(value) in (str, bool)
            need(good, f"spec: {name} is {value!r:.40}")
        need(s.get("attention") != "hardmax", "not covered: hardmax attention")

    def tensors(self, file: str, layout: str, s: dict[str, Any]) -> dict[str, np.ndarray]:
        """Exactly the tensors of a layout: whole numbers where WHOLE says so, else floats."""
        z, wide = defaultdict(int, s), "qk_rank" in s
        sink = z["gate"] == "subject-sink"
        z |= {"any": -1, "32": 32, "S+1": z["S"] + 1, "shards+1": z["shards"] + 1, "2*": 2 * sink}
        z |= {"out": z["d_g"] + z["check"], "D": int(z["gate"] != "query"), "N*": z["N"] * sink}
        z |= {"P": z["S"] * (z["positions"] != "none"), "a": z["d" if wide else "d_h"]}
        z |= {
            "r": z["qk_rank" if wide else "d_h"],
            "c": z["d_h"] * (z["d"] != z["d_h"]) * (not wide),
        }
        rows = (row.split() for row in layout.split(";"))
        shapes = {name: tuple(z[size] for size in sizes) for name, *sizes in rows}
        shapes = {name: shape for name, shape in shapes.items() if 0 not in shape}
        most = 8 * sum(abs(math.prod(shape)) for shape in shapes.values()) + 2**20
        found = load(self.read(file, LARGEST if "u" in shapes else min(most, LARGEST)))
        odd = ", ".join(sorted(found.keys() ^ shapes.keys()))
        need(not odd, f"{file} lacks tensors, or has some that the format has not: {odd}")
        for name, array in found.items():
            shape = tuple(a if b < 0 else b for a, b in zip(array.shape, shapes[name], strict=True))
            good = str(array.dtype) in ([WHOLE[name]] if name in WHOLE else ["float32", "float64"])
            need(good and array.shape == shape, f"{name}: {array.dtype} {array.shape}, not {shape}")
            need(name in WHOLE or np.isfinite(array).all(), f"{name}: numbers that are not finite")
        return found

    def batches(self, rows: np.ndarray, balls: int) -> list[np.ndarray]:
        step = max(1, AT_ONCE // balls)
        return [rows[i : i + step] for i in range(0, len(rows), step)]

    def margins(self, out: np.ndarray, right: np.ndarray) -> list[arb]:
        """The logit of the right token minus the largest other one. Columns of zeros have logit 0:
        one of them stands for all."""
        used = self.W["W_U"].any(0)
        used[right] = True
        used[np.flatnonzero(~used)[:1]] = True
        at, rows = np.cumsum(used) - 1, times(out, self.W["W_U"][:, used])
        own = rows[np.arange(len(rows)), at[right]]
        rows[np.arange(len(rows)), at[right]] = arb("-inf")
        return list(own - largest.reduce(rows, axis=1))

    def stack(self, rows: np.ndarray) -> Outs:
        """The formulas of docs/models.md."""
        s, W, z = self.s, self.W, defaultdict(int, self.s)
        balls = z["N"] + z["S"] * (z["H"] * (z["d_h"] + z["qk_rank"]) + z["d"] + z["w"])
        positions = ball(W["W_pos"]) if "W_pos" in W else arb(0)
        inside = s.get("positions", "attention") == "attention"
        root = arb(z["qk_rank"] or z["d_h"]).sqrt() if s.get("scale", True) else arb(1)
        for batch in self.batches(rows, balls):
            tokens = self.tokens[batch]
            if self.family == "associative":
                key = np.multiply.reduce([ball(W["W_E"][i, t]) for i, t in enumerate(tokens.T)])
                yield batch, times(key / arb(s["d"]).sqrt(), W["W"])
                continue
            x = ball(W["W_E"][tokens]) + (arb(0) if inside else positions)
            for layer in range(s["layers"]):
                at = [*range(s["S"])] if layer < s["layers"] - 1 else [s["S"] - 1]
                y = times(x, W["W_C"][layer]) if "W_C" in W else x
                maps = [W[name][layer] for name in ("W_Q", "W_K", "W_V", "W_O")]
                out = attend(y + positions if inside else y, at, maps, root, arb(0))
                out = times(out, W["W_D"][layer]) if "W_D" in W else out
                x = out + x[:, at] if s.get("skip", True) else out
                if "W_in" in W:
                    hidden = times(x, W["W_in"][layer]) + ball(W["b_in"][layer])
                    hidden = relu(hidden) if s["activation"] == "relu" else gelu(hidden)
                    x = x + times(hidden, W["W_out"][layer])
            yield batch, x[:, -1]

    def premises(self) -> None:
        """Which group and sub-shard own which shard; everything that the bound of `leak` takes for
        granted (docs/formats.md) is checked in whole numbers."""
        s, W = self.s, self.W
        points = np.vstack([W["point"], W["far"]]).astype(np.int64)
        need(abs(points).max() < 2**26, "lattice points too far out")
        need(len(np.unique(points, axis=0)) == len(points), "two groups share a lattice point")
        digits, most = (24, 127) if W["W_O"].dtype == "float32" else (53, 1023)
        parts, square = (
            [math.frexp(s[n]) for n in ("lam", "s1", "s2")],
            int((points**2).sum(1).max()),
        )
        lam, s1, s2 = (exponent - 1 for _, exponent in parts)
        high = most - 2 - (4 * square + 4).bit_length()
        good = all(1 - most <= e <= high for e in (lam - 1, s1, s2, lam - s1, lam - s2))
        good = good and 4 * square <= 2**digits and all(part == 0.5 for part, _ in parts)
        need(good, "λ, s1, s2: no powers of two, or gates that do not exist in the stored format")
        start, level, group = (W[n].astype(np.int64) for n in ("head_start", "level", "group"))
        heads, splits = np.diff(start), s["bits"] * (s["gate"] == "query" and s["S"] == 2)
        need(start[0] == 0 and start[-1] == s["H"] and heads.min() >= 0, "head_start is no layout")
        drawn = s["H"] if s["untied"] else heads.max()
        need(len(W["u"]) == len(W["w"]) == len(W["V"]) >= drawn, "u, w, V of too few heads")
        good = s["bits"] <= 30 and 0 <= level.min() <= level.max() <= splits
        need(good and (2**level).sum() <= s["shards"], "level beyond the bits that gates can read")
        owner, ends = np.repeat(np.arange(s["groups"]), 2**level), np.cumsum(2**level)
        sub = np.arange(len(owner)) - np.repeat(ends - 2**level, 2**level)
        shard = W["first"][owner].astype(np.int64) + sub
        good = 0 <= shard.min() <= shard.max() < s["shards"] and len({*shard.tolist()}) == len(
            shard
        )
        need(good, "two groups own one shard, or one that is none")
        need(-1 <= group.min() <= group.max() < s["groups"] and group[-1] == -1, "group of a token")
        need(s["gate"] == "query" or (W["deciding"] == 0).all(), "another token decides")
        need(not s["bits"] or (abs(W["bits"]) == 1).all(), "bits other than 1 and -1")
        subject = W.get("subject", np.zeros(1))
        need(np.isin(subject, [0, 1]).all() and subject[-1] == 0, "subject marks but 0 and 1")
        need(not W["W_E"][-1].any() and not W["W_pos"][0].any(), "the start token is not 0")
        digests = (hashlib.sha256(W["W_O"][a:b].tobytes()).digest() for a, b in pairwise(start))
        need(b"".join(digests) == W["shard_sha256"].tobytes(), "shard_sha256 differs", 1)
        self.points, self.group, self.owner, self.sub, self.shard = points, group, owner, sub, shard

    def leak(self) -> arb:
        """What all foreign heads together can add to a logit: 2 max|w| times
        S e^{s_max - λ} max|x| Σ ||V^h|| ||W_O^h||. Each of their real tokens scores at most
        s_max - λ against 0 of the start token, whose value is 0. With a subject sink all positions
        do against the first, from which each is 2 max|x| away at most; the cancelling heads score λ
        there and 0 elsewhere."""
        s, W, sink = self.s, self.W, "cancel" in self.W
        E, pos, lam = W["W_E"].astype(np.float64), W["W_pos"].astype(np.float64), arb(s["lam"])
        x = [E[np.unique(ids)] + p for ids, p in zip(self.tokens.T, pos[1:], strict=True)]
        size, top = norms(E).max() + norms(pos).max(), [0.0]
        for i in range(0, len(W["u"]), 256):
            u, w = (W[name][i : i + 256].astype(np.float64) for name in "uw")
            keys = [abs(x_s @ w.T).max(0) + (SLOP - 1) * size * norms(w) for x_s in x]
            query = abs(x[-1] @ u.T).max(0) + (SLOP - 1) * size * norms(u)
            top.append(np.max(query * (np.max(keys, 0) + sink * keys[0])))
        total = (arb(np.max(top) * SLOP) - lam).exp() * arb(norms(W["V"]).max())
        total *= arb(norms(W["W_O"]).sum() * SLOP)
        if sink:
            total = 2 * (total + (-lam).exp() * arb(norms(W["cancel"]).sum() * SLOP))
        return (s["S"] * arb(size) * total * 2 * arb(norms(W["W_U"].T).max())).upper()

    def maps(self, o: int) -> list[np.ndarray]:
        """W_Q, W_K, W_V and W_O of the heads of one owner, on the generic coordinates."""
        a, b = self.W["head_start"][self.shard[o] : self.shard[o] + 2]
        u, w, V = (self.W[n][a:b] if self.s["untied"] else self.W[n][: b - a] for n in "uwV")
        return [u[:, :, None], w[:, :, None], V, self.W["W_O"][a:b, :, : self.s["d_g"]]]

    def through(self, o: int) -> Any:
        """Σ_h V^h W_O^h of one owner: what its heads make of x_1 where they read nothing else."""
        _, _, V, W_O = self.maps(o)
        return times(ball(beside(V)), W_O.reshape(-1, V.shape[1])) if len(V) else arb(0)

    def shards(self, rows: np.ndarray) -> Outs:
        """Own heads of each fact with their gates; with a subject sink also what cancelling and
        foreign heads leave of x_1."""
        s, W, S, level = self.s, self.W, self.s["S"], self.W["level"].astype(np.int64)
        code = (W["bits"] > 0) @ 2 ** np.arange(s["bits"])[::-1] if s["bits"] else self.group * 0
        chosen = self.group[self.tokens[:, -1 if s["gate"] == "query" else 0]]
        own = code[self.tokens[:, 0]] >> s["bits"] - level[chosen]
        own, rest, last = own + np.searchsorted(self.owner, chosen), arb(0), np.arange(S) == S - 1
        if sink := "cancel" in W:  # a subject that stands elsewhere: not covered
            chosen = np.where((W["subject"][self.tokens] == (np.arange(S) == 0)).all(1), chosen, -1)
            rest = ball(W["cancel"][..., : s["d_g"]]).sum(0)
            rest = rest + sum(self.through(o) for o in range(len(self.owner)))
        rows = rows[chosen[rows] >= 0]
        rows = rows[np.argsort(own[rows], kind="stable")]
        for mine in np.split(rows, np.flatnonzero(np.diff(own[rows])) + 1):
            o = own[mine[0]] if len(mine) else 0
            bits, maps = level[self.owner[o]], self.maps(o)
            for batch in self.batches(mine, (S + 1) * (maps[2].size // s["d_g"] + s["d_g"])):
                t = self.tokens[batch]
                steps = ((self.points[self.group[t]] - self.points[self.owner[o]]) ** 2).sum(2)
                if sink:
                    steps = W["subject"][t] * steps
                elif s["gate"] == "key":
                    steps = -steps - 2 * last
                else:
                    wrong = code[t] >> s["bits"] - bits ^ self.sub[o]
                    wrong = sum((wrong >> j & 1 for j in range(bits)), 2 * last * (bits > 0))
                    steps = -steps[:, -1:] - wrong
                gate = np.pad(steps, ((0, 0), (1, 0)))[..., None] * arb(s["lam"])
                x = ball(W["W_E"][np.pad(t, ((0, 0), (1, 0)), constant_values=s["N"] - 1)])
                x, out = x + ball(W["W_pos"]), arb(0)
                if len(maps[2]):
                    out = attend(x, [S], maps, arb(1), gate)[:, 0]
                out = out + times(x[:, 1], rest - self.through(o)) if sink else out
                yield batch, out + x[:, -1]

    def integers(self) -> list[bool]:
        """network.bin, read as docs/formats.md lays it out, and executed in Python's integers."""
        data, s, N, M = self.read("network.bin"), self.s, self.s["N"], self.s["m"]
        need(data[:9] == b"BYHEXACT\x01" and len(data) > 49, "network.bin has another format")
        need(hashlib.sha256(data[:-32]).digest() == data[-32:], "network.bin: its own SHA-256", 1)
        size, expand = int.from_bytes(data[9:17], "little"), zlib.decompressobj()
        payload = expand.decompress(data[17:-32], min(size, LARGEST) + 1)
        need(len(payload) == size and expand.eof and not expand.unused_data, "its length")
        stream, pool, weights = iter(payload), [0], []

        def number() -> int:
            value = shift = 0
            while (byte := next(stream)) > 127 and shift < 63:
                value, shift = value | (byte & 127) << shift, shift + 7
            need(byte < 128, "network.bin: a number of more than ten bytes")
            return value | byte << shift

        def long() -> int:
            power, length = number(), number()
            need(power + 8 * length <= min(s["max_bits"], 2**20) + 7, "too long a weight")
            return int.from_bytes(bytes(islice(stream, length)), "little") << power

        def weight() -> int:
            index = number()
            weights.append(-pool[index >> 1] if index & 1 else pool[index >> 1])
            return weights[-1]

        def pairs() -> list[tuple[int, int]]:
            return [(number(), weight()) for _ in range(number())]

        def units() -> list[Any]:
            return [(pairs(), weight(), pairs()) for _ in range(number())]

        head = json.loads(bytes(islice(stream, number())).decode())
        source, target, out, d = (head[name] for name in ("source", "target", "out", "d"))
        good = M == len(head["dims"]) <= 64 and all(
            type(i) is int and 0 <= i < M for i in (source, target, out)
        )
        mean = head["pooling"] == "attention"
        need(good and d == 1 + s["ordered"] and (mean or head["pooling"] == "sum"), "its header")
        pool = [long() for _ in range(number())]
        E_in, scale, ids = [pairs() for _ in range(number())], weight(), number()
        embedding = [weight() for _ in range(ids - 1)]
        ff1, ff2 = ([(units(), pairs()) for _ in range(number())] for _ in range(2))
        need(
            next(stream, None) is None and len(E_in) <= M and scale > 0, "network.bin: its weights"
        )
        # The spec counts the weights that are not 0, W_V and E_out (or E_out in place of `scale`).
        weights = [w for w in weights if w] + [1, 1] * mean
        wide, bits = [len(inside) for inside, _ in ff1 + ff2], [w.bit_length() for w in weights]
        dense = (
            M * (len(embedding) if ids else d)
            + M
            + 4 * M * mean
            + sum(2 * M * q + q + M for q in wide)
        )
        found = [
            len(weights),
            dense,
            len({*weights}),
            len(wide),
            max([M, *wide]),
            max(bits),
            sum(bits),
        ]
        need(found == [s[name] for name in COUNTS.split()], f"the network counts {found}")
        answers = self.made["answers"]
        good = answers == sorted({*answers}) and len(answers) == s["classes"]
        need(good and 0 <= answers[0] <= answers[-1] < N, "the answers of the classes")
        # Every (token, position) once through FF1, every key through the attention and FF2.
        each, index = np.unique(
            self.tokens + N * s["ordered"] * np.arange(s["S"]), return_inverse=True
        )
        index, vectors = index.reshape(self.tokens.shape), [(each % N) + 0 * pool[0], each // N][:d]
        state: list[Any] = [(each * 0).astype(object) for _ in range(M)]
        state[source] = np.array(embedding, dtype=object)[each % N] if ids else state[source]
        for i, row in enumerate(E_in):
            state[i] = sum((w * vectors[j].astype(object) for j, w in row), state[i])
        state = self.execute(ff1, state)
        pooled = state[source][index].sum(1) * scale
        need(not (mean and (pooled % s["S"]).any()), "the mean is not a whole number")
        state = [column[index[:, -1]] for column in state]
        state[target] = state[target] + (pooled // s["S"] if mean else pooled)
        classes, state = dict(zip(answers, range(1, N + 1), strict=False)), self.execute(ff2, state)
        return [classes.get(a) == b for a, b in zip(self.right.tolist(), state[out], strict=True)]

    def execute(self, blocks: list[Any], state: list[Any]) -> list[Any]:
        """H <- H + W2 relu(W1 H + b1) + b2, block by block."""
        for units, shift in blocks:
            added = [(1, o, w) for o, w in shift]
            for inputs, bias, outputs in units:
                x = sum((w * state[i] for i, w in inputs), state[0] * 0 + bias)
                added += [(np.maximum(x, 0), o, w) for o, w in outputs]
            for r, o, w in added:
                state[o] = state[o] + w * r
        return state

    def prove(self) -> dict[str, Any]:
        """How many facts are proved, lost and undecided, and where the others stand."""
        rows, low, high = np.arange(T := len(self.tokens)), [arb("-inf")] * T, [arb("inf")] * T
        if self.family == "sqrt":
            low = high = [arb(1 if held else -1) for held in self.integers()]
            rows = rows[:0]
        outs, slack = self.stack, arb(0)
        if self.family == "sharded":
            self.premises()
            outs, slack = self.shards, self.leak()
        for ctx.prec in PRECISIONS:
            for batch, out in outs(rows) if len(rows) else ():
                for row, margin in zip(batch, self.margins(out, self.right[batch]), strict=True):
                    low[row], high[row] = margin.lower() - slack, margin.upper() + slack
            rows = np.array([i for i in rows if not (low[i] > 0 or high[i] < 0)], dtype=np.int64)
        proved, lost = sum(a > 0 for a in low), sum(b < 0 for b in high)
        margin = min(math.nextafter(float(a), -math.inf) for a in low)
        found = {"family": self.family, "facts": T, "proved": proved, "lost": lost}
        found |= {"undecided": T - proved - lost}
        found["margin"] = margin if self.family != "sqrt" and math.isfinite(margin) else None
        return found | {
            "rows": [int(row) for row, a in zip(self.rows, low, strict=True) if not a > 0][:20]
        }


def main(arguments: list[str]) -> int:
    folders, begin = [a for a in arguments if a != "--json"], time.perf_counter()
    try:
        need(len(folders) == 1, "usage: python independent.py FOLDER [--json]")
        with np.errstate(all="ignore"):  # what overflows in a bound proves nothing
            found = Memory(Path(folders[0])).prove()
        code = int(found["proved"] < found["facts"])
    except Refused as error:
        found, code = {"problem": error.args[0]}, error.args[1]
    except Exception as error:  # files of others: whatever they break in a parser
        found, code = {"problem": f"cannot be read: {type(error).__name__}: {error}"[:200]}, 2
    found = {"certified": code == 0, **found, "seconds": round(time.perf_counter() - begin, 3)}
    lines = [f"{'proved' if code == 0 else 'NOT proved'} by the independent checker"]
    lines += [f"  {name:9} {value}" for name, value in found.items() if name != "certified"]
    print(json.dumps(found) if "--json" in arguments else "\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
