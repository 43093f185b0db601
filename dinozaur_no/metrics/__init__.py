"""Accuracy and calibration of predictions with uncertainty.

Every score is one value per field, in double precision; `evaluate` averages them over
the fields. The first axis counts the fields, and all points and channels of a field
have the same weight. A tensor with fewer than three axes, such as the (points, c) of a
model without a batch, is one field. Predictions and targets are in the units of the
data: see `Predictive.denormalize`.
"""

from .correlation import lag_correlation, neighbour_correlation, point_correlation
from .gaussian import (
    coverage,
    crps_gaussian,
    evaluate,
    interval_score,
    miscalibration_area,
    nll,
    observed_coverage,
    rank_correlation,
    relative_l2,
    sharpness,
    width,
)
from .quantities import evaluate_quantity
from .samples import crps_samples, energy_score, variogram_score

__all__ = [
    "coverage",
    "crps_gaussian",
    "crps_samples",
    "energy_score",
    "evaluate",
    "evaluate_quantity",
    "interval_score",
    "lag_correlation",
    "miscalibration_area",
    "neighbour_correlation",
    "nll",
    "observed_coverage",
    "point_correlation",
    "rank_correlation",
    "relative_l2",
    "sharpness",
    "variogram_score",
    "width",
]

for _name in __all__:
    globals()[_name].__module__ = __name__
