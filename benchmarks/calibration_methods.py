"""The methods that the calibration benchmark compares, and the problem they learn."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from neuralop.models import FNO
from torch import Tensor
from tqdm import tqdm

from benchmarks.data import darcy_fields
from benchmarks.demo import even_padded_size
from benchmarks.training import Budget, PaddedOperator, Scaler, Training
from dinozaur_no import (
    BayesianDiffusionConv,
    VariationalOperator,
    parameter_groups,
    warm_start,
)

FIRST_TEST_SEED = 4_000_000  # fields that no choice was made on
RATE = 3e-3  # as in the demo
NO_SPREAD = 1e-30


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
    ) -> None:
        """Minimise the negative ELBO."""
        n = len(self.x)

        def loss(prediction: Tensor, target: Tensor) -> Tensor:
            return operator.loss(prediction, target, num_data=n, beta=beta)

        budget = Budget(epochs, rate=RATE, seed=seed)
        training = Training(operator, self.x, self.y, budget, loss, groups)
        with tqdm(total=epochs * training.steps, unit="step", mininterval=0.5) as bar:
            for _ in range(epochs):
                bar.set_postfix_str(f"{training.run_epoch(bar):.1f}", refresh=False)


def deterministic(problem: Problem, seed: int) -> VariationalOperator:
    """Times without spread, no divergence."""
    operator = problem.operator(seed, scale=NO_SPREAD)
    train_deterministic(problem, operator, problem.epochs, seed)
    return operator


def warm_started(problem: Problem, seed: int) -> VariationalOperator:
    """Three quarters of the steps deterministic, then a posterior around that."""
    first = problem.operator(seed, scale=NO_SPREAD)
    epochs = 3 * problem.epochs // 4
    train_deterministic(problem, first, epochs, seed)
    operator = problem.operator(seed, scale=0.03)
    warm_start(operator, first.model, scale=0.03)
    groups = parameter_groups(operator, lr=RATE / 3, variational_lr=10 * RATE)
    problem.train(operator, problem.epochs - epochs, seed + 1000, 1.0, groups)
    return operator


METHODS: dict[str, Callable[[Problem, int], VariationalOperator]] = {
    "deterministic": deterministic,
    "Bayesian, warm start": warm_started,
}


def train_deterministic(
    problem: Problem, operator: VariationalOperator, epochs: int, seed: int
) -> None:
    """Train all but the spread, which there is none of."""
    spread = [
        parameter
        for layer in operator.layers
        for parameter in (layer.raw_scale, layer.raw_tril)
        if parameter is not None
    ]
    for parameter in spread:
        parameter.requires_grad_(False)
    weights = [p for p in operator.parameters() if p.requires_grad]
    problem.train(operator, epochs, seed, 0.0, [{"params": weights}])


def _tensor(field: object) -> Tensor:
    return torch.as_tensor(field).unsqueeze(1)
