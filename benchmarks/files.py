"""Files that are either complete or absent, and locks between processes."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``target``; move it there when all went well.

    Readers of ``target`` see the old file or the new one, never a part of it. After an
    error the temporary file is removed and ``target`` is untouched. A missing directory
    is created.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(
        dir=target.parent, prefix=f".{target.stem}-", suffix=target.suffix
    )
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes private files; results are as readable as any other file.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, wait: bool = True, notice: str = "") -> Iterator[bool]:
    """Hold the lock of a path that need not exist; yield whether it was free.

    The lock is a hidden file beside the path, which stays. The system releases it when
    the process ends, however it ends. If ``wait`` is False, the body runs in any case
    and has to look at the yielded value. ``notice`` is printed before waiting.
    """
    if sys.platform == "win32":
        yield True  # Windows has no flock: one process at a time is up to the user
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
