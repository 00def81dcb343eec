"""Figures: drawn for every memory that has them, refused with a reason otherwise."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import byheart as bh
from byheart.cli.main import app
from byheart.errors import ByheartError
from byheart.models import TokenMemory
from byheart.models.construction import AttentionConstruction
from byheart.reports import FIGURES, figure
from byheart.reports.carriers import contributions, head_map
from byheart.specs import AttentionOnlySpec

HEADS = ("attention", "sharded", "numbers", "classes", "own-contexts", "one-token", "distribution")


@pytest.mark.parametrize("name", ["head-map", "ablation", "attention", "condition"])
@pytest.mark.parametrize("kind", HEADS)
def test_figures_of_heads(name, kind, memories):
    assert figure(memories[kind], name).axes


@pytest.mark.parametrize("kind", [*HEADS, "associative", "sqrt"])
def test_capacity_and_margins(kind, memories):
    assert figure(memories[kind], "capacity").axes
    if kind == "sqrt":
        with pytest.raises(ByheartError, match="no margins"):
            figure(memories[kind], "margins")
    else:
        assert figure(memories[kind], "margins").axes


def test_figures_that_do_not_belong_are_refused(memories):
    for kind, name in (("sqrt", "head-map"), ("associative", "condition"), ("attention", "kl")):
        with pytest.raises(ByheartError):
            figure(memories[kind], name)
    with pytest.raises(ByheartError, match="choose from head-map"):
        figure(memories["attention"], "hedmap")


@pytest.mark.parametrize("kind", HEADS)
def test_parts_add_up_and_attention_is_a_distribution(kind, memories):
    """Two ways: Σ parts + rest + skip, and the margin that the memory itself computes."""
    memory = bh.load(memories[kind])
    facts = memory.facts
    assert facts is not None
    largest = contributions(memory, np.arange(facts.T), 3)
    if kind in ("numbers", "own-contexts"):
        meant = np.asarray(memory.outputs(memory.inputs_of(facts)))[:, 0]
    else:
        meant = memory.margins()
    assert np.allclose(largest.skip + largest.parts.sum(1) + largest.rest, meant, atol=1e-3)
    assert np.allclose(largest.attention.sum(2)[largest.heads >= 0], 1, atol=1e-9)


def test_the_head_map_is_what_taking_the_head_away_does(memories):
    """Head 3 of a memory replaced by its mean in the weights: the margins drop as the map says."""
    import torch

    from byheart.models.attention_only import head_outputs

    memory = bh.load(memories["attention"])
    assert isinstance(memory, TokenMemory) and isinstance(memory.spec, AttentionOnlySpec)
    facts = memory.facts
    assert facts is not None
    found = head_map(memory)
    weights = {name: w[None].double() for name, w in memory.weights.items()}
    skip, F = head_outputs(memory.spec, weights, memory.with_start(facts.tokens))
    F[0, :, 3] = F[0, :, 3].mean(0)
    logits = (skip[0] + F[0].flatten(1) @ weights["W_O"][0, -1].flatten(0, 1)) @ weights["W_U"][0]
    right = torch.tensor(facts.answers)[:, None]
    after = logits.gather(1, right)[:, 0] - logits.scatter(1, right, -torch.inf).amax(1)
    before = memory.margins(facts, torch.float64)
    assert np.allclose((before - after.numpy())[found.rows], found.effect[:, 3], atol=1e-9)
    assert ((after.numpy() <= 0)[found.rows] == found.lost[:, 3]).all()


def test_a_family_of_another_package_has_a_map_by_the_contract_alone(memories):
    """Against the parts of `split`: a head's effect is its part minus the mean of its parts."""
    from byheart.models import Memory
    from byheart.reports.carriers import effects

    memory = bh.load(memories["attention"])
    assert isinstance(memory, TokenMemory) and memory.facts is not None
    effect, lost, _ = effects.dispatch(Memory)(memory, np.array([5, 2]))
    parts = np.array([memory.split(*memory.facts.key(i)).parts for i in range(memory.facts.T)])
    assert np.allclose(effect, (parts - parts.mean(0))[[5, 2]], atol=1e-9)
    assert (lost == (memory.margins()[[5, 2], None] <= effect)).all()


def test_the_condition_number_is_the_one_of_the_construction(memories):
    from byheart.reports.figures import equations, spectrum

    memory = bh.load(memories["attention"])
    assert isinstance(memory.construction, AttentionConstruction)
    (X,) = equations(memory)
    values = spectrum(X)
    assert 0.5 < values[0] / values[-1] / (memory.construction.condition or 0) < 2


def test_the_command_writes_pages_and_pictures(memories, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = str(memories["attention"])
    done = CliRunner().invoke(app, ["report", source, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["pages"][0]["kind"] == "memory"
    assert (tmp_path / "report.html").exists()
    for suffix in ("svg", "png", "pdf"):
        out = f"map.{suffix}"
        done = CliRunner().invoke(app, ["report", source, "--figure", "head-map", "-o", out])
        assert done.exit_code == 0 and (tmp_path / out).stat().st_size > 1000
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    assert CliRunner().invoke(app, ["explore"]).exit_code == 0
    assert opened == [(tmp_path / "explorer.html").as_uri()]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["gone.memory"], "there is no such file or folder"),
        (["MEMORY", "-o", "map.png"], "say which (--figure NAME)"),
        (["MEMORY", "-o", "page.txt"], "must end in .html"),
        (["MEMORY", "--figure", "head-map"], "must end in .png, .svg, .pdf"),
        (["MEMORY", "MEMORY", "--figure", "head-map", "-o", "a.png"], "draws one input, found 2"),
        (["MEMORY", "--figure", "fog", "-o", "a.png"], "there is no figure 'fog'"),
    ],
)
def test_misuse_is_refused(args, said, memories, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    real = [str(memories["attention"]) if a == "MEMORY" else a for a in args]
    done = CliRunner().invoke(app, ["report", *real, "--json"])
    assert done.exit_code == 2
    assert said in json.loads(done.stdout)["error"]
    assert not list(tmp_path.iterdir())


GALLERY = Path(__file__).parents[2] / "docs" / "gallery.md"


def test_every_figure_is_in_the_gallery():
    text = GALLERY.read_text()
    for name in FIGURES:
        assert f"--figure {name}" in text


@pytest.mark.slow
def test_the_commands_of_the_gallery_run(tmp_path, monkeypatch):
    """All but the study and the audit, which take minutes, and the benchmarks."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(GALLERY.parents[1] / "examples")
    text = GALLERY.read_text()
    built = [line[2:] for line in text.splitlines() if line.startswith("$ byheart build")]
    shown = re.findall(r"`(byheart [^`]+)`", text)
    quick = [c for c in shown if "explore" not in c and ".db" not in c and ".json" not in c]
    assert len(built) == 3 and len(quick) >= 10
    for command in built + quick:
        done = CliRunner().invoke(app, shlex.split(command)[1:])
        assert done.exit_code == 0, f"{command}\n{done.output}"
