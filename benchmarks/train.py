"""Train one row of the paper's tables and add its results to ``runs.csv``."""

import argparse
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from benchmarks import records
from benchmarks.fitting import Fitting
from benchmarks.judging import Result, draws_of, judge
from benchmarks.locks import locked
from benchmarks.operators import count_parameters
from benchmarks.rows import DATASETS, Row, find_row
from benchmarks.samples import load_splits
from benchmarks.sizes import VARIANTS

OUTPUT = Path(__file__).parent / "output" / "runs"
# Half precision would need a scaler, whose state were another thing to save.
PRECISIONS = ("32-true", "bf16-mixed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks train``."""
    parser.add_argument("dataset", help=", ".join(DATASETS))
    parser.add_argument("model", help="as python -m benchmarks list shows them")
    parser.add_argument(
        "--seed", type=int, default=0, help="of weights, order and draws (0)"
    )
    add_common(parser)


def add_common(parser: argparse.ArgumentParser, preset: bool = True) -> None:
    """Declare what ``train``, ``campaign`` and ``ablation`` share."""
    if preset:
        parser.add_argument(
            "--preset",
            choices=["paper", "cpu", *VARIANTS],
            default="cpu",
            help="full size; one that a processor can train in minutes; variants of "
            "that, see docs/benchmarks.md (cpu)",
        )
    parser.add_argument("--epochs", type=int, help="instead of those of the row")
    parser.add_argument("--device", default="auto", help="cpu, cuda, mps (auto)")
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="32-true", help="(32-true)"
    )
    parser.add_argument("--threads", type=int, help="threads of torch (all cores)")
    parser.add_argument("--cache", type=Path, help="directory for generated data")
    parser.add_argument(
        "--files", type=Path, help="public file or folder to read, see docs/data.md"
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="directory for runs.csv and trainings, instead of benchmarks/results and "
        "benchmarks/output/runs",
    )
    parser.add_argument(
        "--again", action="store_true", help="replace results that are already there"
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, meaningless numbers"
    )


def run(args: argparse.Namespace) -> None:
    """Train, evaluate, record; or say that it was done before."""
    check_options(args)
    row = find_row(args.dataset, args.model, preset_of(args))
    if train_row(row, args.seed, args) is None:
        raise ValueError(
            f"{row.dataset} {row.trained_as} with seed {args.seed} is being trained by "
            "another process"
        )


def check_options(args: argparse.Namespace) -> None:
    """Refuse what cannot be meant."""
    for name in ("epochs", "threads"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name} (={value}) must be at least 1")
    for name in ("quick", "epochs", "files"):
        if getattr(args, name) and args.out is None:
            raise ValueError(f"--{name} has no place among the results: give --out DIR")
    if args.device != "auto":
        try:
            torch.device(args.device)
        except RuntimeError as error:
            raise ValueError(f"--device (={args.device}) is unknown: {error}") from None
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"--device (={args.device}): torch finds no GPU here")
    if args.threads:
        torch.set_num_threads(args.threads)


def preset_of(args: argparse.Namespace) -> str:
    """The chosen preset; tiny sizes are one of their own."""
    return "quick" if args.quick else str(args.preset)


def results_of(args: argparse.Namespace) -> Path:
    """The file that results go to."""
    return Path(args.out) / "runs.csv" if args.out else records.RUNS


def keys_of(row: Row, seed: int) -> list[tuple[str, ...]]:
    """The results that a row has."""
    first = (row.dataset, row.model, row.preset, str(seed))
    return [(*first, noise) for noise in row.noises]


def directory_of(row: Row, seed: int, out: Path | None = None) -> Path:
    """Where a training keeps its files."""
    name = f"{row.dataset}-{row.trained_as}-{row.preset}-seed{seed}"
    return (out or OUTPUT) / name


def train_row(row: Row, seed: int, args: argparse.Namespace) -> bool | None:
    """Train and evaluate one row with one seed, unless its results are there.

    Returns
    -------
    bool or None
        Whether there was something to do; None if another process is at it.
    """
    path = results_of(args)
    records.commit()  # of the code that runs, whatever is checked out later
    if not (args.again or records.missing(path, keys_of(row, seed))):
        print(
            f"{row.dataset} {row.model} {seed}: is in {path}. --again replaces it, "
            "--out DIR trains it apart"
        )
        return False
    directory = directory_of(row, seed, args.out)
    fabric = launch(args)
    if fabric.global_rank > 0:
        _train(fabric, row, seed, directory, args)
        return True
    with locked(directory, wait=False) as free:
        if not free:
            return None
        # Another process may have finished it since it was looked up.
        if args.again or records.missing(path, keys_of(row, seed)):
            _train(fabric, row, seed, directory, args)
    return True


def launch(args: argparse.Namespace) -> Fabric:
    """This process, or this one of those that ``torchrun`` started."""
    world = int(os.environ.get("WORLD_SIZE", 1))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    accelerator, _, index = args.device.partition(":")
    devices: Any = [int(index)] if index and accelerator != "cpu" else local
    try:
        fabric = Fabric(
            accelerator=accelerator,
            strategy="ddp" if world > 1 else "auto",
            devices=devices,
            num_nodes=world // local,
            precision=args.precision,
        )
    except (RuntimeError, ValueError, TypeError) as error:
        raise ValueError(
            f"--device (={args.device}) cannot be used here: {error}"
        ) from error
    fabric.launch()
    return fabric


def _train(
    fabric: Fabric, row: Row, seed: int, directory: Path, args: argparse.Namespace
) -> None:
    with fabric.rank_zero_first():  # one process makes the data, the others find them
        splits = load_splits(row, args.cache, args.files)
    fitting = Fitting(fabric, row, splits, seed, directory, args.epochs, args.precision)
    if args.again and row.method != "laplace":
        fitting.forget_finished()
    fitting.run()
    if fabric.global_rank > 0:
        return
    results: Iterable[Result] = [
        ("none", math.nan, {"relative_l2": fitting.log[-1]["relative_l2"]})
    ]
    if row.method != "none":
        results = judge(row, fitting.model, fitting.train, fitting.test, seed)
    found = []
    for noise, variance, metrics in results:
        shown = ", ".join(f"{name} {metrics[name]:.4g}" for name in list(metrics)[:2])
        print(f"{row.dataset} {row.model} {seed}, noise {noise}: {shown}", flush=True)
        found.append(record(fitting, noise, variance, metrics))
    path = results_of(args)
    if not args.again:
        left = records.missing(path, keys_of(row, seed))
        found = [entry for entry in found if records.key_of(entry) in left]
    records.add(path, found, args.again)


def record(
    fitting: Fitting, noise: str, variance: float, metrics: dict[str, float]
) -> records.Record:
    """A line of ``runs.csv``."""
    row, size = fitting.row, fitting.row.size
    values = {name: f"{metrics[name]:.6g}" for name in metrics}
    return {
        "dataset": row.dataset,
        "model": row.model,
        "preset": row.preset,
        "seed": str(fitting.seed),
        "noise": noise,
        "parameters": str(count_parameters(row)),
        **{name: values.get(name, "") for name in records.METRICS},
        "noise_variance": "" if noise == "none" else f"{variance:.6g}",
        "draws": str(draws_of(row)),
        "schedule": row.schedule,
        "learning_rate": str(row.rate),
        "start": size.start,
        "batch": str(size.batch),
        "epochs": str(fitting.epochs),
        "train": str(len(fitting.train)),
        "test": str(len(fitting.test)),
        "width": str(size.width),
        "modes": "x".join(map(str, size.modes)),
        "seconds": f"{sum(entry['seconds'] for entry in fitting.log):.1f}",
        "peak_mb": f"{fitting.peak:.0f}",
        "device": _device_name(fitting.fabric.device),
        "precision": fitting.precision,
        "data": fitting.data,
        "processes": str(fitting.fabric.world_size),
        **records.describe(),
    }


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return device.type
