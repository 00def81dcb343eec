"""What every spec is: a frozen record of sizes that checks itself, prints itself, becomes JSON."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

from byheart._words import shown
from byheart.errors import SpecError

Shapes = dict[str, tuple[int, ...]]
Implied = dict[str, int] | dict[str, float]


class Spec(ABC):
    """A frozen dataclass that fixes an architecture and knows its parameter count.

    A subclass, here or in another package, is a `@dataclass(frozen=True)` with a `family`, the
    name that files and messages use, and `parameters`. Fields are checked by their types: `int` is
    a whole number of at least 1 (or of at least `least[name]`), `bool` true or false, `Literal` one
    of its words. `title` and `printed` say how it prints itself.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Lookup(Spec):
    ...     N: int
    ...     family, title, printed = "lookup", "look-up table", ("N",)
    ...     parameters = property(lambda self: self.N)
    >>> print(Lookup(N=9), Lookup(N=9).parameters, Lookup.from_json(Lookup(N=9).to_json()).N)
    look-up table: N=9 9 9
    >>> Lookup(N=0)
    Traceback (most recent call last):
    ...
    byheart.errors.SpecError: N must be a whole number >= 1, found 0
    """

    family: ClassVar[str]
    title: ClassVar[str] = ""
    printed: ClassVar[tuple[str, ...]] = ()
    least: ClassVar[Mapping[str, int]] = {}

    if TYPE_CHECKING:  # most compute it from their sizes, some store it

        @property
        def parameters(self) -> int: ...

    def __post_init__(self) -> None:
        check_fields(self)
        for name, value in self.implied().items():
            object.__setattr__(self, name, value)

    def implied(self) -> Implied:
        """Fields that follow from others where they were not said."""
        return {}

    def weight_shapes(self) -> Shapes:
        """Shape of each weight of one model (no model axis); {} if none is an array."""
        return {}

    def row_bytes(self, itemsize: int) -> int:
        """Bytes of the largest intermediates per input, for choosing a batch size."""
        return itemsize * self.parameters

    def to_json(self) -> dict[str, Any]:
        """Every field; `from_json` gives an equal spec."""
        return asdict(self)  # pyright: ignore[reportArgumentType] every subclass is a dataclass

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        return cls(**record)

    def details(self) -> list[str]:
        """What stands behind the sizes when it prints itself."""
        return []

    def __str__(self) -> str:
        sizes = [f"{name}={getattr(self, name)}" for name in self.printed]
        return f"{self.title or self.family}: {', '.join(sizes + self.details())}"


class CountedSpec(Spec):
    """A spec whose parameters are the entries of its weights."""

    @property
    def parameters(self) -> int:
        return sum(math.prod(shape) for shape in self.weight_shapes().values())


@dataclass(frozen=True)
class TokenSpec(Spec):
    """A spec of something that reads keys of `S` tokens out of `N`."""

    N: int
    S: int


_hints = cache(get_type_hints)
LARGEST = 2**63 - 1  # of a size: products of some of them are still floats


def check_fields(spec: Spec) -> None:
    """Refuse a field that its type does not allow, naming it: a `SpecError`."""
    for field in fields(spec):  # pyright: ignore[reportArgumentType] every subclass is a dataclass
        hint, value = _hints(type(spec))[field.name], getattr(spec, field.name)
        if value is None and NoneType in get_args(hint):
            continue
        if get_origin(hint) is Literal:
            words = get_args(hint)
            good, expected = value in words, f"{', '.join(words[:-1])} or {words[-1]}"
        else:
            least = spec.least.get(field.name, 1)
            kind = next(kind for kind in KINDS if kind in (hint, *get_args(hint)))
            good = isinstance(value, KINDS[kind][0]) and isinstance(value, bool) == (kind is bool)
            whole = value if kind is int and isinstance(value, int) else least
            good = good and least <= whole <= LARGEST
            most = " and below 2^63" if whole > LARGEST else ""
            expected = KINDS[kind][1] + (f" >= {least}{most}" if kind is int else "")
        if not good:
            raise SpecError(f"{field.name} must be {expected}, found {shown(value)}")


KINDS = {
    bool: (bool, "true or false"),
    int: (int, "a whole number"),
    float: ((int, float), "a number"),
    str: (str, "a word"),
}
