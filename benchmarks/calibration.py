"""Accuracy and coverage on Darcy flow: deterministic and Bayesian, with equal budgets.

All methods train the same FNO for the same number of steps on the Gaussian likelihood,
with the noise in closed form. The deterministic one is the Bayesian layer without
spread, which is exactly `DiffusionSpectralConv`, and without the divergence.
"""

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from neuralop.models import FNO
from torch import Tensor
from tqdm import tqdm

from benchmarks import environment, tables
from benchmarks.data.darcy import darcy_fields
from benchmarks.demo import even_padded_size
from benchmarks.options import check_options
from benchmarks.training import (
    Budget,
    PaddedOperator,
    Scaler,
    Training,
    relative_l2,
)
from dinozaur_no import (
    BayesianDiffusionConv,
    Predictive,
    VariationalOperator,
    parameter_groups,
    warm_start,
)

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "uncertainty.md"

FIRST_TEST_SEED = 4_000_000  # fields that no choice was made on
RATE = 3e-3  # as in the demo
N_DRAWS = 100
NO_SPREAD = 1e-30
COLUMNS = {
    "method": "Method",
    "rl2_in_1e-2": "Test RL2 (10⁻²)",
    "coverage_90": "Coverage at 90 %",
    "width_90": "Width at 90 % (10⁻³)",
    "nll": "NLL",
    "error_std_correlation": "Rank corr. |error|, std",
    "neighbour_correlation": "Corr. of neighbours",
    "epistemic_share": "Epistemic share",
    "posterior_scale": "Posterior scale",
    "seconds_per_epoch": "Seconds per epoch",
}
DIGITS = {
    "rl2_in_1e-2": 2,
    "coverage_90": 3,
    "width_90": 3,
    "nll": 3,
    "error_std_correlation": 2,
    "neighbour_correlation": 2,
    "epistemic_share": 2,
    "posterior_scale": 4,
    "seconds_per_epoch": 2,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks calibration``."""
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
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
    rows = tables.read_csv(path) if path.exists() else []
    known = {_key(row) for row in rows}
    problem = Problem(args.quick, args.cache)
    for seed in args.seeds:
        for method in args.methods or METHODS:
            if (method, str(seed)) in known:
                if not args.again:
                    continue
                rows = [r for r in rows if _key(r) != (method, str(seed))]
            rows.append(measure(method, problem, seed))
            order = list(METHODS)
            rows.sort(key=lambda r: (order.index(r["method"]), int(r["seed"])))
            tables.write_csv(path, rows)  # finished trainings survive an interruption
    print(f"\n{show(rows)}\n\nwritten: {path}")
    if args.update_docs:
        tables.replace_between_markers(PAGE, "calibration", show(rows))


class Problem:
    """Darcy fields, scaled; a test set in physical units."""

    def __init__(self, quick: bool, cache: Path | None) -> None:
        n_train, n_test, size, stride = (8, 3, 17, 1) if quick else (512, 128, 241, 8)
        self.width = 4 if quick else 32
        self.modes = 4 if quick else 12
        self.epochs = 4 if quick else 40
        data: dict[str, Any] = {"size": size, "stride": stride, "cache_dir": cache}
        if quick:
            data["workers"] = 1
        x, y = (_tensor(field) for field in darcy_fields(n_train, **data))
        x_test, self.y_test = (
            _tensor(field)
            for field in darcy_fields(n_test, first_seed=FIRST_TEST_SEED, **data)
        )
        scale_x, self.scale = Scaler(x), Scaler(y)
        self.x, self.y = scale_x.encode(x), self.scale.encode(y)
        self.x_test = scale_x.encode(x_test)

    def operator(self, seed: int, scale: float) -> VariationalOperator:
        """A model with the weights that belong to a seed."""
        torch.manual_seed(seed)
        model = FNO(
            (self.modes, self.modes),
            *(1, 1, self.width),
            n_layers=4,
            conv_module=BayesianDiffusionConv.configure(scale_init=scale),
        )
        padded = PaddedOperator(model, even_padded_size(self.x.shape[-1]))
        return VariationalOperator(padded)

    def train(
        self,
        operator: VariationalOperator,
        epochs: int,
        seed: int,
        beta: float,
        groups: list[dict[str, object]],
    ) -> float:
        """Minimise the negative ELBO; return the seconds per epoch."""
        n = len(self.x)

        def loss(prediction: Tensor, target: Tensor) -> Tensor:
            return operator.loss(prediction, target, num_data=n, beta=beta)

        budget = Budget(epochs, rate=RATE, seed=seed)
        training = Training(operator, self.x, self.y, budget, loss, groups)
        with tqdm(total=epochs * training.steps, unit="step", mininterval=0.5) as bar:
            for _ in range(epochs):
                bar.set_postfix_str(f"{training.run_epoch(bar):.1f}", refresh=False)
        return statistics.median(training.seconds)


def deterministic(problem: Problem, seed: int) -> tuple[VariationalOperator, float]:
    """Times without spread, no divergence."""
    operator = problem.operator(seed, scale=NO_SPREAD)
    return operator, train_deterministic(problem, operator, problem.epochs, seed)


def bayesian(problem: Problem, seed: int) -> tuple[VariationalOperator, float]:
    """Everything together from the beginning."""
    operator = problem.operator(seed, scale=0.05)
    groups = parameter_groups(operator, lr=RATE)
    return operator, problem.train(operator, problem.epochs, seed, 1.0, groups)


def warm_started(problem: Problem, seed: int) -> tuple[VariationalOperator, float]:
    """Three quarters of the steps deterministic, then a posterior around that."""
    first = problem.operator(seed, scale=NO_SPREAD)
    epochs = 3 * problem.epochs // 4
    before = train_deterministic(problem, first, epochs, seed)
    operator = problem.operator(seed, scale=0.05)
    warm_start(operator, first.model, scale=0.05)
    groups = parameter_groups(operator, lr=RATE / 3, variational_lr=10 * RATE)
    rest = problem.epochs - epochs
    after = problem.train(operator, rest, seed + 1000, 1.0, groups)
    return operator, (epochs * before + rest * after) / problem.epochs


METHODS: dict[str, Callable[[Problem, int], tuple[VariationalOperator, float]]] = {
    "deterministic": deterministic,
    "Bayesian": bayesian,
    "Bayesian, warm start": warm_started,
}


def train_deterministic(
    problem: Problem, operator: VariationalOperator, epochs: int, seed: int
) -> float:
    """Train all but the spread, which there is none of."""
    spread = [
        parameter
        for layer in operator.layers
        for parameter in (layer.raw_scale, layer.raw_correlation)
        if parameter is not None
    ]
    for parameter in spread:
        parameter.requires_grad_(False)
    weights = [p for p in operator.parameters() if p.requires_grad]
    return problem.train(operator, epochs, seed, 0.0, [{"params": weights}])


def measure(method: str, problem: Problem, seed: int) -> dict[str, str]:
    """Train one method with one seed and evaluate it on the test fields."""
    print(f"{method}, seed {seed}", flush=True)
    operator, seconds = METHODS[method](problem, seed)
    generator = torch.Generator().manual_seed(seed)
    predictive = operator.predict(
        problem.x_test, n_samples=N_DRAWS, generator=generator
    ).denormalize(problem.scale)
    scales = torch.cat([layer.posterior_scale_tril for layer in operator.layers])
    values = evaluate(predictive, problem.y_test) | {
        "posterior_scale": scales.square().sum(1).sqrt().mean().item(),
        "seconds_per_epoch": seconds,
    }
    return {
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


def evaluate(predictive: Predictive, truth: Tensor) -> dict[str, float]:
    """Accuracy, calibration and structure of a prediction in physical units."""
    low, high = predictive.interval(0.9)
    error, std = (predictive.mean - truth).abs(), predictive.std
    nll = (error / std).square() / 2 + (2 * torch.pi * std.square()).log() / 2
    share = predictive.epistemic_variance.mean() / predictive.variance.mean()
    seen = predictive.observations(torch.Generator().manual_seed(0))
    standard = (seen - seen.mean(0)) / seen.std(0)
    neighbours = (standard[..., 1:] * standard[..., :-1]).mean(0)
    return {
        "rl2_in_1e-2": 100 * relative_l2(predictive.mean, truth).mean().item(),
        "coverage_90": ((low <= truth) & (truth <= high)).float().mean().item(),
        "width_90": 1e3 * (high - low).mean().item(),
        "nll": nll.mean().item(),
        "error_std_correlation": rank_correlation(error, std),
        "neighbour_correlation": neighbours.mean().item(),
        "epistemic_share": share.item(),
    }


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's correlation within each field, averaged; 0 where b is constant."""
    a, b = a.flatten(1), b.flatten(1)
    constant = b.amax(1) == b.amin(1)
    a, b = (v.argsort(1).argsort(1).double() for v in (a, b))
    a, b = a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)
    found = (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))
    return float(found.masked_fill(constant, 0.0).mean())


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


def _tensor(field: object) -> Tensor:
    return torch.as_tensor(field).unsqueeze(1)
