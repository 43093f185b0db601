"""The most memory that was held since some moment."""

import contextlib
import sys
from pathlib import Path

import torch

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def forget_peak(device: torch.device) -> None:
    """Begin anew, as far as the system can: on GPUs and on Linux."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif _CLEAR.exists():
        with contextlib.suppress(OSError):  # not allowed in some containers
            _CLEAR.write_text("5")


def held_megabytes(device: torch.device) -> float:
    """What is held now, as :func:`peak_megabytes` counts it; 0 where none can tell."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device) / 1e6
    return _status("VmRSS:") or 0.0


def peak_megabytes(device: torch.device) -> float:
    """In 10^6 bytes: of the GPU, or of the whole process with all it has loaded."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    if peak := _status("VmHWM:"):
        return peak
    if sys.platform == "win32":
        return float("nan")
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def _status(key: str) -> float | None:
    """A size that Linux tells of this process."""
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1]) * 1024 / 1e6
    return None
