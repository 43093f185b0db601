"""``python -m benchmarks data``: make the data of a benchmark, or look at them."""

import argparse
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.data import store
from benchmarks.data.arguments import keywords
from benchmarks.data.datasets import (
    DATA_SETS,
    FIRST_TEST_SEED,
    DataSet,
    GeneratedDataSet,
)
from benchmarks.data.generators.signed_distance import UNIT_CUBE
from benchmarks.data.readers.formats import PROTOCOL
from benchmarks.data.readers.open_files import open_files
from benchmarks.data.splits import OperatorDataset, Source

N_SHOWN = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks data``."""
    names = parser.add_subparsers(
        dest="name", required=True, metavar="NAME", help="which data"
    )
    for name, data in DATA_SETS.items():
        if isinstance(data, GeneratedDataSet):
            n_train, n_test = PROTOCOL[name]
            sizes = f"{n_train} for training and {n_test} for tests"
            own = names.add_parser(name, help=sizes)
            _add_generator(own, data, n_test)
        else:
            own = names.add_parser(name, help="read from --files only")
        own.add_argument(
            "--n", type=int, help="samples, or training samples of --files"
        )
        own.add_argument("--n-test", type=int, help="test samples of --files")
        own.add_argument(
            "--files",
            type=Path,
            required=not isinstance(data, GeneratedDataSet),
            help="check public files instead of making samples",
        )
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


def _add_generator(
    parser: argparse.ArgumentParser, data: GeneratedDataSet, n_test: int
) -> None:
    parser.add_argument("--seed", type=int, help="of the first sample (0)")
    parser.add_argument(
        "--test",
        action="store_true",
        help=f"the samples for tests: {n_test} from seed {FIRST_TEST_SEED} on",
    )
    parser.add_argument("--out", type=Path, help="HDF5 file (one in the cache)")
    parser.add_argument("--workers", type=int, help="processes (one per processor)")
    settings = parser.add_argument_group("settings of the generator")
    for key, default in keywords(data.make).items():
        many = isinstance(default, tuple)
        kind = type(default[0] if many else default)
        settings.add_argument(
            f"--{key.replace('_', '-')}",
            type=float if default is None else kind,
            nargs=len(default) if many else None,
            help="(chosen)" if default is None else f"({default})",
        )


def run(args: argparse.Namespace) -> None:
    """Make samples, or open files; list the arrays, and show some samples."""
    data = DATA_SETS[args.name]
    if args.show and args.show.suffix != ".png":
        raise ValueError(f"--show (={args.show}) must end in .png")
    source: Source
    if isinstance(data, GeneratedDataSet) and not args.files:
        _refuse(args, ("n_test", "test_path", "format"), "--files is needed for it")
        source, recipe = _make(args, data)
        box = recipe.get("bounds", UNIT_CUBE)
    else:
        if isinstance(data, GeneratedDataSet):
            making = ("seed", "test", "out", "workers", *keywords(data.make))
            _refuse(args, making, "--files generates nothing")
        source = _read(args, data)
        box = getattr(source, "bounds", UNIT_CUBE)
    if args.show:
        from benchmarks.data.pictures import save_samples

        shown = [source[i] for i in range(min(N_SHOWN, len(source)))]
        save_samples(args.show, args.name, shown, box)
        print(f"picture: {args.show}")


def _refuse(args: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    """Raise an error for options that would have no effect."""
    for name in names:
        if getattr(args, name):
            raise ValueError(f"--{name.replace('_', '-')} has no effect: {why}")


def _make(
    args: argparse.Namespace, data: GeneratedDataSet
) -> tuple[store.StoredSamples, dict[str, Any]]:
    """Make the missing samples, and list the arrays."""
    if args.test and args.seed is not None:
        raise ValueError("--test has seeds of its own: leave out --seed")
    given = {key: getattr(args, key) for key in keywords(data.make)}
    settings = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in given.items()
        if value is not None
    }
    n_samples = PROTOCOL[args.name][args.test] if args.n is None else args.n
    first_seed = FIRST_TEST_SEED if args.test else args.seed or 0
    start = time.perf_counter()
    path = store.cached_file(
        *(data.make, data.recipe, n_samples, first_seed, settings),
        path=args.out,
        workers=args.workers,
    )
    seconds = time.perf_counter() - start
    held = store.count_samples(path)
    more = f" of {held} in the file" if held > n_samples else ""
    print(f"{path}: {n_samples} samples{more} ({seconds:.1f} s)")
    with store.open_samples(path) as file:
        for name, array in file.items():
            print(f"  {name:<12}{array.dtype!s:<9}{array.shape[1:]}")
        recipe = store.recipe_of(file)
    if "limits" in recipe:
        print(f"limits: {recipe['limits']}")
    return store.StoredSamples(path, n_samples), recipe


def _read(args: argparse.Namespace, data: DataSet) -> Source:
    """Open public files and read every sample once, as a training run would."""
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
    return files.train
