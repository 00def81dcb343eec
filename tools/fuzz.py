"""Mutated inputs through every command: a clean answer or a clean refusal is all that may come out.

    python tools/fuzz.py --cases 2000 --seed 0 --only facts
    python tools/fuzz.py --seed 0 --case 17            one case again, with what it printed

A case is made from (seed, number) alone: a command, valid files of the kinds that it reads, most of
them damaged, and options. It runs in this process, through the function behind `byheart`. A case
fails if it raises, takes longer than `--seconds` of CPU, ends with a code other than 0, 1 or 2,
prints control characters (or, with --json, anything but one object), or leaves half of something:
a refusal (code 2) leaves every file as it was, and what any other run has written can be read.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import functools
import hashlib
import importlib
import io
import json
import os
import pkgutil
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from xml.etree import ElementTree

import typer
from fuzz_inputs import KINDS, MEMORIES, REALS, SIZES, TOKENS, Inputs, weights_of

import byheart
from byheart.cli.main import COMMANDS, main, make_app

ADDRESS_SPACE = 10 * 2**30  # bytes: allocating without end is an error, not a dead machine
# A case may take so many seconds of CPU, so that a busy machine makes no hang, and wait PATIENCE
# times as long.
SECONDS, PATIENCE = 60.0, 4
ALARMS, TIMERS = (signal.SIGPROF, signal.SIGALRM), (signal.ITIMER_PROF, signal.ITIMER_REAL)
# Commands that train or measure take longer: one case of them for so many of the others.
RARE = {"train": 0.3, "capacity": 0.1, "reproduce": 0.3, "audit": 0.3, "explore": 0.05}

# What each command is given besides options that are drawn: arguments, and what keeps it short.
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


def _audit(x: Inputs) -> list[str]:
    kind = x.rng.choice(KINDS)
    shown = ["--images", x.images()] if kind == "vit" else ["--tokens", x.tokens()]
    if kind != "vit" and x.chance(0.3):
        shown = ["--text", x.words(), "--length", "4"]
    few = ["--contexts", "20", "--draws", "20", *(["--no-random"] if x.chance(0.7) else [])]
    if kind in ("gpt2", "llama") and x.chance(0.3):
        few = ["--heads", "--contexts", "20", "--top", x.rng.choice(("1", "3", "0", "10000"))]
    return [x.model(kind), *shown, *few, *(["-o", x.out(".json")] if x.chance(0.3) else [])]


ARGUMENTS: dict[str, Callable[[Inputs], list[str]]] = {
    "build": lambda x: [x.table(), "-o", x.out("")],
    "recall": _recall,
    "certify": lambda x: [x.memory(), *(["--facts", x.table()] if x.chance(0.2) else [])],
    "facts": _facts,
    "bound": _bound,
    "size": _size,
    "owner": _asked,
    "disguise": lambda x: [x.memory("sharded", "attention"), "--rotate", "-o", x.out("")],
    "export": _export,
    "import": _import,
    "edit": _edit,
    "train": lambda x: [
        x.table(), "-o", x.out(""), "--steps", "2", "--d-model", "4", "--heads", "2",
        *(["--checkpoint", x.kept("training.safetensors")] if x.chance(0.3) else []),
    ],
    "capacity": lambda x: ["--facts", x.table(), "--steps", "1", "--seeds", "1"],
    "reproduce": _reproduce,
    "localise": lambda x: ["--memory", x.memory(), "--facts", "2", "--methods", "direct,random"],
    "encoder": _encoder,
    "kruskal": lambda x: [x.vectors(), "--draws", "20"],
    "heads": lambda x: [x.memory("multihead-classes", "multihead-numbers"), "--fresh", "20"],
    "audit": _audit,
    "precision": lambda x: [x.memory() if x.chance(0.5) else x.table(), "--most", "8"],
    "report": _report,
    "explore": lambda x: ["-o", x.out(".html", ".txt"), "--no-open"],
    "edits": lambda x: [x.memory("sharded", "attention", "trained-mlp"), "--counts", "1,3",
                        "--editors", "rank-one,least-squares,null-space"],
}  # fmt: skip
# Options that open browsers, other processes or the network, that write where they please, or whose
# size is the length of the work, are left to the arguments above.
LEFT_OUT = {"--open", "--workers", "--json", "--output", "--steps", "--seeds", "--draws", "--most",
            "--fresh", "--contexts", "--store", "--threads", "--restarts", "--help", "--starts",
            "--precision", "--ranked", "--search", "--models", "--text", "--images", "--editors",
            "--counts"}  # fmt: skip
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


ENDING: list[int] = []  # signals: after the case that runs, counts are shown, and it ends
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
    if rng.random() < 0.02:  # a word too many, which the parser answers
        extra = rng.choice(("-", "--", "")) + rng.choice(TOKENS)
        words.insert(rng.randrange(1, len(words) + 1), extra)
    at = words.index("--") if "--" in words else len(words)
    words[at:at] = ["--json"] if rng.random() < 0.4 else []
    return [word.replace("\0", "") for word in words]  # a process cannot be given NUL


class Overrun(BaseException):
    """A case that takes too long. Not an Exception, so that no command catches it."""


def _stop(signum: int, frame: FrameType | None) -> None:
    raise Overrun


class Captured(io.TextIOWrapper):
    """A stream in memory, which may say that it is a terminal."""

    def __init__(self, terminal: bool, errors: str) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", errors=errors, write_through=True)
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
    out, err = Captured(False, "strict"), Captured(terminal, "backslashreplace")  # as Python's
    code, fault, began = None, "", time.monotonic()
    previous = [signal.signal(number, _stop) for number in ALARMS]
    try:
        os.chdir(folder)
        sys.argv = ["byheart", *words]
        for timer, limit in zip(TIMERS, (seconds, PATIENCE * seconds), strict=True):
            signal.setitimer(timer, limit)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
                code = 0
            finally:
                for timer in TIMERS:
                    signal.setitimer(timer, 0)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except Overrun:
        fault = (
            f"hang: longer than {seconds:g} s of CPU, or {PATIENCE} times as long in all\n"
            + traceback.format_exc()
        )
    except BaseException:
        fault = "traceback\n" + traceback.format_exc()
    finally:
        for number, handler in zip(ALARMS, previous, strict=True):
            signal.signal(number, handler)
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


def preload() -> None:
    """What commands import when they need it: an alarm that breaks an import half-way would leave
    a module that fails in every later case."""
    for module in pkgutil.walk_packages(byheart.__path__, "byheart."):
        if ".standalone." not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for kind in KINDS:
        weights_of(kind)


HEAVY = ("torch", "scipy.optimize", "scipy.linalg", "matplotlib.pyplot", "pandas", "onnx",
         "pyarrow.parquet", "onnxruntime", "sklearn.datasets", "flint", "jinja2", "rich.progress",
         "transformers", "tokenizers")  # fmt: skip


def one_case(seed: int, number: int, only: str | None, seconds: float = SECONDS) -> Ended:
    folder = Path(tempfile.mkdtemp(prefix="byheart-fuzz-"))
    words = arguments(seed, number, only, folder)

    def give_up() -> None:
        """Compiled code may take a signal for nothing and wait on; then this is the last case."""
        print(f"\nFAILED {repeat(seed, number, only)}: a hang that no signal ends", flush=True)
        print(f"byheart {spelled(words)}", flush=True)
        faulthandler.dump_traceback()
        os._exit(1)

    watchdog = threading.Timer(2 * PATIENCE * seconds + 5, give_up)
    watchdog.start()
    try:
        return run(words, folder, random.Random(number).random() < 0.2, seconds)
    finally:
        watchdog.cancel()
        shutil.rmtree(folder, ignore_errors=True)


def repeat(seed: int, number: int, only: str | None) -> str:
    return f"--seed {seed} --case {number}" + (f" --only {only}" if only else "")


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
    preload()
    with limited_memory():
        for number in numbers:
            if ENDING:
                break
            ended = one_case(seed, number, only, seconds)
            outcome = (
                ended.fault.split("\n")[0].split(":")[0] if ended.fault else f"exit {ended.code}"
            )
            counts.setdefault(ended.words[0], Counter())[outcome] += 1
            if ended.fault:
                failed.append((number, ended))
                tell(f"\nFAILED {repeat(seed, number, only)}: byheart {spelled(ended.words)}")
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
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=COMMANDS, metavar="COMMAND")
    parser.add_argument("--case", type=int, help="this one alone, with what it prints")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that a case may take")
    chosen = parser.parse_args()
    if chosen.case is not None:
        preload()
        with limited_memory():
            ended = one_case(chosen.seed, chosen.case, chosen.only, chosen.seconds)
        print(f"byheart {spelled(ended.words)}\n{ended.said}\n{ended.fault}")
        print(f"exit code {ended.code}, {ended.seconds:.2f} s")
        sys.exit(bool(ended.fault))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda signum, frame: ENDING.append(signum))
    numbers = range(chosen.first, chosen.first + chosen.cases)
    began = time.monotonic()
    told = functools.partial(print, flush=True)
    counts, failed = fuzz(numbers, chosen.seed, chosen.only, chosen.seconds, told)
    show(counts)
    ran, took = sum(map(Counter.total, counts.values())), time.monotonic() - began
    cpu = f"{time.process_time():.0f} s of CPU"
    print(f"{ran:,} of {len(numbers):,} cases in {took:.0f} s, {cpu}, {len(failed):,} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    start()
