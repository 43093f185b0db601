"""Train with one setting changed: which one to choose, and what do results depend on?

All are judged on samples that are neither trained on nor among the test samples.
Results are lines of ``runs.csv`` like those of the tables, with presets such as
``times-faster``. ``python -m benchmarks table trials`` shows them.
"""

import argparse

from benchmarks.campaign import add_many, work_off
from benchmarks.rows import find_row
from benchmarks.train import add_common, check_options
from benchmarks.trial_settings import TRIALS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks trials``."""
    parser.add_argument("names", nargs="*", help=f"of {', '.join(TRIALS)} (all)")
    parser.add_argument("--models", nargs="+", help="only these of a trial's models")
    add_many(parser)
    add_common(parser, preset=False)


def run(args: argparse.Namespace) -> None:
    """Train what has no results yet; several processes may share the work."""
    check_options(args)
    unknown = set(args.names) - set(TRIALS)
    if unknown:
        raise ValueError(
            f"unknown trial (={', '.join(sorted(unknown))}): there are "
            f"{', '.join(TRIALS)}"
        )
    jobs = []
    for seed in args.seeds:
        for name in args.names or TRIALS:
            trial, preset = TRIALS[name], "quick" if args.quick else name
            wanted = [m for m in trial.models if m in (args.models or trial.models)]
            jobs += [(find_row(trial.dataset, m, preset), seed) for m in wanted]
    if not jobs:
        known = dict.fromkeys(m for trial in TRIALS.values() for m in trial.models)
        raise ValueError(
            f"--models (={' '.join(args.models)}) names no model of these trials; all "
            f"trials together have {', '.join(known)}"
        )
    work_off(list(dict.fromkeys(jobs)), args)
