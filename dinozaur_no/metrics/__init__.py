"""Accuracy and calibration of predictions with uncertainty.

Every function returns one value per field, in double precision; `evaluate` returns the
averages over the fields. The first axis counts the fields, and all points and channels
of a field weigh the same. A tensor with fewer than three axes, such as the (points, c)
of a model without a batch, is one field. Predictions and targets are in the units of
the data: see `Predictive.denormalize`.
"""

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
from .samples import crps_samples, energy_score, variogram_score

__all__ = [
    "coverage",
    "crps_gaussian",
    "crps_samples",
    "energy_score",
    "evaluate",
    "interval_score",
    "miscalibration_area",
    "nll",
    "observed_coverage",
    "rank_correlation",
    "relative_l2",
    "sharpness",
    "variogram_score",
    "width",
]
