"""DINOZAUR: an FNO whose spectral weights are replaced by heat kernels."""

from ..layers.diffusion_convolution import DiffusionSpectralConv
from .fno import FNO, partialclass

DINOZAUR = partialclass("DINOZAUR", FNO, conv_module=DiffusionSpectralConv)
DINOZAUR.__doc__ = """FNO with ``DiffusionSpectralConv`` as its ``conv_module``.

Parameters
----------
All parameters are those of FNO, with identical defaults. Options of the dense spectral
weights, such as ``factorization`` and ``rank``, have no effect.
"""
