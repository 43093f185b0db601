"""Time per sample and statistics of all generators, for the documentation."""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks import environment, tables
from benchmarks.data.datasets import GENERATED, GeneratedDataSet
from benchmarks.data.store import StoredSamples, cached_file
from benchmarks.options import add_smoke, check_place

#: Samples to make.
SIZES = {"darcy": 256, "navier_stokes": 24, "car": 24, "ahmed": 24, "darcy_cube": 24}
#: Names of the first channel of the input and of the target.
_DARCY = ("permeability", "pressure")
NAMES = {
    "darcy": _DARCY,
    "navier_stokes": 2 * ("vorticity",),
    "darcy_cube": _DARCY,
}
SURFACE = ("signed distance", "pressure")
SMOKE: dict[str, dict[str, Any]] = {
    "darcy": {"size": 9},
    "navier_stokes": {"size": 16, "points": 8, "records": 2, "dt": 0.1},
    "car": {"grid": 4, "cells": (6, 4, 4), "panel_cells": (6, 4, 4)},
    "ahmed": {"grid": 4, "cells": (6, 4, 4), "panel_cells": (6, 4, 4)},
    "darcy_cube": {"size": 6},
}
COLUMNS = {
    "dataset": "Data set",
    "n": "Samples",
    "seconds": "Seconds per sample",
    "input": "Input",
    "input_mean": "mean",
    "input_std": "deviation",
    "target": "Target",
    "target_mean": "mean",
    "target_std": "deviation",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks data report``."""
    parser.add_argument("--workers", type=int, help="processes (one per processor)")
    parser.add_argument("--out", type=Path, help="directory for data.csv")
    add_smoke(parser)


def run(args: argparse.Namespace) -> None:
    """Make samples of all data sets, print the table, write ``data.csv``."""
    check_place(args, "smoke")
    rows = [measure(name, data, args) for name, data in GENERATED.items()]
    path = (args.out or tables.RESULTS) / "data.csv"
    tables.write_csv(path, rows)
    print(f"\n{show(rows)}\n\nwritten: {path}")


def measure(
    name: str, data: GeneratedDataSet, args: argparse.Namespace
) -> dict[str, str]:
    """Time the generation of some samples, and describe their fields."""
    n = 2 if args.smoke else SIZES[name]
    workers = args.workers or os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        path = cached_file(
            *(data.make, data.recipe, n, 0, SMOKE[name] if args.smoke else {}),
            cache_dir=Path(folder),
            workers=workers,
        )
        seconds = time.perf_counter() - start
        row = {"dataset": name, "n": str(n), "workers": str(workers)}
        row["seconds"] = f"{seconds / n:.3g}"
        source = StoredSamples(path)
        items = [data.item(source[index]) for index in range(n)]
        inputs = [item["x"][0] if "x" in item else item["f"][..., 0] for item in items]
        targets = [item["y"] for item in items]
        for role, word, fields in zip(
            ("input", "target"),
            NAMES.get(name, SURFACE),
            (inputs, targets),
            strict=True,
        ):
            values = torch.stack(fields).double()
            mean, std = values.mean().item(), values.std(correction=0).item()
            row |= {
                role: word,
                # Not the rounding errors of a mean that is zero
                f"{role}_mean": f"{mean if abs(mean) > 1e-6 * std else 0:.4g}",
                f"{role}_std": f"{std:.4g}",
            }
    return row | environment.describe()


def show(rows: list[dict[str, str]]) -> str:
    """Render the table, with a note on the machine."""
    note = (
        "Wall time with {workers} processes, their start included; {cpu}, torch "
        "{torch}, {date}."
    ).format(**rows[0])
    return f"{tables.markdown_table(rows, COLUMNS)}\n\n{note}"
