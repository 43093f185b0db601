"""A layer as a user writes one; small models with a posterior over the last layer."""

import torch
from neuralop.models import FNO
from support.contract import smooth

from dinozaur_no import DiffusionSpectralConv, LastLayerLaplace


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def small_model(d=2, out_channels=2, **options):
    torch.manual_seed(0)
    return FNO((4,) * d, 2, out_channels, 5, n_layers=2, **options)


def exact_model():
    """In double precision, of which upstream's dense layers are not capable."""
    return small_model(conv_module=DiffusionSpectralConv).double()


def data(n=4, grid=(6, 5), out_channels=2, dtype=torch.float64):
    x = smooth(n, 2, grid).to(dtype)
    return x, torch.randn(n, out_channels, *grid, dtype=dtype)


def fitted(**options):
    x, y = data()
    operator = LastLayerLaplace(exact_model(), **options)
    return operator.fit([(x, y)], progress=False), x, y


def dependent(module):
    """Let all conditional layers of a module depend on their condition."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.rsplit(".", 1)[-1] in ("time_weight", "displacement_weight"):
                parameter.copy_(0.3 * torch.randn_like(parameter))
    return module


class Hot(DiffusionSpectralConv):
    """A subclass as a user writes it, with an option of its own."""

    def __init__(self, *args, warmth: float = 1.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.warmth = warmth

    def forward(self, x, output_shape=None):
        return self.warmth * super().forward(x, output_shape)
