"""Heat diffusion layers for neuraloperator: small, fast, honest about uncertainty."""

from .gno import accelerate_gno
from .layers import (
    BayesianDiffusionConv,
    ConditionalBayesianDiffusionConv,
    ConditionalDiffusionConv,
    Conditioned,
    DiffusionSpectralConv,
    GradientSpectralConv,
    condition,
)
from .models import DINOZAUR, DINOZAURGINO, BayesianDINOZAUR
from .recompute import recompute_blocks
from .transfer import (
    CarryOverReport,
    carry_over,
    load_pretrained,
    save_pretrained,
)
from .uncertainty import (
    ConformalPredictor,
    CorrelatedNoise,
    Deterministic,
    Ensemble,
    FieldAmplitude,
    LastLayerLaplace,
    MCDropout,
    Predictive,
    Quantity,
    VariationalLoss,
    VariationalOperator,
    WhiteNoise,
    conformalize,
    field_integral,
    field_maximum,
    field_mean,
    line_values,
    parameter_groups,
    propose_prior,
    region_difference,
    surface_force,
    warm_start,
)

__version__ = "0.2.0"

__all__ = [
    "DINOZAUR",
    "DINOZAURGINO",
    "BayesianDINOZAUR",
    "BayesianDiffusionConv",
    "CarryOverReport",
    "ConditionalBayesianDiffusionConv",
    "ConditionalDiffusionConv",
    "Conditioned",
    "ConformalPredictor",
    "CorrelatedNoise",
    "Deterministic",
    "DiffusionSpectralConv",
    "Ensemble",
    "FieldAmplitude",
    "GradientSpectralConv",
    "LastLayerLaplace",
    "MCDropout",
    "Predictive",
    "Quantity",
    "VariationalLoss",
    "VariationalOperator",
    "WhiteNoise",
    "accelerate_gno",
    "carry_over",
    "condition",
    "conformalize",
    "field_integral",
    "field_maximum",
    "field_mean",
    "line_values",
    "load_pretrained",
    "parameter_groups",
    "propose_prior",
    "recompute_blocks",
    "region_difference",
    "save_pretrained",
    "surface_force",
    "warm_start",
]

# Checkpoints name the package and not a file, so files can move.
for _name in __all__:
    globals()[_name].__module__ = __name__
