"""Convolutions for the builders of neuraloperator."""

from .bayesian import BayesianDiffusionConv
from .diffusion import DiffusionSpectralConv
from .gradient import GradientSpectralConv

__all__ = ["BayesianDiffusionConv", "DiffusionSpectralConv", "GradientSpectralConv"]
