"""Locks between processes that end with the process, however it ends."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl


@contextmanager
def locked(path: Path, wait: bool = True, notice: str = "") -> Iterator[bool]:
    """Hold the lock of a file that need not exist; yield whether it was free.

    Parameters
    ----------
    path : Path
        What is locked; the lock itself is a hidden file beside it, which stays.
    wait : bool, default True
        Whether to wait until it is free. Otherwise the body runs anyway and has to
        look at what was yielded.
    notice : str, optional
        Printed if there is something to wait for.
    """
    if sys.platform == "win32":
        yield True  # one process at a time is up to the user there
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f".{path.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                yield False
                return
            if notice:
                print(notice, file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield True
