"""Results of a trained model: its error, and its calibration with each noise."""

import copy
import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

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
    row: Row, model: nn.Module, train: Samples, test: Samples, seed: int
) -> Iterator[Result]:
    """Metrics of the test samples for each noise of an uncertain row.

    Parameters
    ----------
    row : Row
        What was trained.
    model : nn.Module
        The trained model, on its device.
    train, test : Samples
        Scaled ones for what is fitted, unscaled ones for the metrics.
    seed : int
        Of the draws.
    """
    for operator, variances in _operators(row, model, train, seed):
        found = evaluate(operator, row, test, seed, variances)
        for noise, variance in variances.items():
            yield noise, variance, found[noise]


def draws_of(row: Row) -> int:
    """Draws of each prediction; 0 where there are none or they are not needed."""
    return 0 if row.method in ("none", "laplace") else row.size.draws


def _operators(
    row: Row, model: nn.Module, train: Samples, seed: int
) -> Iterator[tuple[Any, dict[str, float]]]:
    """The model as an uncertain one, and the noises to evaluate it with."""
    batch = row.size.batch

    def every() -> Iterator[Any]:
        return shown(row, train, "training")

    def few() -> Iterator[Any]:
        count = -(-min(NOISE_SAMPLES, len(train)) // batch)
        return shown(row, train, "noise", count)

    if row.method == "laplace":
        # The posterior depends on the noise, so each noise has one of its own.
        operator: Any = LastLayerLaplace.paper(model)
        operator.fit(every(), progress=False)
        yield operator, {"fixed": operator.noise_variance.item()}
        operator.fit_noise(few(), residuals_of="mean")
        yield operator, {"fitted": operator.noise_variance.item()}
        operator = LastLayerLaplace(model).fit(every(), progress=False)
        operator.optimize_hyperparameters()
        yield operator, {"evidence": operator.noise_variance.item()}
        return
    if row.method == "dropout":
        operator = MCDropout(model)
    elif isinstance(model, VariationalOperator):
        operator = copy.deepcopy(model)  # its noise is a part of what was trained
    else:
        raise TypeError(f"model must be a VariationalOperator, got {type(model)}")
    generator = _generator(operator, seed, "noise")
    fitted = operator.fit_noise(
        few(), residuals_of="mean", n_samples=NOISE_DRAWS, generator=generator
    )
    yield operator, {"fixed": FIXED_NOISE, "fitted": fitted.item()}


@torch.no_grad()
def evaluate(
    operator: Any, row: Row, test: Samples, seed: int, variances: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """Metrics with each noise, in units of the data, averaged over the samples."""
    options: dict[str, Any] = {"keep_samples": False}
    if draws_of(row):
        options["n_samples"] = draws_of(row)
        options["generator"] = _generator(operator, seed, "prediction")
    fields: dict[str, dict[str, list[Tensor]]]
    fields = {noise: {name: [] for name in METRICS} for noise in variances}
    normalizer = test.processor.normalizers.get("y")
    for batch in shown(row, test, "test"):
        target = batch.pop("y")
        drawn: Predictive = operator.predict(**batch, **options)
        for noise, variance in variances.items():
            # The draws are without noise, so they serve for all of them.
            level = drawn.mean.new_tensor(variance)
            predictive = Predictive(drawn.mean, drawn.epistemic_variance, level)
            if normalizer is not None:
                predictive = predictive.denormalize(normalizer)
            found = metrics.evaluate(predictive, target, per_field=True)
            for name in METRICS:
                fields[noise][name].append(found[name])
    return {
        noise: {name: torch.cat(values).mean().item() for name, values in own.items()}
        for noise, own in fields.items()
    }


def shown(
    row: Row, samples: Samples, what: str, count: int | None = None
) -> Iterator[dict[str, Tensor]]:
    """The (first) batches of some samples, with a bar."""
    size = row.size.batch
    count = -(-len(samples) // size) if count is None else count
    batches = islice(samples.batches(size), count)
    name = f"{row.dataset} {row.model}: {what}"
    yield from tqdm(batches, name, count, leave=False, mininterval=0.5)


def _generator(operator: nn.Module, seed: int, purpose: str) -> torch.Generator:
    device = next(operator.parameters()).device
    return torch.Generator(device).manual_seed(mixed(seed, purpose))
