"""Predictive distributions of whole operators, by several methods."""

from .amplitude import FieldAmplitude
from .conformal import ConformalPredictor, conformalize
from .deterministic import Deterministic
from .dropout import MCDropout
from .ensemble import Ensemble
from .groups import parameter_groups
from .laplace import LastLayerLaplace
from .noise import CorrelatedNoise, WhiteNoise
from .predictive import Predictive
from .quantities import (
    Quantity,
    field_integral,
    field_maximum,
    field_mean,
    line_values,
    region_difference,
    surface_force,
)
from .training import VariationalLoss, propose_prior, warm_start
from .variational import VariationalOperator

__all__ = [
    "ConformalPredictor",
    "CorrelatedNoise",
    "Deterministic",
    "Ensemble",
    "FieldAmplitude",
    "LastLayerLaplace",
    "MCDropout",
    "Predictive",
    "Quantity",
    "VariationalLoss",
    "VariationalOperator",
    "WhiteNoise",
    "conformalize",
    "field_integral",
    "field_maximum",
    "field_mean",
    "line_values",
    "parameter_groups",
    "propose_prior",
    "region_difference",
    "surface_force",
    "warm_start",
]
