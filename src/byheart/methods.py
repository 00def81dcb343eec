"""Methods: facts -> memory, each a frozen dataclass that knows its own options.

    bh.build(facts, "sharded")                     by name, with the defaults
    bh.build(facts, bh.Sharded(gate="key"))        as an object

The command line makes its options from the fields. Another package adds a method by an entry point
(`byheart.methods`). Nothing here loads torch: a wrong name or value is refused at once.
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import cache
from importlib import import_module
from numbers import Integral, Real
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, cast, overload

from byheart._plugins import leave_out, plugins
from byheart._progress import Report, quiet
from byheart.errors import ByheartError, FactsError, OptionError, check_choice, did_you_mean

if TYPE_CHECKING:
    from byheart.models.memory import FactTable, Memory
    from byheart.models.sharded_memory import ShardedMemory
    from byheart.models.token_memory import TokenMemory

SHARDED_FROM = 2000  # facts: from here on "auto" takes shards
BUILT_IN = {
    "attention": "byheart.construct.methods:AttentionOnly",
    "sharded": "byheart.construct.methods:Sharded",
    "associative": "byheart.construct.methods:Associative",
    "sqrt": "byheart.construct.methods:SquareRoot",
    "multihead": "byheart.construct.methods:MultiHead",
    "distribution": "byheart.construct.methods:DistributionAttention",
    "train": "byheart.training.method:Train",
}
TYPES = {
    "int": (Integral, "a whole number"),
    "float": (Real, "a number"),
    "bool": (bool, "True or False"),
    "str": (str, "text"),
}
Kind = Literal["facts", "vectors", "distributions"]
Tokens = Literal["attention", "associative", "train"]
Shards = Literal["sharded"]

T = TypeVar("T")
if TYPE_CHECKING:  # a method by name makes some memory
    from typing_extensions import TypeVar as TypeVarWithDefault

    M = TypeVarWithDefault("M", bound="Memory", default="Memory", covariant=True)
else:
    M = TypeVar("M", bound="Memory")


def option(
    default: T,
    help: str,
    panel: str = "",
    *,
    choices: tuple[str, ...] | None = None,
    metavar: str | None = None,
    min: float | None = None,
    max: float | None = None,
) -> T:
    """A field of a method, with what the command line's help says and what values it may have."""
    words = {"help": help, "panel": panel, "metavar": metavar}
    return field(default=default, metadata=words | {"choices": choices, "min": min, "max": max})


@dataclass(frozen=True)
class Method(ABC, Generic[M]):
    """Facts -> memory by a theorem or by training.

    A subclass sets `name`, `summary` and what kind of facts it `takes`, has its options as fields
    (`option`), and makes a memory in `_build`. `build` checks, times and records.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    takes: ClassVar[Kind] = "facts"

    def __post_init__(self) -> None:
        for f in fields(self):
            check_option(f, getattr(self, f.name), sys.modules[type(self).__module__])

    def build(
        self, facts: FactTable, seed: int = 0, progress: Report = quiet, reason: str = ""
    ) -> M:
        """The memory, verified in the format it is stored in. `reason`: why this method."""
        if facts.kind != self.takes:
            others = [m.name for m in methods().values() if m.takes == facts.kind]
            raise FactsError(
                f"the method {self.name} takes {self.takes}, found {facts.kind}: use `method` "
                f"{' or '.join(others) or '(there is none)'}."
            )
        if not 0 <= seed < 2**63:
            raise OptionError("seed", "a whole number from 0 on", seed)
        started = time.perf_counter()
        memory = self._build(facts, seed, progress)
        seconds, made = time.perf_counter() - started, memory.construction
        dtype = made.dtype or getattr(self, "dtype", "")
        why = ((reason,) if reason else ()) + made.why
        record = replace(made, facts=facts.T, seed=seed, seconds=seconds, dtype=dtype, why=why)
        return replace(memory, construction=record)  # type: ignore[type-var]

    @abstractmethod
    def _build(self, facts: Any, seed: int, progress: Report) -> M:
        """Make the memory; its construction may leave out facts, seed, dtype and seconds."""


def check_option(f: Field[Any], value: object, module: ModuleType) -> None:
    """Refuse a value that the field cannot have: another type, no choice of it, out of range.

    `module`: where the method is defined, whose names the types of its fields are."""
    types = type_names(f)
    if value is None and "None" in types:
        return
    about = f.metadata
    if about.get("choices"):
        check_choice(f.name, value, about["choices"])
        return
    names = [name for name in types if name != "None"]
    if not any(_is_a(value, name, module) for name in names):
        said = " or ".join(TYPES[name][1] if name in TYPES else f"an {name}" for name in names)
        raise OptionError(f.name, said, value)
    least, most = about.get("min"), about.get("max")
    if isinstance(value, Real) and least is not None:
        if most is not None and not least <= value <= most:
            raise OptionError(f.name, f"between {least} and {most}", value)
        if not value >= least:
            raise OptionError(f.name, f"at least {least}", value)


def type_names(f: Field[Any]) -> list[str]:
    """The types of a field by name, whether its module has annotations as text or not."""
    text = f.type.__name__ if isinstance(f.type, type) else str(f.type)
    return text.replace("|", " ").split()


def _is_a(value: object, name: str, module: ModuleType) -> bool:
    """Whether a value is of the type that a field names; True is no number."""
    if name not in TYPES:  # perhaps one that only type checkers import
        kind = getattr(module, name, None)
        return isinstance(value, kind) if kind else name == type(value).__name__
    return isinstance(value, TYPES[name][0]) and (name == "bool" or not isinstance(value, bool))


@cache
def methods() -> dict[str, type[Method]]:
    """Every method by name: those of byheart, then those of other packages."""
    found: dict[str, type[Method]] = {}
    for name, path in BUILT_IN.items():
        module, attribute = path.split(":")
        found[name] = getattr(import_module(module), attribute)
    sources = dict.fromkeys(found, "byheart")
    for plugin in plugins("byheart.methods"):
        name, source, method = plugin.name, plugin.source, cast("type[Method]", plugin.value)
        if not (isinstance(plugin.value, type) and issubclass(plugin.value, Method)):
            leave_out("byheart.methods", f"{source} is no subclass of Method.")
        elif getattr(method, "name", "") != name or not hasattr(method, "summary"):
            leave_out("byheart.methods", f"{source} needs `name={name}` and a `summary`.")
        elif name in found:
            twice = f"two methods are called {name!r}: one of {sources[name]}, one of {source}."
            leave_out("byheart.methods", f"{twice} Rename one of them.")
        else:
            found[name], sources[name] = method, source
    return found


def option_names(method: type[Method]) -> set[str]:
    """The options that a method has."""
    return {f.name for f in fields(method)}


@overload
def build(data: object, method: Method[M], *, seed: int = 0, progress: Report = quiet) -> M: ...
@overload
def build(
    data: object, method: Tokens, *, seed: int = 0, progress: Report = quiet, **options: object
) -> TokenMemory: ...
@overload
def build(
    data: object, method: Shards, *, seed: int = 0, progress: Report = quiet, **options: object
) -> ShardedMemory: ...
@overload
def build(
    data: object, method: str = ..., *, seed: int = 0, progress: Report = quiet, **options: object
) -> Memory: ...
def build(
    data: object,
    method: str | Method = "auto",
    *,
    seed: int = 0,
    progress: Report = quiet,
    **options: object,
) -> Memory:
    """A memory that recalls every fact, verified in the format it is stored in.

    `data`: facts of any kind, a path, the name of a built-in table, a dict, rows, a data frame
    (`as_facts`). `method`: a name ("attention", "sharded", "associative", "sqrt", "multihead",
    "distribution", "train"), with `options` of that method, or a method with its options:
    `bh.Sharded(gate="key")`. "auto" takes one dense layer below 2,000 facts, shards from there
    on, multi-head attention for vectors; `memory.construction.why` says which and why.

    Raises `CapacityError` when the theorem does not cover the facts, `CheckFailed` when the stored
    weights do not recall all of them (exact read-outs only).

    >>> import byheart as bh
    >>> memory = bh.build({("France", "capital"): "Paris", ("Peru", "capital"): "Lima"})
    >>> memory.recall("Peru", "capital").answer
    'Lima'
    """
    from byheart.facts import as_facts

    facts = as_facts(data)
    chosen, reason = resolve(method, facts, options)

    from byheart.models.devices import on_cpu

    return on_cpu(chosen.build)(facts, seed, progress, reason)


def resolve(
    method: str | Method, facts: FactTable, options: Mapping[str, object]
) -> tuple[Method, str]:
    """The method object for `facts`, and why: an object as it is, a name with `options`, or "auto".

    >>> from byheart.facts import read_facts
    >>> resolve("auto", read_facts("elements"), {})[1]
    'method attention: one dense layer, because 236 facts are fewer than 2,000'
    """
    if isinstance(method, Method):
        if options:
            raise ByheartError(
                f"{_listed(options)}: give options to the method itself, {type(method).__name__}"
                f"({', '.join(f'{k}=...' for k in options)})."
            )
        return method, ""
    if not isinstance(method, str):  # pyright: ignore[reportUnnecessaryIsInstance] users give anything
        raise OptionError("method", "a name or a Method", method)
    reason = ""
    if method == "auto":
        method, reason = _automatic(facts, options)
    check_choice("method", method, ["auto", *methods()])
    chosen = methods()[method]
    refuse_foreign(chosen, options)
    return chosen(**options), reason  # type: ignore[arg-type]


def refuse_foreign(method: type[Method], options: Mapping[str, object]) -> None:
    """Refuse options of other methods, by name."""
    for name, value in options.items():
        if name in option_names(method):
            continue
        owners = [m.name for m in methods().values() if name in option_names(m)]
        if owners:
            given = f"{name}=False" if value is False else name
            alternatives = " or ".join(filter(None, [", ".join(owners[:-1]), owners[-1]]))
            raise ByheartError(
                f"`{given}` belongs to {alternatives}; this is {method.name}. Leave it out, or use "
                f"`method={owners[0]}`."
            )
        every = sorted(option_names(method))
        raise ByheartError(
            f"{method.name} has no option {name!r}. {did_you_mean(name, every)} "
            f"It has {', '.join(every)}."
        )


def _automatic(facts: FactTable, options: Mapping[str, object]) -> tuple[str, str]:
    """The method for these facts and options, and why."""
    if facts.kind == "vectors":
        return "multihead", "method multihead: these facts are vectors"
    if facts.kind == "distributions":
        return "distribution", "method distribution: keys have several right answers"
    names = {n: option_names(m) for n, m in methods().items() if m.takes == facts.kind}
    able = [n for n, known in names.items() if n != "train" and known.issuperset(options)]
    if able and not {"attention", "sharded"} <= set(able):
        name = able[0]
        other = {"attention": "sharded", "sharded": "attention"}.get(name)
        own = list(options) if other is None else sorted(options.keys() - names[other])
        return name, f"method {name}: {_listed(own)} belong{'s'[: len(own) == 1]} to it"
    if facts.T >= SHARDED_FROM:
        return "sharded", f"method sharded: {facts.T:,} facts are too many for one dense solve"
    few = f"because {facts.T:,} facts are fewer than {SHARDED_FROM:,}"
    return "attention", f"method attention: one dense layer, {few}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
