"""Results of all runs, rows of one CSV file that many processes share."""

import csv
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

from benchmarks import environment
from benchmarks.experiments import DATASETS, MODELS, NOISES
from benchmarks.files import locked
from benchmarks.tables import RESULTS, ROOT, write_csv

RUNS = RESULTS / "runs.csv"

KEY = ("dataset", "model", "uncertainty", "preset", "seed", "noise")
METRICS = (
    *("relative_l2", "nll", "miscalibration_area", "interval_score", "crps"),
    *("coverage_90", "width_90", "coverage_95", "width_95", "sharpness"),
    "error_std_correlation",
)
SETUP = (
    *("noise_variance", "draws", "schedule", "learning_rate", "initialisation"),
    *("batch", "epochs", "train", "test", "width", "modes", "seconds", "peak_mb"),
    *("device", "precision", "processes", "data"),
)
PACKAGES = ("lightning-fabric", "schedulefree")
VERSIONS = ("dinozaur_no", *environment.PACKAGES, "python", "cpu", "threads", "date")
COLUMNS = (*KEY, "parameters", *METRICS, *SETUP, *VERSIONS, *PACKAGES, "commit")

Record = dict[str, str]


def describe() -> Record:
    """Return versions, processor, date and commit."""
    packages = {name: version(name) for name in PACKAGES}
    return {**environment.describe(), **packages, "commit": commit()}


@cache
def commit() -> str:
    """Return the commit that is checked out, with a plus if files have changed."""
    found = []
    for words in ("rev-parse --short=10 HEAD", "status --porcelain -uno"):
        try:
            done = subprocess.check_output(
                ["git", *words.split()], cwd=ROOT, text=True, stderr=subprocess.DEVNULL
            )
        except (OSError, subprocess.CalledProcessError):
            return ""
        found.append(done.strip())
    # Results are added while the next ones are computed; they change no number.
    changes = [
        line for line in found[1].splitlines() if "benchmarks/results/" not in line
    ]
    return found[0] + ("+" if changes else "")


def key_of(record: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values that identify a result."""
    return tuple(record[name] for name in KEY)


def read(path: Path) -> list[Record]:
    """Read all results; none if there is no file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        rows, found = list(reader), tuple(reader.fieldnames or ())
    if found != COLUMNS:
        other = sorted(set(found) ^ set(COLUMNS)) or ["their order"]
        raise ValueError(
            f"{path} was written by another version: its columns differ in "
            f"{', '.join(other[:5])}. Nothing was changed; move it away, or go back to "
            "the commit that its rows name"
        )
    broken = [row for row in rows if None in row or None in row.values()]
    if broken:
        raise ValueError(
            f"{path} has a row with a wrong number of values: {broken[0]}; "
            "correct or delete it"
        )
    return rows


def missing(path: Path, keys: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the keys that have no result yet."""
    have = {key_of(row) for row in read(path)}
    return [key for key in keys if key not in have]


def add(path: Path, records: Sequence[Record], again: bool = False) -> None:
    """Insert results into the file; with ``again`` they may replace others.

    Processes wait for each other. A reader sees all of the new results or none.
    """
    with locked(path):
        rows = {key_of(row): row for row in read(path)}
        new = {key_of(record): record for record in records}
        taken = [key for key in new if key in rows]
        if taken and not again:
            raise ValueError(
                f"{path} has {', '.join(taken[0])} already; give --again to replace it"
            )
        both = sorted((rows | new).values(), key=_place)
        write_csv(path, [{name: row[name] for name in COLUMNS} for row in both])


def _place(row: Mapping[str, str]) -> tuple[object, ...]:
    """Return the place of a row: as in the tables, not in the order of completion."""
    names: dict[str, list[str]] = {
        "dataset": list(DATASETS),
        "model": list(MODELS),
        "uncertainty": list(NOISES),
    }
    places = [
        known.index(row[key]) if row[key] in known else len(known)
        for key, known in names.items()
    ]
    return row["preset"], *places, int(row["seed"]), row["noise"]
