"""Files are read without believing them."""

import json
import os

import pytest

from byheart._files import JSON_DEPTH, parse_json, read_json, read_regular
from byheart.errors import ByheartError, FactsError


def test_a_regular_file_is_read(tmp_path):
    file = tmp_path / "a.json"
    file.write_text('{"a": [1, -2, 1e3, "x", null, true]}')
    assert read_json(file) == {"a": [1, -2, 1000.0, "x", None, True]}
    (tmp_path / "link").symlink_to(file)
    assert read_regular(tmp_path / "link", 100) == file.read_bytes()


def test_what_is_no_regular_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name, found in (("pipe", "a named pipe"), ("zero", "a device"), (".", "a folder")):
        with pytest.raises(FactsError, match=found):
            read_regular(tmp_path / name, error=FactsError)
    for name in ("nothing", "x" * 5000, "a\0b"):
        with pytest.raises(ByheartError):
            read_regular(tmp_path / name)


def test_a_large_file_is_refused_before_it_is_read(tmp_path):
    file = tmp_path / "sparse"
    with open(file, "wb") as handle:
        handle.truncate(1 << 40)
    with pytest.raises(ByheartError, match="at most 10 bytes"):
        read_regular(file, 10)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"\xff", "utf-8"),
        ("", "Expecting value"),
        ("[1] 2", "Extra data"),
        ("[" * 10**6, "deep"),
        ('{"a":' * 10**5, "deep"),
        ("[" + "9" * 5000 + "]", "64 bits"),
        (f"{2**64}", "64 bits"),
        ("[1e999]", "finite"),
        ("[NaN]", "NaN"),
        ('{"a": 1, "a": 2}', "twice"),
        ('["\\ud800"]', "surrogate"),
    ],
)
def test_hostile_json_is_refused(text, reason):
    with pytest.raises(ByheartError, match=reason):
        parse_json(text)


def test_depth_is_that_of_brackets_outside_strings():
    nested = "[" * JSON_DEPTH + "]" * JSON_DEPTH
    assert parse_json(nested) is not None
    with pytest.raises(ByheartError, match="deep"):
        parse_json(f"[{nested}]")
    words = ["[" * 100, '"{', "\\[", '\\"[' * 50]
    assert parse_json(json.dumps(words)) == words
    many = [[i] for i in range(1000)]
    assert parse_json(json.dumps(many)) == many


def test_looking_for_depth_ends():
    """Quotes that are escaped for ever, in a string that never ends: not looked at twice."""
    with pytest.raises(ByheartError, match="Unterminated"):
        parse_json('"' + '\\"[' * 300_000)
