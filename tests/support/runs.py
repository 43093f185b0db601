"""Results and logs of runs, for tests of the benchmarks."""

import os
from pathlib import Path

from benchmarks import tables
from benchmarks.tables import records
from benchmarks.training.loop import TIMES

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def record(dataset, model, seed=0, noise="none", uncertainty="none", **values):
    """A line of runs.csv with ones in all columns that are not given."""
    filled = dict.fromkeys(records.COLUMNS, "1")
    key = (dataset, model, uncertainty, "small", str(seed), noise)
    named = dict(zip(records.KEY, key, strict=True))
    return {**filled, **named, "parameters": "12345", **values}


def line_of(text, name):
    """The first line with a name in it."""
    return next(line for line in text.splitlines() if name in line)


def log_of(folder):
    """Everything in the log of a run that is no time."""
    rows = tables.read_csv(folder / "log.csv")
    return [{k: v for k, v in row.items() if k not in TIMES} for row in rows]


def is_png(path):
    """Whether a file is a picture."""
    return path.read_bytes().startswith(b"\x89PNG")
