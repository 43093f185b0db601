"""Figures of layers: they show the values of the model."""

import math

import numpy as np
import pytest
import torch
from neuralop.models import FNO
from support.figures import rendered
from torch import nn

from dinozaur_no import (
    BayesianDiffusionConv,
    DiffusionSpectralConv,
    VariationalOperator,
)
from dinozaur_no.plots import plot_covariances, plot_posteriors, plot_times


def model_with(conv, n_layers=3, dimension=2, channels=6):
    modes = (4,) * dimension
    return FNO(modes, 1, 1, channels, n_layers=n_layers, conv_module=conv)


def bayesian(**options):
    """A model with any posterior, a different one in each block."""
    conv = BayesianDiffusionConv.configure(**options)
    model = model_with(conv)
    for layer in layers(model):
        with torch.no_grad():
            layer.raw_time.add_(torch.randn(6))
            layer.raw_scale.copy_(torch.randn(6) - 2)
            if layer.raw_tril is not None:
                layer.raw_tril.copy_(torch.randn(15))
        layer.set_prior(torch.randn(6) - 5, torch.rand(6) + 0.5)
    return model


def layers(model):
    return [m for m in model.modules() if isinstance(m, DiffusionSpectralConv)]


def integral(line):
    x, y = line.get_data()
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2))


@pytest.mark.parametrize("conv", [DiffusionSpectralConv, BayesianDiffusionConv])
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_times_counts_all_channels(conv, dimension):
    model = model_with(conv, n_layers=5, dimension=dimension)
    for layer in layers(model):
        with torch.no_grad():
            layer.raw_time.add_(torch.randn(6))
    figure = rendered(plot_times(model, bins=7))
    assert len(figure.axes) == 5
    for ax, layer in zip(figure.axes, layers(model), strict=True):
        bars = ax.patches
        assert len(bars) == 7
        ends = [bar.get_x() for bar in bars] + [bars[-1].get_x() + bars[-1].get_width()]
        expected, _ = np.histogram(layer.diffusion_time.detach().double(), ends)
        assert [bar.get_height() for bar in bars] == expected.tolist()
        assert expected.sum() == 6
        assert ax.get_xscale() == "log"
        np.testing.assert_allclose(np.diff(np.log(ends)), np.log(ends[1] / ends[0]))
        median = np.exp(np.median(layer.raw_time.detach().numpy()))
        np.testing.assert_allclose(ax.lines[0].get_xdata(), median, rtol=1e-6)
    assert [ax.get_title() for ax in figure.axes] == [f"block {i}" for i in range(1, 6)]


def test_times_of_one_value_one_layer_and_a_wrapped_model():
    conv = DiffusionSpectralConv(4, 4, (4, 4), time_init=0.01)
    (ax,) = rendered(plot_times(conv)).axes
    assert sum(bar.get_height() for bar in ax.patches) == 4
    wrapped = VariationalOperator(model_with(BayesianDiffusionConv))
    assert len(plot_times(wrapped).axes) == 3


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_posteriors(covariance):
    model = bayesian(covariance=covariance)
    figure = rendered(plot_posteriors(VariationalOperator(model)))
    panels, twins = figure.axes[:3], figure.axes[3:]
    assert len(twins) == 3
    for ax, twin, layer in zip(panels, twins, layers(model), strict=True):
        prior, posterior = ax.lines
        assert integral(prior) == pytest.approx(1, abs=2e-3)
        assert integral(posterior) == pytest.approx(1, abs=2e-3)
        at = torch.from_numpy(posterior.get_xdata())[:, None]
        scale = layer.posterior_covariance.diagonal().sqrt()
        for line, m, s in (
            (prior, layer.prior_mean, layer.prior_scale),
            (posterior, layer.posterior_mean, scale),
        ):
            normal = torch.distributions.Normal(m.double(), s.double())
            expected = normal.log_prob(at).exp().mean(1).detach()
            np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-4)
        assert len(twin.lines) == 6
        for line, m, s in zip(twin.lines, layer.posterior_mean, scale, strict=True):
            assert integral(line) == pytest.approx(1, abs=2e-3)
            top = line.get_xdata()[line.get_ydata().argmax()]
            assert top == pytest.approx(m.item(), abs=1e-5)
            peak = 1 / (math.sqrt(2 * math.pi) * s.item())
            assert line.get_ydata().max() == pytest.approx(peak, rel=1e-4)
    (legend,) = figure.legends
    assert len(legend.get_texts()) == 3


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("correlation", [False, True])
def test_covariances(covariance, correlation):
    model = bayesian(covariance=covariance)
    figure = rendered(plot_covariances(model, correlation))
    panels = figure.axes
    (bar,) = panels[-1].child_axes
    limits = set()
    for ax, layer in zip(panels, layers(model), strict=True):
        (image,) = ax.images
        expected = layer.posterior_covariance.detach()
        if correlation:
            scale = expected.diagonal().sqrt()
            expected = expected / (scale[:, None] * scale)
        np.testing.assert_allclose(image.get_array(), expected, atol=1e-6, rtol=1e-5)
        low, high = image.get_clim()
        assert low == -high
        limits.add(high)
    assert len(limits) == 1
    assert ("correlation" if correlation else "covariance") in bar.get_ylabel()
    if correlation:
        assert limits == {1.0}


def test_covariances_with_a_limit():
    figure = plot_covariances(bayesian(), limit=0.5)
    assert figure.axes[0].images[0].get_clim() == (-0.5, 0.5)
    with pytest.raises(ValueError, match=r"limit \(=-1\) must be positive"):
        plot_covariances(bayesian(), limit=-1)


@pytest.mark.parametrize("options", [{"drift": True}, {"kernels": 2, "drift": True}])
def test_several_kernels_and_displacements(options):
    """Every kernel of a channel is shown; displacements are not."""
    model = model_with(BayesianDiffusionConv.configure(**options))
    n = 6 * options.get("kernels", 1)
    for layer in layers(model):
        with torch.no_grad():
            layer.raw_tril.copy_(0.3 * torch.randn_like(layer.raw_tril))
    for ax in rendered(plot_times(model)).axes:
        assert sum(bar.get_height() for bar in ax.patches) == n
    panels = rendered(plot_posteriors(model)).axes
    for ax, twin, layer in zip(panels[:3], panels[3:], layers(model), strict=True):
        assert len(twin.lines) == n
        assert integral(ax.lines[1]) == pytest.approx(1, abs=2e-3)
        peak = max(line.get_ydata().max() for line in twin.lines)
        scale = layer.posterior_covariance.diagonal()[:n].sqrt().min().item()
        assert peak == pytest.approx(1 / (math.sqrt(2 * math.pi) * scale), rel=1e-4)
    for ax, layer in zip(plot_covariances(model).axes, layers(model), strict=True):
        expected = layer.posterior_covariance.detach()[:n, :n]
        np.testing.assert_allclose(
            ax.images[0].get_array(), expected, atol=1e-6, rtol=1e-5
        )


def test_more_panels_than_fit_in_a_row():
    """The last panels of all columns show their numbers."""
    figure = rendered(plot_times(model_with(DiffusionSpectralConv, n_layers=6)))
    assert len(figure.axes) == 6
    shown = [ax.xaxis.get_tick_params()["labelbottom"] for ax in figure.axes]
    assert shown == [False, False, True, True, True, True]


ERRORS = [
    (lambda: plot_times(nn.Linear(2, 2)), "contains no DiffusionSpectralConv; build"),
    (lambda: plot_times(3), "model must be a torch Module, got int"),
    (lambda: plot_times(bayesian(), bins=0), r"bins \(=0\) must be at least 1"),
    (
        lambda: plot_posteriors(model_with(DiffusionSpectralConv)),
        "contains no BayesianDiffusionConv; build it with conv_module=Bayesian",
    ),
    (lambda: plot_covariances(nn.Linear(2, 2)), "contains no BayesianDiffusionConv"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_a_model_that_diverged():
    model = bayesian()
    with torch.no_grad():
        layers(model)[1].raw_time[3] = math.nan
    with pytest.raises(ValueError, match="raw_time in block 2 that is not finite"):
        plot_times(model)
