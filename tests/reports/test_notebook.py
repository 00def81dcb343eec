"""What a notebook shows of a memory: valid HTML, tokens escaped, small, and alive in a browser."""

from html.parser import HTMLParser

import pytest

import byheart as bh
from byheart.errors import ByheartError
from byheart.reports import notebook

VOID = {"meta", "link", "br", "input", "img"}
HOSTILE = ("</script><script>alert(1)</script>", "' onload='alert(2)", '"><img src=x>', "&#39;&lt;")


class Nested(HTMLParser):
    """Every element is closed, and closed in order; `frame` is what the frame holds."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.frame = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "iframe":
            named = dict(attrs)
            assert set(named) == {"sandbox", "title", "loading", "style", "srcdoc"}
            assert named["sandbox"] == "allow-scripts"
            self.frame = named["srcdoc"] or ""
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def hostile() -> bh.Memory:
    count = len(HOSTILE)
    answers = [(i + 1) % count for i in range(count)]
    vocabulary = bh.Vocabulary(HOSTILE)
    return bh.build(
        bh.Facts.make([[i] for i in range(count)], answers, vocabulary, name=HOSTILE[0])
    )


def test_every_kind_of_memory_is_valid_small_html(memories):
    for name, folder in memories.items():
        memory = bh.load(folder)
        cell = memory._repr_html_()
        assert len(cell.encode()) <= notebook.CELL, name
        outer = Nested(cell)
        assert outer.tags == {"b", "table", "tr", "th", "td", "iframe"}, name
        inner = Nested(outer.frame)
        assert {"main", "script"} <= inner.tags and "iframe" not in inner.tags
        assert "Proved" in outer.frame
        assert ('id="map"' in outer.frame) == (memory.no_heads is None)


def test_tokens_are_escaped():
    cell = hostile()._repr_html_()
    outer = Nested(cell)
    assert outer.tags == {"b", "table", "tr", "th", "td", "iframe"}
    assert not any(token in cell for token in HOSTILE[:3])
    assert "img" not in Nested(outer.frame).tags


def test_memories_without_facts_and_large_ones_have_the_table_alone(tmp_path, monkeypatch):
    memory = bh.build("elements")
    bare = bh.load(memory.save(tmp_path / "bare.memory", with_facts=False))
    assert bare._repr_html_() == bare.describe().html()
    for name in ("FACTS", "WEIGHTS", "CELL"):
        with monkeypatch.context() as limits:
            limits.setattr(notebook, name, 100)
            assert memory._repr_html_() == memory.describe().html()


def test_a_memory_that_nobody_can_prove_is_shown_all_the_same(monkeypatch):
    def refuse(memory: bh.Memory) -> None:
        raise ByheartError(f"{memory.name}: no proof")

    monkeypatch.setattr(notebook, "certify", refuse)
    assert "Not proved yet" in bh.build("elements")._repr_html_()


@pytest.mark.parametrize("which", ["attention", "numbers", "hostile"])
def test_the_cell_works_in_a_browser(which, memories, tmp_path, visit):
    memory = hostile() if which == "hostile" else bh.load(memories[which])
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><title>notebook</title><p>Out[1]:</p>{memory._repr_html_()}")
    page = visit(path).page
    page.locator("iframe").scroll_into_view_if_needed()
    frame = page.frame_locator("iframe")
    assert "Proved" in frame.locator("#verdict").inner_text()
    assert frame.locator("#map").count() == 1
    rows = frame.locator(".row")
    everything = rows.count()
    frame.locator("#search").fill("carbon" if which == "attention" else "1")
    assert 0 < rows.count() < everything
    if which == "hostile":
        assert HOSTILE[0] in frame.locator("h1").inner_text()
    # The sandbox has an origin of its own: what runs in it cannot reach the notebook.
    assert page.evaluate("document.querySelector('iframe').contentDocument") is None
