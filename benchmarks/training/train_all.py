"""Train many experiments, one after the other, and skip those that have results.

Several processes may run the same command at the same time: each trains experiments
that no other process is training.
"""

import argparse
import os
from collections.abc import Sequence

from benchmarks.experiments import (
    DATASETS,
    NOISES,
    Experiment,
    all_experiments,
    check_name,
    find_experiment,
    models_of,
    table_experiments,
)
from benchmarks.options import add_seeds
from benchmarks.tables import records
from benchmarks.training import train

Job = tuple[Experiment, int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks train-all``."""
    parser.add_argument("datasets", nargs="*", help=f"{', '.join(DATASETS)} (all)")
    parser.add_argument("--models", nargs="+", help="(those of the paper's tables)")
    parser.add_argument(
        "--uncertainty",
        nargs="+",
        choices=list(NOISES),
        help="(those of the paper's tables; none with --models)",
    )
    add_seeds(parser)
    train.add_common(parser)


def run(args: argparse.Namespace) -> None:
    """Train experiments that have no results yet."""
    train.check_train_options(args)
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise ValueError(
            "train-all shares experiments, not batches: start it several times without "
            "torchrun, which is for train"
        )
    jobs = all_jobs(
        args.datasets, args.models, args.uncertainty, args.preset, args.seeds
    )
    work_off(jobs, args)


def all_jobs(
    datasets: Sequence[str],
    models: Sequence[str] | None,
    uncertainties: Sequence[str] | None,
    preset: str,
    seeds: Sequence[int],
) -> list[Job]:
    """Return the experiments to train; a whole table with one seed comes first.

    If no data set is named, models go with the data sets that have them.
    """
    every = {model for dataset in DATASETS for model in models_of(dataset)}
    for model in models or ():
        check_name("model", model, sorted(every))
    jobs = []
    for seed in seeds:
        for dataset in datasets or DATASETS:
            find_experiment(dataset, models_of(dataset)[0], preset=preset)
            for model in (models or ()) if datasets else ():
                check_name("model", model, models_of(dataset), f" of {dataset}")
            named = models or uncertainties
            some = (all_experiments if named else table_experiments)(dataset, preset)
            jobs += [
                (experiment, seed)
                for experiment in some
                if not named
                or (
                    experiment.model in (models or every)
                    and experiment.uncertainty in (uncertainties or ("none",))
                )
            ]
    return jobs


def work_off(jobs: list[Job], args: argparse.Namespace) -> None:
    """Train until all jobs have results or belong to other processes."""
    waiting = jobs if args.again else _without_results(jobs, args)
    print(f"{len(waiting)} of {len(jobs)} runs are left", flush=True)
    failed: dict[Job, str] = {}
    while waiting and not args.dry_run:
        busy = _one_round(waiting, args, failed)
        if len(busy) == len(waiting):
            break  # other processes train all that is left
        waiting = busy if args.again else _without_results(busy, args)
    for experiment, seed in waiting:
        state = "left" if args.dry_run else "another process is training it"
        print(f"{experiment} {seed}: {state}")
    if failed:
        lines = [f"{e} {seed}: {error}" for (e, seed), error in failed.items()]
        raise ValueError("\n".join([f"{len(failed)} runs failed", *lines]))


def _one_round(
    jobs: list[Job], args: argparse.Namespace, failed: dict[Job, str]
) -> list[Job]:
    """Try every job once; return those that another process is training."""
    busy = []
    for number, (experiment, seed) in enumerate(jobs, 1):
        # Another process may have finished it in the meantime.
        if not args.again and not _without_results([(experiment, seed)], args):
            continue
        print(f"{number} of {len(jobs)}: {experiment} {seed}", flush=True)
        try:
            if not train.train_experiment(experiment, seed, args):
                busy.append((experiment, seed))
        except (ValueError, OSError) as error:  # one that diverges stops no other
            failed[experiment, seed] = str(error)
            print(f"{experiment} {seed} failed: {error}", flush=True)
    return busy


def _without_results(jobs: list[Job], args: argparse.Namespace) -> list[Job]:
    """Return the jobs without a complete set of results."""
    have = {records.key_of(record) for record in records.read(train.results_of(args))}
    return [
        (e, seed) for e, seed in jobs if not have.issuperset(train.keys_of(e, seed))
    ]
