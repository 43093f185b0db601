"""Figures of kernels: their widths and displacements, in the unit of the extent."""

import warnings

import numpy as np
import pytest
import torch
from matplotlib.collections import EllipseCollection
from matplotlib.quiver import Quiver
from neuralop.models import FNO
from support.figures import rendered
from torch import nn

from dinozaur_no import (
    BayesianDiffusionConv,
    DiffusionSpectralConv,
    VariationalOperator,
)
from dinozaur_no.plots import plot_kernels


def model_with(conv=DiffusionSpectralConv, dimension=2, n_layers=2, **options):
    conv = conv.configure(**options)
    return FNO((4,) * dimension, 1, 1, 5, n_layers=n_layers, conv_module=conv)


def layers(model):
    return [m for m in model.modules() if isinstance(m, DiffusionSpectralConv)]


def drawn(ax, kind):
    (found,) = [artist for artist in ax.collections if isinstance(artist, kind)]
    return found


def rows(*columns):
    """Numbers of all kernels, one kernel per row, in an order of their own."""
    table = np.column_stack([np.asarray(c, dtype=float) for c in columns])
    return table[np.lexsort(table.T)]


@pytest.mark.parametrize("conv", [DiffusionSpectralConv, BayesianDiffusionConv])
@pytest.mark.parametrize("kernels", [1, 3])
def test_circles_and_arrows_show_the_kernels(conv, kernels):
    model = model_with(conv, kernels=kernels, drift=True, extent=(2.0, 1.0))
    for layer in layers(model):
        with torch.no_grad():
            layer.raw_time.add_(torch.randn_like(layer.raw_time))
    figure = rendered(plot_kernels(model))
    assert [ax.get_title() for ax in figure.axes] == ["block 1", "block 2"]
    for ax, layer in zip(figure.axes, layers(model), strict=True):
        arrows = layer.displacement.detach().double().reshape(-1, 2).numpy()
        widths = (2 * layer.diffusion_time.detach().double()).sqrt().flatten().numpy()
        circles = drawn(ax, EllipseCollection)
        found = rows(circles.get_offsets(), circles.get_widths(), circles.get_heights())
        np.testing.assert_allclose(found, rows(arrows, 2 * widths, 2 * widths))
        quiver = drawn(ax, Quiver)
        moving = arrows[arrows.any(1)]
        assert len(moving) == 5 * max(1, kernels - 1)
        np.testing.assert_allclose(rows(quiver.U, quiver.V), rows(moving))
        assert not quiver.XY.any()
        assert quiver.scale == 1
        assert ax.get_aspect() == 1
        # Nothing lies outside.
        for limit, along in zip((ax.get_xlim(), ax.get_ylim()), arrows.T, strict=True):
            assert limit[0] < (along - widths).min()
            assert (along + widths).max() < limit[1]
    (bar,) = figure.axes[-1].child_axes
    assert "width" in bar.get_ylabel()


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_without_drift(dimension):
    model = model_with(dimension=dimension, time_init=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = rendered(plot_kernels(model))
    for ax in figure.axes:
        assert len(drawn(ax, Quiver).U) == 0
        if dimension > 1:
            assert not drawn(ax, EllipseCollection).get_offsets().any()


def test_one_dimension_shows_widths_as_heights():
    model = model_with(dimension=1, kernels=2, drift=True, extent=3.0)
    figure = rendered(plot_kernels(model))
    for ax, layer in zip(figure.axes, layers(model), strict=True):
        arrows = layer.displacement[1, :, 0].detach().double()
        widths = (2 * layer.diffusion_time.detach().double()).sqrt()
        quiver = drawn(ax, Quiver)
        found = rows(quiver.XY, quiver.U, quiver.V)
        zero = torch.zeros(5)
        np.testing.assert_allclose(found, rows(zero, widths[1], arrows, zero))
        (points,) = [a for a in ax.collections if not isinstance(a, Quiver)]
        np.testing.assert_allclose(rows(points.get_offsets()), rows(zero, widths[0]))
        assert ax.get_yscale() == "log"


def test_axes_of_space_can_be_chosen():
    model = model_with(dimension=3, n_layers=1, drift=True)
    (layer,) = layers(model)
    for axes in ((0, 1), (2, 0), (-1, 1)):
        figure = rendered(plot_kernels(model, axes=axes))
        quiver = drawn(figure.axes[0], Quiver)
        expected = layer.displacement.detach()[:, list(axes)]
        np.testing.assert_allclose(rows(quiver.U, quiver.V), rows(expected))
        names = [f"${'xyz'[axis]}$" for axis in axes]
        assert [figure.get_supxlabel(), figure.get_supylabel()] == names


def test_a_wrapped_model():
    model = model_with(BayesianDiffusionConv, drift=True, n_layers=6)
    assert len(rendered(plot_kernels(VariationalOperator(model))).axes) == 6


MIXED = nn.Sequential(
    DiffusionSpectralConv(1, 1, (4,)), DiffusionSpectralConv(1, 1, (4, 4))
)
ERRORS = [
    (lambda: plot_kernels(nn.Linear(2, 2)), "contains no DiffusionSpectralConv"),
    (lambda: plot_kernels(3), "model must be a torch Module, got int"),
    (lambda: plot_kernels(MIXED), r"different dimensions \(=\[1, 2\]\)"),
    (lambda: plot_kernels(model_with(), axes=(0, 2)), r"axes \(=2\) must lie between"),
    (lambda: plot_kernels(model_with(), axes=(0,)), "must be two axes of space"),
    (lambda: plot_kernels(model_with(), axes=1), "must be two axes of space"),
    (lambda: plot_kernels(model_with(), axes=(1, -1)), "must differ"),
    (lambda: plot_kernels(model_with(), axes="xy"), r"axes \(='x'\) must be an int"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
