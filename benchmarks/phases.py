"""What a row minimises in which epochs, and how."""

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.optimisers import Groups, plain_groups
from benchmarks.rows import WEIGHT_DECAY, Row
from benchmarks.training import Loss, relative_l2
from dinozaur_no import VariationalOperator, parameter_groups


@dataclass(frozen=True)
class Phase:
    """Some epochs with one loss and one optimiser.

    Attributes
    ----------
    first, stop : int
        Epochs, from 0; ``stop`` is the first one after it.
    variational : bool
        Whether the loss is minus the evidence lower bound; else the relative error.
    """

    first: int
    stop: int
    variational: bool


def phases(row: Row, epochs: int) -> list[Phase]:
    """One phase; two for a Bayesian model that starts from a deterministic one."""
    if row.method != "bayesian":
        return [Phase(0, epochs, False)]
    warm = row.size.warm_epochs * epochs // row.epochs
    both = [Phase(0, warm, False), Phase(warm, epochs, True)]
    return [phase for phase in both if phase.first < phase.stop]


def begin(phase: Phase, row: Row, model: nn.Module) -> Groups:
    """Prepare the model for a phase; return the parameters to train.

    A Bayesian model has no spread in a deterministic phase and that of its size after
    it. The posterior then moves ten times as fast as the weights, which may be slower
    than before; the paper has one learning rate.
    """
    warm = phase.variational and phase.first > 0
    if isinstance(model, VariationalOperator):
        for layer in model.layers:
            for parameter in (layer.raw_scale, layer.raw_tril):
                if parameter is not None:
                    parameter.requires_grad_(phase.variational)
            if warm:
                eye = torch.eye(layer.in_channels, device=layer.raw_time.device)
                layer.posterior_scale_tril = row.size.warm_scale * eye
                if row.size.own_prior:
                    times = layer.raw_time.detach()
                    layer.set_prior(times.mean().item(), times.std().item())
    if not phase.variational:
        return plain_groups(model, row.rate, row.size.time_rate)
    rate, faster = (row.rate * row.size.warm_rate, 10) if warm else (row.rate, 1)
    return parameter_groups(
        model, rate, variational_lr=faster * rate, weight_decay=WEIGHT_DECAY
    )


def loss_of(phase: Phase, row: Row, model: nn.Module, num_data: int) -> Loss:
    """What is minimised, of prediction and scaled target, a mean over the batch."""
    if not phase.variational:
        return lambda output, target: relative_l2(output.float(), target).mean()
    if not isinstance(model, VariationalOperator):
        raise TypeError(
            f"model must be a VariationalOperator, got {type(model).__name__}"
        )

    def loss(output: Tensor, target: Tensor) -> Tensor:
        beta = row.size.divergence
        return model.loss(output, target, num_data=num_data, beta=beta)

    return loss


def mixed(seed: int, *what: object) -> int:
    """A seed for one purpose, unlike that of any other purpose or seed."""
    words = "/".join(map(str, (seed, *what)))
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:7], "big")
