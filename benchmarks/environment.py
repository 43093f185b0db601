"""Where and with what a result was measured."""

import datetime
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import torch

PACKAGES = ("torch", "neuraloperator", "numpy", "scipy")


def cpu_name() -> str:
    """Name of the processor, as well as the system knows it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def describe() -> dict[str, str]:
    """Columns that every committed result carries: versions, processor, date."""
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
    """One line that says where and when the rows of a result file were measured."""
    return (
        "{cpu}, {threads} threads, torch {torch}, neuraloperator {neuraloperator}, "
        "dinozaur-no {dinozaur_no}, {date}."
    ).format(**row)
