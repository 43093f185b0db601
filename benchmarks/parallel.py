"""A map over processes that use one thread each."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def parallel_map(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int
) -> Iterator[Result]:
    """Yield ``function(item)`` in the order of ``items``.

    The function must be importable by name, as new processes must find it. With one
    worker everything happens in this process.
    """
    if workers == 1:
        yield from map(function, items)
        return
    others = set(multiprocessing.active_children())
    with (
        _one_thread_per_process(),
        ProcessPoolExecutor(
            workers,
            # A fork copies the locks of running threads, and torch has such threads.
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
        ) as pool,
    ):
        try:
            yield from pool.map(function, items)
        except BaseException:
            # An interrupt ends at once: nobody needs the unfinished results.
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _one_thread_per_process() -> Iterator[None]:
    """Let processes started meanwhile use one BLAS thread: more would compete."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _start_worker() -> None:
    """Leave Ctrl-C to the parent, and do not outlive it when it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
