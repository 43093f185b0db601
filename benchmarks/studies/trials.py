"""Runs of a study: the best of some learning rates, then all seeds with it.

Each run is a row of a CSV file. Rows that are there are not trained again, and several
processes may add rows for different models.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import tables
from benchmarks.rates import RATES

KEY = ("dataset", "model", "samples", "learning_rate", "seed")

#: Trains on (held_out, rate, seed) and returns the results, among them "relative_l2".
Train = Callable[[bool, float, int], dict[str, str]]


def run_trials(
    path: Path,
    dataset: str,
    model: str,
    seeds: Sequence[int],
    train: Train,
    rates: Sequence[float] = RATES,
) -> None:
    """Train each rate on part of the training samples, then each seed on all."""
    for rate in rates:
        _once(path, (dataset, model, "held-out", f"{rate:g}", "0"), train)
    best = best_rate(path, dataset, model)
    for seed in seeds:
        _once(path, (dataset, model, "test", f"{best:g}", str(seed)), train)


def best_rate(path: Path, dataset: str, model: str) -> float:
    """Return the learning rate with the lowest error on held-out samples."""
    wanted = [dataset, model, "held-out"]
    rows = [r for r in tables.read_if_there(path) if [r[k] for k in KEY[:3]] == wanted]
    if not rows:
        raise ValueError(f"{path} has no learning rates of {model} on {dataset} yet")
    return float(min(rows, key=_error)["learning_rate"])


def _error(row: dict[str, str]) -> float:
    error = float(row["relative_l2"])
    return error if math.isfinite(error) else math.inf  # a rate that was too high


def _once(path: Path, key: tuple[str, ...], train: Train) -> None:
    rows = tables.read_if_there(path)
    if any(tuple(row[name] for name in KEY) == key for row in rows):
        return
    _, _, samples, rate, seed = key
    found = train(samples == "held-out", float(rate), int(seed))
    tables.add_rows(path, [{**dict(zip(KEY, key, strict=True)), **found}], KEY)
    print(f"{' '.join(key)}: relative L2 {found['relative_l2']}", flush=True)
