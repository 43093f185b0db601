"""Time of the metrics on many points, against uncertainty-toolbox.

Both get the same values in double precision, and take turns, round after round.
"""

import argparse
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

import torch

from benchmarks import environment, tables
from benchmarks.measure import interleaved
from benchmarks.options import add_options, check_options
from benchmarks.predict import as_step
from dinozaur_no import metrics

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "metrics.md"

POINTS, QUICK = 1_000_000, 1_000
OWN = {
    "MA": metrics.miscalibration_area,
    "IS": metrics.interval_score,
    "NLL": metrics.nll,
    "CRPS": metrics.crps_gaussian,
}
COLUMNS = {
    "metric": "Metric",
    "own_ms": "This package ms",
    "toolbox_ms": "uncertainty-toolbox ms",
    "ratio": "Times faster",
    "median_ratio": "Median of rounds",
    "difference": "Difference",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks metrics``."""
    add_options(parser, "5", "docs/metrics.md")


def run(args: argparse.Namespace) -> None:
    """Measure, print the table, write ``metrics.csv``."""
    check_options(args)
    if args.threads:
        torch.set_num_threads(args.threads)
    toolbox = toolbox_functions()
    points = QUICK if args.quick else POINTS
    rows = [measure(name, toolbox, points, args.rounds or 5) for name in OWN]
    path = (args.out or RESULTS) / "metrics.csv"
    tables.write_csv(path, rows)
    print(f"\n{show(rows)}\n\nwritten: {path}")
    if args.update_docs:
        tables.replace_between_markers(PAGE, "metrics", show(rows))


def show(rows: list[dict[str, str]]) -> str:
    """The table, and how it was made."""
    note = (
        "{points} points in double precision; times are the fastest of {rounds} "
        "rounds; uncertainty-toolbox {toolbox}; {cpu}, {threads} threads, torch "
        "{torch}, {date}."
    ).format(**rows[0])
    return f"{tables.markdown_table(rows, COLUMNS)}\n\n{note}"


def toolbox_functions() -> dict[str, Callable[..., float]]:
    """The same metrics of the other package."""
    try:
        from uncertainty_toolbox import metrics_calibration, metrics_scoring_rule
    except ImportError as error:
        raise ValueError(
            "uncertainty-toolbox is not installed: pip install dinozaur-no[test]"
        ) from error
    return {
        "MA": metrics_calibration.miscalibration_area,
        "IS": metrics_scoring_rule.interval_score,
        "NLL": metrics_scoring_rule.nll_gaussian,
        "CRPS": metrics_scoring_rule.crps_gaussian,
    }


def measure(
    name: str, toolbox: Mapping[str, Callable[..., float]], points: int, rounds: int
) -> dict[str, str]:
    """Both implementations of one metric, as a row."""
    generator = torch.Generator().manual_seed(0)
    mean, spread, noise = torch.randn(3, points, generator=generator).double()
    std = spread.exp()
    tensors = mean, std, mean + 1.2 * std * noise
    arrays = [tensor.numpy() for tensor in tensors]
    steps = {
        "own": as_step(lambda: OWN[name](*tensors)),
        "toolbox": as_step(lambda: toolbox[name](*arrays)),
    }
    times = interleaved(steps, rounds, name)
    best = {key: min(found.forward) for key, found in times.items()}
    difference = abs(float(OWN[name](*tensors)) - float(toolbox[name](*arrays)))
    return {
        "metric": name,
        "points": f"{points:,}",
        **{f"{key}_ms": _digits(1e3 * seconds) for key, seconds in best.items()},
        "ratio": _digits(best["toolbox"] / best["own"]),
        "median_ratio": _digits(times["toolbox"].ratio(times["own"], "forward")),
        "difference": f"{difference:.0e}",
        "rounds": str(rounds),
        "toolbox": version("uncertainty-toolbox"),
        **environment.describe(),
    }


def _digits(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{float(f'{value:.3g}'):g}"
