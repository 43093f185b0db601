"""Heat diffusion layers for neuraloperator: small, fast, honest about uncertainty."""

from .gno import accelerate_gno
from .layers import (
    BayesianDiffusionConv,
    DiffusionSpectralConv,
    GradientSpectralConv,
)
from .uncertainty import (
    CorrelatedNoise,
    Ensemble,
    LastLayerLaplace,
    MCDropout,
    Predictive,
    VariationalLoss,
    VariationalOperator,
    WhiteNoise,
    conformalize,
    parameter_groups,
    propose_prior,
    warm_start,
)

__version__ = "0.1.0"

__all__ = [
    "BayesianDiffusionConv",
    "CorrelatedNoise",
    "DiffusionSpectralConv",
    "Ensemble",
    "GradientSpectralConv",
    "LastLayerLaplace",
    "MCDropout",
    "Predictive",
    "VariationalLoss",
    "VariationalOperator",
    "WhiteNoise",
    "accelerate_gno",
    "conformalize",
    "parameter_groups",
    "propose_prior",
    "warm_start",
]

# Checkpoints name the package and not a file, so files can move.
for _name in __all__:
    globals()[_name].__module__ = __name__
