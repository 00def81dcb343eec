"""A second opinion: proves a memory folder from its files and docs/formats.md, docs/models.md and
docs/sharded.md alone, sharing no code with byheart. `python independent.py FOLDER [--json]`

Nothing in the folder is believed. Proved is that the right answer of every fact has the largest
logit in exact real arithmetic (balls of Arb), or is the class that integers give (network.bin).
Exit code 0: all proved; 1: some not, or a file differs from its hash; 2: not readable or covered.
"""

import json
import math
import sys
import time
import zlib
from hashlib import sha256
from itertools import islice, pairwise
from pathlib import Path
from types import SimpleNamespace as Named
from typing import Any

import numpy as np
from flint import arb, arb_mat, ctx
from safetensors.numpy import load

LARGEST, AT_ONCE, PRECISIONS = 2**31, 2**18, (128, 512, 2048)  # bytes, sizes; balls; bits
SLOP, GROWN, TINY = 2.0**-30, 1 + 2.0**-30, 1e-150  # far above what float64 rounds, or loses
# The fields of the specs. They are whole numbers but for those in RULES: words, or types.
STACK, COUNTS = "N S d d_h H layers", "parameters dense distinct depth width max_bits total_bits"
FIELDS = {"shared-bottleneck": STACK, "associative": "N S d"}
FIELDS["attention-only"] = STACK + " qk_rank positions scale skip attention"
FIELDS["mlp-transformer"] = STACK + " w qk_rank activation positions scale attention"
FIELDS["sharded"] = "N S d_g d_h H groups shards lam s1 s2 k bits check gate untied"
FIELDS["sqrt"] = "N S classes ordered ff1 m register " + COUNTS
ABSENT = dict.fromkeys(" ".join(FIELDS.values()).split(), 0)
RULES: dict[str, Any] = {"gate": ("query", "key", "subject-sink"), "activation": ("gelu", "relu")}
RULES |= {"positions": ("input", "attention", "none"), "attention": ("softmax", "hardmax")}
RULES |= dict.fromkeys(("scale", "skip", "untied", "ordered", "register"), frozenset({bool}))
RULES |= dict.fromkeys(("lam", "s1", "s2"), frozenset({float, int})) | {"ff1": {str}}
# The tensors of each file and their sizes; where a size is 0, there is none.
MAPS = "W_E N d; W_U d N; W_pos P a; W_Q layers H a r; W_K layers H a r; W_V layers H a d_h; "
MAPS += "W_O layers H d_h a; W_C 1 d c; W_D 1 c d; W_in layers d w; b_in layers w; "
INDEX = "W_E N d_g; W_pos S+1 d_g; W_U d_g N; u any d_g; w any d_g; V any d_g d_h; point groups k; "
INDEX += "far k; level groups; first groups; group N; head_start shards+1; shard_sha256 shards 32; "
INDEX += "bits N bits; deciding D; subject N*; cancel 2* d_g out"
WEIGHTS, FACTS = "weights.safetensors", "facts.safetensors"
FILES = {family: {WEIGHTS: MAPS + "W_out layers w d"} for family in FIELDS}
FILES |= {"associative": {WEIGHTS: "W_E S N d; W d d; W_U d N"}, "sqrt": {"network.bin": ""}}
FILES["sharded"] = {WEIGHTS: "W_O H d_h out", "index.safetensors": INDEX}
WHOLE = {"head_start": "int64", "shard_sha256": "uint8", "bits": "int8", "subject": "int8"}
WHOLE |= dict.fromkeys(("group", "point", "far", "level", "first", "deciding"), "int32")
WHOLE |= dict.fromkeys(("tokens", "answers", "rows"), "int32")
each: Any = np.frompyfunc
ball, exp, largest = each(arb, 1, 1), each(arb.exp, 1, 1), each(arb.max, 2, 1)
relu = each(lambda x: x.max(arb(0)), 1, 1)
Refused = type("Refused", (Exception,), {})  # why a folder is no proof, and the exit code
gelu = each(lambda x: x * (1 + (x / arb(2).sqrt()).erf()) / 2, 1, 1)


def need(good: object, problem: str, code: int = 2) -> None:
    if not good:
        raise Refused(problem, code)


def read(folder: Path, name: str, sums: dict[str, str], most: int = LARGEST) -> bytes:
    """A regular file of bounded size with the hash in memory.json; no name is from a file."""
    path = folder / name
    need(path.is_file() and path.stat().st_size <= most, f"{name}: no file, or too long")
    data = path.read_bytes()
    need(sha256(data).hexdigest() == sums.get(name) or not sums, f"{name}: its SHA-256", 1)
    return data


def tensors(folder: Path, file: str, sums: dict[str, str], layout: str, s: Named) -> Any:
    """Exactly the tensors of a layout: whole numbers where WHOLE says so, else floats."""
    sink, narrow = s.gate == "subject-sink", not s.qk_rank
    z = vars(s) | {"any": -1, "1": 1, "32": 32, "S+1": s.S + 1, "shards+1": s.shards + 1}
    z |= {"out": s.d_g + s.check, "D": int(s.gate != "query"), "N*": s.N * sink, "2*": 2 * sink}
    z |= {"P": s.S * (s.positions != "none"), "c": s.d_h * (narrow and s.d != s.d_h)}
    z |= {"a": s.d_h if narrow else s.d, "r": s.qk_rank or s.d_h}
    rows = (row.split() for row in layout.split(";"))
    shapes = {name: v for name, *sizes in rows if 0 not in (v := tuple(z[i] for i in sizes))}
    most = 8 * sum(abs(math.prod(shape)) for shape in shapes.values()) + 2**20
    found = load(read(folder, file, sums, LARGEST if "u" in shapes else min(most, LARGEST)))
    odd = ", ".join(sorted(found.keys() ^ shapes.keys()))
    need(not odd, f"{file} lacks tensors, or has some that the format has not: {odd}")
    for name, array in found.items():
        shape = tuple(a if b < 0 else b for a, b in zip(array.shape, shapes[name], strict=True))
        good = str(array.dtype) in ([WHOLE[name]] if name in WHOLE else ["float32", "float64"])
        good = good and array.shape == shape and np.isfinite(array).all()
        need(good, f"{name}: {array.dtype} {array.shape}, where {shape} is expected, all finite")
    return found


def open_folder(folder: Path) -> Named:
    """What a folder holds, each part compared with the others."""
    record = Named(**json.loads(read(folder, "memory.json", {}, 2**28).decode()))
    need(record.kind == "byheart memory" and record.schema == 1, "no memory of schema 1")
    family, spec, made, about = record.family, record.spec, record.construction, record.facts
    covered = family in FIELDS and about and made.get("kind") != "distribution"
    need(covered, f"not covered: {family!r:.40} memories, or distributions, or facts left out")
    content = json.dumps({k: v for k, v in vars(record).items() if k != "digest"}, sort_keys=True)
    need(sha256(content.encode()).hexdigest() == record.digest, "memory.json: its digest", 1)
    spec |= {"register": spec.get("register", False)} if family == "sqrt" else {}  # where it is one
    need({*spec} == {*FIELDS[family].split()}, f"spec: expected the fields {FIELDS[family]}")
    for name, value in spec.items():
        rule, least = RULES.get(name, {int}), int(name not in ("w", "bits", "check"))
        good = value in rule if isinstance(rule, tuple) else type(value) in rule
        good = good and (name in RULES or least <= value <= LARGEST)
        need(good and value != "hardmax", f"spec: {name} is {value!r:.40}, which is not covered")
    sums, words, start, N = record.sha256, record.vocabulary, record.start_id, spec["N"]
    m, s = Named(family=family, folder=folder, sums=sums, W=Named()), Named(**ABSENT | spec)
    need({*sums} == {*FILES[family], FACTS}, "memory.json names other files")
    need(len({*words}) == len(words) == N and all(isinstance(w, str) for w in words), "vocabulary")
    for token in (start, record.pad_id):
        need(token is None or (type(token) is int and 0 <= token < N), "start_id or pad_id")
    need(start is None or family not in ("sqrt", "sharded"), "start_id must be null")
    m.s, m.made, S = s, made, s.S - (start is not None)
    order = [*range(S)] if record.order is None else record.order
    need(sorted(order) == [*range(S)], "order does not permute the columns of a key")
    sizes, size = Named(**ABSENT | {"T": about["count"], "S": S}), about["vocabulary"]
    facts = tensors(folder, FACTS, sums, "tokens T S; answers T; rows T; prior T", sizes)
    tokens, right, prior = (facts[name] for name in ("tokens", "answers", "prior"))
    good = all(0 <= ids.min() <= ids.max() < size <= N for ids in (tokens, right))
    good = good and not (tokens == (N - 1 if family == "sharded" else start)).any()
    need(good, "a token of a fact is none, or the start token")
    text = json.dumps(words[:size], ensure_ascii=False, separators=(",", ":"))
    head = f"byheart facts 1 {sha256(text.encode()).hexdigest()} {len(tokens)} {S}\n".encode()
    parts = (a.astype(t).tobytes() for a, t in ((tokens, "<i8"), (right, "<i8"), (prior, "<f8")))
    need(sha256(b"".join([head, *parts])).hexdigest() == about["digest"], "the facts' digest", 1)
    m.tokens, m.right = tokens[:, order].astype(np.int64), right.astype(np.int64)
    if start is not None:
        m.tokens = np.pad(m.tokens, ((0, 0), (1, 0)), constant_values=start)
    for file, layout in FILES[family].items():
        vars(m.W).update(tensors(folder, file, sums, layout, s) if layout else {})
    return m


def times(x: np.ndarray, W: np.ndarray) -> np.ndarray:
    """x (..., n) times W (n, m) in balls, of which each contains the exact number."""
    product = arb_mat(x.size // len(W), len(W), x.ravel().tolist())
    product *= arb_mat(W.shape[0], W.shape[1], W.ravel().tolist())
    return np.array(product.entries(), dtype=object).reshape(*x.shape[:-1], W.shape[1])


def attend(x: np.ndarray, at: list[int], maps: list[np.ndarray], root: arb, gate: Any) -> Any:
    """Σ_h W_O^h W_V^h Σ_s softmax_s(q·k_s / root + gate_s) x_s of the queries `at` (B, at, d), each
    of which reads the positions up to itself; `maps` are W_Q, W_K, W_V and W_O, (H, ...) each."""
    q, k, v = (times(y, np.hstack([*w])) for y, w in zip((x[:, at], x, x), maps[:3], strict=True))
    q, k, v = (y.reshape(*y.shape[:2], len(maps[0]), -1) for y in (q, k, v))
    out = []
    for i, s in enumerate(at):
        scores = (q[:, i, None] * k[:, : s + 1]).sum(-1) / root + gate
        e = exp(scores - largest.reduce(scores, axis=1, keepdims=True))
        F = ((e / e.sum(1, keepdims=True))[..., None] * v[:, : s + 1]).sum(1)
        out.append(times(F.reshape(len(x), -1), maps[3].reshape(-1, maps[3].shape[2])))
    return np.stack(out, 1)


def margins(out: np.ndarray, W_U: Any, right: np.ndarray) -> list[arb]:
    """The right logit minus the largest other one; one column of zeros stands for all of them."""
    used, row = W_U.any(0), np.arange(len(right))
    used[right] = True
    used[np.flatnonzero(~used)[:1]] = True
    at, logits = (np.cumsum(used) - 1)[right], times(out, W_U[:, used])
    own = logits[row, at]
    logits[row, at] = arb("-inf")
    return list(own - largest.reduce(logits, axis=1))


def stack(m: Named, rows: np.ndarray) -> Any:  # the formulas of docs/models.md
    s, W, inside = m.s, m.W, m.s.positions in ("attention", 0)
    positions = ball(W.W_pos) if hasattr(W, "W_pos") else arb(0)
    root = arb(1) if s.scale is False else arb(s.qk_rank or s.d_h).sqrt()
    step = AT_ONCE // (s.N + s.S * (s.H * (s.d_h + s.qk_rank) + s.d + s.w)) + 1
    for batch in np.split(rows, range(step, len(rows), step)):
        tokens = m.tokens[batch]
        if m.family == "associative":
            key = np.multiply.reduce([ball(W.W_E[i, ids]) for i, ids in enumerate(tokens.T)])
            yield batch, times(key / arb(s.d).sqrt(), W.W)
            continue
        x = ball(W.W_E[tokens]) + (arb(0) if inside else positions)
        for layer in range(s.layers):
            at = [*range(s.S)] if layer < s.layers - 1 else [s.S - 1]
            y = times(x, W.W_C[0]) if hasattr(W, "W_C") else x
            maps = [w[layer] for w in (W.W_Q, W.W_K, W.W_V, W.W_O)]
            out = attend(y + positions if inside else y, at, maps, root, arb(0))
            out = times(out, W.W_D[0]) if hasattr(W, "W_D") else out
            x = out if s.skip is False else out + x[:, at]
            if s.w:
                hidden = times(x, W.W_in[layer]) + ball(W.b_in[layer])
                hidden = relu(hidden) if s.activation == "relu" else gelu(hidden)
                x = x + times(hidden, W.W_out[layer])
        yield batch, x[:, -1]


def norms(a: np.ndarray) -> np.ndarray:  # upper bounds of |a[0]|, |a[1]|, ...
    return np.sqrt((a.astype(np.float64).reshape(len(a), -1) ** 2).sum(1)) * GROWN + TINY


def layout(s: Named, W: Named, tokens: np.ndarray) -> tuple[Any, ...]:
    """Who owns which shard, and what foreign heads can add to a margin, 2 max|w| max|x| times
    S e^{s_max - λ} Σ ||V^h|| ||W_O^h||: their real tokens score at most s_max - λ against 0 of the
    start token, whose value is 0. With a subject sink all positions do against the first, 2 max|x|
    away at most; cancelling heads score λ there, 0 elsewhere. Premises: docs/formats.md."""
    points, sink = np.vstack([W.point, W.far]).astype(np.int64), hasattr(W, "cancel")
    good = abs(points).max() < 2**26 and len(np.unique(points, axis=0)) == len(points)
    good = good and len({a.dtype for n, a in vars(W).items() if n not in WHOLE}) == 1
    need(good, "lattice points: two are the same, or too far out; or weights of two formats")
    digits, most = (24, 127) if W.W_O.dtype == "float32" else (53, 1023)
    square, parts = int((points**2).sum(1).max()), [math.frexp(v) for v in (s.lam, s.s1, s.s2)]
    lam, s1, s2 = (exponent - 1 for part, exponent in parts if part == 0.5)
    high = most - 2 - (4 * square + 4).bit_length()
    good = all(1 - most <= e <= high for e in (lam - 1, s1, s2, lam - s1, lam - s2))
    need(good and 4 * square <= 2**digits, "gates that do not exist in the stored format")
    start, level, group = (w.astype(np.int64) for w in (W.head_start, W.level, W.group))
    heads, splits = np.diff(start), s.bits * (s.gate == "query" and s.S == 2)
    good = start[0] == 0 and start[-1] == s.H and heads.min() >= 0
    good = good and len(W.u) == len(W.w) == len(W.V) >= (s.H if s.untied else heads.max())
    need(good, "head_start is no layout, or u, w, V are of too few heads")
    good = s.bits <= 30 and 0 <= level.min() <= level.max() <= splits
    need(good and (2**level).sum() <= s.shards, "level beyond the bits that gates can read")
    owner, ends = np.repeat(np.arange(s.groups), 2**level), np.cumsum(2**level)
    sub = np.arange(len(owner)) - np.repeat(ends - 2**level, 2**level)
    shard = W.first[owner].astype(np.int64) + sub
    good = 0 <= shard.min() <= shard.max() < s.shards and len(np.unique(shard)) == len(shard)
    good = good and -1 <= group.min() <= group.max() < s.groups and group[-1] == -1
    need(good, "two groups own one shard, or one that is none, or tokens are of no group")
    good = not W.W_E[-1].any() and not W.W_pos[0].any() and (not s.bits or (abs(W.bits) == 1).all())
    good = good and (s.gate == "query" or not W.deciding.any())
    good = good and (not sink or (np.isin(W.subject, [0, 1]).all() and W.subject[-1] == 0))
    need(good, "a start token, bits, subjects or deciding token that are none")
    digests = (sha256(W.W_O[a:b].tobytes()).digest() for a, b in pairwise(start))
    need(b"".join(digests) == W.shard_sha256.tobytes(), "a shard differs from its SHA-256", 1)
    E, pos = W.W_E.astype(np.float64), W.W_pos.astype(np.float64)
    x = [E[np.unique(ids)] + p for ids, p in zip(tokens.T, pos[1:], strict=True)]
    size, top = norms(E).max() + norms(pos).max(), [0.0]
    for i in range(0, len(W.u), 256):
        u, w = (a[i : i + 256].astype(np.float64) for a in (W.u, W.w))
        keys = [abs(x_s @ w.T).max(0) + SLOP * size * norms(w) for x_s in x]
        query = abs(x[-1] @ u.T).max(0) + SLOP * size * norms(u)
        top.append(np.max(query * (np.max(keys, 0) + sink * keys[0])))
    written, size = norms(W.V).max() * norms(W.W_O).sum(), arb(size * norms(W.W_U.T).max())
    total = (arb(np.max(top)) * GROWN - arb(s.lam)).exp() * arb(written) * GROWN
    total += (total + 2 * (-arb(s.lam)).exp() * arb(norms(W.cancel).sum()) * GROWN) if sink else 0
    return (2 * s.S * size * total * GROWN).upper(), points, group, level, owner, sub, shard


def shards(m: Named, rows: np.ndarray) -> Any:
    """Own heads of each fact with their gates, whole multiples of λ; A - x_1 with a subject sink,
    where all heads together leave x_1 (Σ cancel + Σ_h V^h W_O^h): that joins the slack."""
    s, W, S, (points, group, level, owner, sub, shard) = m.s, m.W, m.s.S, m.own

    def maps(o: int) -> list[np.ndarray]:
        a, b = W.head_start[shard[o] : shard[o] + 2]
        u, w, V = (part[a:b] if s.untied else part[: b - a] for part in (W.u, W.w, W.V))
        return [u[:, :, None], w[:, :, None], V, W.W_O[a:b, :, : s.d_g]]

    def through(o: int) -> Any:
        _, _, V, W_O = maps(o)
        return times(ball(np.hstack([*V])), W_O.reshape(-1, s.d_g)) if len(V) else arb(0)

    code = (W.bits > 0) @ 2 ** np.arange(s.bits)[::-1] if s.bits else group * 0
    chosen, last = group[m.tokens[:, -1 if s.gate == "query" else 0]], np.arange(S) == S - 1
    own = np.searchsorted(owner, chosen) + (code[m.tokens[:, 0]] >> s.bits - level[chosen])
    if sink := hasattr(W, "cancel"):  # a subject that stands elsewhere is not covered
        chosen = np.where((W.subject[m.tokens] == (np.arange(S) == 0)).all(1), chosen, -1)
        rest = sum(map(through, range(len(owner))), ball(W.cancel[..., : s.d_g]).sum(0))
        size = (norms(W.W_E).max() + norms(W.W_pos).max()) * norms(W.W_U.T).max() * GROWN
        m.slack += 2 * arb(size) * np.sum(rest * rest).upper().sqrt()
    rows = rows[chosen[rows] >= 0]
    rows = rows[np.argsort(own[rows], kind="stable")]
    for mine in np.split(rows, np.flatnonzero(np.diff(own[rows])) + 1):
        o = own[mine[0]] if len(mine) else 0
        bits, heads = level[owner[o]], maps(o)
        step = AT_ONCE // ((S + 1) * (heads[2].size // s.d_g + s.d_g)) + 1
        for batch in np.split(mine, range(step, len(mine), step)):
            steps = ((points[group[t := m.tokens[batch]]] - points[owner[o]]) ** 2).sum(2)
            if sink:
                steps = W.subject[t] * steps
            elif s.gate == "key":
                steps = -steps - 2 * last
            else:
                wrong = code[t] >> s.bits - bits ^ sub[o]
                wrong = sum((wrong >> j & 1 for j in range(bits)), 2 * last * (bits > 0))
                steps = -steps[:, -1:] - wrong
            gate, front = np.pad(steps, ((0, 0), (1, 0)))[..., None] * arb(s.lam), ((0, 0), (1, 0))
            x = ball(W.W_E[np.pad(t, front, constant_values=s.N - 1)]) + ball(W.W_pos)
            out = x[:, -1] + (attend(x, [S], heads, arb(1), gate)[:, 0] if len(heads[2]) else 0)
            yield batch, out - times(x[:, 1], through(o)) if sink else out


def execute(blocks: list[Any], state: list[Any]) -> list[Any]:  # H += W2 relu(W1 H + b1) + b2
    for units, shift in blocks:
        added = [(1, o, w) for o, w in shift]
        for inputs, bias, outputs in units:
            x = sum((w * state[i] for i, w in inputs), state[0] * 0 + bias)
            added += [(np.maximum(x, 0), o, w) for o, w in outputs]
        for r, o, w in added:
            state[o] = state[o] + w * r
    return state


def integers(m: Named) -> list[bool]:
    """network.bin, read as docs/formats.md lays it out, and executed in Python's integers."""
    data, s, N, M, S = read(m.folder, "network.bin", m.sums), m.s, m.s.N, m.s.m, m.s.S
    need(data[:9] == b"BYHEXACT\x01" and len(data) > 49, "network.bin has another format")
    need(sha256(data[:-32]).digest() == data[-32:], "network.bin: its own SHA-256", 1)
    size, expand = int.from_bytes(data[9:17], "little"), zlib.decompressobj()
    payload = expand.decompress(data[17:-32], min(size, LARGEST) + 1)
    need(len(payload) == size and expand.eof and not expand.unused_data, "network.bin: its length")
    stream, pool, weights = iter(payload), [0], []

    def number() -> int:
        value = shift = 0
        while (byte := next(stream)) > 127 and shift < 63:
            value, shift = value | (byte & 127) << shift, shift + 7
        need(byte < 128, "network.bin: a number of more than ten bytes")
        return value | byte << shift

    def long() -> int:
        power, length = number(), number()
        need(power + 8 * length <= min(s.max_bits, 2**17) + 7, "network.bin: too long a weight")
        return int.from_bytes(bytes(islice(stream, length)), "little") << power

    def weight() -> int:
        index = number()
        weights.append(-pool[index >> 1] if index & 1 else pool[index >> 1])
        return weights[-1]

    def pairs() -> list[tuple[int, int]]:
        return [(number(), weight()) for _ in range(number())]

    def block() -> tuple[list[Any], list[Any]]:
        return [(pairs(), weight(), pairs()) for _ in range(number())], pairs()

    head = json.loads(bytes(islice(stream, number())).decode())
    places, d = [head[name] for name in ("source", "target", "out")], 1 + s.ordered
    good = M == len(head["dims"]) and all(type(i) is int and 0 <= i < M for i in places)
    kind = ("attention", "register")[s.register]
    need(good and (head["d"], head["pooling"]) == (d, kind), "network.bin: its header")
    pool = [long() for _ in range(number())]
    E_in, scale, embedding = [pairs() for _ in range(number())], weight(), number()
    ff1, ff2 = ([block() for _ in range(number())] for _ in range(2))
    good = next(stream, None) is None and scale > 0 and not embedding and len(E_in) <= M
    wide, A = [len(units) for units, _ in ff1 + ff2], 1 + s.register  # attention layers
    weights = [w for w in weights if w] + [1, 1] * A
    bits, dense = [w.bit_length() for w in weights], sum(2 * M * q + q + M for q in wide)
    sizes = [len(weights), dense + M * (5 * A + d), len({*weights}), len(wide), max([M, *wide])]
    counted = [vars(s)[name] for name in COUNTS.split()]
    need(good and [*sizes, max(bits), sum(bits)] == counted, "the spec counts other weights")
    answers = m.made["answers"]
    good = answers == sorted({*answers}) and len(answers) == s.classes
    need(good and 0 <= answers[0] <= answers[-1] < N, "the answers of the classes")
    each, index = np.unique(m.tokens + N * s.ordered * np.arange(S), return_inverse=True)
    vectors = [(each % N).astype(object), (each // N).astype(object)][:d]
    (source, target, out), index = places, index.reshape(m.tokens.shape)
    E_in, zero = E_in + [[]] * (M - len(E_in)), vectors[0] * 0
    state = execute(ff1, [sum((w * vectors[j] for j, w in row), zero) for row in E_in])
    pooled = state[source][index].sum(1) * scale
    need(not (pooled % S).any(), "network.bin: a mean that is not a whole number")
    state = [column[index[:, -1]] for column in state]
    own = execute(ff1, [zero[:1]] * M)  # a register: tokens read it, it reads them, they read it
    state[target] = state[target] + pooled // S + s.register * (scale * own[source] + own[target])
    classes, state = {answer: i + 1 for i, answer in enumerate(answers)}, execute(ff2, state)
    return [classes.get(a) == b for a, b in zip(m.right.tolist(), state[out], strict=True)]


def prove(m: Named) -> dict[str, Any]:
    """How many facts are proved, lost and undecided; a lower bound on the smallest margin."""
    rows, low, high = np.arange(T := len(m.tokens)), [arb("-inf")] * T, [arb("inf")] * T
    if m.family == "sqrt":
        rows, low = rows[:0], (high := [arb("inf" if held else "-inf") for held in integers(m)])
    m.slack, *m.own = layout(m.s, m.W, m.tokens) if m.family == "sharded" else (arb(0),)
    for ctx.prec in PRECISIONS:
        outs = shards(m, rows) if m.family == "sharded" else stack(m, rows)
        for batch, out in outs if len(rows) else ():
            for row, margin in zip(batch, margins(out, m.W.W_U, m.right[batch]), strict=True):
                low[row], high[row] = margin.lower() - m.slack, margin.upper() + m.slack
        rows = np.array([i for i in rows if not (low[i] > 0 or high[i] < 0)], dtype=np.int64)
    proved, least = sum(a > 0 for a in low), min(float(a) for a in low)
    found = {"family": m.family, "facts": T, "proved": proved, "lost": sum(b < 0 for b in high)}
    least = math.nextafter(least, -math.inf) if math.isfinite(least) else None
    return found | {"undecided": len(rows), "margin": least}


def check(folder: Path) -> tuple[int, dict[str, Any]]:  # the exit code, and what is said
    begin = time.perf_counter()
    try:
        with np.errstate(all="ignore"):  # what overflows in a bound proves nothing
            found = prove(open_folder(folder))
        code = int(found["proved"] < found["facts"])
    except Exception as error:  # files of others: whatever they break in a parser
        problem, code = error.args if isinstance(error, Refused) else (repr(error)[:300], 2)
        found = {"problem": problem}
    return code, {"certified": code == 0} | found | {"seconds": time.perf_counter() - begin}


if __name__ == "__main__":
    code, found = check(Path(*sys.argv[1:2]))
    print(json.dumps(found, indent=None if "--json" in sys.argv else 1))
    sys.exit(code)
