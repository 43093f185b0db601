"""Accuracy and coverage on Darcy flow: deterministic and Bayesian, with equal budgets.

Both methods train the same FNO for the same number of steps on the Gaussian likelihood,
with the noise in closed form. The deterministic one is the Bayesian layer without
spread, which is exactly `DiffusionSpectralConv`, and without the divergence.
"""

import argparse
import statistics
from pathlib import Path

import torch
from torch import Tensor

from benchmarks import environment, tables
from benchmarks.calibration_methods import METHODS, RATE, Problem
from benchmarks.files import atomic_path
from benchmarks.options import check_options
from dinozaur_no import Predictive, VariationalOperator, metrics, plots

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "uncertainty.md"
FIGURES = ROOT / "docs" / "_static"
SHOWN = ("Bayesian, warm start", 0)  # the training whose figures are kept

N_DRAWS = 100
COLUMNS = {
    "method": "Method",
    "relative_l2_in_1e-2": "Test RL2 (10⁻²)",
    "coverage_90": "Coverage at 90 %",
    "width_90": "Width at 90 % (10⁻³)",
    "nll": "NLL",
    "error_std_correlation": "Rank corr. of error and std",
    "neighbour_correlation": "Corr. of neighbours",
    "epistemic_share": "Epistemic share",
    "posterior_scale": "Posterior scale",
}
DIGITS = {
    "relative_l2_in_1e-2": 2,
    "coverage_90": 3,
    "width_90": 3,
    "nll": 3,
    "error_std_correlation": 2,
    "neighbour_correlation": 2,
    "epistemic_share": 2,
    "posterior_scale": 4,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks calibration``."""
    parser.add_argument(
        "--methods", nargs="+", choices=list(METHODS), help="what to train (all)"
    )
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="*",
        default=[0, 1, 2],
        help="of the weights (0 1 2); none with --update-docs shows what is there",
    )
    parser.add_argument("--cache", type=Path, help="directory for the Darcy fields")
    parser.add_argument("--threads", type=int, help="threads of torch (all cores)")
    parser.add_argument("--out", type=Path, help="directory for all files")
    parser.add_argument(
        "--again", action="store_true", help="replace results that are already there"
    )
    parser.add_argument(
        "--update-docs", action="store_true", help="show the results in the docs"
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, meaningless numbers"
    )


def run(args: argparse.Namespace) -> None:
    """Train what is missing in ``calibration.csv``, add it, print the means."""
    args.rounds = None
    check_options(args)
    if args.threads:
        torch.set_num_threads(args.threads)
    path = (args.out or RESULTS) / "calibration.csv"
    done = set() if args.again else {_key(row) for row in saved(path)}
    missing = [
        (method, seed)
        for seed in args.seeds
        for method in args.methods or METHODS
        if (method, str(seed)) not in done
    ]
    if missing:
        train_and_save(missing, Problem(args.quick, args.cache), path, args.out)
    rows = saved(path)
    print(f"\n{show(rows)}\n\nwritten: {path}")
    if args.update_docs:
        tables.replace_between_markers(PAGE, "calibration", show(rows))


def train_and_save(
    wanted: list[tuple[str, int]], problem: Problem, path: Path, out: Path | None
) -> None:
    """Train methods with seeds; save each result, and the figures of one."""
    for method, seed in wanted:
        row, operator, predictive = measure(method, problem, seed)
        add(path, row)  # finished trainings survive an interruption
        if (method, seed) == SHOWN:
            save_figures(operator, predictive, problem.y_test, out or FIGURES)


def saved(path: Path) -> list[dict[str, str]]:
    """The results that are there, perhaps from a run at the same time."""
    return tables.read_csv(path) if path.exists() else []


def add(path: Path, row: dict[str, str]) -> None:
    """Put a result into its place, instead of an older one."""
    rows = [r for r in saved(path) if _key(r) != _key(row)] + [row]
    order = list(METHODS)
    rows.sort(key=lambda r: (order.index(r["method"]), int(r["seed"])))
    tables.write_csv(path, rows)


def measure(
    method: str, problem: Problem, seed: int
) -> tuple[dict[str, str], VariationalOperator, Predictive]:
    """Train one method with one seed and evaluate it on the test fields."""
    print(f"{method}, seed {seed}", flush=True)
    operator = METHODS[method](problem, seed)
    generator = torch.Generator().manual_seed(seed)
    predictive = operator.predict(
        problem.x_test, n_samples=N_DRAWS, generator=generator
    ).denormalize(problem.scale)
    scales = torch.cat([layer.posterior_scale_tril for layer in operator.layers])
    values = evaluate(predictive, problem.y_test) | {
        "posterior_scale": scales.square().sum(1).sqrt().mean().item(),
    }
    row = {
        "method": method,
        "seed": str(seed),
        **{name: f"{values[name]:.{digits}f}" for name, digits in DIGITS.items()},
        "ln_noise_variance": f"{operator.raw_noise.item():.3f}",
        "train": str(len(problem.x)),
        "test": str(len(problem.y_test)),
        "grid": str(problem.x.shape[-1]),
        "epochs": str(problem.epochs),
        "width": str(problem.width),
        "modes": str(problem.modes),
        "draws": str(N_DRAWS),
        "learning_rate": str(RATE),
        **environment.describe(),
    }
    return row, operator, predictive


def save_figures(
    operator: VariationalOperator, predictive: Predictive, truth: Tensor, folder: Path
) -> None:
    """What was learned, and the first test field; one picture each."""
    square = (1.0, 1.0)
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
    """Accuracy, calibration and structure of a prediction in physical units."""
    found = metrics.evaluate(predictive, truth)
    share = predictive.epistemic_variance.mean() / predictive.variance.mean()
    seen = predictive.observations(torch.Generator().manual_seed(0))
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
    """Means over the seeds, deviations in brackets, and how they were made."""
    means = []
    for method in METHODS:
        own = [row for row in rows if row["method"] == method]
        if not own:
            continue
        cells = {"method": method}
        for name, digits in DIGITS.items():
            values = [float(row[name]) for row in own]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            cells[name] = f"{statistics.mean(values):.{digits}f} ± {spread:.{digits}f}"
        means.append(cells)
    note = (
        "{train} training and {test} test fields on {grid} x {grid} points, {epochs} "
        "epochs, width {width}, {modes} modes, {draws} draws; mean ± standard "
        "deviation of {n} seeds; {cpu}, {threads} threads, torch {torch}, {date}."
    ).format(n=len({row["seed"] for row in rows}), **rows[0])
    return f"{tables.markdown_table(means, COLUMNS)}\n\n{note}"


def _key(row: dict[str, str]) -> tuple[str, str]:
    return row["method"], row["seed"]
