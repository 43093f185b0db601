"""Results of a trained model: its error, and its calibration with each noise."""

import copy
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.data.dataset import Splits
from benchmarks.phases import mixed
from benchmarks.records import METRICS
from benchmarks.rows import Row
from benchmarks.samples import Samples
from dinozaur_no import (
    LastLayerLaplace,
    MCDropout,
    Predictive,
    VariationalOperator,
    metrics,
)

FIXED_NOISE = math.exp(-4)  # the paper's, in units of scaled targets
#: Draws and training samples that the noise is fitted to.
NOISE_DRAWS, NOISE_SAMPLES = 10, 64

#: A noise, its variance, and the metrics.
Result = tuple[str, float, dict[str, float]]


def judge(
    row: Row, model: nn.Module, splits: Splits, seed: int, error: float
) -> Iterator[Result]:
    """Metrics of the test samples for each noise of the row.

    Parameters
    ----------
    row : Row
        What was trained.
    model : nn.Module
        The trained model, on its device.
    splits : Splits
        Training samples for what is fitted, test samples for the metrics.
    seed : int
        Of the draws.
    error : float
        Relative error of the model's own output, all that there is to say of a
        deterministic one.
    """
    if row.method == "none":
        yield "none", math.nan, {"rl2": error}
        return
    device = next(model.parameters()).device
    train = Samples(splits.train, splits, device, scaled=True)
    train_batches = list(train.batches(row.size.batch))
    test = Samples(splits.test, splits, device, scaled=False)
    for noise, operator in _with_noises(row, model, train_batches, seed):
        found = evaluate(operator, row, test, seed)
        yield noise, operator.noise_variance.item(), found


def draws_of(row: Row) -> int:
    """Draws of each prediction; 0 where there are none or they are not needed."""
    return 0 if row.method in ("none", "laplace") else row.size.draws


def _with_noises(
    row: Row, model: nn.Module, train: list[dict[str, Tensor]], seed: int
) -> Iterator[tuple[str, Any]]:
    """The model as an uncertain one, with one noise after the other."""
    few = train[: -(-NOISE_SAMPLES // row.size.batch)]
    if row.method == "laplace":
        operator: Any = LastLayerLaplace.paper(model).fit(train, progress=False)
        yield "fixed", operator
        operator.fit_noise(few, to="prediction")
        yield "fitted", operator
        operator = LastLayerLaplace(model).fit(train, progress=False)
        operator.optimize_hyperparameters()
        yield "evidence", operator
        return
    if row.method == "dropout":
        operator = MCDropout(model)
    elif isinstance(model, VariationalOperator):
        operator = copy.deepcopy(model)  # its noise is a part of the checkpoint
    else:
        raise TypeError(f"{row.model} needs a VariationalOperator")
    operator.noise_variance = FIXED_NOISE
    yield "fixed", operator
    generator = _generator(operator, seed, "noise")
    operator.fit_noise(few, to="prediction", n_samples=NOISE_DRAWS, generator=generator)
    yield "fitted", operator


@torch.no_grad()
def evaluate(operator: Any, row: Row, test: Samples, seed: int) -> dict[str, float]:
    """Metrics in the units of the data, averaged over the test samples."""
    options: dict[str, Any] = {"keep_samples": False}
    if draws_of(row):
        options["n_samples"] = draws_of(row)
        options["generator"] = _generator(operator, seed, "prediction")
    fields: dict[str, list[Tensor]] = {name: [] for name in METRICS}
    for batch in test.batches(row.size.batch):
        target = batch.pop("y")
        predictive: Predictive = operator.predict(**batch, **options)
        normalizer = test.processor.normalizers.get("y")
        if normalizer is not None:
            predictive = predictive.denormalize(normalizer)
        found = metrics.evaluate(predictive, target, per_field=True)
        for name in METRICS:
            fields[name].append(found[name])
    return {name: torch.cat(values).mean().item() for name, values in fields.items()}


def _generator(operator: nn.Module, seed: int, purpose: str) -> torch.Generator:
    device = next(operator.parameters()).device
    return torch.Generator(device).manual_seed(mixed(seed, purpose))
