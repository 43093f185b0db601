"""Train one experiment and add its results to ``runs.csv``."""

import argparse
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import cast

import torch
from lightning_fabric import Fabric
from torch import Tensor

from benchmarks import tables
from benchmarks.data.sources import source_of
from benchmarks.experiments import DATASETS, NOISES, Experiment, find_experiment
from benchmarks.files import locked
from benchmarks.models import PaddedOperator, count_parameters
from benchmarks.options import (
    add_again,
    add_machine,
    check_place,
    check_positive_options,
)
from benchmarks.presets import preset_names
from benchmarks.tables import OUTPUT, records
from benchmarks.training import loop
from benchmarks.training.devices import PRECISIONS, check_device, launch_device
from benchmarks.training.evaluation import Result, draws_of, evaluate_noises
from benchmarks.training.recipes import recipe_of
from benchmarks.training.samples import load_splits
from benchmarks.variants import VARIANTS

#: Columns of curves.csv.
CURVE = ("epoch", "relative_l2", "loss", "rate", "train_seconds")
#: Presets of the command line.
PRESETS = list(dict.fromkeys(p for d in DATASETS for p in preset_names(d)))
PUBLIC = [
    name
    for name, changes in VARIANTS.items()
    if any(own.get("public") for own in changes.values())
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks train``."""
    add_experiment(parser)
    parser.add_argument(
        "--seed", type=int, default=0, help="of weights, order and samples (0)"
    )
    add_common(parser)


def add_experiment(parser: argparse.ArgumentParser) -> None:
    """Declare the names of one experiment."""
    parser.add_argument("dataset", help=", ".join(DATASETS))
    parser.add_argument("model", help="as python -m benchmarks list shows them")
    parser.add_argument(
        "--uncertainty", choices=list(NOISES), default="none", help="(none)"
    )


def add_common(parser: argparse.ArgumentParser, preset: bool = True) -> None:
    """Declare the options of all commands that train experiments."""
    if preset:
        parser.add_argument(
            "--preset",
            choices=PRESETS,
            default="small",
            help="paper: full size; small: minutes per run on a processor; smoke: a "
            "test of the command; others: variants of small (small)",
        )
    parser.add_argument("--epochs", type=int, help="instead of those of the preset")
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="32-true", help="(32-true)"
    )
    parser.add_argument(
        "--files",
        type=Path,
        help="public file or folder to read instead of generated data",
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="directory for runs.csv and checkpoints, instead of benchmarks/results "
        "and benchmarks/output/runs",
    )
    add_machine(parser, device="auto")
    add_again(parser)


def run(args: argparse.Namespace) -> None:
    """Train, evaluate, record; or say that the results are there."""
    check_train_options(args)
    experiment = find_experiment(
        args.dataset, args.model, args.uncertainty, args.preset
    )
    if not train_experiment(experiment, args.seed, args):
        raise ValueError(
            f"another process is training {experiment.trained_as} with seed {args.seed}"
        )


def check_train_options(args: argparse.Namespace) -> None:
    """Validate the common options."""
    check_positive_options(args, "epochs", "threads")
    preset = getattr(args, "preset", None)
    public = preset in PUBLIC
    check_place(args, "epochs", *([] if public else ["files"]))
    if public and args.files is None:
        raise ValueError(f"--preset {preset} is for public files: give --files FOLDER")
    if preset == "smoke" and args.out is None:
        raise ValueError(
            "--preset smoke has no place among the results: give --out DIR"
        )
    check_device(args.device)


def results_of(args: argparse.Namespace) -> Path:
    """Return the file of the results."""
    return Path(args.out) / "runs.csv" if args.out else records.RUNS


def keys_of(experiment: Experiment, seed: int) -> list[tuple[str, ...]]:
    """Return the keys of all results of an experiment."""
    e = experiment
    first = (e.dataset, e.model, e.uncertainty, e.preset, str(seed))
    return [(*first, noise) for noise in e.noises]


def directory_of(experiment: Experiment, seed: int, out: Path | None = None) -> Path:
    """Return the directory of a run's checkpoint."""
    trained = experiment.trained_as
    name = str(trained).replace(" ", "-")
    return (out or OUTPUT / "runs") / f"{name}-{trained.preset}-seed{seed}"


def train_experiment(
    experiment: Experiment, seed: int, args: argparse.Namespace
) -> bool:
    """Train and evaluate an experiment with one seed, unless its results are there.

    Return False if another process is training it.
    """
    path, keys = results_of(args), keys_of(experiment, seed)
    records.commit()  # of the running code, whatever is checked out later
    if not (args.again or records.missing(path, keys)):
        print(
            f"{experiment} {seed}: is in {path}. --again replaces it, --out DIR trains "
            "it separately"
        )
        return True
    directory = directory_of(experiment, seed, args.out)
    fabric = launch_device(args.device, args.precision)
    if fabric.global_rank > 0:
        _train(fabric, experiment, seed, directory, args)
        return True
    with locked(directory, wait=False) as free:
        if not free:
            return False
        # Another process may have finished it in the meantime.
        if args.again or records.missing(path, keys):
            _train(fabric, experiment, seed, directory, args)
    return True


def _train(
    fabric: Fabric,
    experiment: Experiment,
    seed: int,
    directory: Path,
    args: argparse.Namespace,
) -> None:
    trained = experiment.trained_as
    deterministic = experiment.uncertainty == "none"
    with fabric.rank_zero_first():  # one process makes the data, the others find them
        splits = load_splits(trained, args.cache, args.files)
    recipe = recipe_of(experiment, args.epochs)
    training = loop.Run(fabric, recipe, splits, seed, directory, args.precision)
    if args.again and experiment == trained:
        training.discard_finished()
    try:
        loop.train([training], f"{trained} {seed}")
    except loop.Diverged:
        tried = deterministic and experiment.settings.held_out > 0
        if not tried or fabric.world_size > 1:
            raise
        # A setting that was only tried has a result, the worst one.
        metrics = {"relative_l2": math.inf}
        found = [record(experiment, training, "none", math.nan, metrics)]
        records.add(results_of(args), found, args.again)
        return
    if experiment.preset != trained.preset:  # the same box with more points
        training.test_on(load_splits(experiment, args.cache, args.files).test, splits)
        cast(PaddedOperator, training.model).padded = experiment.settings.padded
    errors = training.errors() if deterministic else torch.zeros(0)
    if fabric.global_rank > 0:
        return
    results: Iterable[Result] = [
        ("none", math.nan, {"relative_l2": errors.mean().item()})
    ]
    if not deterministic:
        samples = (training.train, training.test)
        results = evaluate_noises(experiment, training.model, *samples, seed)
    found = []
    for noise, variance, metrics in results:
        shown = ", ".join(f"{name} {metrics[name]:.4g}" for name in list(metrics)[:2])
        print(f"{experiment} {seed}, noise {noise}: {shown}", flush=True)
        found.append(record(experiment, training, noise, variance, metrics))
    path = results_of(args)
    if not args.again:
        left = records.missing(path, keys_of(experiment, seed))
        found = [entry for entry in found if records.key_of(entry) in left]
    records.add(path, found, args.again)
    for name, rows, key in extra_rows(experiment, training, errors):
        if rows:
            tables.add_rows(path.with_name(name), rows, key)


def extra_rows(
    experiment: Experiment, training: loop.Run, errors: Tensor
) -> list[tuple[str, list[records.Record], Sequence[str]]]:
    """Return files, rows and keys of errors per sample and of curves of long runs."""
    if experiment.uncertainty != "none" or experiment.settings.held_out:
        return []
    key = keys_of(experiment, training.seed)[0]
    own = dict(zip(records.KEY, key, strict=True))
    listed = " ".join(f"{error:.4g}" for error in errors.tolist())
    curve = [
        {**own, **{name: f"{entry[name]:.6g}" for name in CURVE}}
        for entry in training.log
        if experiment.settings.evaluate_every > 1
        and math.isfinite(entry["relative_l2"])
        and experiment == experiment.trained_as
    ]
    return [
        ("errors.csv", [{**own, "relative_l2": listed}], records.KEY),
        ("curves.csv", curve, (*records.KEY, "epoch")),
    ]


def record(
    experiment: Experiment,
    training: loop.Run,
    noise: str,
    variance: float,
    metrics: dict[str, float],
) -> records.Record:
    """Return a line of ``runs.csv``."""
    settings, device = experiment.settings, training.fabric.device
    values = {name: f"{metrics[name]:.6g}" for name in metrics}
    key = keys_of(experiment, training.seed)[experiment.noises.index(noise)]
    return {
        **dict(zip(records.KEY, key, strict=True)),
        "parameters": str(count_parameters(experiment)),
        **{name: values.get(name, "") for name in records.METRICS},
        "noise_variance": "" if noise == "none" else f"{variance:.6g}",
        "draws": str(draws_of(experiment)),
        "schedule": experiment.schedule,
        "learning_rate": str(experiment.rate),
        "initialisation": settings.initialisation,
        "batch": str(settings.batch),
        "epochs": str(training.recipe.epochs),
        "train": str(len(training.train)),
        "test": str(len(training.test)),
        "width": str(settings.width),
        "modes": "x".join(map(str, settings.modes)),
        "seconds": f"{sum(entry['seconds'] for entry in training.log):.1f}",
        "peak_mb": f"{training.peak:.0f}",
        "device": torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else device.type,
        "precision": training.precision,
        "processes": str(training.fabric.world_size),
        "data": data_of(training) if settings.public else training.data,
        **records.describe(),
    }


def data_of(training: loop.Run) -> str:
    """Return folder, name and checksum of the public file of a run."""
    found = source_of(Path(str(training.train_source)))
    return f"{found['source']} sha256:{found['sha256']}"
