"""Fast graph layers for GINO and FNOGNO: neighbour search and integral transform.

If optional packages are missing, upstream's layers build a matrix of all distances and
loop in Python over every output point. These layers need torch and scipy only. Their
memory grows with the number of neighbours and not of all pairs.
"""

from .accelerate import accelerate_gno
from .integral_transform import FastIntegralTransform
from .radius_search import RadiusSearch

__all__ = ["FastIntegralTransform", "RadiusSearch", "accelerate_gno"]

for _class in (FastIntegralTransform, RadiusSearch):
    _class.__module__ = __name__
