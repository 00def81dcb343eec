"""The same work in this process, on local workers and on a scheduler that others started."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest

import byheart as bh
from byheart.engine import InProcess, engine
from byheart.errors import ByheartError

distributed = pytest.importorskip("distributed")


def fail_on(number: int) -> int:
    if number == 3:
        raise ValueError("three")
    return number * number


def squares(workers: int | str) -> list[int]:
    with engine(workers) as executor:
        return [future.result() for future in [executor.submit(pow, n, 2) for n in range(5)]]


def test_workers_keep_freed_memory():
    """Dask's workers trim malloc at every free unless they are told not to (glibc)."""
    code = """
import resource
from byheart._machine import keep_freed_memory
import numpy as np
print(keep_freed_memory())
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        np.ones(500_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""

    plain = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}

    def faults(**env: str) -> tuple[str, int]:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              check=True, env=plain | env)  # fmt: skip
        changed, number = done.stdout.split()
        return changed, int(number)

    if not hasattr(ctypes.CDLL(None), "mallopt"):
        pytest.skip("not glibc")
    assert faults()[0] == "False"  # nobody asked for trimming: malloc is left alone
    changed, number = faults(MALLOC_TRIM_THRESHOLD_="65536")
    assert changed == "True" and number < 1000  # a thousand pages each of fifty times otherwise


@pytest.fixture
def scheduler() -> Iterator[str]:
    """A Dask scheduler and two workers as separate processes on the loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    host, port = "127.0.0.1", address.rsplit(":", 1)[1]
    python = [sys.executable, "-m"]
    started = [
        subprocess.Popen(
            [
                *python,
                "distributed.cli.dask_scheduler",
                "--host",
                host,
                "--port",
                port,
                "--no-dashboard",
            ],
            stderr=subprocess.DEVNULL,
        )
    ]
    for _ in range(2):
        worker = [
            *python,
            "distributed.cli.dask_worker",
            address,
            "--nthreads",
            "1",
            "--no-dashboard",
        ]
        started.append(subprocess.Popen([*worker, "--host", host], stderr=subprocess.DEVNULL))
    _wait_for(int(port))
    yield address
    for process in reversed(started):
        process.terminate()
        process.wait(20)


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the scheduler did not start")


def test_in_this_process():
    assert squares(1) == [0, 1, 4, 9, 16]


def test_errors_arrive_with_the_result():
    future = InProcess().submit(fail_on, 3)
    with pytest.raises(ValueError, match="three"):
        future.result()


def test_local_workers_listen_to_this_machine_only():
    """Dask has no authentication: its dashboard once listened on every interface."""
    psutil = pytest.importorskip("psutil")  # distributed needs it
    with engine(2) as executor:
        futures = [executor.submit(pow, n, 2) for n in range(5)]
        assert [future.result() for future in futures] == [0, 1, 4, 9, 16]
        here = psutil.Process()
        sockets = [
            connection.laddr.ip
            for process in (here, *here.children(recursive=True))
            for connection in process.net_connections()
            if connection.status == psutil.CONN_LISTEN
        ]
        routes = executor._client.run_on_scheduler(  # type: ignore[attr-defined]
            lambda dask_scheduler: [str(r) for r in dask_scheduler.http_application.applications]
        )
    assert len(sockets) >= 4 and set(sockets) == {"127.0.0.1"}
    assert not routes  # bokeh's pages would be applications


@pytest.mark.slow
def test_an_external_scheduler(scheduler: str):
    assert squares(scheduler) == [0, 1, 4, 9, 16]


@pytest.fixture(scope="module")
def table() -> bh.Facts:
    """Hot tokens and several batches of shards."""
    rng = np.random.default_rng(0)
    keys = np.unique(np.stack([rng.integers(0, 200, 4000), rng.geometric(0.02, 4000)], 1), axis=0)
    vocabulary = bh.Vocabulary(tuple(map(str, range(int(keys.max()) + 1))))
    return bh.Facts.make(keys, rng.integers(0, 150, len(keys)), vocabulary, name="hot")


def weights_of(facts: bh.Facts, workers: int | str) -> dict[str, bytes]:
    memory = bh.build(facts, "sharded", shard_size=50, workers=workers)
    return memory.weight_files()


def test_same_bytes_from_two_workers(table: bh.Facts, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("byheart.construct.sharded.plan.BATCH_ENTRIES", 20_000)
    assert weights_of(table, 2) == weights_of(table, 1)


@pytest.mark.slow  # studies/test_engines.py has the scheduler by default
def test_same_bytes_from_an_external_scheduler(
    table: bh.Facts, scheduler: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("byheart.construct.sharded.plan.BATCH_ENTRIES", 20_000)
    assert weights_of(table, scheduler) == weights_of(table, 1)


@pytest.mark.parametrize("workers", [0, -1, "two", "", 1.5])
def test_what_is_no_engine(workers):
    with pytest.raises(ByheartError, match="`workers`"), engine(workers):
        pass


def test_nobody_at_the_address(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("byheart.engine.PATIENCE", "1s")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ByheartError, match="no Dask scheduler"), engine(f"tcp://127.0.0.1:{port}"):
        pass


def test_without_dask(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ByheartError, match=r"\[cluster\]"), engine(2):
        pass
