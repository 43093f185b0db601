"""A small model with a posterior, and its layer with a wide one."""

import torch
from neuralop.models import FNO

from dinozaur_no import BayesianDiffusionConv, VariationalOperator

WIDE = BayesianDiffusionConv.configure(scale_init=0.5)


def variational_operator(conv=WIDE, d=2, **options):
    torch.manual_seed(0)
    model = FNO((4,) * d, 2, 1, 6, n_layers=2, conv_module=conv)
    return VariationalOperator(model, **options)
