"""Train many rows, one after the other, skipping those that have results.

Several processes may run the same command at the same time: each takes rows that no
other one is at.
"""

import argparse
import os

from benchmarks import records
from benchmarks.rows import DATASETS, Row, find_row, table_models
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
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[0, 1, 2], help="of everything (0 1 2)"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what is left")
    add_common(parser)


def run(args: argparse.Namespace) -> None:
    """Train what has no results yet, until all of it has or is another's."""
    check_options(args)
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise ValueError(
            "a campaign shares rows, not batches: start it several times, without "
            "torchrun, which is for train"
        )
    preset = preset_of(args)
    jobs = [
        (find_row(dataset, model, preset), seed)
        for seed in args.seeds  # a whole table with one seed first
        for dataset in args.datasets or DATASETS
        for model in args.models or table_models(dataset)
    ]
    work_off(jobs, args)


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
    for row, seed in jobs:
        # Another process may have finished it meanwhile.
        if not args.again and not left([(row, seed)], args):
            continue
        try:
            if train_row(row, seed, args) is None:
                busy.append((row, seed))
        except ValueError as error:  # one that diverges does not stop the others
            failed[row, seed] = str(error)
            print(f"{row.dataset} {row.model} {seed} failed: {error}", flush=True)
    return busy


def left(jobs: list[Job], args: argparse.Namespace) -> list[Job]:
    """Those without a complete set of results."""
    have = {records.key_of(record) for record in records.read(results_of(args))}
    return [(row, s) for row, s in jobs if not have.issuperset(keys_of(row, s))]
