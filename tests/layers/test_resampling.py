"""Skips at another resolution are interpolated by their Fourier series."""

import pytest
import torch
from neuralop.layers.fno_block import FNOBlocks

from dinozaur_no import (
    BayesianDiffusionConv,
    DiffusionSpectralConv,
    GradientSpectralConv,
)

every_conv = pytest.mark.parametrize(
    "conv", [DiffusionSpectralConv, BayesianDiffusionConv, GradientSpectralConv]
)


def cosine(n, d):
    """One cosine along all axes, on n points each."""
    turns = torch.arange(n).double() / n
    along = sum(turns.view([-1] + [1] * j) for j in range(d))
    return torch.cos(2 * torch.pi * along + 0.3).expand(1, 1, *[n] * d)


@every_conv
@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize(("n_in", "n_out"), [(15, 30), (30, 15), (15, 22), (16, 9)])
def test_a_cosine_stays_a_cosine(conv, d, n_in, n_out):
    layer = conv(1, 1, (4,) * d)
    skip = layer.transform(cosine(n_in, d), output_shape=(n_out,) * d)
    assert (skip - cosine(n_out, d)).abs().max() < 1e-11


@every_conv
@pytest.mark.parametrize("d", [1, 2])
def test_by_scaling_factor(conv, d):
    layer = conv(1, 1, (4,) * d, resolution_scaling_factor=2)
    assert (layer.transform(cosine(15, d)) - cosine(30, d)).abs().max() < 1e-11


@pytest.mark.parametrize("d", [1, 2])
def test_skip_of_a_block(d):
    """The block adds an identity to a layer that gives nothing."""
    options = {"fno_skip": "identity", "use_channel_mlp": False, "n_layers": 1}
    conv = DiffusionSpectralConv.configure(gradient_features=False)
    block = FNOBlocks(1, 1, (4,) * d, conv_module=conv, **options).double()
    block.convs[0].diffusion_time = 1e3
    y = block(cosine(15, d), output_shape=(30,) * d)
    assert (y - cosine(30, d)).abs().max() < 1e-11


@pytest.mark.parametrize("method", ["dense", "fft"])
def test_expanded_inputs(method):
    """Some releases of torch refuse the FFT of an input with several strides of 0."""
    layer = DiffusionSpectralConv(3, 2, (4, 4), axis_method=method)
    x = torch.randn(8, 1).expand(2, 3, 8, 8).requires_grad_()
    y = layer(x)
    assert torch.equal(y, layer(x.contiguous()))
    y.sum().backward()
    assert x.grad.isfinite().all()
    assert layer.transform(x, output_shape=(12, 9)).shape == (2, 3, 12, 9)
