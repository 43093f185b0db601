"""Plugin of pytest: builders of neuraloperator have the diffusion layer as default.

Used by ``apply.py`` to run neuraloperator's own tests with the layer.
"""

from __future__ import annotations

from typing import Any

from neuralop.layers.diffusion_convolution import DiffusionSpectralConv
from neuralop.layers.fno_block import FNOBlocks
from neuralop.layers.spectral_convolution import SpectralConv
from neuralop.models import FNO


def with_default(function: Any) -> None:
    """Replace the dense layer among the defaults of a function."""
    function.__defaults__ = tuple(
        DiffusionSpectralConv if value is SpectralConv else value
        for value in function.__defaults__
    )


for builder in (FNO, FNOBlocks):
    with_default(builder.__init__)
