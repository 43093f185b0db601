"""Machine and versions of a result."""

import datetime
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import torch

PACKAGES = ("torch", "neuraloperator", "numpy", "scipy")


def cpu_name() -> str:
    """Return the name of the processor, as far as the system knows it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def describe() -> dict[str, str]:
    """Return the columns of every committed result: versions, processor, date."""
    import dinozaur_no

    return {
        "dinozaur_no": dinozaur_no.__version__,
        **{name: version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "cpu": cpu_name(),
        "threads": str(torch.get_num_threads()),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    }


def caption(row: Mapping[str, str]) -> str:
    """Return one line on the machine, versions and date of a result."""
    threads = "1 thread" if row["threads"] == "1" else f"{row['threads']} threads"
    return (
        f"{row['cpu']}, {threads}, torch {row['torch']}, neuraloperator "
        f"{row['neuraloperator']}, {row['date']}."
    )
