"""Heat diffusion layers for neuraloperator: small, fast, honest about uncertainty."""

from .bayesian import BayesianDiffusionConv
from .conformal import conformalize
from .dense import GradientSpectralConv
from .diffusion import DiffusionSpectralConv
from .dropout import MCDropout
from .ensemble import Ensemble
from .graph import accelerate_gno
from .laplace import LastLayerLaplace
from .predictive import Predictive
from .variational import VariationalOperator
from .variational_training import (
    VariationalLoss,
    parameter_groups,
    propose_prior,
    warm_start,
)

__version__ = "0.1.0"

__all__ = [
    "BayesianDiffusionConv",
    "DiffusionSpectralConv",
    "Ensemble",
    "GradientSpectralConv",
    "LastLayerLaplace",
    "MCDropout",
    "Predictive",
    "VariationalLoss",
    "VariationalOperator",
    "accelerate_gno",
    "conformalize",
    "parameter_groups",
    "propose_prior",
    "warm_start",
]
