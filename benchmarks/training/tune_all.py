"""Find learning rate and schedule of all models on held-out samples.

Trials that have results are skipped, and several processes may run the same command.
The preset ``small`` uses the choices. ``python -m benchmarks table sweep`` shows them.
"""

import argparse

from benchmarks.experiments import DATASETS, check_name, find_experiment, models_of
from benchmarks.rates import left
from benchmarks.tables import records
from benchmarks.training.train import add_common, check_train_options, results_of
from benchmarks.training.train_all import Job, work_off


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks tune-all``."""
    parser.add_argument("datasets", nargs="*", help=f"{', '.join(DATASETS)} (all)")
    parser.add_argument("--models", nargs="+", help="(all)")
    parser.add_argument("--dry-run", action="store_true", help="only list what is left")
    add_common(parser, preset=False)


def run(args: argparse.Namespace) -> None:
    """Train all trials: the rates first, then the other schedule at the best rate."""
    check_train_options(args)
    if args.again:
        raise ValueError(
            "--again would discard trials; delete their rows in runs.csv instead"
        )
    for dataset in args.datasets:
        check_name("dataset", dataset, list(DATASETS))
        for model in args.models or ():
            check_name("model", model, models_of(dataset), f" of {dataset}")
    before: list[Job] | None = None
    # Ends when all that is left is trained by other processes.
    while (jobs := next_jobs(args)) and jobs != before:
        work_off(jobs, args)
        before = jobs


def next_jobs(args: argparse.Namespace) -> list[Job]:
    """Return the trials that can be trained now."""
    rows = records.read(results_of(args))
    return [
        (find_experiment(dataset, model, preset=preset), 0)
        for dataset in args.datasets or DATASETS
        for model in models_of(dataset)
        if model in (args.models or [model])
        for preset in left(dataset, model, rows)
    ]
