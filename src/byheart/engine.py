"""Where independent pieces of work run: in this process, on local workers, on a cluster.

Every engine is a `concurrent.futures.Executor`: `submit(function, *arguments)` returns a future.
Local workers and clusters are Dask's (`pip install 'byheart[cluster]'`): Dask moves the data and
runs a task again whose worker died. It has no authentication: whoever reaches a scheduler or a
worker can run code there, so local ones listen to this machine only, without a dashboard.

Tasks must be plain functions of their arguments, so that running one twice changes nothing; each
worker computes on one thread, so that results do not depend on how many there are.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from byheart._install import install
from byheart.errors import ByheartError

if TYPE_CHECKING:
    from distributed import LocalCluster

HERE = "127.0.0.1"  # this machine alone
PATIENCE = "10s"  # for the answer of a scheduler


class InProcess(Executor):
    """Runs each task when it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # the caller sees it where it asks for the result
            future.set_exception(error)
        return future


def places(executor: Executor) -> int:
    """How many tasks an engine runs at once, as far as it is known now; at least 1.

    >>> places(InProcess())
    1
    """
    client = getattr(executor, "_client", None)
    return 1 if client is None else max(2, sum(client.nthreads().values()))


@contextmanager
def engine(workers: int | str = 1) -> Iterator[Executor]:
    """1: this process; k > 1: k local processes; "tcp://host:8786": any Dask scheduler.

    >>> with engine() as executor:
    ...     executor.submit(pow, 2, 10).result()
    1024
    """
    text = str(workers).strip()
    if text == "1":
        yield InProcess()
        return
    if not (text.isdigit() and int(text) > 1) and "://" not in text:
        raise ByheartError(
            f"`workers` takes a number of processes (1, 2, ...) or the address of a Dask scheduler "
            f"(tcp://host:8786), found {workers!r}"
        )
    try:
        from distributed import Client
    except ImportError:
        needs = f"several workers need Dask: {install('cluster')}"
        raise ByheartError(f"{needs}, or use `workers=1`") from None
    if text.isdigit():
        with _local_workers(int(text)) as cluster, Client(cluster) as client:
            yield client.get_executor(pure=False)
        return
    try:
        client = Client(text, timeout=PATIENCE)
    except (OSError, TimeoutError, ValueError) as error:
        raise ByheartError(f"no Dask scheduler answers at {text}: {error}") from None
    with client:
        yield client.get_executor(pure=False)


def _local_workers(number: int) -> LocalCluster:
    """Processes of this machine that do not hear Ctrl-C, which a terminal sends to all of them:
    this process ends them. Workers inherit the signals that the thread which starts them blocks.
    Ctrl-C while they start is heard when they have started: Dask cannot close half of a cluster."""

    def start() -> LocalCluster:
        from distributed import LocalCluster

        if hasattr(signal, "pthread_sigmask"):  # not on Windows
            from multiprocessing.resource_tracker import ensure_running

            ensure_running()  # else it is started with the workers, and unblocks the signal
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        # Ctrl-C cancels futures whose results are on their way: Dask's loop would print each.
        logging.getLogger("tornado.application").setLevel(logging.CRITICAL)
        return LocalCluster(
            n_workers=number,
            threads_per_worker=1,
            processes=True,
            host=HERE,
            dashboard_address=f"{HERE}:0",  # of its small HTTP server, which it always starts
            scheduler_kwargs={"dashboard": False},
            silence_logs=logging.CRITICAL,  # what fails comes back with its future
        )

    with ThreadPoolExecutor(1) as starter:
        starting = starter.submit(start)
        try:
            return starting.result()
        except KeyboardInterrupt:
            with suppress(Exception):
                starting.result().close()
            raise
