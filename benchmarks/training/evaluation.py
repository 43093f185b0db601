"""Evaluation of trained models: error, and calibration with each noise."""

import copy
import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from benchmarks.experiments import Experiment
from benchmarks.tables.records import METRICS
from benchmarks.training.recipes import seed_for
from benchmarks.training.samples import Samples
from dinozaur_no import (
    LastLayerLaplace,
    MCDropout,
    Predictive,
    metrics,
)

FIXED_NOISE = math.exp(-4)  # the paper's, in units of scaled targets
#: Posterior samples and training samples that the noise is fitted to.
NOISE_DRAWS, NOISE_SAMPLES = 10, 64

#: A noise, its variance, and the metrics.
Result = tuple[str, float, dict[str, float]]


def evaluate_noises(
    experiment: Experiment, model: nn.Module, train: Samples, test: Samples, seed: int
) -> Iterator[Result]:
    """Yield the metrics of the test samples for each noise of an uncertain model.

    Training samples, to fit on, are scaled; test samples are not.
    """
    for operator, variances in _operators(experiment, model, train, seed):
        found = evaluate(operator, experiment, test, seed, variances)
        for noise, variance in variances.items():
            yield noise, variance, found[noise]


def draws_of(experiment: Experiment) -> int:
    """Return the number of posterior samples; 0 if none are needed."""
    none = experiment.uncertainty in ("none", "laplace")
    return 0 if none else experiment.settings.draws


def _operators(
    experiment: Experiment, model: nn.Module, train: Samples, seed: int
) -> Iterator[tuple[Any, dict[str, float]]]:
    """Yield the model as an uncertain one, with the noises to evaluate it with."""
    batch = experiment.settings.batch

    def every() -> Iterator[Any]:
        return _batches(experiment, train, "training")

    def few() -> Iterator[Any]:
        count = -(-min(NOISE_SAMPLES, len(train)) // batch)
        return _batches(experiment, train, "noise", count)

    if experiment.uncertainty == "laplace":
        # The posterior depends on the noise, so each noise has its own.
        operator: Any = LastLayerLaplace.paper(model)
        operator.fit(every(), progress=False)
        yield operator, {"fixed": operator.noise_variance.item()}
        operator.fit_noise(few(), residuals_of="mean")
        yield operator, {"fitted": operator.noise_variance.item()}
        operator = LastLayerLaplace(model).fit(every(), progress=False)
        operator.optimize_hyperparameters()
        yield operator, {"evidence": operator.noise_variance.item()}
        return
    dropout = experiment.uncertainty == "dropout"
    # The noise of a Bayesian model is part of the trained model.
    operator = MCDropout(model) if dropout else copy.deepcopy(model)
    generator = _generator(operator, seed, "noise")
    fitted = operator.fit_noise(
        few(), residuals_of="mean", n_samples=NOISE_DRAWS, generator=generator
    )
    yield operator, {"fixed": FIXED_NOISE, "fitted": fitted.item()}


@torch.no_grad()
def evaluate(
    operator: Any,
    experiment: Experiment,
    test: Samples,
    seed: int,
    variances: Mapping[str, float],
) -> dict[str, dict[str, float]]:
    """Return metrics with each noise, in units of the data, averaged over samples."""
    options: dict[str, Any] = {"keep_samples": False}
    if draws := draws_of(experiment):
        options["n_samples"] = draws
        options["generator"] = _generator(operator, seed, "prediction")
    fields: dict[str, dict[str, list[Tensor]]]
    fields = {noise: {name: [] for name in METRICS} for noise in variances}
    normalizer = test.processor.normalizers.get("y")
    for batch in _batches(experiment, test, "test"):
        target = batch.pop("y")
        drawn: Predictive = operator.predict(**batch, **options)
        for noise, variance in variances.items():
            # Posterior samples have no noise, so they serve for all noises.
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


def _batches(
    experiment: Experiment, samples: Samples, what: str, count: int | None = None
) -> Iterator[dict[str, Tensor]]:
    """Yield all or the first batches, with a progress bar."""
    size = experiment.settings.batch
    count = -(-len(samples) // size) if count is None else count
    batches = islice(samples.batches(size), count)
    yield from tqdm(
        batches, f"{experiment}: {what}", count, leave=False, mininterval=0.5
    )


def _generator(operator: nn.Module, seed: int, purpose: str) -> torch.Generator:
    device = next(operator.parameters()).device
    return torch.Generator(device).manual_seed(seed_for(seed, purpose))
