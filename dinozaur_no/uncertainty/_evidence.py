"""Evidence of a linear layer with Gaussian noise and prior, from a few moments."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_LOG_RANGE = 60.0  # keeps hyperparameters finite where the evidence has no maximum
_HALVINGS = 40


@dataclass(frozen=True)
class Moments:
    """Numbers that determine the evidence; those of the data include their scale.

    Parameters
    ----------
    eigenvalues : Tensor
        Eigenvalues of the sum of outer products of the features, float64.
    squares, count : float
        Sum of the squared residuals, and their number.
    weights : float
        Sum of the squared weights.
    channels : int
        Number of outputs, each with its own weights.
    """

    eigenvalues: Tensor
    squares: float
    count: float
    weights: float
    channels: int

    @classmethod
    def of(
        cls, gram: Tensor, squares: Tensor, count: Tensor, weights: Tensor, scale: float
    ) -> Moments:
        """Take the moments of sums over data and of weights (channels, features)."""
        eigenvalues = torch.linalg.eigvalsh(gram.double()).clamp(min=0).cpu()
        return cls(
            eigenvalues * scale,
            squares.item() * scale,
            count.item() * scale,
            weights.double().square().sum().item(),
            len(weights),
        )


def log_evidence(moments: Moments, noise: float, precision: float) -> Tensor:
    """Add log-likelihood, log-prior and minus half the log-determinant of H / 2 pi."""
    m, log_2pi = moments, math.log(2 * math.pi)
    p = len(m.eigenvalues)
    likelihood = m.squares / noise + m.count * (math.log(noise) + log_2pi)
    prior = precision * m.weights - m.channels * p * (math.log(precision) - log_2pi)
    spectrum = m.eigenvalues / noise + precision
    determinant = m.channels * (spectrum.log().sum() - p * log_2pi)
    return -0.5 * (likelihood + prior + determinant)


def best_hyperparameters(
    moments: Moments, noise: float, precision: float, max_steps: int
) -> tuple[float, float]:
    """Find noise variance and prior precision at a maximum of the evidence.

    Where the gradient vanishes, precision = gamma / |w|^2 and
    noise = squares / (count - gamma), with gamma the number of weights that the data
    determine. In logarithms, a step towards these values has the signs of the gradient,
    so a part of it increases the evidence.
    """
    here = torch.tensor([noise, precision]).double().log()
    value = _at(moments, here)
    for _ in range(max_steps):
        step = _target(moments, *here.exp().tolist()) - here
        for _ in range(_HALVINGS):
            there = here + step
            new = _at(moments, there)
            if new > value:
                break
            step = step / 2
        else:
            break
        gain, here, value = new - value, there, new
        if gain < 1e-12 * abs(value) and step.abs().max() < 1e-6:
            break
    noise, precision = here.exp().tolist()
    return noise, precision


def _at(moments: Moments, logarithms: Tensor) -> float:
    return log_evidence(moments, *logarithms.exp().tolist()).item()


def _target(moments: Moments, noise: float, precision: float) -> Tensor:
    m = moments
    data = m.eigenvalues / noise
    gamma = m.channels * (data / (data + precision)).sum().item()
    tiny = 1e-300
    targets = torch.tensor(
        [
            m.squares / max(m.count - gamma, tiny) + tiny,
            max(gamma, tiny) / max(m.weights, tiny),
        ],
        dtype=torch.float64,
    )
    return targets.log().clamp(-_LOG_RANGE, _LOG_RANGE)
