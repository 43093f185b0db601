"""Accuracy and coverage on Darcy flow: deterministic and Bayesian, with equal budgets.

Both methods train the same FNO for the same number of steps on the Gaussian likelihood,
with the noise in closed form. The deterministic one is the Bayesian layer with its
posterior scale frozen near zero, which is `DiffusionSpectralConv`. Its loss has no KL
divergence.
"""

import argparse
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from benchmarks import environment, options, tables
from benchmarks.data.splits import Splits
from benchmarks.files import atomic_path
from benchmarks.models import NO_SCALE
from benchmarks.studies.darcy import load_fields, padded_fno, predict_fields
from benchmarks.studies.demo import BATCH, N_DRAWS, RATE
from benchmarks.training import loop
from benchmarks.training.devices import check_device, launch_device
from benchmarks.training.recipes import WARM_SCALE, Phase, Recipe
from dinozaur_no import (
    BayesianDiffusionConv,
    Predictive,
    VariationalOperator,
    metrics,
    plots,
)

CSV = tables.RESULTS / "calibration.csv"
SHOWN = ("Bayesian, warm start", 0)  # the run whose figures are kept
FIRST_TEST_SEED = 4_000_000  # fields that no choice was made on


@dataclass(frozen=True)
class Size:
    """Numbers of fields, nodes, channels, modes and epochs."""

    n_train: int
    n_test: int
    size: int
    stride: int
    width: int
    modes: int
    epochs: int


FULL = Size(512, 128, 241, 8, 32, 12, 40)
SMOKE = Size(32, 3, 17, 1, 8, 4, 12)


def deterministic(epochs: int) -> list[Phase]:
    """Return one phase without posterior scale and without KL divergence."""
    return [Phase(0, epochs, RATE, "elbo", kl_weight=0.0)]


def warm_started(epochs: int) -> list[Phase]:
    """Return three quarters of the steps deterministic, then a posterior."""
    warm = 3 * epochs // 4
    later = Phase(warm, epochs, RATE / 3, "elbo", 10 * RATE, scale=WARM_SCALE)
    return [*deterministic(warm), later]


METHODS: Mapping[str, Callable[[int], list[Phase]]] = {
    "deterministic": deterministic,
    "Bayesian, warm start": warm_started,
}
#: Titles and digits of the measures.
MEASURES = {
    "relative_l2_in_1e-2": ("Test RL2 (10⁻²)", 2),
    "coverage_90": ("Coverage at 90 %", 3),
    "width_90": ("Width at 90 % (10⁻³)", 3),
    "nll": ("NLL", 3),
    "error_std_correlation": ("Rank corr. of error and std", 2),
    "neighbour_correlation": ("Corr. of neighbours", 2),
    "epistemic_share": ("Epistemic share", 2),
    "posterior_scale": ("Posterior scale", 4),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks calibration``."""
    parser.add_argument(
        "--methods", nargs="+", choices=list(METHODS), help="what to train (all)"
    )
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the weights (0 1 2)"
    )
    parser.add_argument("--out", type=Path, help="directory for all files")
    options.add_machine(parser)
    options.add_again(parser)
    options.add_smoke(parser)


def run(args: argparse.Namespace) -> None:
    """Train what is missing in ``calibration.csv``, add it, print the means.

    An interrupted run resumes.
    """
    options.check_positive_options(args, "threads")
    options.check_place(args, "smoke")
    check_device(args.device)
    size = SMOKE if args.smoke else FULL
    path = args.out / CSV.name if args.out else CSV
    done = set() if args.again else {_key(row) for row in saved(path)}
    splits = None
    for seed in args.seeds:
        for method in args.methods or METHODS:
            if (method, str(seed)) in done:
                continue
            fields = (size.n_train, size.n_test, FIRST_TEST_SEED)
            splits = splits or load_fields(*fields, size.size, size.stride, args.cache)
            training = train(method, seed, size, splits, args)
            predictive, truth = predict_fields(training, N_DRAWS)
            add(path, row_of(method, size, training, predictive, truth))
            if (method, seed) == SHOWN:
                folder = args.out or tables.STATIC
                save_figures(training, predictive, truth, folder)
            training.discard_finished()  # it served to resume
    print(f"\n{show(saved(path))}\n\nwritten: {path}")


def train(
    method: str, seed: int, size: Size, splits: Splits, args: argparse.Namespace
) -> loop.Run:
    """Train one method with one seed."""
    points = splits.train[0]["x"].shape[-1]
    layer = BayesianDiffusionConv.configure(scale_init=NO_SCALE)
    fno = partial(padded_fno, points, size.width, size.modes, conv_module=layer)
    phases = METHODS[method](size.epochs)
    recipe = Recipe(
        name=method,
        build=lambda: VariationalOperator(fno()),
        phases=phases,
        batch=BATCH,
        identity={"method": method, "size": str(size)},
    )
    name = f"calibration-{method.replace(', ', '-').replace(' ', '-')}-seed{seed}"
    folder = (args.out or tables.OUTPUT) / name
    training = loop.Run(launch_device(args.device), recipe, splits, seed, folder)
    loop.train([training], f"{method}, seed {seed}")
    return training


def saved(path: Path) -> list[dict[str, str]]:
    """Return the results that are there, perhaps of a process at the same time."""
    return tables.read_csv(path) if path.exists() else []


def add(path: Path, row: dict[str, str]) -> None:
    """Insert a result, instead of an older one."""
    rows = [r for r in saved(path) if _key(r) != _key(row)] + [row]
    order = list(METHODS)
    rows.sort(key=lambda r: (order.index(r["method"]), int(r["seed"])))
    tables.write_csv(path, rows)


def row_of(
    method: str, size: Size, training: loop.Run, predictive: Predictive, truth: Tensor
) -> dict[str, str]:
    """Return a line of ``calibration.csv``."""
    operator = cast(VariationalOperator, training.model)
    scales = torch.cat([layer.posterior_scale_tril for layer in operator.layers])
    values = evaluate(predictive, truth) | {
        "posterior_scale": scales.square().sum(1).sqrt().mean().item(),
    }
    return {
        "method": method,
        "seed": str(training.seed),
        **{
            name: f"{values[name]:.{digits}f}" for name, (_, digits) in MEASURES.items()
        },
        "ln_noise_variance": f"{operator.raw_noise.item():.3f}",
        "train": str(size.n_train),
        "test": str(size.n_test),
        "grid": str(truth.shape[-1]),
        "epochs": str(size.epochs),
        "width": str(size.width),
        "modes": str(size.modes),
        "draws": str(N_DRAWS),
        "learning_rate": str(RATE),
        **environment.describe(),
    }


def save_figures(
    training: loop.Run, predictive: Predictive, truth: Tensor, folder: Path
) -> None:
    """Draw the learned posterior and the first test field, one picture each."""
    operator, square = training.model, (1.0, 1.0)
    figures = {
        "times": plots.plot_times(operator),
        "posteriors": plots.plot_posteriors(operator),
        "covariances": plots.plot_covariances(operator, correlation=True),
        "samples": plots.plot_samples(
            predictive, truth, coordinates=torch.linspace(0, 1, truth.shape[-1])
        ),
        "uncertainty": plots.plot_uncertainty(predictive, truth, extent=square),
        "correlation": plots.plot_correlation(predictive, extent=square),
    }
    for name, figure in figures.items():
        with atomic_path(folder / f"bayesian_{name}.png") as temporary:
            figure.savefig(temporary, format="png")


def evaluate(predictive: Predictive, truth: Tensor) -> dict[str, float]:
    """Return accuracy, calibration and structure, in units of the data."""
    found = metrics.evaluate(predictive, truth)
    share = predictive.epistemic_variance.mean() / predictive.variance.mean()
    seen = predictive.observations(torch.Generator(truth.device).manual_seed(0))
    standard = (seen - seen.mean(0)) / seen.std(0)
    neighbours = (standard[..., 1:] * standard[..., :-1]).mean(0)
    same = ("coverage_90", "nll", "error_std_correlation")
    return {
        **{name: found[name] for name in same},
        "relative_l2_in_1e-2": 100 * found["relative_l2"],
        "width_90": 1e3 * found["width_90"],
        "neighbour_correlation": neighbours.mean().item(),
        "epistemic_share": share.item(),
    }


def show(rows: list[dict[str, str]]) -> str:
    """Return means and deviations over the seeds, and a line on how they were made."""
    means = []
    for method in METHODS:
        own = [row for row in rows if row["method"] == method]
        if not own:
            continue
        cells = {"method": method}
        for name, (_, digits) in MEASURES.items():
            values = [float(row[name]) for row in own]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            cells[name] = f"{statistics.mean(values):.{digits}f} ± {spread:.{digits}f}"
        means.append(cells)
    note = (
        "{train} training and {test} test fields on {grid} x {grid} points, {epochs} "
        "epochs, width {width}, {modes} modes, {draws} posterior samples; mean ± "
        "standard deviation of {n} seeds; {cpu}, {threads} threads, torch {torch}, "
        "{date}."
    ).format(n=len({row["seed"] for row in rows}), **rows[0])
    columns = {"method": "Method"} | {
        name: title for name, (title, _) in MEASURES.items()
    }
    return f"{tables.markdown_table(means, columns)}\n\n{note}"


def _key(row: dict[str, str]) -> tuple[str, str]:
    return row["method"], row["seed"]
