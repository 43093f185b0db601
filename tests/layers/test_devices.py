"""Devices without double precision: nothing makes a float64 tensor there."""

import math

import pytest
import torch
from support.devices import DEVICE, no_double_precision
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dinozaur_no import (
    BayesianDiffusionConv,
    Predictive,
    VariationalOperator,
    conformalize,
    metrics,
)


@pytest.fixture(autouse=True)
def _pretend_device():
    with no_double_precision():
        yield


def bayesian(**options):
    return BayesianDiffusionConv(3, 2, (4, 4), device=DEVICE, **options)


def test_the_device_refuses_float64():
    x = torch.ones(3, device=DEVICE)
    with pytest.raises(TypeError, match="float64"):
        x.double()
    with pytest.raises(TypeError, match="float64"):
        torch.zeros(3, dtype=torch.float64, device=DEVICE)
    with pytest.raises(RuntimeError, match="mixes"):
        x + torch.ones(3)
    assert (x + x).cpu().tolist() == [2.0, 2.0, 2.0]


@torch.no_grad()
@pytest.mark.parametrize("method", ["dense", "fft"])
def test_forward(method):
    layer = bayesian(axis_method=method, drift=True)
    y = layer(torch.randn(2, 3, 8, 8, device=DEVICE))
    assert (y.device.type, y.dtype) == (DEVICE, torch.float32)
    assert layer.sample_times(2).device.type == DEVICE
    assert layer.kl_divergence().cpu() > 0


class Narrow(TorchDispatchMode):
    """Refuse float64 everywhere."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            wide = isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float64
            assert not wide, func
        return out


@pytest.mark.parametrize("method", ["dense", "fft"])
def test_backward(method):
    layer = BayesianDiffusionConv(3, 2, (4, 4), axis_method=method, drift=True)
    x = torch.randn(2, 3, 8, 8)
    layer(x)  # makes the tables, from numbers of numpy
    with Narrow():
        layer(x).square().sum().backward()
    assert layer.raw_scale.grad.abs().max() > 0


@pytest.mark.parametrize("place", ["cpu", DEVICE])
def test_setters(place):
    moving = bayesian(drift=True)
    moving.displacement = torch.full((3, 2), 0.5, device=place)
    assert torch.equal(moving.displacement.cpu(), torch.full((3, 2), 0.5))
    layer = bayesian()
    layer.diffusion_time = [0.1, 0.2, 0.3]
    assert torch.allclose(layer.diffusion_time.cpu(), torch.tensor([0.1, 0.2, 0.3]))
    layer.posterior_mean = torch.zeros(3, device=place)
    layer.posterior_scale_tril = torch.eye(3, device=place)
    assert torch.equal(layer.posterior_covariance.cpu(), torch.eye(3))
    layer.set_prior(torch.ones(3, device=place), 2.0)
    expected = 3 * ((1 + 1) / 8 - 0.5 + math.log(2))
    assert math.isclose(layer.kl_divergence().item(), expected, rel_tol=1e-6)


class Affine:
    def __init__(self, slope, mean):
        self.slope = torch.full((), slope, device=DEVICE)
        self.mean = torch.full((), mean, device=DEVICE)

    def inverse_transform(self, x):
        return x * self.slope + self.mean


class Exponential:
    def inverse_transform(self, x):
        return x.exp()


def test_predictive():
    samples = torch.randn(5, 2, 1, 4, device=DEVICE)
    predictive = Predictive.from_samples(samples, 0.1)
    low, high = predictive.interval(0.9)
    assert bool((low < high).all())
    physical = predictive.denormalize(Affine(3.0, 100.0))
    assert torch.allclose(physical.mean.cpu(), 3 * predictive.mean.cpu() + 100)
    assert torch.allclose(physical.std.cpu(), 3 * predictive.std.cpu(), rtol=1e-4)
    with pytest.raises(ValueError, match="not affine"):
        predictive.denormalize(Exponential())
    target = torch.zeros(2, 1, 4, device=DEVICE)
    assert metrics.relative_l2(predictive.mean, target + 1).dtype == torch.float32


@pytest.mark.parametrize("residuals_of", ["samples", "mean"])
@torch.no_grad()
def test_operator(residuals_of):
    operator = VariationalOperator(torch.nn.Sequential(bayesian()).eval())
    x = torch.randn(4, 3, 8, 8, device=DEVICE)
    y = torch.zeros(4, 2, 8, 8, device=DEVICE)
    variance = operator.fit_noise([(x, y)], residuals_of=residuals_of)
    assert variance.item() > 0
    assert operator.raw_noise.device.type == DEVICE


@pytest.mark.parametrize("coverage", ["pointwise", "fieldwise"])
def test_conformal(coverage):
    def predict(x):
        return Predictive(x, torch.ones_like(x), 0.0)

    batches = [
        (torch.zeros(20, 1, n, device=DEVICE), torch.ones(20, 1, n, device=DEVICE))
        for n in (4, 5)
    ]
    found = conformalize(predict, batches, coverage=coverage)
    assert found(batches[0][0]).mean.device.type == DEVICE
