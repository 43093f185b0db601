"""Heat diffusion layers for neuraloperator: small, fast, honest about uncertainty."""

from .dense import GradientSpectralConv
from .diffusion import DiffusionSpectralConv
from .graph import accelerate_gno

__version__ = "0.1.0"

__all__ = ["DiffusionSpectralConv", "GradientSpectralConv", "accelerate_gno"]
