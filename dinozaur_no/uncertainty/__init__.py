"""Predictive distributions of whole operators, by several methods."""

from .conformal import conformalize
from .dropout import MCDropout
from .ensemble import Ensemble
from .laplace import LastLayerLaplace
from .noise import CorrelatedNoise, WhiteNoise
from .predictive import Predictive
from .training import VariationalLoss, parameter_groups, propose_prior, warm_start
from .variational import VariationalOperator

__all__ = [
    "CorrelatedNoise",
    "Ensemble",
    "LastLayerLaplace",
    "MCDropout",
    "Predictive",
    "VariationalLoss",
    "VariationalOperator",
    "WhiteNoise",
    "conformalize",
    "parameter_groups",
    "propose_prior",
    "warm_start",
]
