"""``python -m benchmarks data``: make the data of a benchmark, or look at them."""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.data import report
from benchmarks.data.dataset import OperatorDataset, Source
from benchmarks.data.public_files import open_files
from benchmarks.data.sets import DATA_SETS, DataSet, keywords
from benchmarks.data.store import (
    StoredSamples,
    cached_file,
    count_samples,
    open_samples,
)

N_SHOWN = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks data``."""
    names = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, data in DATA_SETS.items():
        sizes = f"{data.n_train} for training and {data.n_test} for tests"
        own = names.add_parser(name, help=f"the paper has {sizes}")
        own.add_argument("--n", type=int, help=f"samples ({data.n_train})")
        own.add_argument("--seed", type=int, default=0, help="of the first sample (0)")
        own.add_argument("--out", type=Path, help="HDF5 file (one in the cache)")
        own.add_argument("--workers", type=int, help="processes (one per processor)")
        own.add_argument(
            "--files", type=Path, help="check public files instead of making samples"
        )
        own.add_argument(
            "--n-test",
            type=int,
            help=f"test samples of --files ({data.n_test})",
        )
        own.add_argument(
            "--show",
            nargs="?",
            type=Path,
            const=Path(f"benchmarks/output/data_{name}.png"),
            metavar="PNG",
            help="save a picture of the first samples (benchmarks/output/)",
        )
        settings = own.add_argument_group("settings of the generator")
        for key, default in keywords(data.make).items():
            many = isinstance(default, tuple)
            settings.add_argument(
                f"--{key.replace('_', '-')}",
                type=type(default[0] if many else default),
                nargs=len(default) if many else None,
                help=f"({default})",
            )
    report.add_arguments(
        names.add_parser("report", help="time and statistics of all generators")
    )


def run(args: argparse.Namespace) -> None:
    """Make samples, or open files; tell what there is, and show some."""
    if args.name == "report":
        report.run(args)
        return
    data = DATA_SETS[args.name]
    source, recipe = _read(args, data) if args.files else _make(args, data)
    if args.show:
        from benchmarks.data.pictures import save_samples

        shown = [source[i] for i in range(min(N_SHOWN, len(source)))]
        box = {"bounds": recipe["bounds"]} if "bounds" in recipe else {}
        save_samples(args.show, args.name, shown, **box)
        print(f"picture: {args.show}")


def _make(
    args: argparse.Namespace, data: DataSet
) -> tuple[StoredSamples, dict[str, Any]]:
    """Make what is missing, and list the arrays."""
    settings = {key: getattr(args, key) for key in keywords(data.make)}
    settings = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in settings.items()
        if value is not None
    }
    n_samples = data.n_train if args.n is None else args.n
    start = time.perf_counter()
    path = cached_file(
        *(data.make, data.recipe, n_samples),
        first_seed=args.seed,
        settings=settings,
        path=args.out,
        workers=args.workers,
    )
    seconds = time.perf_counter() - start
    print(f"{path}: {count_samples(path)} samples ({seconds:.1f} s)")
    with open_samples(path) as file:
        for name, array in file.items():
            print(f"  {name:<12}{array.dtype!s:<9}{array.shape[1:]}")
        recipe = json.loads(file.attrs["recipe"])
    if "limits" in recipe:
        print(f"limits: {recipe['limits']}")
    return StoredSamples(path), recipe


def _read(args: argparse.Namespace, data: DataSet) -> tuple[Source, dict[str, Any]]:
    """Open public files and read every sample once, as a training would."""
    files = open_files(args.name, args.files, n_train=args.n, n_test=args.n_test)
    for what, source, indices in (
        ("training", files.train, files.train_indices),
        ("test", files.test, files.test_indices),
    ):
        samples = OperatorDataset(source, data.item, indices)
        bar = tqdm(range(len(samples)), desc=what, unit="sample")
        shapes = {tuple(samples[i]["y"].shape) for i in bar}
        print(f"{source} ({files.format}): {len(samples)} samples, targets {shapes}")
    return files.train, {}
