"""Limits of the machine, the shell and the container; what is refused because of them."""

import errno
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import byheart as bh
from byheart import _machine
from byheart.cli.main import app
from byheart.construct.encoders import encode
from byheart.errors import CapacityError


def groups(place: Path, own: str, limits: dict[str, str]) -> int:
    """The least limit of control groups as the kernel shows them."""
    (place / "cgroup").write_text(own)
    for name, text in limits.items():
        file = place / "fs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return min(_machine._group_limits(place / "cgroup", place / "fs"), default=0)


@pytest.mark.parametrize(
    ("own", "limits", "least"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "5000"}, 5000),
        ("0::/a/b\n", {"a/b/memory.max": "300", "a/memory.max": "5000"}, 300),
        ("0::/not/here\n", {"memory.max": "700"}, 700),  # a container that is its own root
        ("0::/../x\n", {"memory.max": "900"}, 900),
        ("4:memory:/job\n0::/\n", {"memory/job/memory.limit_in_bytes": "400"}, 400),
        ("4:cpu,memory:/job\n", {"memory/memory.limit_in_bytes": "4000"}, 4000),
        ("3:cpuset:/job\n", {"memory.max": "1"}, 0),
        ("0::/\n", {}, 0),
        ("0::/a\n", {"a/memory.max": "what"}, 0),
    ],
)
def test_limits_of_control_groups(tmp_path, own, limits, least):
    assert groups(tmp_path, own, limits) == least


def test_the_limit_of_the_shell_is_seen():
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (3 << 30, -1))\n"
        "from byheart._machine import memory_bytes; print(memory_bytes())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) <= 3 << 30


def allocated(allocate) -> Exception:
    with pytest.raises((MemoryError, RuntimeError)) as caught:
        allocate()
    return caught.value


def test_what_says_that_memory_is_out():
    real = (
        allocated(lambda: bytearray(1 << 62)),
        allocated(lambda: np.zeros(1 << 57)),
        allocated(lambda: torch.zeros(1 << 57)),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        RuntimeError("std::bad_alloc"),
    )
    assert all(map(_machine.out_of_memory, real)), real
    others = (RuntimeError("shapes"), OSError(errno.ENOENT, "no file"), ValueError("out of memory"))
    assert not any(map(_machine.out_of_memory, others))


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_out_of_memory_is_wrong_use_and_no_traceback(monkeypatch, json):
    """Exit code 1 is that of a failed check."""
    monkeypatch.setattr("byheart.cli.facts.opt.read_any", lambda *_: torch.zeros(1 << 57))
    done = CliRunner().invoke(app, ["facts", "elements", *json])
    assert done.exit_code == 2 and isinstance(done.exception, SystemExit)
    assert "out of memory: this process may use" in done.output


def test_the_message_names_what_is_asked_kept_and_free(monkeypatch):
    monkeypatch.setattr(_machine, "memory_bytes", lambda: 16 * 10**9)
    _machine.check_room(14.4e9, "it", "Take less.")  # all that is free
    with pytest.raises(CapacityError) as refused:
        _machine.check_room(15e9, "it", "Take less.")
    assert str(refused.value) == (
        "it needs about 15 GB of memory. This process may use 16 GB, of which 1.6 GB are kept for "
        "Python, torch and the system: 14.4 GB are free for it. Take less."
    )


def test_an_encoder_that_does_not_fit_or_end_is_refused(monkeypatch):
    table = bh.as_facts("random:kind=gauss,N=20,tau=1,seed=0", distribution=True)
    assert isinstance(table, bh.Distributions)
    with pytest.raises(CapacityError, match=r"an encoder of rank 1,000,000,000 .* GB of memory"):
        encode(table, 10**9)
    monkeypatch.setattr(_machine, "memory_bytes", lambda: 10**18)
    with pytest.raises(CapacityError, match=r"takes about [\d,]+ days of one core"):
        encode(table, 10**12)


def test_capacity_refuses_before_it_draws_a_table(monkeypatch):
    monkeypatch.setattr(
        "byheart.training.search.random_associations", lambda *_: pytest.fail("drawn")
    )
    spec = bh.AttentionOnlySpec(N=2000, S=5, d=1000, d_h=1000, H=10**6, scale=True)
    with pytest.raises(CapacityError, match=r"needs about [\d,]+ GB of memory"):
        bh.capacity(spec)
