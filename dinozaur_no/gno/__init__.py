"""Fast graph layers for GINO and FNOGNO: neighbour search and integral transform.

Without optional packages upstream's layers build a matrix of all distances and loop in
Python over every output point. These need torch and scipy only, and memory for the
neighbours instead of for all pairs.
"""

from .accelerate import accelerate_gno
from .integral_transform import FastIntegralTransform
from .radius_search import RadiusSearch

__all__ = ["FastIntegralTransform", "RadiusSearch", "accelerate_gno"]

for _class in (FastIntegralTransform, RadiusSearch):
    _class.__module__ = __name__
