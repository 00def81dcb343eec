"""Every option of every other method is refused by name, before facts are read or torch is loaded;
so are wrong paths, methods and values."""

from collections.abc import Callable
from dataclasses import Field, fields

import pytest
from typer.testing import CliRunner

from byheart.cli._options import flag
from byheart.cli.main import make_app
from byheart.methods import methods, option_names

Refused = Callable[..., str]

BUILDING = {name: method for name, method in methods().items() if name != "train"}
# What the command line has as options, each with one field that describes it.
OPTIONS: dict[str, Field] = {
    f.name: f for method in BUILDING.values() for f in fields(method) if "help" in f.metadata
}
FOREIGN = [
    (name, option)
    for name, method in BUILDING.items()
    for option in OPTIONS
    if option not in option_names(method)
]
HEAVY = {"torch", "scipy", "pandas", "matplotlib", "flint", "safetensors", "transformers"}


def given(option: Field) -> list[str]:
    """The option as it is typed, with a value that its own method takes."""
    if isinstance(option.default, bool):
        return [flag(f"{option.name}=False" if option.default else option.name)]
    about, words = option.metadata, str(option.type)
    value = (about.get("choices") or ["x"])[0]
    if "int" in words or "float" in words:
        value = str(int(max(about.get("min") or 0, 1)))
    return [flag(option.name), value]


def test_the_product_is_whole():
    """Each method has foreign options, and each option is foreign to some method or to none."""
    assert {name for name, _ in FOREIGN} == set(BUILDING)
    everywhere = {o for o in OPTIONS if all(o in option_names(m) for m in BUILDING.values())}
    assert {option for _, option in FOREIGN} == set(OPTIONS) - everywhere
    assert len(FOREIGN) > 90


def test_every_foreign_option_is_refused_by_name(monkeypatch: pytest.MonkeyPatch):
    def never(*_: object) -> None:
        pytest.fail("facts are read before a foreign option is refused")

    monkeypatch.setattr("byheart.cli._options.read_any", never)
    app = make_app("build", "recall")
    for name, option in FOREIGN:
        typed = given(OPTIONS[option])
        said = CliRunner().invoke(app, ["build", "facts.csv", "--method", name, *typed])
        assert said.exit_code == 2, (name, typed, said.output)
        owners = [n for n, method in methods().items() if option in option_names(method)]
        start = f"error: {typed[0]} belongs to {owners[0]}"
        end = f"; this is {name}. Leave it out, or use --method {owners[0]}.\n"
        assert said.stderr.startswith(start) and said.stderr.endswith(end), (typed, said.stderr)
        assert all(owner in said.stderr for owner in owners)


def test_the_owner_takes_the_option(monkeypatch: pytest.MonkeyPatch):
    """What the message advises is not refused: facts are read next."""

    class Reading(Exception):
        pass

    def read(*_: object) -> None:
        raise Reading

    monkeypatch.setattr("byheart.cli._options.read_any", read)
    app = make_app("build", "recall")
    for name, method in BUILDING.items():
        for option in (f.name for f in fields(method) if f.name in OPTIONS):
            typed = given(method.__dataclass_fields__[option])
            said = CliRunner().invoke(app, ["build", "facts.csv", "--method", name, *typed])
            assert isinstance(said.exception, Reading), (name, typed, said.output)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--method", "shraded"], "Did you mean 'sharded'?"),
        (["--method", "train"], "`byheart train FACTS`"),
        (["--method", "sharded", "--gate", "kye"], "Did you mean 'key'?"),
        (["--method", "sqrt", "--gate", "key"], "--gate belongs to sharded; this is sqrt."),
        (["--method", "attention", "--unordered"], "--unordered belongs to sqrt"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_named_methods_are_checked_before_the_table(refused: Refused, options, words: str):
    assert words in refused("build", "gone.csv", *options)


def test_options_of_two_methods_are_refused_by_auto(refused: Refused):
    assert "--gate belongs to sharded" in refused("build", "elements", "--gate", "key",
                                                  "--ff1", "hash")  # fmt: skip


def test_training_is_not_chosen_by_build(refused: Refused):
    said = refused("build", "elements", "--steps", "5")
    assert "--steps belongs to multihead or train; this is attention." in said


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["build", "countrys"], "Did you mean 'countries'?"),
        (["build", "gone.csv"], "found no file 'gone.csv'"),
        (["build", "elements", "--method", "magic"], "--method must be one of auto, attention"),
        (["build", "elements", "--method", "sqrt", "--gate", "key"], "belongs to sharded"),
        (["build", "elements", "--gate", "kye"], "Did you mean 'key'?"),
        (["build", "elements", "--gat", "key"], "--gate"),
        (["build", "elements", "-o", "."], "exists already"),
        (["train", "elements", "--model", "atention"], "Did you mean 'attention'?"),
        (["train", "gone.csv"], "found no file 'gone.csv'"),
        (["train", "elements", "-o", "."], "exists already"),
        (["recall", "gone", "a"], "no such memory folder"),
        (["certify", "gone"], "no such memory folder"),
        (["owner", "gone", "a"], "no such memory folder"),
        (["heads", "gone"], "no such memory folder"),
        (["edit", "gone", "--delete", "a"], "no such memory folder"),
        (["export", "gone", "-o", "x"], "no such memory folder"),
        (["export", "gone", "-o", "x", "--to", "trch"], "Did you mean 'torch'?"),
        (["import", "gone", "-o", "x"], "no such folder"),
        (["facts", "countrys"], "Did you mean 'countries'?"),
        (["capacity", "--facts", "gone.csv"], "found no file 'gone.csv'"),
        (["biuld", "elements"], "Did you mean 'build'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_wrong_is_refused_without_torch(plain, started, args, words: str):
    done = started(*args)
    assert done.code == 2
    assert words in plain(done.stderr)
    assert "typer" in done.libraries and not HEAVY & done.libraries
