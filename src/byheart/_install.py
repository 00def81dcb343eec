"""The command that installs an extra (`byheart[hf]`) into this very environment, however byheart
came into it: messages that ask for a package give a line that can be pasted."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

PIPX, UV_TOOL, CONSTRAINTS = "pipx_metadata.json", "uv-receipt.toml", "constraints.txt"


def install(extra: str) -> str:
    """What to type for the packages of `extra`.

    A folder of its sources is installed from there, with its constraints; an application of pipx
    or uv by them; what came from an index by pip, or by uv where there is no pip.
    """
    source, options = _source()
    wanted = shlex.quote(f"{source or 'byheart'}[{extra}]")
    for file, tool in ((PIPX, "pipx install --force"), (UV_TOOL, "uv tool install --force")):
        if Path(sys.prefix, file).is_file():
            return f"{tool} {wanted}"
    if source is None:
        return f"{_pip_install()} {wanted}"
    constraints = f"-c {CONSTRAINTS} " if (source / CONSTRAINTS).is_file() else ""
    into = f"{constraints}{options}{shlex.quote(f'.[{extra}]')}"
    return f"cd {shlex.quote(str(source))} && {_pip_install(source)} {into}"


def _source() -> tuple[Path | None, str]:
    """The folder that byheart was installed from, and pip's option where it is used in place."""
    try:
        text = distribution("byheart").read_text("direct_url.json")
        record = json.loads(text or "{}")
        url = urlsplit(record["url"])
        folder = Path(url2pathname(url.path))
        editable = bool(record.get("dir_info", {}).get("editable"))
    except (PackageNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None, ""
    if url.scheme != "file" or not (folder / "pyproject.toml").is_file():
        return None, ""
    return folder, "-e " if editable else ""


def _pip_install(inside: Path | None = None) -> str:
    """pip of this environment, by the shortest name that means it in the folder `inside`."""
    python = Path(sys.executable)
    found = shutil.which("pip")
    if found is not None and Path(found).parent == python.parent:
        return "pip install"
    if inside is not None and python.is_relative_to(inside):
        python = python.relative_to(inside)
    if find_spec("pip") is None:
        return f"uv pip install --python {shlex.quote(str(python))}"
    return f"{shlex.quote(str(python))} -m pip install"
