"""Train many rows, one after the other, skipping those that have results.

Several processes may run the same command at the same time: each takes rows that no
other one is at.
"""

import argparse
import difflib
import os
from collections.abc import Sequence

from benchmarks import records
from benchmarks.rows import DATASETS, Row, find_row, models_of, table_models
from benchmarks.train import (
    add_common,
    check_options,
    keys_of,
    preset_of,
    results_of,
    train_row,
)

Job = tuple[Row, int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks campaign``."""
    parser.add_argument("datasets", nargs="*", help="all of them by default")
    parser.add_argument("--models", nargs="+", help="those of the tables by default")
    add_many(parser)
    add_common(parser)


def add_many(parser: argparse.ArgumentParser) -> None:
    """Declare what all commands that train many rows share."""
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        default=[0, 1, 2],
        help="of weights, order and draws (0 1 2)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what is left")


def run(args: argparse.Namespace) -> None:
    """Train what has no results yet, until all of it has or is another's."""
    check_options(args)
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise ValueError(
            "a campaign shares rows, not batches: start it several times, without "
            "torchrun, which is for train"
        )
    preset = preset_of(args)
    work_off(all_jobs(args.datasets, args.models, preset, args.seeds), args)


def all_jobs(
    datasets: Sequence[str], models: Sequence[str], preset: str, seeds: Sequence[int]
) -> list[Job]:
    """What is asked for; models go with the datasets that have them, if none is named.

    A whole table with one seed comes first.
    """
    if models and not datasets:
        names = {model for dataset in DATASETS for model in models_of(dataset)}
        for model in set(models) - names:
            close = difflib.get_close_matches(model, sorted(names), n=3, cutoff=0.5)
            raise ValueError(
                f"--models (={model}) is unknown: there are "
                f"{', '.join(close or sorted(names))}"
            )
    return [
        (find_row(dataset, model, preset), seed)
        for seed in seeds
        for dataset in datasets or DATASETS
        for model in models or table_models(dataset)
        if datasets or model in models_of(dataset)
    ]


def work_off(jobs: list[Job], args: argparse.Namespace) -> None:
    """Train these, until all of them have results or are another process's."""
    waiting = jobs if args.again else left(jobs, args)
    print(f"{len(waiting)} of {len(jobs)} trainings are left", flush=True)
    failed: dict[Job, str] = {}
    while waiting and not args.dry_run:
        busy = one_round(waiting, args, failed)
        if len(busy) == len(waiting):
            break  # others are at all that is left
        waiting = busy if args.again else left(busy, args)
    for row, seed in waiting:
        state = "left" if args.dry_run else "another process is at it"
        print(f"{row.dataset} {row.model} {seed}: {state}")
    if failed:
        lines = [f"{r.dataset} {r.model} {s}: {e}" for (r, s), e in failed.items()]
        raise ValueError("\n".join([f"{len(failed)} trainings failed", *lines]))


def one_round(
    jobs: list[Job], args: argparse.Namespace, failed: dict[Job, str]
) -> list[Job]:
    """Try every job once; return those that another process is at."""
    busy = []
    for number, (row, seed) in enumerate(jobs, 1):
        # Another process may have finished it meanwhile.
        if not args.again and not left([(row, seed)], args):
            continue
        print(f"{number} of {len(jobs)}: {row.dataset} {row.model} {seed}", flush=True)
        try:
            if train_row(row, seed, args) is None:
                busy.append((row, seed))
        except (ValueError, OSError) as error:  # one that diverges stops no other
            failed[row, seed] = str(error)
            print(f"{row.dataset} {row.model} {seed} failed: {error}", flush=True)
    return busy


def left(jobs: list[Job], args: argparse.Namespace) -> list[Job]:
    """Those without a complete set of results."""
    have = {records.key_of(record) for record in records.read(results_of(args))}
    return [(row, s) for row, s in jobs if not have.issuperset(keys_of(row, s))]
