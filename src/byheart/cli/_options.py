"""Commands: errors without tracebacks, parameters as flags (nothing else knows them), how options
are declared, and those that several commands share, above all how to read a table of facts."""

from __future__ import annotations

import functools
import inspect
import math
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from byheart._machine import memory_bytes, out_of_memory
from byheart.cli._complete import completer
from byheart.cli._show import fail, for_programs, in_command, interrupted, warn
from byheart.errors import ByheartError, ConflictError, OptionError

if TYPE_CHECKING:
    from byheart.facts import Facts, FactTable
    from byheart.models import Memory
    from byheart.training.method import Train
    from byheart.training.recipe import TrainableSpec

Command = Callable[..., None]
Options = Mapping[str, tuple[object, object]]  # name -> (annotation, default)
Given = dict[str, object]
"""The options of a group that were given; the others have their defaults."""
JSON = "Print one JSON object instead of tables."
WRONG_USE = ByheartError.exit_code
SMALLER = "Nothing is half-written. Take fewer facts or a smaller model, or give it more memory."
CLEANING = 5.0  # seconds after Ctrl-C in which another one is impatience
# What ends a command cleanly: Ctrl-C, a batch system, a terminal that is closed (not on Windows).
ENDING = [getattr(signal, f"SIG{name}", signal.SIGINT) for name in ("INT", "TERM", "HUP")]
# Where the flag of a parameter is not its name with dashes.
FLAGS = {"d": "--d-model", "H": "--heads", "d_h": "--d-head", "S": "--length", "N": "--vocab",
         "n": "--context", "folder": "-o DIR", "families": "--family",
         "ordered=False": "--unordered", "with_facts=False": "--no-facts"}  # fmt: skip
# Options of commands by the names of their parameters in Python, where the two differ.
PARAMETERS = {"output": "folder", "values": "set"} | {
    spelled[2:].replace("-", "_"): name.removesuffix("=False") for name, spelled in FLAGS.items()
}
# Parameters of `build` that messages of every command may name.
ADVISED = {"method", "with_facts"}


def flag(parameter: str) -> str:
    """The flag of a parameter, or the one that turns a switch off.

    >>> flag("d_h"), flag("shard_size"), flag("trim=False")
    ('--d-head', '--shard-size', '--no-trim')
    """
    name = parameter.removesuffix("=False")
    spelled = ("--" if name == parameter else "--no-") + name.replace("_", "-")
    return FLAGS.get(parameter, spelled)


def with_flags(message: str, parameters: Iterable[str]) -> str:
    """A message of the library with the flags of `parameters` in place of the names that it has
    in backticks; other words in backticks stay as they are.

    >>> with_flags("use a larger `d`, or `dtype=float64`; see `docs`", ["d", "dtype"])
    'use a larger --d-model, or --dtype float64; see `docs`'
    """
    known = set(parameters)

    def spelled(match: re.Match[str]) -> str:
        whole, name, value = match[0], match[1], match[2]
        if name not in known:
            return whole
        if value == "False":
            return flag(whole[1:-1])
        return flag(name) if value in (None, "True") else f"{flag(name)} {value.strip(chr(39))}"

    return re.sub(r"`([A-Za-z_]\w*)(?:=([^`]*))?`", spelled, message)


def guarded(command: Command) -> Command:
    """A command with --json, whose errors that a user can mend are one message on stderr."""

    @functools.wraps(command)
    def run(*args: Any, as_json: bool = False, **options: Any) -> None:
        for_programs.set(as_json)
        in_command.set(True)
        with interrupts() as pressed:
            try:
                command(*args, **options)
            except ByheartError as error:
                extra = {"conflicts": error.conflicts} if isinstance(error, ConflictError) else {}
                given = {PARAMETERS.get(name, name) for name in options} | options.keys()
                fail(with_flags(str(error), given | ADVISED), error.exit_code, **extra)
            except UnicodeEncodeError as error:  # no terminal sends it, another program may
                lone = f"{error.object[:60]!a} has half of a surrogate pair"
                fail(f"{lone}: it cannot be written, nor be the name of a file.", WRONG_USE)
            except (KeyboardInterrupt, Exception) as error:
                ended = isinstance(error, KeyboardInterrupt) or pressed
                if ended and not isinstance(error, typer.Exit):
                    raise typer.Exit(interrupted(*pressed[:1])) from None
                if not out_of_memory(error):
                    raise
                there = f"{memory_bytes() / 1e9:,.1f} GB"
                fail(f"out of memory: this process may use {there}. {SMALLER}", WRONG_USE)

    own = inspect.signature(command, eval_str=True).parameters.values()
    return _signed(run, own, {"as_json": row(bool, False, JSON, "--json")})


def _signed(run: Command, own: Iterable[inspect.Parameter], options: Options) -> Command:
    """`run` with the parameters `own` and `options`: typer reads signature and annotations."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [p.replace(kind=keyword) for p in own] + [
        inspect.Parameter(name, keyword, default=default, annotation=kind)
        for name, (kind, default) in options.items()
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


@contextmanager
def interrupts() -> Iterator[list[int]]:
    """The signals of the block so far that end it, all like Ctrl-C. Compiled modules that are
    interrupted while they are loaded raise anything, from ImportError to RecursionError. A key that
    is pressed again and again does not break off the cleaning up."""
    pressed: list[int] = []
    heard = -math.inf

    def note(signum: int, frame: FrameType | None) -> None:
        nonlocal heard
        pressed.append(signum)
        if time.monotonic() - heard >= CLEANING:
            heard = time.monotonic()
            signal.default_int_handler(signum, frame)

    ours = threading.current_thread() is threading.main_thread()
    usual = (signal.default_int_handler, signal.SIG_DFL)  # else someone listens, or nobody shall
    before = {s: how for s in ENDING if ours and (how := signal.getsignal(s)) in usual}
    for number in before:
        signal.signal(number, note)
    try:
        yield pressed
    finally:
        for number, how in before.items():
            signal.signal(number, how)


def option(default: object, help: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """An option as typer declares it: the default of a parameter, or the note of an `Annotated`
    type, whose parameters have the defaults (`...` here). `names`: flags, without which it is
    `--its-name`, and how help calls its value."""
    flags = [name for name in names if name.startswith("-")]
    metavar = next((name for name in names if name and name not in flags), None)
    offers = None if metavar == "DIR" else completer(metavar)  # `-o DIR`: a new one
    more |= {"help": help, "metavar": metavar, "autocompletion": offers}
    return typer.Option(default, *flags, rich_help_panel=panel, **more)


switch = partial(option, False)
SCALES = {"k": 3, "m": 6, "b": 9, "g": 9, "t": 12}
MOST_DIGITS = 40  # more than any size that a spec may have


def count(text: str, parameter: str) -> int:
    """A whole number >= 1 as people write it: 50000, 50_000, 50,000, 50k, 1M, 1.5B, 1e6.

    >>> count("1e5", "facts"), count("25_000", "facts"), count("1.5B", "parameters")
    (100000, 25000, 1500000000)
    """
    value = whole_number(text)
    if value is None or value < 1:
        raise OptionError(parameter, "a whole number of at least 1", text, "50k, 1M, 1e9 are read.")
    return value


def whole_number(text: str) -> int | None:
    """The whole number that a text means, exactly; None if it means none."""
    plain = text.strip().replace("_", "").replace(",", "")
    power = SCALES.get(plain[-1:].lower(), 0)
    try:
        value = Decimal(plain[:-1] if power else plain).scaleb(power)
    except InvalidOperation:
        return None
    if (
        not value.is_finite()
        or value.adjusted() >= MOST_DIGITS
        or value != value.to_integral_value()
    ):
        return None
    return int(value)


def at_least(least: int | None = None) -> Callable[[str], int]:
    """A parser for options that are whole numbers, written as `count` reads them."""

    def N(text: str | int) -> int:  # the name is what help calls the value
        value = whole_number(str(text))
        if value is None:
            expected = "50000, 50k, 1M and 1e6 are read"
            raise typer.BadParameter(f"{text!r} is no whole number ({expected}).")
        if least is not None and value < least:
            raise typer.BadParameter(f"{text} is not in the range x>={least}.")
        return value

    return N


whole = at_least()


def argument(metavar: str, help: str, default: object = ...) -> Any:
    """An argument as typer declares it, as `option`."""
    offers = completer(metavar.removesuffix("..."))
    return typer.Argument(default, metavar=metavar, help=help, autocompletion=offers)


def grouped(argument: str, options: Options) -> Callable[[Command], Command]:
    """A command that takes `options` as one argument: a dict of those that were given."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(*args: object, **values: object) -> None:
            chosen = {name: values.pop(name) for name in options if name in values}
            given = {name: v for name, v in chosen.items() if v != options[name][1]}
            command(*args, **values, **{argument: given})

        own = inspect.signature(command, eval_str=True).parameters.values()
        return _signed(run, (p for p in own if p.name != argument), options)

    return decorate


def row(kind: Any, default: object, help: str, *flags: str, **more: Any) -> tuple[object, object]:
    """An option of a group."""
    return Annotated[kind, option(..., help, *flags, **more)], default


# Options of `byheart.facts.read_facts` and of `as_facts`, with their defaults.
_reading = {"panel": "Reading the table"}
_column = partial(row, str | None, None, **_reading)
_maybe = partial(row, bool | None, None, **_reading)
_melted = "A wide table: every other column is a relation, facts are (key, column) -> cell."
TABLE: Options = {
    "keys": _column("Key columns, in order. Default: all but answer and weights.", "A,B"),
    "answer": _column("Answer column. Default: the last.", "NAME"),
    "weights": _column("Column with the weight (prior) of each fact.", "NAME"),
    "melt": row(bool, False, _melted, "--melt", **_reading),
    "header": _maybe(
        "CSV, TSV: whether the first row names the columns. Default: it does, and is "
        "mentioned if it looks like a fact."
    ),
    "trim": _maybe("Whether to leave out the blanks around cells. Default: in CSV and TSV."),
    "empty": row(str, "error", "What an empty cell is.", "error|skip|token", **_reading),
    "pad": row(bool, False, "JSONL: pad unequal lengths on the left.", "--pad", **_reading),
}
_several = partial(row, panel="Several right answers (docs/distributions.md)")
_distribution = (
    'Keys have distributions: JSONL with "output": {token: probability}, or a recipe '
    "random:kind=gauss,N=20,tau=1."
)
_conflict = "Rows with one key and different answers: an error, or counted as a distribution."
ANY_TABLE: Options = {
    "distribution": _several(bool, False, _distribution, "--distribution"),
    "on_conflict": _several(str, "error", _conflict, "error|distribution"),
    "normalise": _several(bool, False, "Scale probabilities that do not sum to 1.", "--normalise"),
    "smooth": _several(
        float | None,
        None,
        "(π + δ)/(1 + A·δ) over the A answers; default 0. With --ngram the weight α of the "
        "words' own frequencies; default 1.",
        "δ",
        min=0.0,
    ),
    "ngram": _several(
        int | None, None, "FACTS is a text: next-word distributions after n - 1 words.", "n", min=2
    ),
    "contexts": _several(int, 5000, "With --ngram: how many of the most frequent contexts.", min=1),
    **TABLE,
}
TABLES = (
    "A .csv, .tsv, .jsonl or .parquet file; a built-in table: countries, elements; or "
    "random:N=50,S=2,T=1000,seed=0."
)
Folder = Annotated[str, argument("DIR", "A memory folder (`byheart build`).")]
Plot = Annotated[str | None, option(..., "Also draw it: .png, .svg or .pdf.", "FILE")]
CURVES = "Also draw loss and accuracy over the steps, a line a start: .png, .svg or .pdf."
Curves = Annotated[str | None, option(..., CURVES, "FILE")]


def check_memory_folder(folder: str) -> Mapping[str, Any]:
    """The description of a memory; a folder that is none is refused before torch is loaded."""
    from byheart.models.folder import read_record

    return read_record(folder)


def load_memory(folder: str) -> Memory:
    """The memory in a folder."""
    check_memory_folder(folder)

    from byheart.models import load

    return load(folder)


def note_kernels(method: Train, spec: TrainableSpec) -> None:
    """What is to be said about compiled kernels before a training, on stderr."""
    from byheart.training.choose import compiling

    for note in compiling(spec, method.training().loss, method.device, method.dtype):
        warn(note)


def read(source: str, given: Given) -> Facts:
    """Facts with one answer each; what they note is said on stderr."""
    from byheart.facts import read_facts

    return _told(read_facts(source, **_arguments(given)))


def read_any(source: str, given: Given) -> FactTable:
    """Facts of any kind; what they note is said on stderr."""
    from byheart.facts import Distributions, Facts, as_facts

    table = as_facts(source, **_arguments(given))
    if isinstance(table, (Facts, Distributions)):
        _told(table.facts if isinstance(table, Distributions) else table)
    return table


def _arguments(given: Given) -> dict[str, Any]:
    keys = {"keys": str(given["keys"]).split(",")} if "keys" in given else {}
    return given | keys


def _told(facts: Facts) -> Facts:
    for note in facts.notes:
        warn(f"{facts.name}: {with_flags(note, ANY_TABLE)}")
    return facts


def flags(given: Given) -> str:
    """The options that were given, as they are typed: `--keys, --melt`."""
    return ", ".join(flag(name) for name in given)


def describe_facts(facts: FactTable) -> str:
    """A table of facts in one line."""
    from byheart.facts import Distributions, VectorFacts

    if isinstance(facts, VectorFacts):
        context = "one shared context" if facts.shared else "own contexts"
        labels = f"{facts.classes} classes" if facts.classes else "scalar labels"
        if not facts.classes and facts.outputs > 1:
            labels = f"labels of {facts.outputs} numbers"
        merged = f"; {facts.merged:,} repeated examples merged" if facts.merged else ""
        words = f"{facts.T:,} examples, {context} of n={facts.n} tokens, d={facts.d}, "
        return f"{facts.name}: {words}{labels}{merged}"
    tokens = f"{facts.S} token{'s'[: facts.S > 1]}"
    if isinstance(facts, Distributions):
        entropy = float(facts.prior @ facts.entropy)
        answers = f"{facts.A:,} answers of {facts.N:,} tokens, mean entropy {entropy:.3g} nats"
        return f"{facts.name}: {facts.T:,} sequences of {tokens}, {answers}"
    columns = f" ({', '.join(facts.columns)})" if facts.columns else ""
    words = f"{facts.name}: {facts.T:,} facts, keys of {tokens}{columns}, "
    words += f"{facts.N:,} tokens, {len(facts.answer_ids):,} distinct answers"
    if facts.merged:
        words += f"; {facts.merged:,} duplicate rows merged"
    return words + (f"; {facts.skipped:,} skipped for an empty cell" if facts.skipped else "")
