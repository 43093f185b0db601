"""Figures of the learned diffusion times of a model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import nn

from .._validation import positive, positive_int
from ..layers.bayesian import BayesianDiffusionConv
from ..layers.diffusion import DiffusionSpectralConv
from ..uncertainty.noise import modules_outside_noise
from ._style import (
    BLUE,
    COLUMNS,
    GREY,
    LEGEND,
    ORANGE,
    SIGNED,
    SKY,
    Array,
    Figure,
    colour_bar,
    numbers,
    panels,
)


def plot_times(model: nn.Module, *, bins: int = 20) -> Figure:
    """Plot histograms of the learned diffusion times, one panel per block.

    The bins have equal width in ln tau and are the same in all panels. Each kernel of a
    channel counts.

    Parameters
    ----------
    model : nn.Module
        A model with `DiffusionSpectralConv` layers. Those of `BayesianDiffusionConv`
        are shown by their posterior medians.
    bins : int, default 20
        Number of bins.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> from neuralop.models import FNO
    >>> from dinozaur_no import DiffusionSpectralConv
    >>> from dinozaur_no.plots import plot_times
    >>> model = FNO((8, 8), 1, 1, 16, conv_module=DiffusionSpectralConv)
    >>> len(plot_times(model).axes)
    4
    """
    bins = positive_int("bins", bins)
    layers = layers_of(model, DiffusionSpectralConv)
    logs = [numbers(layer.raw_time).ravel() for layer in layers]
    low, high = min(map(np.min, logs)), max(map(np.max, logs))
    if high - low < 1e-3:  # one time for all
        low, high = low - 0.5, high + 0.5
    # The outermost times would fall out of their bins by rounding.
    margin = 1e-6 * (high - low)
    edges = np.exp(np.linspace(low - margin, high + margin, bins + 1))
    figure, axes = panels(len(logs), 2.5, 2.2, sharex=True, sharey=True)
    for number, (ax, log) in enumerate(zip(axes, logs), 1):
        ax.hist(np.exp(log), edges, color=SKY, edgecolor=BLUE, linewidth=0.6)
        ax.axvline(np.exp(np.median(log)), color=ORANGE, linestyle="--")
        ax.set_xscale("log")
        ax.locator_params(axis="y", integer=True)
        ax.set_title(f"block {number}", fontsize="medium")
    figure.legend(axes[0].lines, ["median"], **LEGEND)
    figure.supxlabel(r"diffusion time $\tau$", fontsize="medium")
    figure.supylabel("channels", fontsize="medium")
    return figure


def plot_posteriors(model: nn.Module) -> Figure:
    """Plot prior and posterior densities of ln tau, one panel per block.

    The left axis is for the prior and the posterior of a channel picked at random, that
    is the mean of the channels' densities. The right axis is for the posterior of every
    single channel, a thin line each, as these are narrow and high. Each kernel of a
    channel has a line.

    Parameters
    ----------
    model : nn.Module
        A model with `BayesianDiffusionConv` layers, or a `VariationalOperator`.

    Returns
    -------
    matplotlib.figure.Figure
        Its axes are the panels with the means, followed by those with the channels.
    """
    layers = layers_of(model, BayesianDiffusionConv)
    figure, axes = panels(len(layers), 2.6, 2.3, sharex=True, sharey=True)
    twins: list[Any] = []
    for number, (ax, layer) in enumerate(zip(axes, layers), 1):
        mean = numbers(layer.posterior_mean).ravel()
        scale = np.sqrt(np.diag(_covariance(layer)))
        n = len(mean)  # displacements come behind the times
        prior = numbers(layer.prior_mean)[:n], numbers(layer.prior_scale)[:n]
        # Narrow densities need points of their own.
        at = np.sort(np.append(_support(mean, scale), _support(*prior)))
        twin = ax.twinx()
        if twins:
            twin.sharey(twins[0])
        twins.append(twin)
        for m, s in zip(mean, scale):
            x = _support(m, s)
            twin.plot(x, _density(x, m, s), color=GREY, linewidth=0.6, alpha=0.6)
        ax.plot(at, _mixture(at, *prior), "--", color=ORANGE)
        ax.plot(at, _mixture(at, mean, scale), color=BLUE)
        ax.set_title(f"block {number}", fontsize="medium")
        ax.locator_params(axis="x", nbins=6, integer=True)
        # The means are above the channels, not below.
        ax.set_zorder(twin.get_zorder() + 1)
        ax.patch.set_visible(False)
        twin.tick_params(colors=GREY, right=False, labelright=False)
        if ax.get_subplotspec().is_last_col():
            twin.tick_params(right=True, labelright=True)
            twin.set_ylabel("density, each channel", color=GREY)
    for ax in (axes[0], twins[0]):
        ax.set_ylim(bottom=0)
    figure.supxlabel(r"$\ln \tau$", fontsize="medium")
    figure.supylabel("density", fontsize="medium")
    handles = [*axes[0].lines, twins[0].lines[0]]
    names = ["prior", "posterior, mean of the channels", "posterior of each channel"]
    columns = min(3, 1 + len(layers))
    figure.legend(handles, names, ncols=columns, **LEGEND)
    return figure


def plot_covariances(
    model: nn.Module, correlation: bool = False, *, limit: float | None = None
) -> Figure:
    """Plot the posterior covariance of ln tau between channels, one image per block.

    With several kernels all channels of one kernel come before those of the next one.

    Parameters
    ----------
    model : nn.Module
        A model with `BayesianDiffusionConv` layers, or a `VariationalOperator`.
    correlation : bool, default False
        Whether to show correlations instead: covariances divided by the standard
        deviations.
    limit : float, optional
        Largest absolute value of the colours. By default 1 for correlations, and the
        90 % quantile of the variances for covariances, as a few broad channels would
        leave no colour to the others. An arrow at the colour bar marks larger values.

    Returns
    -------
    matplotlib.figure.Figure
        Its axes are the panels.
    """
    layers = layers_of(model, BayesianDiffusionConv)
    matrices = [_covariance(layer) for layer in layers]
    if correlation:
        matrices = [_correlation(matrix) for matrix in matrices]
    most = max(float(np.abs(matrix).max()) for matrix in matrices)
    if limit is None:
        variances = np.concatenate([np.diag(matrix) for matrix in matrices])
        limit = 1.0 if correlation else float(np.quantile(variances, 0.9))
    limit = positive("limit", limit)
    figure, axes = panels(len(matrices), 2.5, 2.4)
    for number, (ax, matrix) in enumerate(zip(axes, matrices), 1):
        ax.imshow(matrix, cmap=SIGNED, vmin=-limit, vmax=limit, interpolation="nearest")
        ax.set_title(f"block {number}", fontsize="medium")
        ax.locator_params(nbins=4, integer=True)
    what = "correlation" if correlation else "covariance"
    label = rf"posterior {what} of $\ln \tau$"
    extend = "both" if most > 1.0001 * limit else "neither"
    colour_bar(axes[min(COLUMNS, len(axes)) - 1], label=label, extend=extend)
    figure.supxlabel("channel", fontsize="medium")
    figure.supylabel("channel", fontsize="medium")
    return figure


def layers_of(model: nn.Module, kind: type[DiffusionSpectralConv]) -> list[Any]:
    """Return all layers of a kind in a model, from the first to the last."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch Module, got {type(model).__name__}")
    layers = [m for m in modules_outside_noise(model) if isinstance(m, kind)]
    if not layers:
        raise ValueError(
            f"model ({type(model).__name__}) contains no {kind.__name__}; build it "
            f"with conv_module={kind.__name__} (fno_conv_module for GINO and FNOGNO)"
        )
    for number, layer in enumerate(layers, 1):
        for name, parameter in layer.named_parameters(recurse=False):
            if not bool(parameter.isfinite().all()):
                raise ValueError(
                    f"model has {name} in block {number} that is not finite; did the "
                    "training diverge?"
                )
    return layers


def _covariance(layer: BayesianDiffusionConv) -> Array:
    """Return the posterior covariance of ln tau, kernel by kernel."""
    n = layer.raw_time.numel()
    tril = numbers(layer.posterior_scale_tril)[:n, :n]
    covariance: Array = tril @ tril.T
    return covariance


def _correlation(matrix: Array) -> Array:
    scale = np.sqrt(np.diag(matrix))
    correlations: Array = matrix / np.outer(scale, scale)
    return correlations


def _density(x: Array, mean: Any, scale: Any) -> Array:
    """Compute the Gaussian density; broadcasts."""
    distance = (x - mean) / scale
    values: Array = np.exp(-0.5 * distance**2) / (math.sqrt(2 * math.pi) * scale)
    return values


def _support(mean: Any, scale: Any) -> Array:
    """Return points that cover one density, or those of all channels."""
    points: Array = mean + np.multiply.outer(np.linspace(-4, 4, 61), scale)
    return points.ravel()


def _mixture(x: Array, mean: Array, scale: Array) -> Array:
    """Average the channels' densities."""
    total = np.zeros_like(x)
    for m, s in zip(mean, scale):  # one by one, as there can be many
        total += _density(x, m, s)
    average: Array = total / len(mean)
    return average
