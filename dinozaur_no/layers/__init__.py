"""Convolutions for the builders of neuraloperator."""

from .bayesian import BayesianDiffusionConv
from .conditional import (
    ConditionalBayesianDiffusionConv,
    ConditionalDiffusionConv,
    Conditioned,
    condition,
)
from .diffusion import DiffusionSpectralConv
from .gradient import GradientSpectralConv

__all__ = [
    "BayesianDiffusionConv",
    "ConditionalBayesianDiffusionConv",
    "ConditionalDiffusionConv",
    "Conditioned",
    "DiffusionSpectralConv",
    "GradientSpectralConv",
    "condition",
]
