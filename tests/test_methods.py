"""Methods as objects: every foreign option is refused by name, every wrong value by its field."""

from __future__ import annotations

import dataclasses
import math

import pytest

import byheart as bh
from byheart.construct.encoders import encode
from byheart.errors import ByheartError, OptionError
from byheart.methods import Method, methods, option, option_names, resolve

TABLES = {
    "facts": bh.random_associations(N=6, S=2, T=8),
    "vectors": bh.random_vectors(T=5, n=3, d=4),
    "distributions": bh.random_distributions("gauss", N=5, seed=1),
}
FIELDS = [(name, f) for name, method in methods().items() for f in dataclasses.fields(method)]
OPTIONS = [(name, f) for name, f in FIELDS if f.metadata]  # those that the command line has, too
FOREIGN = [
    (name, other)
    for name, method in methods().items()
    for other in sorted({f.name for _, f in FIELDS} - option_names(method))
]


@pytest.fixture(autouse=True)
def _nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused, is refused before any work."""
    for method in methods().values():
        monkeypatch.setattr(method, "_build", lambda *_: pytest.fail("work was done"))


@pytest.mark.parametrize(("name", "other"), FOREIGN)
def test_every_foreign_option_is_refused_by_name(name: str, other: str):
    owners = [m.name for m in methods().values() if other in option_names(m)]
    with pytest.raises(ByheartError) as caught:
        resolve(name, TABLES[methods()[name].takes], {other: 1})
    message = str(caught.value)
    assert message.startswith(f"`{other}` belongs to ") and f"; this is {name}." in message
    assert all(owner in message for owner in owners)


def test_the_words_of_a_refusal():
    with pytest.raises(ByheartError, match=r"^`gate` belongs to sharded; this is sqrt\."):
        bh.build("elements", "sqrt", gate="key")
    with pytest.raises(ByheartError, match=r"sharded has no option 'gat'\. Did you mean 'gate'\?"):
        bh.build("elements", "sharded", gat="key")
    with pytest.raises(OptionError, match="Did you mean 'sharded'"):
        bh.build("elements", "shraded")
    with pytest.raises(OptionError, match="`method` must be a name or a Method, found 3"):
        bh.build("elements", 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "field"), FIELDS, ids=lambda v: getattr(v, "name", v))
def test_wrong_values_of_every_field(name: str, field: dataclasses.Field):
    """Another type, a value outside the range, a name that is no choice."""
    limits = {"choices": None, "min": None, "max": None, **field.metadata}
    kinds = str(field.type).replace("|", " ").split()
    wrong: list[object] = [object(), (1,), b"x"]
    if "None" not in kinds:
        wrong.append(None)
    if limits["choices"]:
        wrong += ["nonsense", 3]
    elif "str" not in kinds:
        wrong += ["nonsense", ""]
    if "bool" in kinds:
        wrong += [0, 1]
    else:
        wrong += [True, False]
    if "int" in kinds and "float" not in kinds:
        wrong += [1.5, math.nan]
    if limits["min"] is not None:
        wrong += [limits["min"] - 1, -math.inf]
    if limits["max"] is not None:
        wrong += [limits["max"] + 1, math.inf, math.nan]
    for value in wrong:
        with pytest.raises(OptionError) as caught:
            methods()[name](**{field.name: value})
        assert caught.value.parameter == field.name, value


@pytest.mark.parametrize(("name", "field"), OPTIONS, ids=lambda v: getattr(v, "name", v))
def test_what_a_field_may_be(name: str, field: dataclasses.Field):
    limits = field.metadata
    right = [field.default, *(limits["choices"] or ())]
    right += [limit for limit in (limits["min"], limits["max"]) if limit is not None]
    for value in right:
        methods()[name](**{field.name: value})
    assert limits["help"], "the command line shows it"


@pytest.mark.parametrize("name", methods())
def test_methods_are_values(name: str):
    method = methods()[name]
    one, two = method(), method()
    assert one == two and hash(one) == hash(two) and one is not two
    changed = None
    for field in dataclasses.fields(method):
        others = [c for c in field.metadata.get("choices") or () if c != field.default]
        if others:
            changed = dataclasses.replace(one, **{field.name: others[0]})
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(one, field.name, field.default)
    if changed is not None:
        assert changed != one and repr(changed) != repr(one)
    assert (method.name, bool(method.summary)) == (name, True)


def test_a_method_with_an_encoder_is_a_value_too():
    coder = encode(TABLES["distributions"], 2, "centred")
    one, two = (bh.DistributionAttention(d=2, encoder=coder) for _ in range(2))
    assert one == two and hash(one) == hash(two)


@pytest.mark.parametrize("name", methods())
def test_options_beside_an_object_are_refused(name: str):
    method = methods()[name]
    field = dataclasses.fields(method)[0]
    with pytest.raises(ByheartError, match=f"give options to the method itself, {method.__name__}"):
        resolve(method(), TABLES[method.takes], {field.name: field.default})


@pytest.mark.parametrize("name", methods())
@pytest.mark.parametrize("kind", TABLES)
def test_facts_of_another_kind_are_refused(name: str, kind: str):
    method = methods()[name]
    if kind == method.takes:
        return
    with pytest.raises(ByheartError, match=f"the method {name} takes .*: use `method` "):
        bh.build(TABLES[kind], name)


@pytest.mark.parametrize(
    ("facts", "options", "name", "why"),
    [
        (TABLES["facts"], {}, "attention", "8 facts are fewer than 2,000"),
        (bh.random_associations(N=60, S=2, T=2000), {}, "sharded", "2,000 facts are too many"),
        (TABLES["facts"], {"gate": "key"}, "sharded", "`gate` belongs to it"),
        (TABLES["facts"], {"readout": "convex"}, "attention", "`readout` belongs to it"),
        (TABLES["vectors"], {}, "multihead", "these facts are vectors"),
        (TABLES["distributions"], {}, "distribution", "keys have several right answers"),
        (TABLES["facts"], {"ff1": "hash"}, "sqrt", "`ff1` belongs to it"),
    ],
)
def test_auto_says_in_one_line_what_it_chose_and_why(facts, options, name, why):
    chosen, reason = resolve("auto", facts, options)
    assert chosen == methods()[name](**options)
    assert reason.startswith(f"method {name}: ") and why in reason and "\n" not in reason


def test_auto_refuses_options_that_no_method_has_together():
    with pytest.raises(ByheartError, match="belongs to"):
        resolve("auto", TABLES["facts"], {"gate": "key", "ff1": "hash"})


def test_the_reason_stands_in_the_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    memory = bh.build(TABLES["facts"])
    assert memory.construction.why[0].startswith("method attention: ")
    assert not bh.build(TABLES["facts"], "attention").construction.why[0].startswith("method")


def test_a_method_of_ones_own():
    @dataclasses.dataclass(frozen=True)
    class Mine(Method):
        name = "mine"
        summary = "an example"
        size: int = option(2, "How large.", min=1, max=3)

        def _build(self, facts, seed, progress):
            raise ByheartError(f"{facts.T} facts, size {self.size}")

    with pytest.raises(OptionError, match="`size` must be between 1 and 3, found 4"):
        Mine(size=4)
    with pytest.raises(ByheartError, match="8 facts, size 3"):
        bh.build(TABLES["facts"], Mine(size=3))
