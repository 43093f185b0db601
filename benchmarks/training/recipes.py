"""Recipes: the model of a run, and what it minimises in which epochs."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Literal, cast

import torch
from torch import Tensor, nn

from benchmarks.experiments import WEIGHT_DECAY, Experiment
from benchmarks.models import build
from benchmarks.presets import Schedule
from benchmarks.training.optimisers import Groups, plain_groups
from dinozaur_no import VariationalOperator, parameter_groups

#: Of prediction and scaled target.
Loss = Callable[[Tensor, Tensor], Tensor]

#: Posterior scale of ln tau after a deterministic phase.
WARM_SCALE = 0.03
#: Settings that only matter to Bayesian models.
_OF_POSTERIORS = ("bayesian_epochs", "warm_epochs", "kl_weight")


@dataclass(frozen=True)
class Phase:
    """Some epochs with one loss and one optimiser."""

    first: int  # from 0
    stop: int  # the first epoch after it
    rate: float  # learning rate of the weights
    objective: Literal["relative_l2", "elbo"] = "relative_l2"
    posterior_rate: float | None = None  # without one the posterior scale is frozen
    scale: float | None = None  # posterior scale to begin with, instead of the present
    kl_weight: float | Literal["paper"] = 1.0


@dataclass(frozen=True)
class Recipe:
    """All that the training loop has to know, except for data, seed and device."""

    name: str  # shown with the progress and in errors
    build: Callable[[], nn.Module]
    phases: Sequence[Phase]
    batch: int  # samples per step, of all processes together
    schedule: Schedule = "one-cycle"
    identity: Mapping[str, str] = field(default_factory=dict)  # same for resumed runs
    evaluate_every: int = 1  # epochs between two evaluations; the last one has one
    # Whether processes draw different random numbers, as for dropout. Sampled diffusion
    # times are the same in all processes, as in one.
    draws_per_process: bool = False

    @property
    def epochs(self) -> int:
        """Passes over the training samples."""
        return self.phases[-1].stop


def recipe_of(experiment: Experiment, epochs: int | None = None) -> Recipe:
    """Return the recipe of an experiment, with other epochs if given."""
    trained = experiment.trained_as
    phases = phases_of(trained, trained.epochs if epochs is None else epochs)
    identity = {
        "dataset": trained.dataset,
        "model": trained.model,
        "uncertainty": trained.uncertainty,
        "epochs": str(phases[-1].stop),
        "rate": str(trained.rate),
        "schedule": trained.schedule,
        **settings_of(trained),
    }
    return Recipe(
        name=str(trained),
        build=partial(build, trained),
        phases=phases,
        batch=trained.settings.batch,
        schedule=trained.schedule,
        identity=identity,
        evaluate_every=trained.settings.evaluate_every,
        draws_per_process=trained.uncertainty == "dropout",
    )


def phases_of(experiment: Experiment, epochs: int) -> list[Phase]:
    """Return one phase, or two for a Bayesian model that begins deterministic.

    Then the posterior moves ten times as fast as the weights. The paper has one
    learning rate and no deterministic phase.
    """
    rate, settings = experiment.rate, experiment.settings
    if experiment.uncertainty != "bayesian":
        return [Phase(0, epochs, rate)]
    warm = settings.warm_epochs * epochs // experiment.epochs
    if not warm:
        return [Phase(0, epochs, rate, "elbo", rate, kl_weight=settings.kl_weight)]
    slower = rate / 3
    both = [
        Phase(0, warm, rate),
        Phase(
            *(warm, epochs, slower, "elbo", 10 * slower),
            scale=WARM_SCALE,
            kl_weight=settings.kl_weight,
        ),
    ]
    return [phase for phase in both if phase.first < phase.stop]


def settings_of(experiment: Experiment) -> dict[str, str]:
    """Return the settings that matter to a run, one entry for each field."""
    settings = experiment.settings
    others = {
        *("tuned", "public", "trained_with"),
        *(_OF_POSTERIORS if experiment.uncertainty != "bayesian" else ()),
    }
    names = [f.name for f in fields(settings) if f.name not in others]
    return {f"preset.{name}": str(getattr(settings, name)) for name in names}


def begin(phase: Phase, model: nn.Module) -> Groups:
    """Prepare a model for a phase and return the parameters to train."""
    if isinstance(model, VariationalOperator):
        for layer in model.layers:
            for parameter in (layer.raw_scale, layer.raw_tril):
                if parameter is not None:
                    parameter.requires_grad_(phase.posterior_rate is not None)
            if phase.scale is not None:
                eye = torch.eye(layer.posterior_size, device=layer.raw_time.device)
                layer.posterior_scale_tril = phase.scale * eye
    if phase.posterior_rate is None:
        return plain_groups(model, phase.rate)
    return parameter_groups(
        model,
        phase.rate,
        variational_lr=phase.posterior_rate,
        weight_decay=WEIGHT_DECAY,
    )


def loss_of(phase: Phase, model: nn.Module, num_data: int) -> Loss:
    """Return the loss of a phase, a mean over the batch."""
    if phase.objective == "relative_l2":
        return lambda output, target: relative_l2(output.float(), target).mean()
    elbo = cast(VariationalOperator, model).loss
    return partial(elbo, num_data=num_data, beta=phase.kl_weight)


def relative_l2(prediction: Tensor, truth: Tensor) -> Tensor:
    """Return the error ``|prediction - truth| / |truth|`` of each sample."""
    error: Tensor = torch.linalg.vector_norm((prediction - truth).flatten(1), dim=1)
    size: Tensor = torch.linalg.vector_norm(truth.flatten(1), dim=1)
    return error / size


def seed_for(seed: int, *purpose: object) -> int:
    """Derive a seed for one purpose, unlike that of any other purpose or seed."""
    words = "/".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:7], "big")
