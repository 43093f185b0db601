"""Intervals of quantities: means, maxima and fluxes on Darcy flow, forces on bodies.

Every method has independent and correlated noise, fitted to held-out fields that are
neither trained nor tested on. Each is evaluated on test fields, and on fields from
other distributions that nothing was fitted to.

Results are rows of ``quantities.csv``, one for each quantity. Several processes may run
the command at the same time: each takes jobs that no other process works on.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import environment, options, tables
from benchmarks.files import locked
from benchmarks.studies import quantities_picture as picture
from benchmarks.studies import quantities_table
from benchmarks.studies.quantities_bodies import Bodies
from benchmarks.studies.quantities_darcy import Darcy
from benchmarks.studies.quantities_table import KEY, NUMBERS
from benchmarks.studies.quantity_scores import (
    DRAWS,
    fitted,
    intervals_of_means,
    noises_of,
    remembering,
    scores,
)
from benchmarks.tables import Row
from benchmarks.training.devices import check_device

CSV = tables.RESULTS / "quantities.csv"
VERSION = "2"  # raise it with every change of a method; other rows are replaced
PROBLEMS: dict[str, Callable[..., Any]] = {
    "darcy": Darcy,
    "car": Bodies,
    "ahmed": Bodies,
}

ENSEMBLE = "ensemble"
#: The run whose intervals are pictured, and its noises.
SHOWN, PICTURED = ("darcy", "deterministic", 0), ("white", "correlated")
#: The run whose posterior is pictured.
POSTERIOR = ("darcy", "bayesian", "white", 0)
Job = tuple[str, str, int]  # data set, run, seed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks quantities``."""
    parser.add_argument(
        "datasets", nargs="*", help=f"{', '.join(PROBLEMS)} (all)", metavar="dataset"
    )
    parser.add_argument("--jobs", nargs="+", help="models to train, by name (all)")
    options.add_seeds(parser)
    parser.add_argument("--out", type=Path, help="directory for all files")
    options.add_machine(parser)
    options.add_again(parser)
    options.add_smoke(parser)


def run(args: argparse.Namespace) -> None:
    """Work off the jobs without results, print tables, draw the picture."""
    options.check_positive_options(args, "threads")
    options.check_place(args, "smoke")
    check_device(args.device)
    unknown = set(args.datasets) - set(PROBLEMS)
    if unknown:
        known = ", ".join(PROBLEMS)
        raise ValueError(f"unknown dataset (={min(unknown)}): there are {known}")
    path = args.out / CSV.name if args.out else CSV
    for dataset in args.datasets or PROBLEMS:
        work_off(dataset, path, args)
    for dataset in args.datasets or PROBLEMS:
        print(f"\n{quantities_table.show(saved(path), dataset)}")
    intervals = path.with_name(picture.CSV.name)
    if intervals.exists():
        folder = args.out or tables.STATIC
        picture.draw(tables.read_csv(intervals), folder / "quantities.png")


def work_off(dataset: str, path: Path, args: argparse.Namespace) -> None:
    """Evaluate until all jobs of a data set have results or belong to others."""
    kind, folder = PROBLEMS[dataset], args.out or tables.OUTPUT
    problem: Any = None
    waiting = _jobs(dataset, args)
    while waiting:
        left = [job for job in waiting if args.again or not _done(job, path)]
        print(f"{dataset}: {len(left)} of {len(waiting)} jobs are left", flush=True)
        if args.dry_run or not left:
            return
        busy = []
        for job in left:
            _, name, seed = job
            place = folder / f"quantities-{dataset}-{name}-seed{seed}"
            with locked(place, wait=False) as free:
                if not free:
                    busy.append(job)
                elif args.again or not _done(job, path):
                    problem = problem or kind(dataset, args, folder)
                    evaluate(problem, name, seed, path)
        if len(busy) == len(left):
            print(f"{dataset}: other processes work on all that is left")
            return
        waiting = busy


def evaluate(problem: Any, job: str, seed: int, path: Path) -> None:
    """Train the model of a job, fit every noise, add the scores."""
    held_out, tests = problem.held_out(), dict(problem.tests())
    for method, build in problem.methods(job, seed):
        rows, shared = [], remembering(build, {})
        for noise in noises_of(method, problem.amplitudes):
            operator = fitted(
                *(shared, noise, held_out, seed, problem.samples),
                **problem.noise_options,
            )
            for test, batches in tests.items():
                count = sum(len(batch.target) for batch in batches)
                given = (problem.normalizer, seed, problem.samples)
                for quantity, values in scores(operator, batches, *given):
                    key = (problem.name, test, method, noise, str(seed), quantity)
                    rows.append(_row(key, values, problem, count))
            first = (operator, tests["test"][0], problem.normalizer)
            if (problem.name, method, seed) == SHOWN and noise in PICTURED:
                ends = intervals_of_means(*first, seed)
                picture.add(path.with_name(picture.CSV.name), noise, ends)
            if (problem.name, method, noise, seed) == POSTERIOR:
                folder = tables.STATIC if path == CSV else path.parent
                picture.draw_posterior(*first, folder)
            print(f"{problem.name} {method} {seed}, {noise} noise: done", flush=True)
        add(path, rows)


def saved(path: Path) -> list[dict[str, str]]:
    """Return results of this version."""
    rows = tables.read_csv(path) if path.exists() else []
    return [row for row in rows if row.get("version") == VERSION]


def add(path: Path, rows: list[Row]) -> None:
    """Insert results, instead of older ones; processes wait for each other."""
    with locked(path):
        old = saved(path)
        both = {_key(row): row for row in [*old, *rows]}
        ordered = sorted(both.values(), key=quantities_table.place)
        tables.write_csv(path, ordered)


def _jobs(dataset: str, args: argparse.Namespace) -> list[Job]:
    """Return all jobs; an ensemble, which needs several seeds, has one and is last."""
    kind: Any = PROBLEMS[dataset]
    unknown = set(args.jobs or ()) - set(kind.jobs)
    if unknown:
        known = ", ".join(kind.jobs)
        raise ValueError(f"unknown job (={min(unknown)}) of {dataset}: {known}")
    wanted = [job for job in kind.jobs if job in (args.jobs or kind.jobs)]
    several = [
        (dataset, job, seed) for seed in args.seeds for job in wanted if job != ENSEMBLE
    ]
    return several + [
        (dataset, job, args.seeds[0]) for job in wanted if job == ENSEMBLE
    ]


def _done(job: Job, path: Path) -> bool:
    """Tell whether all methods and noises of a job have results."""
    dataset, name, seed = job
    kind: Any = PROBLEMS[dataset]
    have = {
        (r["method"], r["noise"])
        for r in saved(path)
        if (r["dataset"], r["seed"]) == (dataset, str(seed))
    }
    return all(
        (method, noise) in have
        for method in kind.jobs[name]
        for noise in noises_of(method, kind.amplitudes)
    )


def _row(
    key: tuple[str, ...], values: dict[str, float], problem: Any, count: int
) -> Row:
    found = {name: values.get(name) for name in NUMBERS}
    return {
        **dict(zip(KEY, key, strict=True)),
        **{k: "" if v is None or v != v else f"{v:.6g}" for k, v in found.items()},
        **problem.setup,
        "fields": str(count),
        "samples": str(problem.samples),
        "draws": str(DRAWS),
        "version": VERSION,
        **environment.describe(),
    }


def _key(row: Row) -> tuple[str, ...]:
    return tuple(row[name] for name in KEY)
