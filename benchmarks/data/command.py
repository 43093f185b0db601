"""``python -m benchmarks data``: make the data of a benchmark, or look at them."""

import argparse
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.data import report
from benchmarks.data.dataset import OperatorDataset, Source
from benchmarks.data.public_files import open_files
from benchmarks.data.sets import DATA_SETS, FIRST_TEST_SEED, DataSet, keywords
from benchmarks.data.store import (
    StoredSamples,
    cached_file,
    count_samples,
    open_samples,
    recipe_of,
)

N_SHOWN = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks data``."""
    names = parser.add_subparsers(
        dest="name", required=True, metavar="NAME", help="which data"
    )
    for name, data in DATA_SETS.items():
        sizes = f"{data.n_train} for training and {data.n_test} for tests"
        own = names.add_parser(name, help=f"the paper has {sizes}")
        own.add_argument("--n", type=int, help=f"samples ({data.n_train})")
        own.add_argument("--seed", type=int, help="of the first sample (0)")
        own.add_argument(
            "--test",
            action="store_true",
            help=f"the samples for tests: {data.n_test} from seed {FIRST_TEST_SEED} on",
        )
        own.add_argument("--out", type=Path, help="HDF5 file (one in the cache)")
        own.add_argument("--workers", type=int, help="processes (one per processor)")
        own.add_argument(
            "--files", type=Path, help="check public files instead of making samples"
        )
        tests = f"test samples of --files ({data.n_test})"
        own.add_argument("--n-test", type=int, help=tests)
        own.add_argument("--test-path", type=Path, help="second file of --files")
        own.add_argument("--format", help="of --files, if it is not recognised")
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
                type=float
                if default is None
                else type(default[0] if many else default),
                nargs=len(default) if many else None,
                help="(chosen)" if default is None else f"({default})",
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
    _check(args, data)
    source, recipe = _read(args, data) if args.files else _make(args, data)
    if args.show:
        from benchmarks.data.pictures import UNIT_CUBE, save_samples

        shown = [source[i] for i in range(min(N_SHOWN, len(source)))]
        box = recipe.get("bounds", getattr(source, "bounds", UNIT_CUBE))
        save_samples(args.show, args.name, shown, box)
        print(f"picture: {args.show}")


def _type_of(default: Any) -> type:
    """How to read one value like the default; what is chosen otherwise is a number."""
    value = default[0] if isinstance(default, tuple) else default
    return float if value is None else type(value)


def _check(args: argparse.Namespace, data: DataSet) -> None:
    """Refuse options that would have no effect."""
    making = ("seed", "test", "out", "workers", *keywords(data.make))
    reading = ("n_test", "test_path", "format")
    for name in making if args.files else reading:
        if getattr(args, name):
            option = f"--{name.replace('_', '-')}"
            why = "generates nothing" if args.files else "is needed for it"
            raise ValueError(f"{option} has no effect: --files {why}")
    if args.test and args.seed is not None:
        raise ValueError("--test has seeds of its own: leave out --seed")
    if args.show and args.show.suffix != ".png":
        raise ValueError(f"--show (={args.show}) must end in .png")


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
    whole = data.n_test if args.test else data.n_train
    n_samples = whole if args.n is None else args.n
    first_seed = FIRST_TEST_SEED if args.test else args.seed or 0
    start = time.perf_counter()
    path = cached_file(
        *(data.make, data.recipe, n_samples),
        first_seed=first_seed,
        settings=settings,
        path=args.out,
        workers=args.workers,
    )
    seconds = time.perf_counter() - start
    held = count_samples(path)
    more = f" of {held} in the file" if held > n_samples else ""
    print(f"{path}: {n_samples} samples{more} ({seconds:.1f} s)")
    with open_samples(path) as file:
        for name, array in file.items():
            print(f"  {name:<12}{array.dtype!s:<9}{array.shape[1:]}")
        recipe = recipe_of(file)
    if "limits" in recipe:
        print(f"limits: {recipe['limits']}")
    return StoredSamples(path, n_samples), recipe


def _read(args: argparse.Namespace, data: DataSet) -> tuple[Source, dict[str, Any]]:
    """Open public files and read every sample once, as a training would."""
    files = open_files(
        *(args.name, args.files, args.format),
        test_path=args.test_path,
        n_train=args.n,
        n_test=args.n_test,
    )
    for what, source, indices in (
        ("training", files.train, files.train_indices),
        ("test", files.test, files.test_indices),
    ):
        samples = OperatorDataset(source, data.item, indices)
        bar = tqdm(range(len(samples)), desc=what, unit="sample")
        shapes = {tuple(samples[i]["y"].shape) for i in bar}
        print(f"{source} ({files.format}): {len(samples)} samples, targets {shapes}")
    return files.train, {}
