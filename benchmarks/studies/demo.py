"""FNO, TFNO, DINOZAUR and its Bayesian version on Darcy flow, with a small budget.

The problem is solved on 121 x 121 nodes and learned on a coarse subset of them. Models
are those of neuraloperator with its defaults; DINOZAUR is its FNO with another
``conv_module``. All but the Bayesian one minimise the relative L2 error. The Bayesian
one maximises the evidence lower bound, in the same number of steps. Each gets
correlated noise that is fitted to held-out fields, and intervals for the values at
points and for the mean pressure.
"""

import argparse
import shutil
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from neuralop.models import FNO, TFNO
from neuralop.utils import count_model_params
from torch import Tensor, nn

from benchmarks import environment, tables
from benchmarks.data.splits import OperatorDataset, Splits
from benchmarks.experiments import WEIGHT_DECAY
from benchmarks.memory import megabytes_kept_for_backward
from benchmarks.options import add_machine, add_smoke, check_positive_options
from benchmarks.studies import darcy
from benchmarks.studies.demo_picture import Intervals, save_picture
from benchmarks.training import loop
from benchmarks.training.devices import check_device, launch_device
from benchmarks.training.recipes import Phase, Recipe
from benchmarks.training.samples import Samples
from dinozaur_no import (
    BayesianDiffusionConv,
    CorrelatedNoise,
    Deterministic,
    DiffusionSpectralConv,
    Predictive,
    VariationalOperator,
    field_mean,
    metrics,
)

CSV = tables.RESULTS / "demo.csv"
PICTURE = tables.STATIC / "demo.png"
PAGE = tables.ROOT / "docs" / "tutorial.md"

FIRST_TEST_SEED = 2_000_000  # far from the seeds of all other fields
RATE = 1e-2  # good for all models in the sweep of this problem
POSTERIOR_RATE = 3e-2
BATCH, MODES, SEED = 16, 12, 0
N_SAMPLES = 32  # of the Bayesian model, per prediction
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
    "points_inside_90": "Points inside 90 %",
    "means_inside_90": "Means inside 90 %",
    "seconds_per_epoch": "Seconds per epoch",
    "mb_kept_for_backward": "MB kept for backward",
}


NEXT = """\
What next:
  swap the layer in your own script: README.md, "Use"
  error bars for a drag, a flux, a mean: README.md, "Error bars"
  flows: examples/plot_navier_stokes.py"""


@dataclass(frozen=True)
class Size:
    """Numbers of fields and epochs, nodes of the solver, every n-th of them, width."""

    train: int = 256
    held_out: int = 128
    test: int = 128
    epochs: int = 20
    nodes: int = 121
    stride: int = 4
    width: int = 24


QUICK = Size(train=64, held_out=32, test=32, epochs=10)
SMOKE = Size(8, 8, 2, 2, 17, 1, 8)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks demo``."""
    parser.add_argument(
        "--quick", action="store_true", help="fewer fields and epochs, about a minute"
    )
    parser.add_argument("--train", type=int, help="training fields (256)")
    parser.add_argument("--epochs", type=int, help="passes over them (20)")
    parser.add_argument("--stride", type=int, help="every n-th node of 121^2 (4)")
    parser.add_argument(
        "--out",
        type=Path,
        help="directory for demo.csv and demo.png (benchmarks/output)",
    )
    parser.add_argument(
        "--publish",
        action="store_true",
        help="make these the committed results, shown in the tutorial",
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
    if args.publish and (args.smoke or args.quick or args.out):
        raise ValueError(
            "--publish replaces the committed results: leave out --smoke, --quick and "
            "--out"
        )
    check_positive_options(args, "train", "epochs", "stride", "threads")
    check_device(args.device)
    size = SMOKE if args.smoke else QUICK if args.quick else Size()
    given = {k: getattr(args, k) for k in ("train", "epochs", "stride")}
    size = replace(size, **{k: v for k, v in given.items() if v is not None})
    splits, held_out = load_data(size, args.cache)

    out = args.out or (None if args.smoke else tables.OUTPUT)
    # Where an interrupted run resumes from.
    parts = (size.train, size.epochs, size.nodes, size.stride)
    folder = out / f"demo-runs-{'-'.join(map(str, parts))}" if out else None
    points = splits.train[0]["x"].shape[-1]
    fabric = launch_device(args.device)
    runs = {}
    models = dict(MODELS)
    if args.transport:  # the Bayesian one stays last, as the picture shows its bars
        bayesian = models.pop("Bayesian")
        models = {**models, **TRANSPORT, "Bayesian": bayesian}
    for name, build in models.items():
        recipe = recipe_of(
            name,
            partial(darcy.padded_fno, points, size.width, MODES, build),
            size.epochs,
        )
        own = folder / name if folder else None
        runs[name] = loop.Run(fabric, recipe, splits, SEED, own)
    loop.train(list(runs.values()), "Training")
    scaled = Samples(held_out, splits, fabric.device, scaled=True)
    results = {name: evaluate(own, scaled) for name, own in runs.items()}
    rows = [row_of(name, runs[name], own, size) for name, own in results.items()]
    print(f"\n{show(rows)}\n")
    if out is None:
        return
    csv = CSV if args.publish else out / "demo.csv"
    picture = PICTURE if args.publish else out / "demo.png"
    tables.write_csv(csv, rows)
    # Test sample 0, whatever it looks like.
    sample = splits.test[0]
    predictions = {
        name: own.fields.mean[0, 0].cpu().numpy() for name, own in results.items()
    }
    last = results["Bayesian"]
    deviation = last.fields.std[0, 0].cpu().numpy()
    fields = (sample["x"][0].numpy(), sample["y"][0].numpy(), predictions, deviation)
    save_picture(picture, *fields, last.means)
    if folder:
        shutil.rmtree(folder)
    print(f"written: {csv}\n         {picture}\n\n{NEXT}")
    if args.publish:
        tables.replace_between_markers(PAGE, "demo-table", show(rows))


def load_data(size: Size, cache: Path | None) -> tuple[Splits, OperatorDataset]:
    """Load training and test fields, and held-out fields to fit the noise to."""
    n = size.test + size.held_out
    counts = (size.train, n, FIRST_TEST_SEED)
    splits = darcy.load_fields(*counts, size.nodes, size.stride, cache)
    source, item = splits.test.source, splits.test.item
    test = OperatorDataset(source, item, range(size.test))
    held_out = OperatorDataset(source, item, range(size.test, n))
    return replace(splits, test=test), held_out


def recipe_of(name: str, build: Callable[[], nn.Module], epochs: int) -> Recipe:
    """Return the relative L2 error for a plain model, the ELBO for a Bayesian one."""

    def bayesian() -> nn.Module:
        return VariationalOperator(build(), noise=CorrelatedNoise())

    phase, make = Phase(0, epochs, RATE), build
    if name == "Bayesian":
        phase = replace(phase, objective="elbo", posterior_rate=POSTERIOR_RATE)
        make = bayesian
    identity = {"model": name, "epochs": str(epochs)}
    return Recipe(
        *(name, make, [phase], BATCH), identity=identity, evaluate_every=epochs
    )


@dataclass(frozen=True)
class Found:
    """What a trained model predicts for test fields."""

    scores: Mapping[str, Tensor]  # of each field
    fields: Predictive
    means: Intervals


def evaluate(training: loop.Run, held_out: Samples) -> Found:
    """Fit the noise to held-out fields and predict all test fields, as a user would."""
    generator = torch.Generator(training.fabric.device).manual_seed(SEED)
    batches = [(b["x"], b["y"]) for b in held_out.batches(BATCH)]
    operator: VariationalOperator | Deterministic
    options: dict[str, Any] = {}
    if isinstance(training.model, VariationalOperator):
        operator = training.model
        options = {"n_samples": N_SAMPLES, "generator": generator}
        operator.fit_noise(batches, residuals_of="mean", temperature=True, **options)
    else:
        operator = Deterministic(training.model, noise=CorrelatedNoise())
        operator.fit_noise(batches)
    inputs, target = training.test.batch(range(len(training.test)))
    found = operator.predict(inputs["x"], **options)
    found = found.denormalize(training.test.processor.normalizers["y"])
    low, high = found.quantity(field_mean, generator=generator).interval(0.9)
    means = Intervals(
        *(v.cpu().numpy() for v in (low, high, field_mean(target[None])[0]))
    )
    return Found(metrics.evaluate(found, target, True), found, means)


def row_of(name: str, training: loop.Run, found: Found, size: Size) -> dict[str, str]:
    """Return a line of the table, with the settings of the run."""
    inputs, _ = training.train.batch(range(min(BATCH, len(training.train))))
    saved = megabytes_kept_for_backward(training.model, inputs["x"])
    seconds = statistics.median(entry["train_seconds"] for entry in training.log)
    points = inputs["x"].shape[-1]
    return {
        "model": name,
        "parameters": str(count_model_params(training.model)),
        "relative_l2_in_1e-2": f"{100 * found.scores['relative_l2'].mean():.2f}",
        "points_inside_90": f"{100 * found.scores['coverage_90'].mean():.0f} %",
        "means_inside_90": f"{100 * found.means.share_inside:.0f} %",
        "seconds_per_epoch": f"{seconds:.2f}",
        "mb_kept_for_backward": f"{saved:.1f}",
        "train": str(len(training.train)),
        "test": str(len(training.test)),
        "grid": str(points),
        "padded_grid": str(darcy.even_padded_size(points)),
        "width": str(size.width),
        "modes": str(MODES),
        "layers": "4",
        "epochs": str(training.recipe.epochs),
        "batch": str(BATCH),
        "learning_rate": str(RATE),
        "weight_decay": str(WEIGHT_DECAY),
        "seed": str(SEED),
        **environment.describe(),
    }


def show(rows: list[dict[str, str]]) -> str:
    """Return the table, and a line that says how it was made."""
    note = (
        "{train} training and {test} test fields on {grid} x {grid} points, padded to "
        "{padded_grid} x {padded_grid}, {epochs} epochs, batch {batch}, width {width}, "
        "{modes} modes, {layers} layers, seed {seed}; {cpu}, {threads} threads, torch "
        "{torch}, {date}."
    ).format(**rows[0])
    return f"{tables.markdown_table(rows, COLUMNS)}\n\n{note}"
