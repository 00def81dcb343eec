"""Methods of a user's own: found by their place, and refused with the reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from made_models import two_heads

from byheart.errors import ByheartError
from byheart.interpret import Subject, method_named
from byheart.interpret.loading import checked, methods_named

TEXT = """
def find(model, key, answer):
    return model.run(key[None]).heads[:, 0, -1].norm(dim=-1)

def wrong(model, key, answer):
    return [[1.0, 2.0, 3.0]]

NUMBER = 3
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "my_localiser.py"
    file.write_text(TEXT)
    return file


@pytest.mark.parametrize("place", ["my_localiser.py:find", "my_localiser:find"])
def test_a_method_is_found_by_its_place(mine: Path, place: str):
    method, model = method_named(place), Subject(two_heads())
    assert method.name == place and len(method.source) == 12
    scores = method.scores(model, model.keys[0], 2)  # head 0 writes 3 t3 + 6 t2, head 1 nothing
    assert scores == pytest.approx(np.array([[45**0.5, 0]]))


def test_another_text_is_another_source(mine: Path):
    before = method_named("my_localiser.py:find").source
    mine.write_text(TEXT.replace("norm(dim=-1)", "abs().sum(-1)"))
    assert method_named("my_localiser.py:find").source != before


def test_a_function_is_taken_as_it_is_and_found_by_its_name_again():
    def find(model: Subject, key: torch.Tensor, answer: int) -> torch.Tensor:
        return torch.zeros(model.layers, model.H)

    method = method_named(find)
    assert method.function is find and method_named(method.name).function is find
    assert [m.name for m in methods_named(["zero", find, "zero"])] == ["zero", method.name]


@pytest.mark.parametrize(
    ("place", "words"),
    [("zeros", "there is no method 'zeros'.*Did you mean 'zero'"),
     ("my_localiser.py:lose", "has no function 'lose'"),
     ("my_localiser.py:NUMBER", "has no function 'NUMBER'"),
     ("no_such_module_here:find", "cannot be imported: ModuleNotFoundError"),
     ("absent.py:find", "absent.py")],
)  # fmt: skip
def test_what_is_no_method_is_refused(mine: Path, place: str, words: str):
    with pytest.raises(ByheartError, match=words):
        method_named(place)


@pytest.mark.parametrize(
    ("values", "words"),
    [(torch.zeros(2), r"shape \(1, 2\); found shape \(2,\)"), ([["a", "b"]], "found list"),
     (None, "found shape|found NoneType"), (np.array([[0, np.nan]]), "nan at layer 0, head 1"),
     (torch.tensor([[np.inf, 0]]), "inf at layer 0, head 0")],
)  # fmt: skip
def test_scores_that_are_none_are_refused(values: object, words: str):
    with pytest.raises(ByheartError, match=f"the method 'mine'.*{words}"):
        checked(values, (1, 2), "mine")


def test_scores_may_require_gradients_and_be_plain_lists():
    assert checked(torch.ones(1, 2, requires_grad=True), (1, 2), "mine").tolist() == [[1, 1]]
    assert checked([[1, 2]], (1, 2), "mine").dtype == np.float64
