"""What tests and benchmarks of studies share: a cluster, a store's content, a run to be killed."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import time
from pathlib import Path

from byheart.studies import open_store


def content(store: Path) -> list[tuple]:
    """Everything in the store but the time it took and where it was made."""
    with open_store(store, create=False) as opened:
        return [
            (r.study, r.experiment, r.variant, r.cell, r.seed, dict(r.params),
             dict(r.measurements), r.error, r.stack)
            for r in opened.rows()
        ]  # fmt: skip


class Cluster:
    """A Dask scheduler and its workers, each a process of its own on the loopback."""

    def __init__(self, workers: int = 2) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        self.scheduler = self._start("dask_scheduler", "--host", "127.0.0.1", "--port", str(port))
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        self.workers = [self.worker() for _ in range(workers)]

    def worker(self) -> subprocess.Popen[bytes]:
        return self._start("dask_worker", self.address, "--nthreads", "1", "--host", "127.0.0.1")

    def _start(self, module: str, *options: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                f"distributed.cli.{module}",
                *options,
                "--no-dashboard",
                "--dashboard-address",
                ":0",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()  # a clean end takes them ten seconds, and there is nothing to save
        for process in (*self.workers, self.scheduler):
            process.wait(20)


# A shell without job control starts background jobs with SIGINT ignored, and children inherit it.
LISTEN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
# The process that is killed: a tiny study that takes about a second.
PROGRAM = (
    LISTEN
    + """
import sys
import torch  # before the clock starts: kills should meet the coordinator, not an import
from tiny_study import tiny
from byheart.studies import run

def tell(progress):
    if progress.last is not None:
        print("row", flush=True)

if __name__ == "__main__":
    print("started", flush=True)
    study = tiny(int(sys.argv[4]), pause=float(sys.argv[3]))
    run(study, sys.argv[1], profile="paper", workers=sys.argv[2], progress=tell)
"""
)


def start(
    store: Path, workers: int | str = 1, pause: float = 0.02, points: int = 10
) -> subprocess.Popen[str]:
    script = store.with_name("program.py")  # spawned workers import it again
    script.write_text(PROGRAM)
    command = [sys.executable, str(script), str(store), str(workers), str(pause), str(points)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


def kill_in_a_loop(store: Path, kills: int, points: int, seed: int = 7) -> list[int]:
    """SIGKILL coordinators a random number of rows and a random time into their work, then let
    one finish; the number of rows that each kill left."""
    rng, left = random.Random(seed), []
    while len(left) < kills:
        process = start(store, pause=0.01, points=points)
        assert process.stdout is not None
        for _ in range(rng.randrange(4)):
            process.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.06))
        assert process.poll() is None, "it finished before it was killed: give it more points"
        process.kill()
        process.communicate()
        left.append(len(content(store)) if store.exists() else 0)
    process = start(store, pause=0.01, points=points)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return left
