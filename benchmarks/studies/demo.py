"""FNO, TFNO, DINOZAUR and its Bayesian version on Darcy flow, with a small budget.

The problem is solved on 241 x 241 nodes and learned on a coarse subset of them. Models
are those of neuraloperator with its defaults; DINOZAUR is its FNO with another
``conv_module``. All but the Bayesian one minimise the relative L2 error. The Bayesian
one maximises the evidence lower bound, in the same number of steps.
"""

import argparse
import shutil
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from neuralop.models import FNO, TFNO
from neuralop.utils import count_model_params
from torch import nn

from benchmarks import environment, tables
from benchmarks.experiments import WEIGHT_DECAY
from benchmarks.memory import megabytes_kept_for_backward
from benchmarks.options import add_machine, add_smoke, check_positive_options
from benchmarks.studies import darcy
from benchmarks.studies.demo_picture import Array, save_picture
from benchmarks.training import loop
from benchmarks.training.devices import check_device, launch_device
from benchmarks.training.recipes import Phase, Recipe
from dinozaur_no import (
    BayesianDiffusionConv,
    DiffusionSpectralConv,
    Predictive,
    VariationalOperator,
    metrics,
)

CSV = tables.RESULTS / "demo.csv"
PICTURE = tables.STATIC / "demo.png"
README = tables.ROOT / "README.md"

FIRST_TEST_SEED = 2_000_000  # far from the seeds of all other fields
RATE = 3e-3  # above the paper's 1e-3, as there are far fewer steps here
BATCH, MODES, SEED = 16, 12, 0
N_DRAWS = 100
MODELS: Mapping[str, Callable[..., nn.Module]] = {
    "FNO": FNO,
    "TFNO": TFNO,
    "DINOZAUR": partial(FNO, conv_module=DiffusionSpectralConv),
    "Bayesian": partial(FNO, conv_module=BayesianDiffusionConv),
}
TRANSPORT: Mapping[str, Callable[..., nn.Module]] = {
    "Transport": partial(
        FNO, conv_module=DiffusionSpectralConv.configure(kernels=4, drift=True)
    )
}
COLUMNS = {
    "model": "Model",
    "parameters": "Parameters",
    "relative_l2_in_1e-2": "Test RL2 (10⁻²)",
    "coverage_90": "Inside 90 %",
    "seconds_per_epoch": "Seconds per epoch",
    "mb_kept_for_backward": "MB kept for backward",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks demo``."""
    parser.add_argument("--train", type=int, help="training fields (256)")
    parser.add_argument("--epochs", type=int, help="passes over them (30)")
    parser.add_argument("--stride", type=int, help="every n-th node of 241^2 (8)")
    parser.add_argument(
        "--out",
        type=Path,
        help="directory for demo.csv and demo.png (benchmarks/output)",
    )
    parser.add_argument(
        "--publish",
        action="store_true",
        help="make these the committed results, shown in the README",
    )
    parser.add_argument(
        "--transport",
        action="store_true",
        help="also train DINOZAUR with four kernels of which three move",
    )
    add_machine(parser)
    add_smoke(parser)


def run(args: argparse.Namespace) -> None:
    """Make the data, train the models, print the table, write the files.

    An interrupted run resumes. A smoke test writes files with ``--out`` only.
    """
    if args.publish and (args.smoke or args.out):
        raise ValueError(
            "--publish replaces the committed results: leave out --smoke and --out"
        )
    check_positive_options(args, "train", "epochs", "stride", "threads")
    check_device(args.device)
    smoke = args.smoke
    n_train = args.train or (8 if smoke else 256)
    epochs = args.epochs or (2 if smoke else 30)
    stride = args.stride or (1 if smoke else 8)
    n_test, size, width = (2, 17, 8) if smoke else (64, 241, 32)
    splits = darcy.load_fields(
        n_train, n_test, FIRST_TEST_SEED, size, stride, args.cache
    )

    out = args.out or (None if smoke else tables.OUTPUT)
    # Where an interrupted run resumes from.
    folder = out / f"demo-runs-{n_train}-{epochs}-{stride}" if out else None
    points = splits.train[0]["x"].shape[-1]
    fabric = launch_device(args.device)
    runs = {}
    models = dict(MODELS)
    if args.transport:  # the Bayesian one stays last, as the picture shows its spread
        bayesian = models.pop("Bayesian")
        models = {**models, **TRANSPORT, "Bayesian": bayesian}
    for name, build in models.items():
        recipe = recipe_of(
            name, partial(darcy.padded_fno, points, width, MODES, build), epochs
        )
        own = folder / name if folder else None
        runs[name] = loop.Run(fabric, recipe, splits, SEED, own)
    loop.train(list(runs.values()), "Training")
    rows, predictions, uncertain = compare(runs, width, points)
    print(f"\n{show(rows)}\n")
    if out is None:
        return
    csv = CSV if args.publish else out / "demo.csv"
    picture = PICTURE if args.publish else out / "demo.png"
    tables.write_csv(csv, rows)
    # Test sample 0, whatever it looks like.
    sample = splits.test[0]
    spreads = (
        std[0, 0].cpu().numpy() for std in (uncertain.std, uncertain.epistemic_std)
    )
    fields = (sample["x"][0].numpy(), sample["y"][0].numpy())
    save_picture(picture, *fields, predictions, *spreads)
    if folder:
        shutil.rmtree(folder)
    print(f"written: {csv}\n         {picture}")
    if args.publish:
        tables.replace_between_markers(README, "demo-table", show(rows))


def recipe_of(name: str, build: Callable[[], nn.Module], epochs: int) -> Recipe:
    """Return the relative L2 error for a plain model, the ELBO for a Bayesian one."""

    def bayesian() -> nn.Module:
        return VariationalOperator(build())

    phase, make = Phase(0, epochs, RATE), build
    if name == "Bayesian":
        phase, make = Phase(0, epochs, RATE, "elbo", 10 * RATE), bayesian
    identity = {"model": name, "epochs": str(epochs)}
    return Recipe(name, make, [phase], BATCH, identity=identity)


def compare(
    runs: Mapping[str, loop.Run], width: int, points: int
) -> tuple[list[dict[str, str]], dict[str, Array], Predictive]:
    """Return result rows, and predictions for the first test sample."""
    rows: list[dict[str, str]] = []
    predictions: dict[str, Array] = {}
    for name, training in runs.items():
        model, log = training.model, training.log
        error, coverage = log[-1]["relative_l2"], ""
        if isinstance(model, VariationalOperator):
            uncertain, target = darcy.predict_fields(training, N_DRAWS)
            found = metrics.evaluate(uncertain, target, per_field=True)
            error = found["relative_l2"].mean().item()
            coverage = f"{100 * found['coverage_90'].mean().item():.1f} %"
            predictions[name] = uncertain.mean[0, 0].cpu().numpy()
        else:
            predictions[name] = training.predict([0])[0][0, 0].cpu().numpy()
        inputs, _ = training.train.batch(range(min(BATCH, len(training.train))))
        seconds = statistics.median(entry["train_seconds"] for entry in log)
        rows.append(
            {
                "model": name,
                "parameters": str(count_model_params(model)),
                "relative_l2_in_1e-2": f"{100 * error:.2f}",
                "coverage_90": coverage,
                "seconds_per_epoch": f"{seconds:.2f}",
                "mb_kept_for_backward": (
                    f"{megabytes_kept_for_backward(model, inputs['x']):.1f}"
                ),
                "train": str(len(training.train)),
                "test": str(len(training.test)),
                "grid": str(points),
                "padded_grid": str(darcy.even_padded_size(points)),
                "width": str(width),
                "modes": str(MODES),
                "layers": "4",
                "epochs": str(training.recipe.epochs),
                "batch": str(BATCH),
                "learning_rate": str(RATE),
                "weight_decay": str(WEIGHT_DECAY),
                "seed": str(SEED),
                **environment.describe(),
            }
        )
    return rows, predictions, uncertain


def show(rows: list[dict[str, str]]) -> str:
    """Return the table, and a line that says how it was made."""
    note = (
        "{train} training and {test} test fields on {grid} x {grid} points, padded to "
        "{padded_grid} x {padded_grid}, {epochs} epochs, batch {batch}, width {width}, "
        "{modes} modes, {layers} layers, seed {seed}; {cpu}, {threads} threads, torch "
        "{torch}, {date}."
    ).format(**rows[0])
    return f"{tables.markdown_table(rows, COLUMNS)}\n\n{note}"
